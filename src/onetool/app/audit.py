"""AppAudit: the audit log of an app that is served over HTTP, and of commands that change access.

An app that isn't served records nothing: its calls are made by the user who runs the process.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from onetool.app.database import open_state
from onetool.core.errors import ConfigError, Mistake
from onetool.core.redaction import mask_credentials
from onetool.database import DatabaseError

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.core.call import ToolCall
    from onetool.core.context import RunEvent
    from onetool.database import Database
    from onetool.services.audit import AuditKind, AuditLog, AuditTable

MAX_PAGES = 100  # to search for client names
GAP_DAYS = 7  # for which `onetool check` reports lost lines


class AppAudit:
    """The audit log of an app. Closed until `open`; with `audit: none` it stays closed until a reload changes that.

    `database` returns the database of the current config.
    """

    def __init__(self, config: "Config", database: "Callable[[], Database]") -> None:
        self._config = config
        self._database = database
        self.log: AuditLog | None = None
        self._is_served = False
        self._lock = Lock()
        self._before_close: list[Callable[[], None]] = []

    def open(self) -> None:
        """Start the log, because the app is served from now on."""
        self._is_served = True
        self._update()

    def set_config(self, config: "Config") -> None:
        self._config = config
        self._update()

    def close(self) -> None:
        self._is_served = False
        self._update()

    def before_close(self, flush: Callable[[], None]) -> None:
        """Call `flush` before a log is closed, so that the caller can record events that it has only counted."""
        self._before_close.append(flush)

    def health(self) -> dict[str, Any] | None:
        """Return the problems with the log; None if it has none."""
        log = self.log
        if log is None or (log.problem is None and not log.lost):
            return None
        why = {"problem": log.problem} if log.problem else {}
        return {"status": "degraded", **why, "lost": log.lost}

    # What happened

    def record(self, kind: "AuditKind", what: str, **more: Any) -> None:
        if (log := self.log) is not None:
            log.record(kind, what, **more)

    async def begin(self, kind: "AuditKind", what: str, **more: Any) -> None:
        """Record that an action begins, if the log is required. Raises AuditUnavailableError."""
        log = self.log
        if log is not None and log.is_required:
            from asyncio import to_thread

            entry = log.entry(kind, what, outcome="begun", **more)
            await to_thread(log.write_entry, entry)

    def before_call(self, call: "ToolCall") -> Callable[[], None] | None:
        """Return the function that the executor runs in a thread before a call; None if the log is not required."""
        log = self.log
        if log is None or not log.is_required:
            return None
        entry = log.call_begun(call)
        return lambda: log.write_entry(entry)

    def before_run(self, event: "RunEvent") -> Callable[[], None] | None:
        """Return the function that the engine runs in a thread before a run; None if the log is not required."""
        log = self.log
        if log is None or not log.is_required:
            return None
        entry = log.run_begun(event)
        return lambda: log.write_entry(entry)

    def _update(self) -> None:
        with self._lock:
            config, log = self._config, self.log
            database = self._database() if self._is_served and config.audit.mode != "none" else None
            if log is not None and log.table.database is database:
                log.set_config(config.audit)
                return
            for flush in self._before_close if log is not None else ():
                flush()
            self.log = None if database is None else _new_log(database, config)
        if log is not None:
            log.close()


@contextmanager
def noted_command(
    config: "Config", what: str, *, waits: bool = True, typos: tuple[type[Exception], ...] = ()
) -> Generator[None]:
    """Record a command that changes state, such as `tokens add ci`, and whether it was refused. Mistyped commands
    aren't recorded.

    With `audit: required`, a line is written before the command begins. If that fails, AuditUnavailableError is raised,
    unless the command never `waits` for the log, such as a revocation.
    """
    if config.audit.mode == "none":
        yield
        return
    what = mask_credentials(what)  # a user may have typed a token instead of its name
    is_begun = config.audit.mode == "required" and waits
    if is_begun:
        with _opened(config) as log:
            log.write("admin", what, outcome="begun", via="cli")
    outcome = "error"
    try:
        yield
        outcome = "ok"
    except typos:
        outcome = "error" if is_begun else ""
        raise
    finally:
        if outcome:
            with _opened(config) as log:
                log.record("admin", what, outcome=outcome, via="cli")


@contextmanager
def audit_table(config: "Config") -> "Generator[AuditTable]":
    """Open the audit log of a config for reading. Creates nothing."""
    from onetool.services.audit import AuditTable

    with open_state(config) as database:
        yield AuditTable(database)


def anonymous_clients(config: "Config", since: float) -> list[str]:
    """Return the names that clients without a credential have given for themselves since a time.

    The last name is empty if some clients gave none. Raises DatabaseError, and ConfigError if there is no database.
    """
    from onetool.services.audit.record import AuditFilter

    wanted, names, before = AuditFilter(since=since, who="", kind="call"), set[str](), None
    with audit_table(config) as table:
        for _ in range(MAX_PAGES):
            page = table.page(wanted, 1000, before)
            names |= {one.client for one in page.records if one.via != "cli"}
            if (before := page.before) is None:
                break
    return sorted(names, key=lambda name: (not name, name))


def audit_mistakes(config: "Config") -> Iterator[Mistake]:
    """Yield the problems with the log for `onetool check`: it can't be used, or lines were lost recently."""
    if config.audit.mode == "none":
        return
    from time import time

    from onetool.services.audit.record import AuditFilter

    try:
        with audit_table(config) as table:
            place = table.describe()
            gaps = table.page(AuditFilter(kind="gap", since=time() - GAP_DAYS * 86_400), 100).records
            if gaps or table.end() > 1:
                table.made_key()  # a transaction that writes nothing
    except (DatabaseError, ConfigError) as error:
        if config.database is None:  # problems with a shared database are reported separately
            required = config.audit.mode == "required"
            effect = "`onetool serve` refuses all calls" if required else "lines are lost"
            message = f"the audit log can't be written: {error}; {effect}"
            yield Mistake(message=message, key="audit", severity="error" if required else "warning")
        return
    for one in gaps:
        yield Mistake(message=f"{one.what}, until {one.time}", file=place, key="audit", severity="warning")


@contextmanager
def _opened(config: "Config") -> "Generator[AuditLog]":
    """Open the log for a command. Raises ConfigError if the database can't be used."""
    with open_state(config) as database:
        log = _new_log(database, config)
        try:
            yield log
        finally:
            log.close()


def _new_log(database: "Database", config: "Config") -> "AuditLog":
    from onetool.services.audit import AuditLog

    return AuditLog(database, config.audit)
