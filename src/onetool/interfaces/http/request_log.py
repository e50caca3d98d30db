"""The access log, and records of requests in the audit log.

The access log has one line per request, on the logger `onetool.access`, without bodies, tokens and queries. The thread
of the app's `Recorder` formats and writes the lines. Clients choose parts of their content, so it is escaped.

The audit log has refusals, logins, changes and administration. Calls are recorded by the executor. Routes set `audit`
in their scope to be recorded. Refused clients must not fill the disk, so frequent refusals are only counted.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock, Timer
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from onetool.core.context import RequestEvent
from onetool.core.principal import Principal
from onetool.core.text import utc_text_ms
from onetool.core.trace import current_trace
from onetool.http.asgi import AUDIT, UNLOGGED, Scope
from onetool.services.journal.recorder import Recorder
from onetool.services.logs import NonBlockingHandler

if TYPE_CHECKING:
    from onetool.app.journal import AppJournal
    from onetool.services.journal.row import AuditKind

log = logging.getLogger("onetool.access")
root_log = logging.getLogger("onetool")

MAX_TEXT = 200  # characters of a string from outside
NOBODY = Principal(name="(nobody)", owner="(nobody)")  # no token has such a name
CLIENT_CLOSED_REQUEST = 499  # the client disconnected before the response
_encode = msgspec.json.Encoder(enc_hook=str).encode


class LoggedRequest(RequestEvent, frozen=True, kw_only=True):
    """A finished request, with additional fields for its line in the access log."""

    path: str
    size: int  # of the response, in bytes
    client: str | None
    more: Mapping[str, Any]  # fields added by the route
    redact: Callable[[str], str] | None = None  # masks secrets in a path that is not a route's

    def fields(self) -> dict[str, Any]:
        """Return the fields of the line."""
        fields: dict[str, Any] = {
            "method": self.method,
            "path": clean(self.path if self.redact is None else _masked(self.path, self.redact)),
            "status": self.status,
            "duration_ms": round(self.seconds * 1000, 2),
            "bytes": self.size,
            "client": self.client,
        }
        if self.trace is not None:
            fields |= self.trace.log_fields()
        more, text = self.more, "".join([value for value in self.more.values() if isinstance(value, str)])
        if len(text) > MAX_TEXT or not text.isprintable():
            more = {key: clean(value) if isinstance(value, str) else value for key, value in more.items()}
        return {**fields, **more} | fields  # a route can't replace a field


def enable_access_log(on: bool) -> None:
    log.setLevel(logging.INFO if on else logging.CRITICAL)


def log_request(
    scope: Scope,
    status: int,
    seconds: float,
    size: int,
    redact: Callable[[str], str],
    route: str = "",
    recorder: Recorder | None = None,
) -> None:
    """Log a request. `scope["log"]` has the fields added by its route.

    `route` is the path of that route, which has no secrets; the rest of the path may have some. The observers of the
    `recorder` see the request, too.
    """
    more = scope["log"]
    if UNLOGGED in more:
        return
    client, path = scope.get("client"), scope.get("raw_path")
    path = scope["path"] if path is None else path.decode("latin-1")
    request = LoggedRequest(
        method=scope["method"],
        route=route,
        status=status,
        seconds=seconds,
        mcp=more.get("mcp", ""),
        trace=current_trace.get(),
        path=path,
        size=size,
        client=client[0] if client else None,
        more=more,
        redact=None if path == route else redact,
    )
    write_entry(request, recorder)


def write_entry(request: LoggedRequest, recorder: Recorder | None = None) -> None:
    """Log a request."""
    is_logged, handler = log.isEnabledFor(logging.INFO), None
    for one in root_log.handlers if is_logged else ():
        if isinstance(one, AccessHandler):
            handler = one
    if (recorder := recorder or (handler and handler.recorder)) is not None:
        recorder.put(_record, request, recorder, handler, size=len(request.path))
    if handler is not None or not is_logged:
        return
    fields = request.fields()
    message = f"{fields['method']} {fields['path']} {fields['status']} {fields['duration_ms']} ms"
    log.info(message, extra={"fields": fields})


def _record(request: LoggedRequest, recorder: Recorder, handler: "AccessHandler | None") -> None:
    """Write the line, and show the request to the observers. Runs in the recorder's thread."""
    if handler is not None:
        handler.add(request)
    recorder.observe(request)


def _masked(path: str, redact: Callable[[str], str]) -> str:
    """Mask secrets in a path. If a secret is percent-encoded, return the decoded path."""
    if "%" in path and redact(plain := unquote(path)) != plain:
        return redact(plain)
    return redact(path)


def clean(text: str) -> str:
    """Shorten text from a client to one line without control characters."""
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + "…"
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


