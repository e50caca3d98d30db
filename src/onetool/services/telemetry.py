"""Logging: one structured line for an event, on standard error. Plain words when a person reads them."""

import logging
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onetool.core.context import CallEvent, Recorder

log = logging.getLogger("onetool")
calls = logging.getLogger("onetool.call")

LONGEST = 500  # characters of an argument that a log line shows
LEVELS = ("debug", "info", "warning", "error")
# What a record always has; everything beyond it was given by `extra=` and belongs into the line.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(level: str = "warning", stream: TextIO | None = None) -> None:
    """Send our own log to `stream`; other libraries' logging is theirs."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(PlainFormatter() if handler.stream.isatty() else JsonFormatter())
    log.handlers = [handler]
    log.setLevel(level.upper())
    log.propagate = False


def call_log(redact: "Callable[[Any], Any]") -> "Recorder":
    """A recorder: every outcome is one event, a span named after the tool, without secrets."""

    def record(event: "CallEvent") -> None:
        if not calls.isEnabledFor(logging.INFO):
            return
        fields: dict[str, Any] = {
            "span": event.tool,
            "call_id": event.call.id,
            "source": event.call.source,
            "ok": event.ok,
            "duration_ms": event.duration_ms,
            "call_args": _in_short(redact(event.shown_args())),
        }
        if event.error is not None:
            fields |= {"code": event.error.code, "reason": event.error.reason, "error": event.error.message}
        calls.info(event.tool, extra=fields)

    return record


def _in_short(args: "Mapping[str, Any]") -> dict[str, Any]:
    """Arguments for a log line: what is long is cut."""
    return {name: text[:LONGEST] + "…" if len(text := repr(value)) > LONGEST else value for name, value in args.items()}


class JsonFormatter(logging.Formatter):
    """A record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        import json  # a start that has nothing to say does not pay for these
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
    """A record for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        worker = f"worker {number}: " if (number := getattr(record, "worker", None)) else ""
        text = f"{record.levelname.lower()}: {worker}{record.getMessage()}"
        if hasattr(record, "span"):
            text += f" {_outcome(vars(record))}"
        if hint := getattr(record, "hint", None):
            text += f"\n  hint: {hint}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _outcome(fields: dict[str, Any]) -> str:
    """How a span ended, in words."""
    took = f"{fields['duration_ms']:.1f} ms" if "duration_ms" in fields else ""
    why = "" if fields.get("ok", True) else f"failed: {fields.get('error') or fields.get('code')}"
    args = " ".join(f"{name}={value!r:.60}" for name, value in fields.get("call_args", {}).items())
    return " ".join(part for part in (why or "ok", took, args) if part)
