"""The usage of one tool over some days: totals, a series, and its last calls and errors."""

import json
from collections.abc import Collection, Mapping, Sequence
from math import floor
from typing import Any

import msgspec

from onetool.services.stats.spread import read_spread
from onetool.services.stats.storage import StatsReader
from onetool.services.stats.summary import DAY, HOUR, iso

MOST_HOURLY_DAYS = 2
MOST_LAST = 20

_CHOSEN = "FROM {calls} WHERE tool IN ({names}) AND (CAST(:caller AS text) IS NULL OR caller = :caller)"
_TOTALS = f"SELECT count(*), coalesce(sum(1 - ok), 0), {{spread}} {_CHOSEN} AND at >= :since"
_LAST_CALLED = f"SELECT max(at) {_CHOSEN}"
_SERIES = f"SELECT {{bucket}}, count(*), sum(1 - ok), {{spread}} {_CHOSEN} AND at >= :since GROUP BY 1"
_ERRORS = f"SELECT at, code, reason, client, caller {_CHOSEN} AND at >= :since AND ok = 0 ORDER BY at DESC LIMIT :most"
_RECENT = f"SELECT at, ok, duration_ms, door, client, caller {_CHOSEN} AND at >= :since ORDER BY at DESC LIMIT :most"


class UsageLatency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds; null where there was no call."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class UsageBucket(msgspec.Struct, frozen=True, kw_only=True):
    """An hour or a day. `at` is its beginning."""

    at: str
    calls: int
    errors: int
    p50: float | None
    p95: float | None


class UsageFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A call that failed. What its caller was told is not kept: it may quote what was sent."""

    at: str
    code: str
    message: str  # the finer cause in a word, or the code again
    client: str | None
    caller: str | None


class UsageCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    at: str
    ok: bool
    duration_ms: float
    source: str
    client: str | None
    caller: str | None  # the name of a token, or `iss|sub`


class ToolUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was counted of one tool. Nothing of arguments and values is."""

    enabled: bool = True
    calls: int = 0
    errors: int = 0
    last_called_at: str | None = None
    latency: UsageLatency = UsageLatency()
    series: tuple[UsageBucket, ...] = ()
    last_errors: tuple[UsageFailure, ...] = ()
    recent: tuple[UsageCall, ...] = ()


NOT_COUNTED = ToolUsage(enabled=False)


def tool_usage(
    reader: StatsReader, names: Collection[str], days: int, now: float, caller: str | None = None
) -> ToolUsage:
    """`names` are those that its calls are counted under; with `caller`, only the calls of this one."""
    asked = {"names": json.dumps(sorted(names)), "since": now - days * DAY, "most": MOST_LAST, "caller": caller}
    ((calls, errors, spread),) = reader.rows(_TOTALS, asked)
    last = reader.rows(_LAST_CALLED, asked)[0][0]
    latency = read_spread(spread)
    return ToolUsage(
        calls=calls,
        errors=errors,
        last_called_at=None if last is None else iso(last),
        latency=UsageLatency(p50=latency.p50, p95=latency.p95, p99=latency.p99),
        series=tuple(usage_series(reader, _SERIES, asked, days, now)),
        last_errors=tuple(
            UsageFailure(
                at=iso(at), code=code or "", message=reason or code or "", client=client or None, caller=caller or None
            )
            for at, code, reason, client, caller in reader.rows(_ERRORS, asked)
        ),
        recent=tuple(
            UsageCall(
                at=iso(at), ok=bool(ok), duration_ms=duration, source=door, client=client or None, caller=caller or None
            )
            for at, ok, duration, door, client, caller in reader.rows(_RECENT, asked)
        ),
    )


def usage_series(reader: StatsReader, query: str, asked: Mapping[str, Any], days: int, now: float) -> list[UsageBucket]:
    """Every bucket, also those without a call. The first one begins before the time does, and has only its calls."""
    size = HOUR if days <= MOST_HOURLY_DAYS else DAY
    found: dict[int, Sequence[Any]] = {
        number * size: rest for number, *rest in reader.rows(query, {**asked, "bucket": size})
    }
    starts = range(floor(asked["since"] / size) * size, floor(now) + 1, size)
    return [_bucket(start, *found.get(start, (0, 0, None))) for start in starts]


def _bucket(start: float, calls: int, errors: int, spread: str | None) -> UsageBucket:
    durations = read_spread(spread)
    return UsageBucket(at=iso(start), calls=calls, errors=errors, p50=durations.p50, p95=durations.p95)
