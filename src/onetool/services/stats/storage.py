"""What the stats need of a place that keeps them: a SQLite file (`file`), or tables that replicas share (`tables`).

Both answer the same queries. A query names its parameters `:name`, and has `{…}` where SQLite and PostgreSQL differ:

    {calls} {runs} {replies} {menus} {gaps}   the tables
    {spread}          percentiles of duration_ms, as JSON for `read_spread`
    {bucket}          the number of the stretch of `:bucket` seconds that `at` lies in
    {latest_source}   the source of the latest call of a group
    {unordered}       after a table of which all rows are read
    {tool}            the column, where an index on it must not be used
    {names}           the names of the JSON list `:names`, as a subquery
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from onetool.core.errors import ToolFailure

T = TypeVar("T")
Row = tuple[Any, ...]
Batch = Mapping[str, Sequence[Row]]  # rows by their table

CALLS, RUNS, REPLIES, MENUS, GAPS = "calls", "runs", "replies", "menus", "gaps"
COLUMNS = {  # as rows have them; tokens are computed by the storage
    CALLS: "at, tool, source, door, client, run, ok, code, reason, duration_ms, bytes_in, bytes_out, caller",
    RUNS: "at, id, door, client, ok, code, duration_ms, calls, bytes_in, caller",
    REPLIES: "at, run, bytes_out",
    MENUS: "at, client, door, full_bytes, sent_bytes, caller",
    GAPS: "at, client, duration_ms, caller",
}


class StatsReader(Protocol):
    """Answers queries, all of one moment."""

    def rows(self, query: str, asked: Mapping[str, Any]) -> list[Row]: ...


class StatsStorage(Protocol):
    def write(self, number: int, rows: Batch, timeout: float, sweep_before: float | None) -> None:
        """Write all rows or none, and forget those of before then.

        A batch of the same number is written once, however often this is called. Raises StorageBusyError and
        StorageRefusedError.
        """
        ...

    def read(self, ask: Callable[[StatsReader], T], is_patient: bool) -> T:
        """Raises UnreadableError. `is_patient`: somebody waits for exactly this."""
        ...


class StorageBusyError(Exception):
    """It can't be written now; later it can. `is_unknown`: the rows may have been written."""

    def __init__(self, why: str, is_unknown: bool = False) -> None:
        super().__init__(why)
        self.is_unknown = is_unknown


class StorageRefusedError(Exception):
    """These rows can't be written. `is_final`: no others, either."""

    def __init__(self, why: str, is_final: bool) -> None:
        super().__init__(why)
        self.is_final = is_final


class UnreadableError(ToolFailure):
    """The stats are there, and can't be read. `never`: why nothing can be written, either."""

    def __init__(self, why: str, never: str | None = None, reason: str = "source_unavailable") -> None:
        super().__init__(f"stats can't be read: {why}", reason=reason)
        self.never = never
