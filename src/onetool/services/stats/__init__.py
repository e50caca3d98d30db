"""UsageStats: records calls, runs, menus and waiting times, and summarises them.

Replicas share a database, so figures include all replicas.

Only the sizes of arguments and values are stored.
"""

import logging
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize

import msgspec

from onetool.core.context import CallEvent, RunEvent
from onetool.core.text import distinct_name, wanted_name
from onetool.database.connection import CALL_WAIT_S
from onetool.services.event_queue import Recorder
from onetool.services.stats.store import (
    CALLS,
    GAPS,
    MENUS,
    REPLIES,
    RUNS,
    StatsReader,
    StatsStore,
    UnreadableError,
    read_nothing,
)
from onetool.services.stats.writer import Writer

if TYPE_CHECKING:  # loaded on demand: most processes only record
    from onetool.database import Database
    from onetool.services.stats.summary import Summary
    from onetool.services.stats.usage import StatsFilter, StatsOverview, ToolUsage

log = logging.getLogger("onetool.stats")
T = TypeVar("T")

MAX_WAIT = 300.0  # seconds; a client that takes longer is counted as idle
_MAX_NAME_LENGTH = 300
_MAX_LABEL_LENGTH = 100  # of clients, interfaces and sources
_REASON = re.compile(r"[\w.-]{1,60}", re.ASCII)  # a word; a longer string may quote a value


