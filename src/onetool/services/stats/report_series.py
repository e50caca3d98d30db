"""What the report shows over time: calls, latencies and tokens, each as a chart with the table behind it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onetool.services.stats.report_axes import counts, decades
from onetool.services.stats.report_over_time import Place, columns, lines
from onetool.services.stats.report_parts import card, legend, line_legend
from onetool.services.stats.report_tables import behind
from onetool.services.stats.report_words import counted, decade, duration, short, span, tick, whole

if TYPE_CHECKING:
    from onetool.services.stats.shapes import Bucket

_PERCENTILES = ("p50", "p95", "p99")
_SHARES = ("half", "95 of 100", "99 of 100")


def calls_over_time(series: "Sequence[Bucket]", period: str) -> str:
    if not series:
        return ""
    most = max(one["calls"] for one in series)
    places = [
        Place(
            tick(one["start"], period),
            f"{span(one['start'], period)}: {counted(one['calls'], 'call')}, {whole(one['errors'])} failed",
            (one["calls"] - one["errors"], one["errors"]),
        )
        for one in series
    ]
    total, failed = sum(one["calls"] for one in series), sum(one["errors"] for one in series)
    told = f"Calls over time: {whole(total)} in all, {whole(failed)} failed, {whole(most)} at the most in one column"
    chart = columns(told, ("ok", "failed"), places, counts(most), short)
    rows = ((span(one["start"], period), whole(one["calls"]), whole(one["errors"])) for one in series)
    table = behind("Calls over time", ("from", "calls", "failed"), rows)
    return card("Calls over time", legend(("ok", "went well"), ("failed", "failed")) + chart + table, "full")


def latency_over_time(series: "Sequence[Bucket]", period: str) -> str:
    measured = [value for one in series for value in _percentiles(one) if value is not None]
    if not measured:
        return ""
    places = [Place(tick(one["start"], period), _told(one, period), _percentiles(one)) for one in series]
    told = f"Latency over time: p50, p95 and p99, between {duration(min(measured))} and {duration(max(measured))}"
    chart = lines(told, _PERCENTILES, places, decades(measured), decade)
    rows = ((span(one["start"], period), *map(duration, _percentiles(one))) for one in series)
    table = behind("Latency over time", ("from", *_PERCENTILES), rows)
    named = ((name, f"{name}: {share} took no longer") for name, share in zip(_PERCENTILES, _SHARES, strict=True))
    return card("Latency over time", line_legend(*named) + chart + table, "wide")


def tokens_over_time(series: "Sequence[Bucket]", period: str) -> str:
    most = max((one["tokens_in"] + one["tokens_out"] for one in series), default=0)
    if not most:
        return card("Tokens", "<p>None were counted.</p>", "wide")
    places = [
        Place(
            tick(one["start"], period),
            f"{span(one['start'], period)}: {whole(one['tokens_in'])} tokens in, {whole(one['tokens_out'])} out",
            (one["tokens_in"], one["tokens_out"]),
        )
        for one in series
    ]
    into, out = (short(sum(one[way] for one in series)) for way in ("tokens_in", "tokens_out"))
    chart = columns(f"Tokens over time: {into} in, {out} out", ("in", "out"), places, counts(most), short)
    rows = ((span(one["start"], period), whole(one["tokens_in"]), whole(one["tokens_out"])) for one in series)
    table = behind("Tokens over time", ("from", "in", "out"), rows)
    return card(
        "Tokens", legend(("in", f"in, to tools: {into}"), ("out", f"out, from tools: {out}")) + chart + table, "wide"
    )


def _percentiles(bucket: "Bucket") -> tuple[float | None, float | None, float | None]:
    return bucket["p50_ms"], bucket["p95_ms"], bucket["p99_ms"]


def _told(bucket: "Bucket", period: str) -> str:
    values = zip(_PERCENTILES, _percentiles(bucket), strict=True)
    return f"{span(bucket['start'], period)}: {', '.join(f'{name} {duration(value)}' for name, value in values)}"
