"""AppAudit: the audit log of an app while it is served over HTTP, and of commands that change who may do what.

An app that nobody serves notes nothing: its calls are those of the person who runs the process.
"""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from onetool.core.errors import Mistake

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.core.call import ToolCall
    from onetool.core.context import CallEvent, RunEvent
    from onetool.services.audit import AuditKind, AuditLog

FOLDER = "audit"  # of the state
TOLD_DAYS = 7  # for which `onetool check` tells of lines that were lost


class AppAudit:
    """Closed until `open`. With `audit: none` it stays closed, until a reload says otherwise."""

    def __init__(self, config: "Config") -> None:
        self._config = config
        self._log: AuditLog | None = None
        self._is_served = False
        self._lock = Lock()
        self._before_close: list[Callable[[], None]] = []

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

    def before_close(self, flush: Callable[[], None]) -> None:
        """Have this called before a log is closed: it may note what it has only counted."""
        self._before_close.append(flush)

    @property
    def log(self) -> "AuditLog | None":
        return self._log

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
            for flush in self._before_close if log is not None else ():
                flush()
            self._log = None if folder is None else _opened(config)
        if log is not None:
            log.close()


@contextmanager
def noted_command(config: "Config", what: str) -> Generator[None]:
    """Note what a command changes, such as `tokens add ci`, and how it went.

    With `required` a line says before that it begins. Where that can't be written, AuditUnavailableError is raised.
    """
    if config.audit.mode == "none":
        yield
        return
    log, outcome = _opened(config), "error"
    try:
        if log.is_required:
            log.write("admin", what, outcome="begun", via="cli")
        try:
            yield
            outcome = "ok"
        finally:
            log.record("admin", what, outcome=outcome, via="cli")
    finally:
        log.close()


def record_command(config: "Config", what: str, even_if_required: bool = False) -> None:
    """Note what a command has changed, such as `tokens revoke ci`.

    With `required` AuditUnavailableError is raised where that can't be written. What must never wait for a log, such as
    a revocation, goes on `even_if_required`.
    """
    if config.audit.mode == "none":
        return
    log = _opened(config)
    try:
        if log.is_required and not even_if_required:
            log.write("admin", what, via="cli")
        else:
            log.record("admin", what, via="cli")
    finally:
        log.close()


def audit_mistakes(config: "Config") -> Iterator[Mistake]:
    """What `onetool check` says of the log: that it can't be written, or that lines were lost in the last days."""
    folder = config.home / FOLDER
    if config.audit.mode == "none" or not os.path.lexists(folder):
        return
    from time import time

    from onetool.services.audit.files import AuditFiles
    from onetool.services.audit.reading import AuditFilter, read_page

    required = config.audit.mode == "required"
    _, error = AuditFiles(folder, config.audit, time).append([])
    if error is not None:
        then = "nothing is called by way of `onetool serve`" if required else "lines are lost"
        message = f"the audit log can't be written: {error.strerror or error}; {then}"
        yield Mistake(message=message, file=str(folder), key="audit", severity="error" if required else "warning")
        return
    lost = read_page(folder, AuditFilter(kind="gap", since=time() - TOLD_DAYS * 86_400), 100).records
    for one in lost:
        yield Mistake(message=f"{one.what}, until {one.time}", file=str(folder), key="audit", severity="warning")


def _opened(config: "Config") -> "AuditLog":
    from onetool.services.audit import AuditLog

    return AuditLog(config.home / FOLDER, config.audit)