class UsageStats:
    """A recorder of calls, runs, replies and menus. `record` and `record_*` are thread-safe and never raise.

    Rows wait in memory, and are written every few seconds by the thread of the `recorder`, before a read, and at the
    end. If they can't be written, this is logged once.
    """

    def __init__(
        self,
        database: "Database",
        retention_days: int = 90,
        now: Callable[[], float] | None = None,
        inline_bytes: int = 16_384,
        redact: Callable[[Any], Any] = lambda rows: rows,
        recorder: Recorder | None = None,
        max_rows: int = 5_000_000,
    ) -> None:
        """Record into `database`. Values count as at most `inline_bytes`, since larger ones are sent as a handle.

        Reads wait for the events of the `recorder`.
        """
        self._store = StatsStore(database)
        self._inline = inline_bytes
        self._now = now or database.now
        self._has_warned = False
        self._writer = Writer(self._store, retention_days * 86_400, self._now, redact)
        self._store.max_rows = max_rows
        self._recorder = recorder
        if recorder is not None:
            recorder.writers.append(self._writer.write)
            # A reload creates new stats. At exit, the recorder still writes rows of these.
            finalize(self, recorder.writers.remove, self._writer.write).atexit = False
        finalize(self, self._writer.write, is_last=True)

    # Recording

    def record(self, event: CallEvent) -> None:
        spec, error = event.spec, event.error
        reason = error.reason if error is not None else None
        row = (
            self._now(),
            _name(event.tool, _MAX_NAME_LENGTH),
            "" if spec is None else _name(spec.source),
            _name(event.source),
            _name(event.client),
            event.run,
            int(error is None),
            None if error is None else error.code,
            reason if reason is not None and _REASON.fullmatch(reason) else None,
            event.duration_ms,
            event.bytes_in,
            event.bytes_out,
            distinct_name(event.principal.lasting_owner),
        )
        self._writer.rows[CALLS].append(row)

    def record_run(self, event: RunEvent) -> None:
        error = event.error
        code = None if error is None else error.code
        source, client = _name(event.source), _name(event.client)
        measured = (event.duration_ms, event.calls, event.code_bytes)
        caller = distinct_name(event.principal.lasting_owner)
        self._add(RUNS, event.id, source, client, int(error is None), code, *measured, caller)

    def record_reply(self, run: str, size: int) -> None:
        """Record the size of the reply to a run, in bytes."""
        self._add(REPLIES, run, size)

    def record_menu(self, client: str, source: str, full_bytes: int, sent_bytes: int, owner: str = "") -> None:
        """Record that a client was sent a menu; `full_bytes` is the size of a list of all tools."""
        self._add(MENUS, _name(client), _name(source), full_bytes, sent_bytes, distinct_name(owner))

    def record_gap(self, client: str, seconds: float, owner: str = "") -> None:
        """Record the seconds from our answer to the client's next call. Long gaps are ignored: the client was idle."""
        if 0 <= seconds <= MAX_WAIT:
            self._add(GAPS, _name(client), seconds * 1000, distinct_name(owner))

    def flush(self, timeout: float = CALL_WAIT_S) -> None:
        if self._recorder is not None:
            self._recorder.flush()
        self._writer.flush(timeout)

    # Reading. `caller` is an owner, and limits the figures to this owner's calls.

    def facts(self, tool: str | None = None, caller: str | None = None) -> dict[str, Any]:
        """Return facts about one tool or all: calls, success_rate (percent), median_ms, last_called."""
        from onetool.services.stats.summary import CallFilter, tool_facts

        selected = CallFilter(None, self._filter(tool), _wanted(caller))
        return self._read(lambda reader: tool_facts(reader, selected))

    def summary(self, period: str = "all", tool: str | None = None, caller: str | None = None) -> "Summary":
        """Return the summary of a period: day, week, month or all. Raises ValueError, UnreadableError."""
        from onetool.services.stats.summary import PERIODS, summarize

        if period not in PERIODS:
            raise ValueError(f"unknown period {period!r:.60} (expected {', '.join(PERIODS)})")
        only, inline, caller = self._filter(tool), self._inline, _wanted(caller)
        return self._read(lambda one: summarize(one, PERIODS[period], only, self._now(), inline, caller), strict=True)

    def usage(self, names: Collection[str], days: int, caller: str | None = None) -> "ToolUsage":
        """Return the recent usage of a tool that was recorded under these names. Raises UnreadableError."""
        from onetool.services.stats.usage import tool_usage

        counted = [_name(name, _MAX_NAME_LENGTH) for name in names]
        caller = _wanted(caller)
        return self._read(lambda reader: tool_usage(reader, counted, days, self._now(), caller), strict=True)

    def overview(self, wanted: "StatsFilter") -> "StatsOverview":
        """Return the recent usage by the selected calls. Raises UnreadableError."""
        from onetool.services.stats.usage import stats_overview

        wanted = msgspec.structs.replace(wanted, tool=self._filter(wanted.tool), caller=_wanted(wanted.caller))
        return self._read(lambda reader: stats_overview(reader, wanted, self._now(), self._inline), strict=True)

    def _filter(self, tool: str | None) -> str | None:
        return None if tool is None else _name(tool, _MAX_NAME_LENGTH)

    def health(self) -> dict[str, Any] | None:
        """Return the problem, and the number of waiting and dropped rows; None if all is well."""
        writer = self._writer
        if writer.problem is None and not writer.dropped:
            return None
        why = {"problem": writer.problem} if writer.problem else {}
        return {"status": "degraded", **why, "waiting": writer.waiting, "dropped": writer.dropped}

    def _read(self, ask: Callable[[StatsReader], T], strict: bool = False) -> T:
        """Run a query. Unreadable stats count as empty; with `strict`, raise UnreadableError."""
        self.flush()
        try:
            return self._store.read(ask)
        except UnreadableError as error:
            if strict:
                raise
            if not self._has_warned and not self._writer.is_off:
                self._has_warned = True
                log.warning("%s", error)
        return read_nothing(ask)

    def _add(self, table: str, *cells: Any) -> None:
        self._writer.rows[table].append((self._now(), *cells))


def _name(text: str, longest: int = _MAX_LABEL_LENGTH) -> str:
    if len(text) <= longest and text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text[:longest])


def _wanted(caller: str | None) -> str | None:
    """Return an owner in the form that rows use; an owner read from a row is unchanged."""
    return None if caller is None else wanted_name(caller)
