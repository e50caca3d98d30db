"""The audit log, a view of the journal: `AuditRecord`, filters, and pages.

Pages are ordered by time, since a process may write its rows late. `read_on` follows the log by number, so that none is
missed.
"""

import math
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from onetool.core.principal import is_pattern
from onetool.core.text import LAST_SECOND, read_span, read_time, utc_text_ms, wanted_name
from onetool.database import Database, Row
from onetool.services.journal.row import ANSWERS, BEGUN, OK, REASONS, ArgumentHasher, AuditKind
from onetool.services.journal.table import EventTable

MAX_READ, MIN_READ = 1_000, 100  # rows per query
LAST = 2**63 - 1  # number
_COLUMNS = (
    "at, number, kind, what, outcome, reason, status, who, owner, role, address, via, client, ms, hosts, "
    "args, id, run, made, request, own, trace"
)
_SUCCEEDED = (OK, BEGUN, *ANSWERS)


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. Empty fields are omitted."""

    time: Annotated[str, Meta(description="UTC, with milliseconds.")]
    kind: AuditKind
    what: Annotated[str, Meta(description="The tool, or a request: PUT /tools/bundles/…")]
    outcome: Annotated[str, Meta(description="ok, approved, declined, begun (see a later line), or the error's code.")]
    reason: Annotated[str, Meta(description="The specific cause of an error.")] = ""
    status: Annotated[int | None, Meta(description="The HTTP status of a request.")] = None
    who: Annotated[str, Meta(description="The principal; empty for the person who runs the process.")] = ""
    owner: Annotated[str, Meta(description="The owner of the data, if not `who`.")] = ""
    role: str = ""
    address: Annotated[str, Meta(description="The address of the client.")] = msgspec.field(default="", name="from")
    via: Annotated[str, Meta(description="The interface: mcp, rest, ask, run, http, cli, draft (a trial).")] = ""
    client: Annotated[str, Meta(description="The name that the client program gives itself.")] = ""
    ms: float | None = None
    hosts: Annotated[tuple[str, ...], Meta(description="For a trial: the hosts of its requests.")] = ()
    args: Annotated[str, Meta(description="A keyed hash of the arguments: equal arguments have equal hashes.")] = ""
    id: Annotated[str, Meta(description="The id of the call.")] = ""
    run: Annotated[str, Meta(description="The run whose code made the call.")] = ""
    made: Annotated[str, Meta(description="For a cancelled run: the outcomes of its calls.")] = ""
    request: Annotated[str, Meta(description="The id of the HTTP request, possibly chosen by its client.")] = ""
    own: Annotated[str, Meta(description="The server's own id of the same request.")] = ""
    trace: Annotated[str, Meta(description="The W3C trace id of the request.")] = ""

    @property
    def failed(self) -> bool:
        return self.outcome not in _SUCCEEDED


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for lines. None matches all."""

    since: float | None = None  # seconds since 1970
    until: float | None = None
    who: str | None = None  # a name or an owner; empty for the user of the process
    kind: AuditKind | None = None
    tool: str | None = None  # a pattern for `what`: web.*
    outcome: str | None = None  # ok, error, a code, a reason, or an HTTP status
    args: str | None = None  # the hash of the arguments: `AuditLog.hash_of`
    request: str | None = None  # an id of the request: the server's, the client's, or the trace id

    def sql(self) -> tuple[str, list[Any]]:
        """Return the condition for rows of the journal, and its parameters. A pattern may select too many rows."""
        conditions, params = ["what IS NOT NULL"], list[Any]()

        def add(condition: str, *values: Any) -> None:
            conditions.append(condition)
            params.extend(values)

        if self.since is not None:
            add("at >= %s", self.since)
        if self.until is not None:
            add("at < %s", self.until)
        if self.who is not None:
            name = wanted_name(self.who)
            add("(who = %s OR (owner <> '' AND owner = %s))", name, name)
        if self.kind is not None:
            add("kind IN ('call', 'run')" if self.kind == "call" else "kind = %s", *[self.kind] * (self.kind != "call"))
        if self.tool is not None:
            add("what LIKE %s ESCAPE '\\'", _like(self.tool)) if is_pattern(self.tool) else add("what = %s", self.tool)
        if self.outcome == "error":
            add(f"outcome NOT IN ({', '.join(['%s'] * len(_SUCCEEDED))})", *_SUCCEEDED)
        elif self.outcome is not None:
            reason = self.outcome if self.outcome in REASONS else None
            add("(outcome = %s OR reason = %s OR CAST(status AS text) = %s)", self.outcome, reason, self.outcome)
        if self.args is not None:
            add("args = %s", self.args)
        if self.request is not None:
            add("%s IN (request, own, trace)", self.request)
        return " AND ".join(conditions), params

    def fits(self, record: AuditRecord) -> bool:
        """Return whether a selected line matches the pattern, too."""
        return self.tool is None or fnmatchcase(record.what, self.tool)


