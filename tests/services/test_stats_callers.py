"""Stats by caller: what is counted for whom."""

import pytest
from helpers import each
from services.journals import Counted
from stats_database import BOTH, place

from onetool.core.call import ToolCall
from onetool.core.context import CallEvent, RunEvent
from onetool.core.principal import LOCAL, Principal, current_principal, stats_caller
from onetool.services.journal.usage import StatsFilter

__all__ = ["place"]

NOW = 1_700_049_600.0
ANN = "https://id.example.com|ann"


@pytest.fixture
def stats(place):
    return Counted(place, now=lambda: NOW)


def call(stats, owner, tool="a.b", run=None):
    stats.record(
        CallEvent.of(call=ToolCall("1", tool, {}, "rest"), duration_ms=1.0, run=run, principal=Principal(owner=owner))
    )


@BOTH
def test_each_sum_is_of_one_caller_or_of_all(stats):
    for owner, times in (("ada", 3), (ANN, 2), ("", 1)):
        for _ in range(times):
            call(stats, owner)
    for caller, calls in (("ada", 3), (ANN, 2), ("", 1), ("nobody", 0), (None, 6)):
        assert stats.summary("day", caller=caller)["total_calls"] == calls
        assert stats.facts("a.b", caller)["calls"] == calls
        assert stats.usage(["a.b"], 1, caller).calls == calls
        assert stats.overview(StatsFilter(days=1, caller=caller)).calls == calls
    assert stats.summary()["callers"] == [{"name": "ada", "calls": 3}, {"name": ANN, "calls": 2}]
    assert stats.summary(caller="ada")["callers"] == [{"name": "ada", "calls": 3}]
    assert [one.caller for one in stats.usage(["a.b"], 1, ANN).recent] == [ANN, ANN]


@BOTH
def test_what_was_saved_is_of_one_caller_too(stats):
    stats.record_menu("c", "mcp", 4000, 400, "ada")
    stats.record_menu("c", "mcp", 8000, 400, "bob")
    for owner in ("ada", "bob"):
        stats.record_run(
            RunEvent(id=owner, source="mcp", duration_ms=1.0, code_bytes=4, principal=Principal(owner=owner))
        )
    saved = {caller: stats.summary(caller=caller)["context_saved"] for caller in ("ada", "bob", None)}
    assert (saved["ada"], saved["bob"], saved[None]) == (900, 1900, 2800)
    assert [stats.summary(caller=one)["runs"] for one in ("ada", "carl", None)] == [1, 0, 2]


@pytest.mark.parametrize("prefix", ["x" * 5000, "bell\a", "\ud800"])
def test_two_long_or_strange_owners_never_become_one(stats, prefix):
    call(stats, f"{prefix}a")
    call(stats, f"{prefix}b")
    assert [stats.summary(caller=f"{prefix}{one}")["total_calls"] for one in "abc"] == [1, 1, 0]
    assert all(len(one["name"]) < 300 and one["name"].isprintable() for one in stats.summary()["callers"])


def test_what_is_shown_of_a_long_owner_is_found_again(stats):
    call(stats, "x" * 300)
    (shown,) = [one["name"] for one in stats.summary()["callers"]]
    assert stats.summary(caller=shown)["total_calls"] == 1
    assert stats.overview(StatsFilter(days=1, caller=shown)).calls == 1


def test_an_owner_that_looks_like_what_is_kept_of_another_sees_nothing_of_it(stats):
    call(stats, "x" * 300)
    (shown,) = [one["name"] for one in stats.summary()["callers"]]
    mine = current_principal.set(Principal(name="eve", owner=shown, role="call"))
    try:
        assert stats.summary(caller=stats_caller())["total_calls"] == 0
        call(stats, shown)
        assert stats.summary(caller=stats_caller())["total_calls"] == 1
    finally:
        current_principal.reset(mine)


@each(
    ("principal", "wanted", "seen"),
    [
        (LOCAL, None, None),
        (LOCAL, "ada", "ada"),
        (Principal(name="root", owner="root", role="admin"), "ada", "ada"),
        (Principal(name="ada", owner="ada", role="edit"), None, "ada"),
        (Principal(name="ada", owner="ada", role="call"), "bob", "ada"),
        (Principal(name="own", owner="x", role="call", shares_local_state=True), None, ""),
    ],
)
def test_whose_calls_somebody_sees(principal, wanted, seen):
    before = current_principal.set(principal)
    try:
        assert stats_caller(wanted) == seen
    finally:
        current_principal.reset(before)
