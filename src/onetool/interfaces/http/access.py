"""The access log: exactly one line a request, on the logger `onetool.access`. No bodies, no tokens, no queries.

It is written for every call, so it is made cheaply. Strangers choose what stands in it, so one line is what it stays.
"""

import json
import logging
from collections.abc import Callable, Mapping
from time import gmtime, strftime, time
from typing import Any

import msgspec

from onetool.interfaces.asgi import Scope
from onetool.interfaces.patient_log import PatientHandler

log = logging.getLogger("onetool.access")
ours = logging.getLogger("onetool")

LONGEST = 200  # characters of a text from outside
GONE = 499  # the client left before there was an answer
_encode = msgspec.json.Encoder(enc_hook=str).encode


# What is the same in all our records: making each of them anew would cost as much as all the rest.
_SAME = vars(logging.LogRecord(log.name, logging.INFO, "", 0, "", None, None))


class Line(logging.LogRecord):
    """A record that is cheap to make. What is told of the request is in `fields`."""

    may_wait = True
    fields: dict[str, Any]

    def __init__(self, message: str, fields: dict[str, Any]) -> None:
        now = time()
        own = _SAME.copy()
        own["msg"] = message
        own["created"] = now
        own["msecs"] = now % 1 * 1000
        own["fields"] = fields
        self.__dict__ = own

    def getMessage(self) -> str:  # noqa: N802 - logging's name
        """For people; where there are fields, these say the rest."""
        return f"{self.msg} {self.fields['status']} {self.fields['duration_ms']} ms"


def switch(on: bool) -> None:
    log.setLevel(logging.INFO if on else logging.CRITICAL)


def write_line(scope: Scope, status: int, seconds: float, size: int, redact: Callable[[str], str]) -> None:
    """Tell of one request. `scope["log"]` holds what its route has to add."""
    if not log.isEnabledFor(logging.INFO):
        return
    client = scope.get("client")
    path = scope.get("raw_path")
    path = scope["path"] if path is None else path.decode("latin-1")
    write(scope["method"], redact(path), status, seconds, size, client[0] if client else None, scope["log"])


def write(
    method: str, path: str, status: int, seconds: float, size: int, client: str | None, more: Mapping[str, Any]
) -> None:
    if not log.isEnabledFor(logging.INFO):
        return
    path = clean(path)
    fields: dict[str, Any] = {
        "method": method,
        "path": path,
        "status": status,
        "duration_ms": round(seconds * 1000, 2),
        "bytes": size,
        "client": client,
    }
    for key, value in more.items():
        fields.setdefault(key, clean(value) if isinstance(value, str) else value)
    message = f"{method} {path}"
    for handler in ours.handlers:
        if take := getattr(handler, "take", None):  # it has no need of a record, which costs as much as all the rest
            take(message, fields)
            return
    # Not by `log.info`: it would look for the line of code that called it.
    log.handle(Line(message, fields))


def clean(text: str) -> str:
    """A text from outside: of bounded length, on one line, and without anything that a terminal would obey."""
    if len(text) > LONGEST:
        text = text[:LONGEST] + "…"
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


class AccessFormatter(logging.Formatter):
    """A request's record as a line of JSON. Every other record goes to the formatter that the log had before."""

    def __init__(self, other: logging.Formatter) -> None:
        super().__init__()
        self._other = other
        self._second = (0, "")

    def format(self, record: logging.LogRecord) -> str:
        if not isinstance(record, Line):
            return self._other.format(record)
        return self.line(record.msg, record.fields, record.created)

    def line(self, message: str, fields: dict[str, Any], now: float) -> str:
        start = {"time": self._time(now), "level": "info", "logger": log.name, "message": message}
        return _on_one_line({**start, **fields})

    def _time(self, now: float) -> str:
        second = int(now)
        if second != self._second[0]:
            self._second = (second, strftime("%Y-%m-%dT%H:%M:%S", gmtime(second)))
        return f"{self._second[1]}.{int(now % 1 * 1000):03d}+00:00"


class AccessHandler(PatientHandler):
    """For a log of JSON lines: those of requests are taken without a record. On the loop."""

    def __init__(self, fd: int, formatter: logging.Formatter | None = None) -> None:
        lines = AccessFormatter(formatter or logging.Formatter())
        super().__init__(fd, lines)
        self._line = lines.line

    def take(self, message: str, fields: dict[str, Any]) -> None:
        self._lines.append(self._line(message, fields, time()).encode("utf-8", "backslashreplace") + b"\n")
        self._written_soon()


def _on_one_line(entry: dict[str, Any]) -> str:
    try:
        line = _encode(entry).decode()
    except (TypeError, ValueError, OverflowError):  # a lone surrogate, a number without end
        return json.dumps(entry, default=str)
    # In ASCII all that could end a line is escaped. Beyond it U+2028 and others are not, and end one for some readers.
    return line if line.isascii() or line.isprintable() else json.dumps(json.loads(line))