class AuditPosition(NamedTuple):
    """The time and number of the last line of a page."""

    at: float
    number: Annotated[int, Meta(ge=0 - LAST, le=LAST)]


class AuditPage(NamedTuple):
    """A page of lines, newest first. `before` is where the next page begins; None at the end of the log."""

    records: list[AuditRecord]
    before: AuditPosition | None


class AuditLog:
    """A reader of the audit log. Reading creates nothing: without a database, the log is empty."""

    def __init__(self, table: EventTable | Database) -> None:
        self.table = table if isinstance(table, EventTable) else EventTable(table)

    def describe(self) -> str:
        return f"the table events of {self.table.database.describe()}"

    def page(
        self, wanted: AuditFilter, limit: int, before: AuditPosition | None = None, *, end: int = LAST
    ) -> AuditPage:
        """Return at most `limit` lines with numbers below `end`, newest first."""
        self.table.takeover.finish()
        condition, params = wanted.sql()
        at_once = min(max(limit, MIN_READ), MAX_READ)
        sql = (
            f"SELECT {_COLUMNS} FROM events WHERE {condition} AND (at, number) < (%s, %s) AND number < %s "  # noqa: S608
            f"ORDER BY at DESC, number DESC LIMIT {at_once}"
        )
        found, before = list[AuditRecord](), before or AuditPosition(math.inf, LAST)
        while rows := self.table.rows(sql, (*params, *before, end)):
            for row in rows:
                before = AuditPosition(row[0], row[1])
                if wanted.fits(record := _record(row)):
                    found.append(record)
                if len(found) >= limit:
                    return AuditPage(found, before)
            if len(rows) < at_once:
                break
        return AuditPage(found, None)

    def end(self) -> int:
        """Return the number after the last row."""
        [(last,)] = self.table.rows("SELECT max(number) FROM events")
        return max(last or 0, 0) + 1

    def is_empty(self) -> bool:
        return not self.table.rows("SELECT 1 FROM events LIMIT 1")

    def read_on(self, wanted: AuditFilter, start: int = -LAST, end: int = LAST) -> Iterator[AuditRecord]:
        """Yield the matching lines with these numbers, in the order in which they were written."""
        self.table.takeover.finish()
        condition, params = wanted.sql()
        condition += f" AND number >= %s AND number < %s ORDER BY number LIMIT {MAX_READ}"
        sql = f"SELECT {_COLUMNS} FROM events WHERE {condition}"  # noqa: S608 - names of ours
        while rows := self.table.rows(sql, (*params, start, end)):
            yield from filter(wanted.fits, map(_record, rows))
            start = rows[-1][1] + 1

    def hash_of(self, args: Any) -> str:
        return ArgumentHasher(self.table.key()).of(args)


def _record(row: Row) -> AuditRecord:
    at, _, kind, what, outcome, reason, status, who, owner, role, address, via, client, ms, hosts, *texts = row
    args, id, run, made, request, own, trace = (text or "" for text in texts)
    return AuditRecord(
        time=utc_text_ms(min(max(at, 0.0), LAST_SECOND)),
        kind="call" if kind == "run" else kind,
        what=what,
        outcome=outcome,
        reason=reason if reason in REASONS else "",  # the stats keep others, too
        status=status,
        who=who or "",
        owner=owner if owner != who else "",
        role=role or "",
        address=address or "",
        via=via,
        client=client,
        ms=None if ms is None else round(ms, 3),
        hosts=tuple(hosts.split()) if hosts else (),
        args=args,
        id=id,
        run=run,
        made=made,
        request=request,
        own=own,
        trace=trace,
    )


def _like(pattern: str) -> str:
    """Return a LIKE pattern that matches at least what the pattern of a tool matches."""
    prefix = ""
    for sign in pattern:
        if sign in "*?[":
            break
        prefix += f"\\{sign}" if sign in "%_\\" else sign
    return f"{prefix}%"


def read_moment(text: str, now: float) -> float | None:
    """Return the time that is a span before now (30m, 2h, 7d), or an ISO 8601 date in UTC; None if invalid."""
    span = read_span(text)
    return read_time(text) if span is None else now - span
