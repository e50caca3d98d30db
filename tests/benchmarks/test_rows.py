"""Rows of measurements, and the file in which they are kept."""

import json

import pytest
from bench import results
from bench.table import row


def test_a_ratio_says_how_many_times_better_ours_is():
    less = row("a call", "ms", {"OneTool": [0.001], "FastMCP": [0.004]})
    assert (less.ours, less.peers["FastMCP"].value, less.peers["FastMCP"].ratio) == (1.0, 4.0, 4.0)
    more = row("calls", "/s", {"OneTool": [900.0], "FastMCP": [300.0]}, more=True)
    assert (more.ours, more.peers["FastMCP"].value, more.peers["FastMCP"].ratio) == (900.0, 300.0, 3.0)


def test_figures_are_medians_and_ratios_are_medians_of_the_turns():
    """The machine was slow in the last turn, for both of them."""
    found = row("a call", "s", {"OneTool": [1.0, 1.0, 10.0], "FastMCP": [2.0, 2.0, 20.0]})
    assert (found.ours, found.peers["FastMCP"].value, found.peers["FastMCP"].ratio) == (1.0, 2.0, 2.0)
    drifted = row("a call", "s", {"OneTool": [1.0, 2.0, 3.0], "FastMCP": [3.0, 6.0, 6.0]})
    assert drifted.peers["FastMCP"].ratio == 3.0
    uneven = row("a call", "s", {"OneTool": [1.0, 2.0, 3.0], "FastMCP": [8.0]})
    assert uneven.peers["FastMCP"].ratio == 4.0


def test_we_lose_to_peers_and_not_to_yardsticks():
    turns = {"OneTool": [2.0], "quick": [1.0], "slow": [3.0], "a bare loop": [0.1]}
    found = row("a call", "s", turns, floors=["a bare loop"])
    assert found.lost_to() == ["quick"]
    assert found.floors["a bare loop"].ratio == pytest.approx(0.05)


def test_what_is_written_is_read_again(tmp_path, before):
    results.write(tmp_path / "a.json", before)
    assert results.read(tmp_path / "a.json") == before
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["mcp"]["rows"][0]["peers"]["FastMCP"] == {"value": 400, "ratio": 7.5}


def test_digits_that_nobody_measured_are_not_written(tmp_path, before):
    long = {"mcp": results.Subject(before["mcp"].taken, [row("a call", "s", {"OneTool": [1.23456789]})])}
    results.write(tmp_path / "a.json", long)
    assert results.read(tmp_path / "a.json")["mcp"].rows[0].ours == 1.235


def test_a_subject_that_was_not_run_keeps_its_figures_and_its_date(before, after):
    whole = results.merged(before, {"mcp": after["mcp"]}, ["cold-start", "mcp", "page"])
    assert whole == {"cold-start": before["cold-start"], "mcp": after["mcp"]}
    assert results.merged({}, after, ["mcp"]) == {"mcp": after["mcp"]}  # `bundles-large` and the like are not kept


def test_where_it_was_measured_is_told():
    taken = results.circumstances()
    assert "cores" in taken.machine
    assert {"onetool", "python"} <= taken.versions.keys()