class AccessHandler(NonBlockingHandler):
    """A handler for JSON logs that takes requests without a LogRecord. The recorder's thread writes the lines."""

    def __init__(
        self,
        fd: int,
        formatter: logging.Formatter | None = None,
        recorder: Recorder | None = None,
        replica: str | None = None,
    ) -> None:
        super().__init__(fd, formatter)
        self.recorder = recorder or Recorder()
        self.recorder.writers.append(self._write_lines)
        self._common: dict[str, Any] = {"replica": replica} if replica else {}

    def add(self, request: LoggedRequest) -> None:
        entry = {
            "time": f"{utc_text_ms(request.ended_at)[:-1]}+00:00",
            "level": "info",
            "logger": log.name,
            "message": "",  # has its place before the fields that it is made of
        }
        entry |= request.fields()
        entry["message"] = f"{entry['method']} {entry['path']}"
        entry |= self._common
        try:
            line = _encode(entry)
            # JSON escapes ASCII line breaks, but not U+2028 and others, which end a line for some readers.
            if not line.isascii() and not line.decode().isprintable():
                line = json.dumps(entry, default=str).encode()
        except (TypeError, ValueError, OverflowError):  # a lone surrogate, an infinite number
            line = json.dumps(entry, default=str).encode()
        self._lines.append(line + b"\n")

    def _write_lines(self, is_last: bool) -> None:
        if self._lines:
            self.flush()


# Records of requests in the audit log

REFUSALS = (401, 403, 421, 429)
SIGNED_IN = "onetool.signed_in"  # in the scope: the principal that signed in or out
WINDOW_S = 10.0
MAX_IN_WINDOW = 100  # refusals of one kind


class RequestAudit:
    """A callback that writes every finished request to the audit log."""

    def __init__(self, journal: "AppJournal", login_path: str, clock: Callable[[], float] = monotonic) -> None:
        self._journal = journal
        self._login_path = login_path
        self._logins = RefusalCount(journal, "login", "logins refused", clock)
        self._requests = RefusalCount(journal, "refusal", "requests refused", clock)
        journal.before_close(self.flush)

    def __call__(self, scope: Scope, status: int, seconds: float, route: str | None) -> None:
        """Record the request if required. `route` is the path of its route; the rest of the path is not recorded."""
        if self._journal.audit is None:
            return
        kind, what = scope.get(AUDIT) or (None, "")
        if route == self._login_path and scope["method"] in ("POST", "DELETE"):
            if SIGNED_IN in scope or (status >= 400 and self._logins.is_noted()):
                self._note(scope, "login", "sign in" if scope["method"] == "POST" else "sign out", status, seconds)
        elif status in REFUSALS:
            if self._requests.is_noted(scope.get("principal", NOBODY)):
                self._note(scope, "refusal", what or _request_name(scope, route), status, seconds)
        elif kind is not None:
            self._note(scope, kind, what, status, seconds)

    def flush(self) -> None:
        """Record the refusals that were only counted until now."""
        self._logins.flush()
        self._requests.flush()

    def _note(self, scope: Scope, kind: "AuditKind", what: str, status: int, seconds: float) -> None:
        code = scope["log"].get("error") or "error"
        self._journal.record(
            kind,
            what,
            principal=scope.get(SIGNED_IN) or scope.get("principal") or NOBODY,
            outcome="ok" if status < 400 else code,
            status=status,
            ms=seconds * 1000,
            **_origin(scope),
        )


def _request_name(scope: Scope, route: str | None) -> str:
    """Return the method and the route, without the path that the client chose."""
    return f"{scope['method'][:10]} {route or '(unknown path)'}"


def _origin(scope: Scope) -> dict[str, str]:
    """Return the fields with the address of the client."""
    client = scope.get("client")
    return {"address": str(client[0]) if client else "", "via": "http"}


class RefusalCount:
    """A counter of refusals of one kind. Beyond a limit per window, each caller gets one line with their number.

    The lines are written when the window ends, even without further requests, and when the log is closed. Callers are
    counted separately, so that no caller's refusals hide those of others.
    """

    def __init__(self, journal: "AppJournal", kind: "AuditKind", what: str, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._kind: AuditKind = kind
        self._what = what
        self._clock = clock
        self._lock = Lock()  # the timer has its own thread
        self._window_began = 0.0
        self._in_window, self._left_out = Counter[str](), Counter[Principal]()
        self._timer: Timer | None = None

    def is_noted(self, caller: Principal = NOBODY) -> bool:
        """Return whether another refusal of a caller gets its own line. If not, count it."""
        now = self._clock()
        if now - self._window_began >= WINDOW_S:
            self.flush()
            self._window_began, self._in_window = now, Counter()
        self._in_window[caller.caller] += 1
        if self._in_window[caller.caller] <= MAX_IN_WINDOW:
            return True
        with self._lock:
            self._left_out[caller] += 1
            if self._timer is None:
                timer = Timer(self._window_began + WINDOW_S - now, self.flush)
                timer.daemon = True
                with suppress(RuntimeError):  # no thread available: the next window records the number
                    timer.start()
                    self._timer = timer
        return False

    def flush(self) -> None:
        with self._lock:
            left_out, self._left_out = self._left_out, Counter()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        for caller, count in left_out.items():
            what = f"{count} more {self._what}"
            counted = {"principal": caller, "address": "", "trace": None}  # for many requests
            self._journal.record(self._kind, what, outcome="refused", via="http", **counted)
