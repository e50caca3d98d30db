"""Summaries of stats to draw: a usual one, and those at the edges. Always the same numbers."""

import math
import random
from datetime import UTC, datetime, timedelta

UNTIL = datetime(2026, 11, 15, 10, 0, tzinfo=UTC)
STEPS = {"day": timedelta(hours=1), "week": timedelta(hours=6), "month": timedelta(days=1), "all": timedelta(days=1)}
NAMES = ["brave.search", "fs.read_file", "web.fetch", "git.log", "time.now", "shell.run", "fs.write_file", "db.query"]
CODES = ["timeout", "invalid_arguments", "http_error", "not_found"]
HOSTILE = (
    "</script></title></textarea><img src=x onerror=\"document.title='RUN'\"><script>document.title='RUN'</script>"
)


def usual(period="month", tools=18, buckets=30, seed=7):
    """What somebody's month looks like: weekdays busier than weekends, few failures, latencies of all sizes."""
    dice = random.Random(seed)
    series = [_bucket(UNTIL - STEPS[period] * (buckets - 1 - number), dice) for number in range(buckets)]
    calls, failed = sum(one["calls"] for one in series), sum(one["errors"] for one in series)
    rows = _tools(calls, failed, tools, dice)
    return summary(
        period=period,
        since=series[0]["start"],
        series=series,
        tools=rows,
        errors=_errors(rows),
        total_calls=calls,
        success_rate=round(100 * (calls - failed) / calls, 1),
        context_saved=1_284_300,
        time_saved_ms=8_040_000,
        tokens_in=sum(one["tokens_in"] for one in series),
        tokens_out=sum(one["tokens_out"] for one in series),
        runs=212,
        calls_in_runs=calls // 2,
        doors=[
            {"name": "mcp", "calls": calls // 2},
            {"name": "http", "calls": calls // 3},
            {"name": "cli", "calls": 40},
        ],
        clients=[
            {"name": "claude-code", "calls": calls // 2},
            {"name": "cursor", "calls": 90},
            {"name": "", "calls": 40},
        ],
        callers=[{"name": "ci", "calls": calls // 4}],
        latency={"p50": 38.2, "p90": 410.0, "p95": 890.5, "p99": 4210.0, "max": 30_000.0},
    )


def summary(**facts):
    """A summary of nothing, but for what is given."""
    nothing = {
        "period": "all",
        "since": None,
        "until": UNTIL.isoformat(timespec="seconds"),
        "tool": None,
        "total_calls": 0,
        "caller": None,
        "success_rate": None,
        "context_saved": 0,
        "time_saved_ms": 0,
        **dict.fromkeys(("tokens_in", "tokens_out", "bytes_in", "bytes_out", "runs", "calls_in_runs"), 0),
        **{key: [] for key in ("tools", "errors", "doors", "clients", "callers", "series")},
        "latency": dict.fromkeys(("p50", "p90", "p95", "p99", "max")),
    }
    return {**nothing, **facts}


def one_call(**facts):
    """A tool, called once: with no time and no tokens."""
    at = UNTIL.isoformat(timespec="seconds")
    zero = dict.fromkeys(("p50_ms", "p95_ms", "p99_ms"), 0.0)
    series = [{"start": at, "calls": 1, "errors": 0, "tokens_in": 0, "tokens_out": 0, **zero}]
    tool = {"tool": "time.now", "source": "local", "calls": 1, "errors": 0, "success_rate": 100.0, "last_called": at}
    tool |= dict.fromkeys(("median_ms", "p95_ms"), 0.0) | dict.fromkeys(("tokens_in", "tokens_out"), 0)
    latency = dict.fromkeys(("p50", "p90", "p95", "p99", "max"), 0.0)
    given = {"total_calls": 1, "success_rate": 100.0, "series": series, "tools": [tool], "latency": latency}
    return summary(**{**given, "doors": [{"name": "cli", "calls": 1}], **facts})


def hostile():
    """Somebody else's words wherever a text can come from."""
    one = usual(tools=3, buckets=5)
    for row in one["tools"]:
        row["tool"] = row["source"] = HOSTILE
    for row in one["errors"]:
        row["tool"] = row["code"] = row["reason"] = HOSTILE
    for row in [*one["doors"], *one["clients"], *one["callers"]]:
        row["name"] = HOSTILE
    return {**one, **dict.fromkeys(("tool", "caller", "period"), HOSTILE)}


def _bucket(start, dice):
    busy = 0.25 if start.weekday() > 4 else 1.0
    calls = int(busy * dice.uniform(40, 160))
    errors = sum(dice.random() < 0.035 for _ in range(calls))
    median = 10 ** dice.uniform(1.3, 1.9)
    return {
        "start": start.isoformat(timespec="seconds"),
        "calls": calls,
        "errors": errors,
        "tokens_in": int(calls * dice.uniform(30, 60)),
        "tokens_out": int(calls * dice.uniform(90, 260)),
        "p50_ms": round(median, 1) if calls else None,
        "p95_ms": round(median * dice.uniform(6, 20), 1) if calls else None,
        "p99_ms": round(median * dice.uniform(25, 140), 1) if calls else None,
    }


def _tools(calls, failed, number, dice):
    weights = [1 / (1 + place) ** 1.1 for place in range(number)]
    rows = []
    for place in range(number):
        own = max(1, round(calls * weights[place] / sum(weights)))
        errors = min(own, round(failed * weights[place] / sum(weights)))
        median = 10 ** dice.uniform(-0.7, 2.8)
        rows.append(
            {
                "tool": NAMES[place] if place < len(NAMES) else f"server{place % 7}.tool_{place}",
                "source": "local" if place % 3 else "proxy:brave",
                "calls": own,
                "errors": errors,
                "success_rate": round(100 * (own - errors) / own, 1),
                "median_ms": round(median, 2),
                "p95_ms": round(median * dice.uniform(2, 40), 2),
                "tokens_in": own * 42,
                "tokens_out": own * 170,
                "last_called": (UNTIL - timedelta(minutes=int(place**2 * 7 + 1))).isoformat(timespec="seconds"),
            }
        )
    return rows


def _errors(rows):
    found = []
    for place, row in enumerate(rows):
        for part, code in zip((0.6, 0.4), (CODES[place % 4], CODES[(place + 1) % 4]), strict=True):
            count = math.floor(row["errors"] * part)
            if count:
                error = {"tool": row["tool"], "code": "execution_error", "reason": code}
                found.append({**error, "count": count, "last": row["last_called"]})
    return sorted(found, key=lambda one: -one["count"])
