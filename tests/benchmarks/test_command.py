"""`python -m bench`: what it writes, what it leaves alone, and what has moved between two runs."""

import sys
import time

import pytest
from bench import __main__ as command
from bench import results
from bench.compare import compare, moves
from bench.results import Subject
from bench.table import row


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """The command with subjects that take no time; gives the code with which it ended."""

    def fails():
        yield row("never kept", "s", {"OneTool": [1.0]})
        raise RuntimeError("the server does not start")

    subjects = {
        "calls": lambda: [row("a call", "s", {"OneTool": [2.0], "FastMCP": [1.0]}, chart="speed")],
        "page": fails,
        "tokens": lambda: iter([row("a menu", "tokens", {"OneTool": [400]})]),
    }
    monkeypatch.setattr(command, "SUBJECTS", subjects)
    monkeypatch.setattr(command, "BY_NAME", {"profile": lambda: None})
    monkeypatch.setattr(command, "QUICK", {"tokens": subjects["tokens"]})

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["bench", *args, "--docs", str(tmp_path / "docs")])
        try:
            command.main()
        except SystemExit as ended:
            return ended.code
        return 0

    return run


def test_one_subject_that_fails_does_not_stop_the_others_nor_lose_what_was_known(bench, tmp_path, before, capfd):
    docs = tmp_path / "docs"
    (docs / "internals").mkdir(parents=True)
    results.write(docs / "internals" / "benchmarks.json", {"page": before["mcp"]})
    assert bench() == "Not measured, for the reason above: page"
    assert "the server does not start" in capfd.readouterr().err
    kept = results.read(docs / "internals" / "benchmarks.json")
    assert list(kept) == ["calls", "page", "tokens"]
    assert kept["page"] == before["mcp"]
    assert "| a call | 2 s | 1 s, 0.50 × |" in (docs / "internals" / "benchmarks.md").read_text()
    assert (docs / "pictures" / "bench-speed.svg").exists()


def test_one_that_hangs_is_given_up(bench, monkeypatch, capfd):
    monkeypatch.setattr(command, "PATIENCE_S", 1)
    command.SUBJECTS["page"] = lambda: time.sleep(60)
    assert bench("page") == "Not measured, for the reason above: page"
    assert "TimeoutError: not done after 1 s" in capfd.readouterr().err


def test_a_subject_that_is_named_is_the_only_one_that_is_new(bench, tmp_path, before):
    docs = tmp_path / "docs"
    (docs / "internals").mkdir(parents=True)
    results.write(docs / "internals" / "benchmarks.json", {"calls": before["mcp"]})
    assert bench("tokens", "--json", str(tmp_path / "now.json")) == 0
    assert list(results.read(tmp_path / "now.json")) == ["tokens"]
    kept = results.read(docs / "internals" / "benchmarks.json")
    assert kept["calls"].taken.date == "2026-01-02"
    assert kept["tokens"].taken.date > "2026-01-02"


def test_a_quick_run_leaves_the_page_alone(bench, tmp_path):
    assert bench("--quick", "--json", str(tmp_path / "quick.json")) == 0
    assert list(results.read(tmp_path / "quick.json")) == ["tokens"]
    assert not (tmp_path / "docs").exists()


def test_what_is_only_looked_at_reports_nothing(bench, tmp_path):
    assert bench("profile") == 0
    assert not (tmp_path / "docs").exists()


def test_an_unknown_subject_is_refused(bench, capsys):
    assert bench("mpc") == 2
    assert "invalid choice: 'mpc'" in capsys.readouterr().err


# What has moved


def test_ratios_are_compared_and_noise_is_left_out(before, after):
    (moved,) = moves(before, after)  # the start is 4 % slower: that is noise
    assert moved.what == "mcp: MCP: tools/call, beside FastMCP"
    assert (moved.before, moved.after, moved.factor) == ("7.50 ×", "0.75 ×", 0.1)


def test_what_has_nobody_beside_it_is_compared_by_itself(before):
    def only(seconds, rate):
        rows = [row("load", "s", {"OneTool": [seconds]}), row("rate", "/s", {"OneTool": [rate]}, more=True)]
        return {"packs": Subject(before["mcp"].taken, rows)}

    assert [(move.what, move.factor) for move in moves(only(1.0, 100.0), only(0.5, 50.0))] == [
        ("packs: load", 2.0),
        ("packs: rate", 0.5),
    ]


def test_the_command_prints_the_worst_first_and_what_is_new_or_gone(tmp_path, before, after, monkeypatch, capsys):
    slower = row("start", "s", {"OneTool": [1.0]}), row("start", "s", {"OneTool": [1.5]})
    results.write(tmp_path / "a.json", before | {"page": Subject(before["mcp"].taken, [slower[0]])})
    gone = {"mcp": after["mcp"], "page": Subject(after["mcp"].taken, [slower[1]])}
    results.write(tmp_path / "b.json", gone)
    monkeypatch.setattr(sys, "argv", ["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    command.main()
    printed = capsys.readouterr().out
    assert printed.index("tools/call, beside FastMCP") < printed.index("page: start")
    assert "7.50 ×" in printed
    assert "1 s" in printed
    assert "Only before:\n  cold-start: onetool --version\n" in printed


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(SystemExit, match=r"no\.json"):
        compare(tmp_path / "no.json", tmp_path / "no.json")
