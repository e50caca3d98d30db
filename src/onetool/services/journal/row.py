"""Rows of the journal, made from events.

A row has names, but no values. The stats count the rows with a `tool`, and keep sizes. The audit log has the rows with
a `what`: they say who called, from where. Text chosen by a client (the name of its program, the id of a call) is
shortened, and loses its control characters. Arguments and names of unknown tools are in the audit log only as keyed
hashes: equal values have equal hashes, and short secrets can't be guessed without the key of the database.
"""

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from onetool.core.call import DRAFT
from onetool.core.context import CallEvent, RunEvent
from onetool.core.json_data import sorted_json
from onetool.core.principal import Principal
from onetool.core.text import distinct_name
from onetool.core.trace import RequestTrace

AuditKind = Literal["call", "change", "login", "approval", "refusal", "admin", "gap"]
KINDS: tuple[AuditKind, ...] = get_args(AuditKind)
OK = "ok"
ANSWERS = ("approved", "declined")  # of a user asked to approve a call
BEGUN = "begun"  # of a row written before the call; a later row with the same id has the outcome

HASH_DIGITS = 16
MAX_NAME = 300  # characters of a tool's name
MAX_MADE = 2_000
MAX_FIELD = 100  # characters of every other field
_ID = re.compile(r"[\w.:-]{1,80}", re.ASCII)
_WORD = re.compile(r"[\w.-]{1,60}", re.ASCII)  # a longer reason may quote a value
# Reasons of OneTool. The audit log leaves out others: a tool's author could have quoted a value.
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

Redact = Callable[[Any], Any]


class JournalRow(NamedTuple):
    """A row of the table `events`."""

    at: float
    kind: str
    tool: str | None = None
    what: str | None = None
    source: str = ""
    via: str = ""
    client: str = ""
    who: str | None = None
    owner: str = ""
    role: str | None = None
    address: str | None = None
    outcome: str = OK
    reason: str | None = None
    status: int | None = None
    ms: float | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    run: str | None = None
    id: str | None = None
    args: str | None = None
    hosts: str | None = None
    made: str | None = None
    request: str | None = None
    own: str | None = None
    trace: str | None = None


COLUMNS = ", ".join(JournalRow._fields)


class Entry(msgspec.Struct, kw_only=True):
    """An action for the audit log alone: a request, a login, a call that begins."""

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


class ArgumentHasher:
    """A hasher with the key of one database; without a key, all hashes are empty."""

    def __init__(self, key: bytes | None) -> None:
        self._keyed = None
        if key is not None:
            import hmac  # loads OpenSSL: only for the audit log

            self._keyed = hmac.new(key, digestmod="sha256")

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


