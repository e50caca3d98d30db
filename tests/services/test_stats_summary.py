"""What a summary comes to, by numbers that were computed by hand."""

import pytest
from services.journals import Counted
from stats_database import BOTH, place

from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent, RunEvent
from onetool.core.spec import ToolSpec
from onetool.database.percentiles import MAX_SORTED

__all__ = ["place"]

HOUR, DAY = 3600.0, 86_400.0
NOON = 1_700_049_600.0  # 2023-11-15, 12:00 UTC


class Clock:
    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stats(place, clock):
    return Counted(place, 10_000, now=clock)


def call(
    stats, tool="a.b", ms=1.0, *, args=None, value=None, code=None, run=None, door="mcp", client="", source="local"
):
    error = ToolError(code=code, message="no") if code else None
    spec = ToolSpec(name=tool, description="d", source=source)
    asked = ToolCall("1", tool, args or {}, door)
    stats.record(CallEvent.of(call=asked, spec=spec, duration_ms=ms, error=error, value=value, client=client, run=run))


def ran(stats, run, ms, code_bytes=40, calls=2):
    stats.record_run(RunEvent(id=run, source="mcp", client="c", duration_ms=ms, code_bytes=code_bytes, calls=calls))


def test_nothing_yet(stats, tmp_path):
    assert stats.summary("week") == {
        "period": "week",
        "since": "2023-11-08T12:00:00+00:00",
        "until": "2023-11-15T12:00:00+00:00",
        "tool": None,
        "caller": None,
        "total_calls": 0,
        "success_rate": None,
        "context_saved": 0,
        "time_saved_ms": 0,
        "tokens_in": 0,
        "tokens_out": 0,
        "bytes_in": 0,
        "bytes_out": 0,
        "runs": 0,
        "calls_in_runs": 0,
        "tools": [],
        "errors": [],
        "doors": [],
        "clients": [],
        "callers": [],
        "series": [],
        "latency": {"p50": None, "p90": None, "p95": None, "p99": None, "max": None},
    }
    assert list(tmp_path.iterdir()) == []


def test_a_period_that_there_is_not(stats):
    with pytest.raises(ValueError, match=r"unknown period 'year' .expected day, week, month, all"):
        stats.summary("year")


@BOTH
def test_tools_errors_doors_and_clients(stats, clock):
    call(stats, "a.b", 10.0, args={"x": 1}, value="12345", client="claude")  # {"x":1} is 7 bytes: 2 tokens; 5: 2
    call(stats, "a.b", 30.0, args={"x": 1}, value="1234", client="claude")  # 4 bytes: 1 token
    clock.now += 60
    call(stats, "a.b", 20.0, code="invalid_args", door="cli")
    call(stats, "c.d", 5.0, value="", source="proxy:x")
    summary = stats.summary()
    refused = len('{"code":"invalid_args","message":"no"}')  # 38 bytes: 10 tokens
    assert summary["tools"] == [
        {
            "tool": "a.b",
            "source": "local",
            "calls": 3,
            "errors": 1,
            "success_rate": 66.7,
            "median_ms": 20.0,
            "p95_ms": 30.0,
            "tokens_in": 2 + 2 + 1,
            "tokens_out": 2 + 1 + 10,
            "last_called": "2023-11-15T12:01:00+00:00",
        },
        {
            "tool": "c.d",
            "source": "proxy:x",
            "calls": 1,
            "errors": 0,
            "success_rate": 100.0,
            "median_ms": 5.0,
            "p95_ms": 5.0,
            "tokens_in": 1,
            "tokens_out": 0,
            "last_called": "2023-11-15T12:01:00+00:00",
        },
    ]
    assert summary["errors"] == [
        {"tool": "a.b", "code": "invalid_args", "reason": None, "count": 1, "last": "2023-11-15T12:01:00+00:00"}
    ]
    assert summary["doors"] == [{"name": "mcp", "calls": 3}, {"name": "cli", "calls": 1}]
    assert summary["clients"] == [{"name": "claude", "calls": 2}]
    assert (summary["total_calls"], summary["success_rate"]) == (4, 75.0)
    assert (summary["tokens_in"], summary["tokens_out"]) == (6, 13)
    assert (summary["bytes_in"], summary["bytes_out"]) == (7 + 7 + 2 + 2, 5 + 4 + refused)
    assert summary["latency"] == {"p50": 15.0, "p90": 30.0, "p95": 30.0, "p99": 30.0, "max": 30.0}


