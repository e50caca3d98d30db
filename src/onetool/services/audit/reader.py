"""AuditReader: what reads the audit log, in files or in a database; which lines are wanted, and where one is in it."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol

import msgspec

from onetool.core.text import read_span, read_time, utc_text_ms, wanted_name
from onetool.services.audit.record import OK, AuditKind, AuditRecord

MOST_SCANNED = 32 * 1024**2  # bytes that are read for one page, however few of its lines are wanted
SLACK = timedelta(minutes=5)  # that lines of several processes, or of a clock that was put right, are out of order

_decode = msgspec.json.Decoder(AuditRecord).decode


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines are wanted; None: all."""

    since: float | None = None  # seconds since 1970
    until: float | None = None
    who: str | None = None  # a name or an owner; empty for the person who runs the process
    kind: AuditKind | None = None
    tool: str | None = None  # a pattern of what was called or changed: web.*
    outcome: str | None = None  # ok, error, a code, a reason, or a status of HTTP
    args: str | None = None  # the hash of the arguments, as `AuditReader.hash_of` gives it

    def test(self) -> Callable[[AuditRecord], bool]:
        """A function that says whether a line is wanted."""
        since, until = _text(self.since), _text(self.until)
        who = None if self.who is None else wanted_name(self.who)

        def wanted(record: AuditRecord) -> bool:
            return (
                (since is None or record.time >= since)
                and (until is None or record.time < until)
                and (who is None or who in (record.who, record.owner or record.who))
                and (self.kind is None or record.kind == self.kind)
                and (self.tool is None or fnmatchcase(record.what, self.tool))
                and (self.outcome is None or _has_outcome(record, self.outcome))
                and (self.args is None or record.args == self.args)
            )

        return wanted


class AuditPosition(NamedTuple):
    """A place in the log: a file, and how many bytes of it come before. A table has others of the same form."""

    name: str
    offset: int


class AuditPage(NamedTuple):
    """The newest lines first. `before` is where to go on; None at the end of the log."""

    records: list[AuditRecord]
    before: AuditPosition | None
    skipped: int  # lines that can't be read


class AuditReader(Protocol):
    """All methods block, change nothing, and raise OSError. A log that is not there is empty."""

    def describe(self) -> str:
        """Where the log is, for messages."""
        ...

    def hash_of(self, args: Any) -> str | None:
        """The hash that lines of this log have for such arguments; None where there is no key yet."""
        ...

    def page(
        self, wanted: AuditFilter, most: int, before: AuditPosition | None = None, most_scanned: int = MOST_SCANNED
    ) -> AuditPage:
        """At most so many lines, from a position backwards. It may be short, or empty, and still not the last one."""
        ...

    def end(self) -> AuditPosition | None:
        """Where the next line will be; None where there is no log yet."""
        ...

    def start(self, since: float | None) -> AuditPosition | None:
        """Where to begin with the lines since then; None: at the first line."""
        ...

    def read_on(self, after: AuditPosition | None) -> Iterator[tuple[AuditRecord | None, AuditPosition]]:
        """The lines that have come since, the oldest first, each with the position behind it; None for one that is
        none.
        """
        ...


def read_line(line: bytes | str) -> AuditRecord | None:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_moment(text: str, now: float) -> float | None:
    """A time ago (30m, 2h, 7d) or a date as ISO 8601 has it, in UTC unless it says otherwise; None if it is neither."""
    span = read_span(text)
    return read_time(text) if span is None else now - span


# Times and outcomes


def _text(seconds: float | None) -> str | None:
    """As lines have it. Times in this form are in the order of their texts."""
    return None if seconds is None else utc_text_ms(min(max(seconds, 0.0), _LATEST))


_LATEST = 253402300799.0  # the end of the year 9999


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 86_400.0), _LATEST - 86_400), UTC)


def is_too_old(record: AuditRecord, since: float | None) -> bool:
    """So that no line before it is wanted either."""
    return since is not None and record.time < (_text(since - SLACK.total_seconds()) or "")


def _has_outcome(record: AuditRecord, wanted: str) -> bool:
    if wanted == "error":
        return record.failed
    if wanted == OK:
        return record.outcome == OK
    return wanted in (record.outcome, record.reason) or wanted == str(record.status)
