"""Logging: one JSON line per event on standard error, or plain text on a terminal.

A server's log never blocks (`make_log_non_blocking`). A plain handler blocks in `write` when a pipe without a reader is
full, and with it every client. This one drops lines instead.

Every command imports this module, so it imports little.
"""

import logging
import os
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from onetool.core.context import CallEvent

log = logging.getLogger("onetool")
calls = logging.getLogger("onetool.call")

MAX_ARGUMENT_LENGTH = 500  # characters of an argument that a log line shows
MAX_LINES = 1000  # that wait for a slow reader
LEVELS = ("debug", "info", "warning", "error")
# The attributes of every record; further ones come from `extra=` and belong in the line.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(level: str = "warning", stream: TextIO | None = None) -> None:
    """Send OneTool's log to `stream`. Loggers of other libraries are not touched."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(PlainFormatter() if handler.stream.isatty() else JsonFormatter())
    log.handlers = [handler]
    log.setLevel(level.upper())
    log.propagate = False


def log_call(event: "CallEvent", redact: Callable[[Any], Any]) -> None:
    """Log the outcome of a call as a span named after the tool, without secrets."""
    if not calls.isEnabledFor(logging.INFO):
        return
    args = {
        name: text[:MAX_ARGUMENT_LENGTH] + "…" if len(text := repr(value)) > MAX_ARGUMENT_LENGTH else value
        for name, value in redact(event.shown_args()).items()
    }
    fields: dict[str, Any] = {
        "span": event.tool,
        "call_id": event.id,
        "source": event.source,
        **({} if event.trace is None else event.trace.log_fields()),
        "ok": event.ok,
        "duration_ms": event.duration_ms,
        "call_args": args,
    }
    if event.error is not None:
        from onetool.core.redaction import mask_credentials

        fields |= {
            "code": event.error.code,
            "reason": event.error.reason,
            "error": mask_credentials(event.error.message),
        }
    calls.info(event.tool, extra=fields)


def add_to_log_lines(**fields: Any) -> None:
    """Add fields to every line that this process logs from now on, such as the number of a worker."""
    make = logging.getLogRecordFactory()

    def make_with_fields(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        vars(record).update(fields)
        return record

    logging.setLogRecordFactory(make_with_fields)


class JsonFormatter(logging.Formatter):
    """A formatter of records as JSON lines."""

    def format(self, record: logging.LogRecord) -> str:
        import json  # imported late: a command that logs nothing starts faster
        from datetime import UTC, datetime

        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


class PlainFormatter(logging.Formatter):
    """A formatter of records for a user at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        worker = f"worker {number}: " if (number := getattr(record, "worker", None)) else ""
        text = f"{record.levelname.lower()}: {worker}{record.getMessage()}"
        if hasattr(record, "span"):
            fields = vars(record)
            outcome = "ok" if fields.get("ok", True) else f"failed: {fields.get('error') or fields.get('code')}"
            duration = f"{fields['duration_ms']:.1f} ms" if "duration_ms" in fields else ""
            args = (f"{name}={value!r:.60}" for name, value in fields.get("call_args", {}).items())
            text = " ".join(filter(None, (text, outcome, duration, *args)))
        if hint := getattr(record, "hint", None):
            text += f"\n  hint: {hint}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


# A log that never blocks


class NonBlockingHandler(logging.Handler):
    """A handler that writes while the file descriptor is writable, and otherwise keeps the last MAX_LINES lines."""

    def __init__(self, fd: int, formatter: logging.Formatter | None = None) -> None:
        import select

        super().__init__()
        self.setFormatter(formatter)
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._lost = 0
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        self._ready = poll.poll
        self._most = select.PIPE_BUF  # bytes that a writable pipe takes without blocking

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record).encode("utf-8", "backslashreplace") + b"\n")
        except Exception:  # noqa: BLE001 - as in every handler of `logging`
            self.handleError(record)
            return
        self.flush()

    def flush(self) -> None:
        """Write as many lines as the descriptor takes without blocking."""
        self.acquire()
        try:
            while self._lines and self._ready(0):
                piece = self._lines.popleft()
                while self._lines and len(piece) + len(self._lines[0]) <= self._most:
                    piece += self._lines.popleft()
                with suppress(OSError):  # the reader is gone
                    piece = piece[os.write(self._fd, piece[: self._most]) :]
                    if piece:
                        self._lines.appendleft(piece)
            while len(self._lines) > MAX_LINES:
                del self._lines[1]  # the first may be half written
                self._lost += 1
            if self._lost and not self._lines:
                text = f"{self._lost} log lines were lost: they were not read in time"
                self._lost = 0
                self.emit(logging.LogRecord(log.name, logging.WARNING, "", 0, text, None, None))
        finally:
            self.release()

    def close(self) -> None:
        self.flush()
        super().close()


def make_log_non_blocking(
    in_pipes: Callable[[int, logging.Formatter], NonBlockingHandler] = NonBlockingHandler,
) -> None:
    """Replace OneTool's log handlers with non-blocking ones. `in_pipes` is the class for pipes and files."""
    import select

    if not hasattr(select, "poll"):
        return
    for index, handler in enumerate(log.handlers):
        if isinstance(handler, logging.StreamHandler) and handler.formatter is not None:
            handler.flush()
            make = NonBlockingHandler if handler.stream.isatty() else in_pipes
            log.handlers[index] = make(handler.stream.fileno(), handler.formatter)