class RowMaker(msgspec.Struct, kw_only=True):
    """A maker of rows. Without `hasher`, rows are not part of the audit log; without `counts`, not of the stats.

    `redact` masks the secrets of the config in texts that others chose.
    """

    counts: bool = True
    hasher: ArgumentHasher | None = None
    redact: Redact = lambda texts: texts

    def of_call(self, event: CallEvent, at: float) -> JournalRow:
        """Return the row of a call that has ended.

        A call that the caller isn't allowed to make is a refusal.
        """
        error, hasher, what, args, id = event.error, self.hasher, None, None, None
        kind, outcome, reason = "call", OK, None
        if error is not None:
            outcome, reason = cleaned(error.code), error.reason
            if outcome == "tool_not_found" or reason in _REFUSALS:
                kind = "refusal"
        if hasher is not None:
            # The name of an unknown tool may be a misplaced secret.
            is_known = event.spec is not None or event.is_wrapper
            what = event.tool if is_known else f"unknown tool {hasher.of(event.tool)}".rstrip()
            args, id = hasher.of_json(event.args), hasher.id(event.id)
        is_counted = self.counts and event.source != DRAFT
        tool, what, client, reason = self._cleaned(event.tool if is_counted else None, what, event.client, reason)
        return JournalRow(
            at=at,
            kind=kind,
            tool=tool,
            what=what,
            source="" if event.spec is None else cleaned(event.spec.source),
            via=cleaned(event.source),
            client=client,
            outcome=outcome,
            reason=reason if is_counted or reason in REASONS else None,
            ms=event.duration_ms,
            bytes_in=event.bytes_in if is_counted else None,
            bytes_out=event.bytes_out if is_counted else None,
            run=None if event.run is None else cleaned(event.run),
            id=id,
            args=args,
            hosts=None if hasher is None or not event.hosts else " ".join(map(cleaned, event.hosts)),
            **self._origin(event.principal, event.address, event.trace),
        )

    def of_run(self, event: RunEvent, at: float) -> JournalRow:
        """Return the row of a run. Its calls have their own rows, with its id as `run`."""
        error, hasher = event.error, self.hasher
        reason = None if error is None else error.reason
        what = None if hasher is None else "run"
        _, what, client, reason = self._cleaned(None, what, event.client, reason)
        return JournalRow(
            at=at,
            kind="run",
            what=what,
            via=cleaned(event.source),
            client=client,
            outcome=OK if error is None else cleaned(error.code),
            reason=reason if reason in REASONS else None,
            ms=event.duration_ms,
            bytes_in=event.code_bytes if self.counts else None,
            id=cleaned(event.id),
            args=None if hasher is None else hasher.of({"code": event.code}),
            made=None if hasher is None or not event.made else cleaned(event.made, MAX_MADE),
            **self._origin(event.principal, event.address, event.trace),
        )

    def of_entry(self, entry: Entry) -> JournalRow:
        _, what, client, reason = self._cleaned(None, entry.what, entry.client, entry.reason)
        return JournalRow(
            at=entry.at,
            kind=entry.kind,
            what=what,
            via=cleaned(entry.via),
            client=client,
            outcome=cleaned(entry.outcome),
            reason=reason if reason in REASONS else None,
            status=entry.status,
            ms=entry.ms,
            run=None if entry.run is None else cleaned(entry.run),
            id=cleaned(entry.id),
            args=entry.args,
            made=cleaned(entry.made, MAX_MADE),
            **self._origin(entry.principal, entry.address, entry.trace),
        )

    def of_figures(
        self,
        kind: Literal["reply", "menu", "wait"],
        at: float,
        *,
        via: str = "",
        client: str = "",
        owner: str = "",
        **figures: Any,
    ) -> JournalRow:
        """Return the row of a reply to a run, of a menu that was sent, or of the time that a client waited."""
        _, _, client, _ = self._cleaned(None, None, client, None)
        return JournalRow(at, kind, via=cleaned(via), client=client, owner=distinct_name(owner), **figures)

    def _cleaned(
        self, tool: str | None, what: str | None, client: str, reason: str | None
    ) -> tuple[str | None, str | None, str, str | None]:
        """Return the texts that others chose: short, printable and without secrets."""
        tool, what, client, reason = self.redact([tool, what, client, reason])
        return (
            tool and cleaned(tool, MAX_NAME),
            what and cleaned(what, MAX_NAME),
            cleaned(client),
            reason if reason is not None and _WORD.fullmatch(reason) else None,
        )

    def _origin(self, principal: Principal, address: str, trace: RequestTrace | None) -> dict[str, Any]:
        """Return the columns that say whose request made this row. Only the owner is for the stats, too."""
        found: dict[str, Any] = {"owner": distinct_name(principal.lasting_owner)}
        if self.hasher is not None:
            found.update(who=distinct_name(principal.name), role=principal.role, address=cleaned(address))
            if trace is not None:
                found.update(request=trace.request_id, own=trace.own_id, trace=trace.trace_id)
        return found


def cleaned(text: str, limit: int = MAX_FIELD) -> str:
    """Return the text shortened and without control characters, safe for a terminal and a database."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
