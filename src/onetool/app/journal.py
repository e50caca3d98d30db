"""AppJournal: the journal of an app, and the audit log of commands that change access.

An app that isn't served has no audit log: its calls are made by the user who runs the process.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import Lock
from time import time
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
    from onetool.services.journal import Journal, JournalSettings
    from onetool.services.journal.audit import AuditLog
    from onetool.services.journal.recorder import Recorder
    from onetool.services.journal.row import AuditKind

MAX_PAGES = 100  # to search for client names
GAP_DAYS = 7  # for which `onetool check` reports lost lines


class AppJournal:
    """The journal of an app: closed until `start`. It has an audit log from `open` on, unless the config has none.

    `database` returns the database of the current config.
    """

    def __init__(self, config: "Config", database: "Callable[[], Database]", recorder: "Recorder") -> None:
        self._config = config
        self._database = database
        self._recorder = recorder
        self.current: Journal | None = None
        self._is_started = self._is_served = False
        self._lock = Lock()
        self._before_close: list[Callable[[], None]] = []

    def start(self) -> "Journal | None":
        """Return the journal, because calls begin; None if the config records none. Raises ConfigError."""
        if not self._is_started:
            with self._lock:  # others wait until it is there
                if not self._is_started:
                    self._update()
                    self._is_started = True
        return self.current

    def open(self) -> None:
        """Record who calls, because the app is served from now on."""
        with self._lock:
            self._is_served = True
            self._update()
            self._is_started = True

    def set_config(self, config: "Config") -> None:
        self._recorder.flush()  # what has happened belongs to the old settings
        with self._lock:
            self._config = config
            if self._is_started:
                self._update()

    def close(self) -> None:
        with self._lock:
            self._replace(None)
            self._is_started = self._is_served = False

    def before_close(self, flush: Callable[[], None]) -> None:
        """Call `flush` before the audit log ends, so that the caller can record events that it has only counted."""
        self._before_close.append(flush)

    @property
    def audit(self) -> "Journal | None":
        """The journal, if it has an audit log."""
        journal = self.current
        return None if journal is None or not journal.settings.audits else journal

    def flush(self) -> None:
        if self.current is not None:
            self.current.flush()

    def health(self) -> dict[str, Any] | None:
        """Return the problems with the journal; None if it has none."""
        return None if self.current is None else self.current.health()

    # What happened

    def record(self, kind: "AuditKind", what: str, **more: Any) -> None:
        """Add a line to the audit log, if there is one."""
        if (journal := self.audit) is not None:
            journal.record(journal.entry(kind, what, **more))

    async def begin(self, kind: "AuditKind", what: str, **more: Any) -> None:
        """Record that an action begins, if the log is required. Raises AuditUnavailableError."""
        journal = self.audit
        if journal is not None and journal.settings.is_required:
            from asyncio import to_thread

            entry = journal.entry(kind, what, outcome="begun", **more)
            await to_thread(journal.require, entry)

    def before(self, event: "ToolCall | RunEvent") -> Callable[[], None] | None:
        """Return the function to run in a thread before a call or a run; None if the log is not required."""
        journal = self.audit
        if journal is None or not journal.settings.is_required:
            return None
        entry = journal.begun(event)
        return lambda: journal.require(entry)

    def _update(self) -> None:
        config = self._config
        settings = journal_settings(config, audits=self._is_served and config.audit.mode != "none")
        database = self._database() if settings.counts or settings.audits else None
        if self.current is not None and self.current.table.database is database:
            if self.current.settings.audits and not settings.audits:
                self._end_audit()
            self.current.set_config(settings)
        elif database is not None:
            from onetool.services.journal import Journal

            self._replace(Journal(database, self._recorder, settings))
        else:
            self._replace(None)

    def _replace(self, journal: "Journal | None") -> None:
        if self.audit is not None:
            self._end_audit()
        if self.current is not None:
            self._recorder.flush()
        before, self.current = self.current, journal
        if before is not None:
            before.close()

    def _end_audit(self) -> None:
        for flush in self._before_close:
            flush()


def journal_settings(config: "Config", *, counts: bool = True, audits: bool) -> "JournalSettings":
    """Return the settings of a journal. The longer of the two times counts for all rows."""
    from onetool.services.journal import JournalSettings

    return JournalSettings(
        counts=counts and config.stats.enabled,
        audits=audits,
        is_required=audits and config.audit.mode == "required",
        retention_days=max(config.stats.retention_days, config.audit.retention_days),
        max_rows=config.stats.max_rows,
        max_mb=config.audit.max_mb,
        redact=config.secrets.redact_data,
    )


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
        with _opened(config) as journal:
            journal.require(journal.entry("admin", what, outcome="begun", via="cli"))
    outcome = "error"
    try:
        yield
        outcome = "ok"
    except typos:
        outcome = "error" if is_begun else ""
        raise
    finally:
        if outcome:
            with _opened(config) as journal:
                journal.record(journal.entry("admin", what, outcome=outcome, via="cli"))


@contextmanager
def audit_log(config: "Config") -> "Generator[AuditLog]":
    """Open the audit log of a config for reading. Creates nothing."""
    from onetool.services.journal.audit import AuditLog

    with open_state(config) as database:
        yield AuditLog(database)


def anonymous_clients(config: "Config", since: float) -> list[str]:
    """Return the names that clients without a credential have reported since this time.

    The last name is empty if some clients gave none. Raises DatabaseError, and ConfigError if there is no database.
    """
    from onetool.services.journal.audit import AuditFilter

    wanted, names, before = AuditFilter(since=since, who="", kind="call"), set[str](), None
    with audit_log(config) as log:
        for _ in range(MAX_PAGES):
            page = log.page(wanted, 1000, before)
            names |= {one.client for one in page.records if one.via != "cli"}
            if (before := page.before) is None:
                break
    return sorted(names, key=lambda name: (not name, name))


def audit_mistakes(config: "Config") -> Iterator[Mistake]:
    """Yield the problems with the log for `onetool check`: it can't be used, or lines were lost recently."""
    if config.audit.mode == "none":
        return
    from onetool.services.journal.audit import AuditFilter

    try:
        with audit_log(config) as log:
            place = log.describe()
            gaps = log.page(AuditFilter(kind="gap", since=time() - GAP_DAYS * 86_400), 100).records
            if gaps or not log.is_empty():
                log.table.key(creates=True)  # a transaction that writes nothing
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
def _opened(config: "Config") -> "Generator[Journal]":
    """Open the audit log for a command. Raises ConfigError if the database can't be used."""
    from onetool.services.journal import Journal

    with open_state(config) as database:
        journal = Journal(database, settings=journal_settings(config, counts=False, audits=True))
        try:
            yield journal
        finally:
            journal.close()