@BOTH
def test_percentiles_of_a_hundred(stats):
    for ms in range(100, 0, -1):
        call(stats, ms=float(ms))
    assert stats.summary()["latency"] == {"p50": 50.5, "p90": 90.0, "p95": 95.0, "p99": 99.0, "max": 100.0}
    assert stats.summary()["tools"][0]["p95_ms"] == 95.0


def test_very_many_durations_are_kept_to_three_digits(stats, monkeypatch):
    monkeypatch.setattr("onetool.database.percentiles.MAX_SORTED", 100)
    assert MAX_SORTED > 100_000
    for number in range(1000):
        call(stats, ms=1000.4 + number)
    assert stats.summary()["latency"] == {"p50": 1500.0, "p90": 1900.0, "p95": 1950.0, "p99": 1990.0, "max": 2000.0}


@pytest.mark.parametrize(("period", "expected"), [("day", 1), ("week", 2), ("month", 3), ("all", 4)])
def test_periods(stats, clock, period, expected):
    for days in (31, 8, 2, 0):
        clock.now = NOON - days * DAY
        call(stats, f"t{days}")
    clock.now = NOON
    assert stats.summary(period)["total_calls"] == expected


def test_a_period_begins_where_it_says(stats, clock):
    clock.now = NOON - DAY - 1
    call(stats, "before")
    clock.now = NOON - DAY
    call(stats, "just")
    clock.now = NOON
    assert [row["tool"] for row in stats.summary("day")["tools"]] == ["just"]


@BOTH
def test_calls_over_a_day_by_the_hour(stats, clock):
    clock.now = NOON - 90 * 60  # 10:30
    call(stats, ms=4.0, value="12345678")
    call(stats, ms=8.0, code="execution_error")
    clock.now = NOON + 600
    series = stats.summary("day")["series"]
    assert (len(series), series[0]["start"], series[-1]["start"]) == (
        25,
        "2023-11-14T12:00:00+00:00",
        "2023-11-15T12:00:00+00:00",
    )
    assert [bucket["calls"] for bucket in series] == [0] * 22 + [2, 0, 0]
    (full,) = [bucket for bucket in series if bucket["calls"]]
    assert full == {
        "start": "2023-11-15T10:00:00+00:00",
        "calls": 2,
        "errors": 1,
        "tokens_in": 2,
        "tokens_out": 2 + 11,
        "p50_ms": 6.0,
        "p95_ms": 8.0,
        "p99_ms": 8.0,
    }
    assert series[0]["p50_ms"] is None


def test_other_periods_have_other_buckets(stats, clock):
    for days in (200, 89, 3, 0):
        clock.now = NOON - days * DAY
        call(stats)
    week, month, everything = (stats.summary(period)["series"] for period in ("week", "month", "all"))
    assert (len(week), week[1]["start"]) == (29, "2023-11-08T18:00:00+00:00")
    assert (len(month), month[0]["start"]) == (31, "2023-10-16T00:00:00+00:00")
    assert (len(everything), sum(bucket["calls"] for bucket in everything)) == (90, 3)
    assert stats.summary()["total_calls"] == 4


def test_all_begins_with_the_first_call(stats, clock):
    clock.now = NOON - 2 * DAY
    call(stats)
    clock.now = NOON
    assert [bucket["calls"] for bucket in stats.summary()["series"]] == [1, 0, 0]


# What was saved


def test_a_menu_saves_what_it_leaves_out(stats):
    stats.record_menu("c", "mcp", 4001, 401)  # 1001 tokens, 101 sent
    stats.record_menu("c", "mcp", 100, 140)  # 25, 35: a menu may be larger than the tools behind it
    assert stats.summary()["context_saved"] == 900 - 10


