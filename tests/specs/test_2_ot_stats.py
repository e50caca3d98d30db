"""2-ot-pack.md: one test for each scenario of `ot.stats`, named after it."""

import re
import time
from pathlib import Path

import pytest
from services.journals import Counted
from specs.ot import Agent

from onetool import ToolCall
from onetool.core.context import CallEvent

DAY = 86_400


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """Five calls were made: four of one tool, and one that failed."""
    monkeypatch.chdir(tmp_path)
    with Agent(tmp_path, packs=["brave", "demo"]) as agent:
        agent.value('[brave.search(query="tea", count=n) for n in range(4)]')
        agent.error("demo.fails()")
        yield agent


def called(agent, tool, days_ago):
    """As if somebody had called it then."""
    stats = Counted(agent.app.runtime.state, 90, now=lambda: time.time() - days_ago * DAY)
    stats.record(CallEvent.of(call=ToolCall("1", tool, {}, "test"), duration_ms=1.0))
    stats.flush()


# Requirement: Runtime Statistics


def test_get_all_time_stats(agent):
    told = agent.value("ot.stats()")
    assert told["total_calls"] == 5
    assert told["success_rate"] == 80.0
    assert isinstance(told["context_saved"], int)
    assert isinstance(told["time_saved_ms"], int)
    searched, failed = told["tools"]
    assert (searched["tool"], searched["calls"], searched["errors"]) == ("brave.search", 4, 0)
    assert (searched["source"], searched["success_rate"]) == ("local", 100.0)
    assert (failed["tool"], failed["calls"], failed["errors"], failed["success_rate"]) == ("demo.fails", 1, 1, 0.0)
    assert told["period"] == "all"


def test_filter_by_period(agent):
    called(agent, "demo.foo", days_ago=3)
    called(agent, "demo.foo", days_ago=20)
    called(agent, "demo.foo", days_ago=60)
    totals = {
        period: next((row["calls"] for row in told["tools"] if row["tool"] == "demo.foo"), 0)
        for period in ("day", "week", "month", "all")
        for told in [agent.value(f"ot.stats(period={period!r})")]
    }
    assert totals == {"day": 0, "week": 1, "month": 2, "all": 3}
    assert agent.value('ot.stats(period="day", tool="brave.search")')["total_calls"] == 4


def test_filter_by_tool(agent):
    told = agent.value('ot.stats(tool="brave.search")')
    assert told["total_calls"] == 4
    assert told["success_rate"] == 100.0
    assert [row["tool"] for row in told["tools"]] == ["brave.search"]
    assert told["tool"] == "brave.search"
    assert told["errors"] == []
    assert agent.value('ot.stats(tool="brave.web_search")')["total_calls"] == 0


def test_generate_html_report(agent):
    told = agent.value('ot.stats(output="stats.html")')
    report = agent.folder / "stats.html"
    assert (agent.folder / told["html_report"]).resolve() == report.resolve()
    assert told["total_calls"] == 5
    page = report.read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "brave.search" in page


def test_generate_html_report_again(agent):
    before = agent.value('ot.stats(output="stats.html")')
    agent.value("demo.bar()")
    after = agent.value('ot.stats(output="stats.html")')
    assert after["html_report"] == before["html_report"]
    assert "demo.bar" in (agent.folder / "stats.html").read_text()


def test_stats_disabled(tmp_path):
    with Agent(tmp_path, stats={"enabled": False}) as agent:
        told = agent.value("ot.stats()")
        assert told.startswith("Error: ")
        assert "disabled" in told
        assert agent.reads("ot.stats()") == told


def test_html_write_error(agent):
    (agent.folder / "report.html").mkdir()
    told = agent.value('ot.stats(output="report.html")')
    assert re.fullmatch(r"Error: Cannot write to '(.*/)?report\.html': \S.*", told)
    assert agent.reads('ot.stats(output="report.html")') == told


@pytest.mark.parametrize("period", ["invalid", "", "Day", "year"])
def test_invalid_period(agent, period):
    wanted = f"Error: Invalid period '{period}'. Valid: day, week, month, all. Example: ot.stats(period='day')"
    assert agent.value(f"ot.stats(period={period!r})") == wanted
    assert agent.reads(f"ot.stats(period={period!r})") == wanted


# What the decisions add


def test_calls_of_ot_count_like_any_other(agent):
    agent.value("ot.version()")
    assert "ot.version" in [row["tool"] for row in agent.value("ot.stats()")["tools"]]


@pytest.mark.parametrize("where", ["../report.html", "{outside}/report.html", "missing/report.html", ""])
def test_nothing_is_written_where_it_may_not_be(agent, tmp_path_factory, where):
    outside = tmp_path_factory.mktemp("outside")
    told = agent.value(f"ot.stats(output={where.format(outside=outside)!r})")
    if where:
        assert told.startswith(f"Error: Cannot write to '{where.format(outside=outside)}': ")
    assert not list(outside.iterdir())
    assert not (Path(agent.folder).parent / "report.html").exists()


def test_what_failed_is_told(agent):
    [error] = agent.value("ot.stats()")["errors"]
    assert (error["tool"], error["code"], error["count"]) == ("demo.fails", "execution_error", 1)


def test_nothing_was_called(tmp_path):
    with Agent(tmp_path) as agent:
        told = agent.value("ot.stats()")
        assert (told["total_calls"], told["success_rate"], told["tools"]) == (0, None, [])
