"""`AuditRecord`: a line of the audit log, functions that make it, and filters for lines.

A line has names, but no values. Strings chosen by a client (the name of its program, the id of a call) are shortened
and stripped of control characters. Arguments and names of unknown tools are written only as keyed hashes: equal values
have equal hashes, and short secrets can't be guessed without the key of the log.
"""

import hmac
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_args

import msgspec
from msgspec import Meta

from onetool.core.context import CallEvent, RunEvent
from onetool.core.json_data import sorted_json
from onetool.core.principal import Principal
from onetool.core.text import LAST_SECOND, distinct_name, read_span, read_time, utc_text_ms, wanted_name
from onetool.core.trace import RequestTrace

AuditKind = Literal["call", "change", "login", "approval", "refusal", "admin", "gap"]
KINDS: tuple[AuditKind, ...] = get_args(AuditKind)
OK = "ok"
ANSWERS = ("approved", "declined")  # of a user asked to approve a call
BEGUN = "begun"  # of a line written before the call; a later line with the same id has the outcome

HASH_DIGITS = 16
MAX_WHAT = 300  # characters
MAX_MADE = 2_000
MAX_FIELD = 80  # characters of every other field
_ID = re.compile(r"[\w.:-]{1,80}", re.ASCII)
# Reasons of OneTool. Reasons given by tool authors are not written: they could quote a value.
REASONS = frozenset(
    [
        "audit_unavailable",
        "bad_argument",
        "bad_config",
        "binary",
        "busy",
        "cancelled",
        "cannot_ask",
        "check",
        "config",
        "crashed",
        "declined",
        "denied",
        "expired",
        "malformed",
        "never_awaited",
        "not_found",
        "not_stored",
        "output_invalid",
        "rate_limited",
        "recursion",
        "refused",
        "role_needed",
        "source_unavailable",
        "syntax",
        "timeout",
        "too_large",
        "upstream_error",
    ]
)
_REFUSALS = ("audit_unavailable", "role_needed")  # reasons of calls that did not run


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
        return self.outcome not in (OK, BEGUN, *ANSWERS)


class AuditEntry(msgspec.Struct, kw_only=True):
    """An event for the log. The writing thread turns it into a line."""

    at: float
    kind: AuditKind
    what: str
    principal: Principal
    address: str = ""
    outcome: str = OK
    reason: str | None = None
    status: int | None = None
    via: str = ""
    client: str = ""
    ms: float | None = None
    args: str = ""
    id: str = ""
    run: str | None = None
    made: str = ""
    trace: RequestTrace | None = None
    hosts: tuple[str, ...] = ()
    text: str = ""  # the line, once it was made

    def line(self) -> str:
        self.text = self.text or self._line()
        return self.text

    def _line(self) -> str:
        principal, trace = self.principal, self.trace
        who, owner = distinct_name(principal.name), distinct_name(principal.owner)
        has_owner = owner != who and not principal.shares_local_state  # http.token: derived from the token
        texts = (self.what, self.outcome, self.address, self.via, self.client, self.id, self.run or "", self.made)
        if len(joined := "".join(texts)) > MAX_FIELD or not joined.isprintable():
            texts = map(_cleaned, texts, (MAX_WHAT, *[MAX_FIELD] * 6, MAX_MADE))
        what, outcome, address, via, client, id, run, made = texts
        record = AuditRecord(
            time=utc_text_ms(self.at),
            kind=self.kind,
            what=what,
            outcome=outcome,
            reason=self.reason if self.reason in REASONS else "",
            status=self.status,
            who=who,
            owner=owner if has_owner else "",
            role=principal.role,
            address=address,
            via=via,
            client=client,
            ms=None if self.ms is None else round(self.ms, 3),
            hosts=tuple(_cleaned(host, MAX_FIELD) for host in self.hosts),
            args=self.args,
            id=id,
            run=run,
            made=made,
            request="" if trace is None else trace.request_id,
            own="" if trace is None else trace.own_id,
            trace="" if trace is None else trace.trace_id,
        )
        return _encode(record).decode()


class AuditHasher:
    """A hasher with the key of one log; without a key, all hashes are empty."""

    def __init__(self, key: bytes | None) -> None:
        self.has_key = key is not None
        self._keyed = None if key is None else hmac.new(key, digestmod="sha256")

    def of(self, value: Any) -> str:
        """Return the first 16 hexadecimal digits of the HMAC-SHA256 of sorted JSON; empty without a key."""
        return self.of_json(sorted_json(value)[0])

    def of_json(self, data: bytes) -> str:
        """Return the hash of JSON, as `of` does."""
        if self._keyed is None or not data:
            return ""
        hash = self._keyed.copy()  # faster than hashing the key each time
        hash.update(data)
        return hash.hexdigest()[:HASH_DIGITS]

    def id(self, id: str) -> str:
        """Return the id of a call, or its hash if it isn't a plain id: models and clients choose ids."""
        return id if _ID.fullmatch(id) else self.of(id)


