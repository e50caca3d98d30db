"""AppAudit: the audit log of an app while it is served over HTTP, and of commands that change who may do what.

An app that nobody serves notes nothing: its calls are those of the person who runs the process.
"""

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.core.call import ToolCall
    from onetool.core.context import CallEvent, RunEvent
    from onetool.services.audit import AuditKind, AuditLog

FOLDER = "audit"  # of the state


class AppAudit:
    """Closed until `open`. With `audit: none` it stays closed, until a reload says otherwise."""

    def __init__(self, config: "Config") -> None:
        self._config = config
        self._log: AuditLog | None = None
        self._is_served = False
        self._lock = Lock()

    def open(self) -> None:
        """The app is served from now on."""
        self._is_served = True
        self._follow()

    def set_config(self, config: "Config") -> None:
        self._config = config
        self._follow()

    def close(self) -> None:
        self._is_served = False
        self._follow()

    @property
    def log(self) -> "AuditLog | None":
        return self._log

    @property
    def is_required(self) -> bool:
        return self._log is not None and self._log.is_required

    def health(self) -> dict[str, Any] | None:
        """What is wrong with the log, if anything is."""
        log = self._log
        if log is None or (log.problem is None and not log.lost):
            return None
        why = {"problem": log.problem} if log.problem else {}
        return {"status": "degraded", **why, "lost": log.lost}

    # What happened

    def record(self, kind: "AuditKind", what: str, **more: Any) -> None:
        if (log := self._log) is not None:
            log.record(kind, what, **more)

    def record_call(self, event: "CallEvent") -> None:
        if (log := self._log) is not None:
            log.record_call(event)

    def record_run(self, event: "RunEvent") -> None:
        if (log := self._log) is not None:
            log.record_run(event)

    async def begin(self, kind: "AuditKind", what: str, **more: Any) -> None:
        """Where the log is required: write that something begins. Raises AuditUnavailableError."""
        log = self._log
        if log is not None and log.is_required:
            from asyncio import to_thread

            entry = log.entry(kind, what, outcome="begun", **more)
            await to_thread(log.write_entry, entry)

    def before_call(self, call: "ToolCall") -> Callable[[], None] | None:
        """What the executor has to do before a call, in a thread; None where the log is not required."""
        log = self._log
        if log is None or not log.is_required:
            return None
        entry = log.call_begun(call)
        return lambda: log.write_entry(entry)

    def _follow(self) -> None:
        with self._lock:
            config, log = self._config, self._log
            folder = config.home / FOLDER if self._is_served and config.audit.mode != "none" else None
            if log is not None and log.folder == folder:
                log.set_config(config.audit)
                return
            self._log = None if folder is None else _opened(config)
        if log is not None:
            log.close()


def record_command(config: "Config", what: str, outcome: str = "ok") -> None:
    """Note what a command has changed, such as `tokens add ci`. With `required` AuditUnavailableError is raised where
    that can't be written: so call it before the change.
    """
    if config.audit.mode == "none":
        return
    log = _opened(config)
    try:
        if log.is_required:
            log.write("admin", what, outcome=outcome, via="cli")
        else:
            log.record("admin", what, outcome=outcome, via="cli")
    finally:
        log.close()


def _opened(config: "Config") -> "AuditLog":
    from onetool.services.audit import AuditLog

    return AuditLog(config.home / FOLDER, config.audit)