def test_a_run_saves_what_its_calls_would_have_cost(stats):
    call(stats, args={"x": 1}, value="v" * 400, run="r")  # 2 + 100
    call(stats, value="v" * 40, run="r")  # 1 + 10
    call(stats, value="v" * 4000)  # of no run
    ran(stats, "r", 10.0, code_bytes=41)  # 11
    stats.record_reply("r", 20)  # 5
    assert stats.summary()["context_saved"] == 2 + 100 + 1 + 10 - 11 - 5


def test_a_run_may_cost_more_than_it_saves(stats):
    ran(stats, "r", 10.0, code_bytes=400, calls=0)
    stats.record_reply("r", 40)
    assert stats.summary()["context_saved"] == -110


def test_a_run_that_nobody_read_saves_nothing(stats):
    call(stats, value="v" * 400, run="r")
    ran(stats, "r", 10.0)
    assert stats.summary()["context_saved"] == 0
    assert (stats.summary()["runs"], stats.summary()["calls_in_runs"]) == (1, 1)


@BOTH
def test_a_run_saves_turns_and_what_went_on_side_by_side(stats):
    for seconds in (2.0, 3.0, 10.0):
        stats.record_gap("c", seconds)
    stats.record_gap("c", 301.0)  # was away
    for _ in range(3):
        call(stats, ms=100.0, run="wide")
    ran(stats, "wide", 120.0)
    for _ in range(2):
        call(stats, ms=100.0, run="narrow")
    ran(stats, "narrow", 250.0)
    call(stats, ms=500.0, run="single")
    ran(stats, "single", 10.0)
    # wide: 2 turns of 3 s, and 300 - 120 ms; narrow: 1 turn; single: nothing
    assert stats.summary()["time_saved_ms"] == 2 * 3000 + 180 + 3000


def test_turns_count_for_nothing_where_no_client_was_ever_waited_for(stats):
    for _ in range(3):
        call(stats, ms=100.0, run="r")
    ran(stats, "r", 120.0)
    assert stats.summary()["time_saved_ms"] == 180


@BOTH
def test_savings_are_of_the_period(stats, clock):
    clock.now = NOON - 2 * DAY
    stats.record_menu("c", "mcp", 4000, 400)
    stats.record_gap("c", 100.0)
    for _ in range(2):
        call(stats, ms=1.0, run="old")
    ran(stats, "old", 5.0)
    clock.now = NOON - DAY - 1  # it ends a moment later, in the period
    call(stats, ms=1.0, value="v" * 396, run="new")
    clock.now = NOON - DAY + 1
    call(stats, ms=1.0, value="v" * 396, run="new")
    ran(stats, "new", 5.0, code_bytes=4)
    stats.record_reply("new", 4)
    stats.record_gap("c", 7.0)
    clock.now = NOON
    day = stats.summary("day")
    assert (day["context_saved"], day["time_saved_ms"], day["runs"]) == (2 * 100 - 2, 7000, 1)
    assert stats.summary("all")["context_saved"] == 900 + 198


@BOTH
def test_of_one_tool(stats):
    stats.record_menu("c", "mcp", 4000, 400)
    call(stats, "a.b", 10.0, value="v" * 40, run="r")  # 1 + 10
    call(stats, "c.d", 10.0, value="v" * 80, run="r")  # 1 + 20
    ran(stats, "r", 15.0, code_bytes=4)
    stats.record_reply("r", 8)
    call(stats, "c.d", 90.0, code="execution_error", run="s", door="cli", client="x")
    ran(stats, "s", 15.0, code_bytes=4)
    stats.record_reply("s", 8)
    of_one = stats.summary(tool="a.b")
    assert (of_one["tool"], of_one["total_calls"], [row["tool"] for row in of_one["tools"]]) == ("a.b", 1, ["a.b"])
    assert (of_one["runs"], of_one["calls_in_runs"], of_one["context_saved"]) == (1, 1, 11 + 21 - 1 - 2)
    assert of_one["time_saved_ms"] == 5
    assert (of_one["errors"], of_one["latency"]["max"], of_one["clients"]) == ([], 10.0, [])
    assert [bucket["calls"] for bucket in of_one["series"]] == [1]
    assert stats.summary(tool="never")["total_calls"] == 0
    assert stats.summary(tool="never")["context_saved"] == 0