def call_entry(event: CallEvent, at: float, hasher: AuditHasher) -> AuditEntry:
    """Return the entry of a call that has ended.

    A call that the caller isn't allowed to make is a refusal. The name of an unknown tool is hashed, since it may be a
    misplaced secret.
    """
    error, name = event.error, event.tool
    is_refused = error is not None and (error.code == "tool_not_found" or error.reason in _REFUSALS)
    return AuditEntry(
        at=at,
        kind="refusal" if is_refused else "call",
        what=f"unknown tool {hasher.of(name)}".rstrip() if event.spec is None else name,
        principal=event.principal,
        address=event.address,
        outcome=OK if error is None else error.code,
        reason=None if error is None else error.reason,
        via=event.source,
        client=event.client,
        ms=event.duration_ms,
        hosts=event.hosts,
        args=hasher.of_json(event.args),
        id=hasher.id(event.id),
        run=event.run,
        trace=event.trace,
    )


def run_entry(event: RunEvent, at: float, hasher: AuditHasher) -> AuditEntry:
    """Return the entry of a run. Its calls have their own lines, with its id as `run`."""
    error = event.error
    return AuditEntry(
        at=at,
        kind="call",
        what="run",
        principal=event.principal,
        address=event.address,
        outcome=OK if error is None else error.code,
        reason=None if error is None else error.reason,
        via=event.source,
        client=event.client,
        ms=event.duration_ms,
        args=hasher.of({"code": event.code}),
        id=event.id,
        made=event.made,
        trace=event.trace,
    )


def _cleaned(text: str, limit: int) -> str:
    """Return the text shortened and without control characters, safe for a terminal."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


_encode = msgspec.json.Encoder().encode


# Reading

_decode = msgspec.json.Decoder(AuditRecord).decode


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for lines. None matches all."""

    since: float | None = None  # seconds since 1970
    until: float | None = None
    who: str | None = None  # a name or an owner; empty for the user of the process
    kind: AuditKind | None = None
    tool: str | None = None  # a pattern for `what`: web.*
    outcome: str | None = None  # ok, error, a code, a reason, or an HTTP status
    args: str | None = None  # the hash of the arguments: `AuditTable.hash_of`
    request: str | None = None  # an id of the request: the server's, the client's, or the trace id

    def test(self) -> Callable[[AuditRecord], bool]:
        """Return a function that tests a line."""
        since, until = _line_time(self.since), _line_time(self.until)
        who = None if self.who is None else wanted_name(self.who)

        def matches(record: AuditRecord) -> bool:
            return (
                (since is None or record.time >= since)
                and (until is None or record.time < until)
                and (who is None or who in (record.who, record.owner or record.who))
                and (self.kind is None or record.kind == self.kind)
                and (self.tool is None or fnmatchcase(record.what, self.tool))
                and (self.outcome is None or _has_outcome(record, self.outcome))
                and (self.args is None or record.args == self.args)
                and (self.request is None or self.request in (record.request, record.own, record.trace))
            )

        return matches


class AuditPosition(NamedTuple):
    """The time and number of the last line of a page."""

    at: float
    number: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class AuditPage(NamedTuple):
    """A page of lines, newest first. `before` is where the next page begins; None at the end of the log."""

    records: list[AuditRecord]
    before: AuditPosition | None
    skipped: int  # lines that can't be read


class AuditSettings(Protocol):
    """The config's section `audit`."""

    @property
    def mode(self) -> str: ...

    @property
    def retention_days(self) -> int: ...

    @property
    def max_mb(self) -> int: ...


def read_line(line: str) -> AuditRecord | None:
    """Return the record; None if the line is damaged, or was written by a later version."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None


# Times and outcomes


def read_moment(text: str, now: float) -> float | None:
    """Return the time that is a span before now (30m, 2h, 7d), or an ISO 8601 date in UTC; None if invalid."""
    span = read_span(text)
    return read_time(text) if span is None else now - span


def _line_time(seconds: float | None) -> str | None:
    """Return a time in the format of lines, which sorts by time."""
    return None if seconds is None else utc_text_ms(min(max(seconds, 0.0), LAST_SECOND))


def _has_outcome(record: AuditRecord, wanted: str) -> bool:
    if wanted == "error":
        return record.failed
    if wanted == OK:
        return record.outcome == OK
    return wanted in (record.outcome, record.reason) or wanted == str(record.status)
