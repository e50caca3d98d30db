"""`Stats`: summaries of calls, runs, menus and waiting times, a view of the journal.

Replicas share a database, so figures include all replicas. Only the sizes of arguments and values are stored.
"""

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from onetool.core.text import wanted_name
from onetool.services.journal.row import MAX_NAME, cleaned
from onetool.services.journal.table import Query, UnreadableError, read_nothing

if TYPE_CHECKING:  # loaded on demand: most processes only record
    from onetool.services.journal import Journal
    from onetool.services.journal.summary import Summary
    from onetool.services.journal.usage import StatsFilter, StatsOverview, ToolUsage

log = logging.getLogger("onetool.journal")
T = TypeVar("T")


class Stats:
    """A reader of the stats. `caller` is an owner, and limits the figures to this owner's calls."""

    def __init__(self, journal: "Journal", inline_bytes: int = 16_384, now: Callable[[], float] | None = None) -> None:
        """Values count as at most `inline_bytes`, since larger ones are sent as a handle."""
        self.journal = journal
        self._inline = inline_bytes
        self._now = now or journal.table.database.now
        self._has_warned = False

    def facts(self, tool: str | None = None, caller: str | None = None) -> dict[str, Any]:
        """Return facts about one tool or all: calls, success_rate (percent), median_ms, last_called."""
        from onetool.services.journal.summary import CallFilter, tool_facts

        selected = CallFilter(None, _stored_name(tool), _wanted(caller))
        try:
            return self._read(lambda query: tool_facts(query, selected))
        except UnreadableError as error:  # tools are shown without facts
            if not self._has_warned and self.journal.problem is None:
                self._has_warned = True
                log.warning("%s", error)
            return read_nothing(lambda query: tool_facts(query, selected))

    def summary(self, period: str = "all", tool: str | None = None, caller: str | None = None) -> "Summary":
        """Return the summary of a period: day, week, month or all. Raises ValueError, UnreadableError."""
        from onetool.services.journal.summary import PERIODS, summarize

        if period not in PERIODS:
            raise ValueError(f"unknown period {period!r:.60} (expected {', '.join(PERIODS)})")
        only, inline, caller = _stored_name(tool), self._inline, _wanted(caller)
        return self._read(lambda query: summarize(query, PERIODS[period], only, self._now(), inline, caller))

    def usage(self, names: Collection[str], days: int, caller: str | None = None) -> "ToolUsage":
        """Return the recent usage of a tool that was recorded under these names. Raises UnreadableError."""
        from onetool.services.journal.usage import tool_usage

        counted = [cleaned(name, MAX_NAME) for name in names]
        caller = _wanted(caller)
        return self._read(lambda query: tool_usage(query, counted, days, self._now(), caller))

    def overview(self, wanted: "StatsFilter") -> "StatsOverview":
        """Return the recent usage by the selected calls. Raises UnreadableError."""
        from onetool.services.journal.usage import stats_overview

        wanted = msgspec.structs.replace(wanted, tool=_stored_name(wanted.tool), caller=_wanted(wanted.caller))
        return self._read(lambda query: stats_overview(query, wanted, self._now(), self._inline))

    def _read(self, ask: Callable[[Query], T]) -> T:
        self.journal.flush()
        return self.journal.table.read(ask)


def _stored_name(tool: str | None) -> str | None:
    return None if tool is None else cleaned(tool, MAX_NAME)


def _wanted(caller: str | None) -> str | None:
    """Return an owner in the form that rows use; an owner read from a row is unchanged."""
    return None if caller is None else wanted_name(caller)
