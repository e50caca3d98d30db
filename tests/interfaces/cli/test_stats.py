"""`onetool stats`: tables for people, JSON for programs, a page for a browser, and words where it can't."""

import json
import os
import pty
import re
import select
import time
from contextlib import suppress
from pathlib import Path

import html5lib
import pytest
from helpers import cli, definition, invoke, start, trusted
from services.journals import Counted

from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.cli.stats import MAX_TOOLS, _in_short
from onetool.interfaces.cli.stats import PERIODS as OFFERED
from onetool.services.journal.report import MARK
from onetool.services.journal.summary import PERIODS


@pytest.fixture
def project(tmp_path):
    """A folder with a config and a tool."""
    folder = tmp_path / "project"
    (folder / ".onetool").mkdir(parents=True)
    (folder / ".onetool" / "onetool.yaml").write_text(json.dumps({"tools": [definition("weather")]}))
    return trusted(folder)


@pytest.fixture
def used(project):
    """The same, after a few calls."""
    calls = [("weather", None), ("weather", None), ("time.now", None), ("time.now", "invalid_args")]
    record(project, calls)
    return project


def record(project, calls):
    stats = Counted(SqliteDatabase(project / ".onetool" / "state.db"))
    for name, code in calls:
        error = ToolError(code=code, message="no") if code else None
        call = ToolCall(id="1", name=name, args={}, source="cli")
        stats.record(CallEvent.of(call=call, error=error, duration_ms=3.0))
    stats.flush()


def on_a_terminal(*args, cwd, columns=120):
    """The exit code, and what a person sees."""
    leader, follower = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    process = start(*args, cwd=cwd, stdin=follower, stdout=follower, stderr=follower, env=env)
    os.close(follower)
    shown, deadline = b"", time.monotonic() + 30
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.1)[0]:
            with suppress(OSError):
                if chunk := os.read(leader, 65536):
                    shown += chunk
                    continue
            break
    os.close(leader)
    return process.wait(10), re.sub(r"\x1b\[[\d;]*m", "", shown.decode())


def lines(shown):
    return [" ".join(line.split()) for line in shown.splitlines()]


def test_periods_are_those_of_the_stats():
    assert tuple(PERIODS) == OFFERED


def test_piped_it_is_the_summary(used):
    told = json.loads(invoke("stats", cwd=used).stdout)
    assert (told["period"], told["total_calls"], told["success_rate"]) == ("all", 4, 75.0)
    assert [(row["tool"], row["calls"], row["errors"]) for row in told["tools"]] == [
        ("time.now", 2, 1),
        ("weather", 2, 0),
    ]
    assert [row["code"] for row in told["errors"]] == ["invalid_args"]
    assert [row["name"] for row in told["doors"]] == ["cli"]
    assert "html_report" not in told


def test_calls_that_were_made_are_in_it(project):
    invoke("tools", "invoke", "weather", cwd=project)
    invoke("run", "weather()", cwd=project)
    told = json.loads(invoke("stats", "--tool", "weather", cwd=project).stdout)
    assert (told["total_calls"], told["success_rate"]) == (2, 100.0)
    assert told["calls_in_runs"] == 1


def test_of_one_tool_and_one_period(used):
    told = json.loads(invoke("stats", "--period", "day", "--tool", "weather", "--json", cwd=used).stdout)
    assert (told["period"], told["tool"], told["total_calls"]) == ("day", "weather", 2)
    assert len(told["series"]) >= 24


def test_on_a_terminal_it_is_tables(used):
    code, shown = on_a_terminal("stats", "--period", "week", cwd=used)
    told = lines(shown)
    assert code == 0
    assert told[0] == "The last 7 days"
    assert "calls 4" in told
    assert "success rate 75%" in told
    assert "2 tools" in told
    assert any(line.startswith("weather 2 0 100% 2") for line in told)
    assert any(line.startswith("time.now 1 2") and line.endswith("invalid_args") for line in told)


def test_a_narrow_terminal_gets_fewer_columns(used):
    _, shown = on_a_terminal("stats", cwd=used, columns=50)
    assert "tool calls failed success" in lines(shown)
    assert max(map(len, shown.splitlines())) <= 50


def test_many_tools_are_shown_in_part(project):
    record(project, [(f"many.tool_{number}", None if number % 2 else "timeout") for number in range(40)])
    _, shown = on_a_terminal("stats", cwd=project)
    assert shown.count("many.tool_") == MAX_TOOLS + 5
    assert "… and 10 more: --json and --html have all of them." in shown
    assert "Errors: 5 of 20 kinds" in shown


def test_nothing_yet(project):
    code, shown = on_a_terminal("stats", cwd=project)
    assert (code, lines(shown)) == (0, ["All recorded calls", "No calls yet."])
    _, shown = on_a_terminal("stats", "--period", "day", "--tool", "weather", cwd=project)
    expected = ["The last 24 hours: weather", "No calls in this time; --period all looks further back."]
    assert lines(shown) == expected
    assert json.loads(invoke("stats", cwd=project).stdout)["total_calls"] == 0


def test_what_menus_have_saved_is_shown_before_the_first_call(project):
    stats = Counted(SqliteDatabase(project / ".onetool" / "state.db"))
    stats.record_menu("claude", "mcp", 44_000, 4_000)
    stats.close()
    code, shown = on_a_terminal("stats", cwd=project)
    saved = "Context saved by menus: 10,000 tokens (estimated)."
    assert (code, lines(shown)) == (0, ["All recorded calls", "No calls yet.", saved])


def test_a_tool_that_there_is_not(used):
    done = invoke("stats", "--tool", "wether", cwd=used)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: Tool not found: wether; did you mean weather?\n"


def test_a_tool_that_is_gone_is_still_told_of(used):
    (used / ".onetool" / "onetool.yaml").write_text("{}")
    assert json.loads(invoke("stats", "--tool", "weather", cwd=used).stdout)["total_calls"] == 2
    near = invoke("stats", "--tool", "wether", cwd=used)
    assert "did you mean weather?" in near.stderr


def test_switched_off(project):
    file = project / ".onetool" / "onetool.yaml"
    file.write_text("stats: {enabled: false}")
    done = invoke("stats", cwd=project)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == f"Error: Stats are switched off: stats.enabled is false in {file}. With true, calls are counted.\n"
    )


def test_a_wrong_period(project):
    done = invoke("stats", "--period", "year", cwd=project)
    assert (done.returncode, "'day', 'week', 'month', 'all'" in done.stderr) == (2, True)


# The page


def test_a_page_is_written(used):
    told = json.loads(invoke("stats", "--html", "page.html", cwd=used).stdout)
    assert told["html_report"] == str(used / "page.html")
    page = (used / "page.html").read_text(encoding="utf-8")
    assert MARK in page
    assert '<th scope="row">weather' in page
    code, shown = on_a_terminal("stats", "--html", "page.html", cwd=used)
    assert code == 0
    assert f"Report: {used / 'page.html'}" in shown


def test_a_page_has_no_script_and_names_stay_text(project):
    name = "\"'></title></svg></style><script>alert(1)</script>"
    record(project, [(name, None), (name, "invalid_args")])
    told = json.loads(invoke("stats", "--tool", name, "--html", "page.html", cwd=project).stdout)
    assert (told["tool"], told["total_calls"]) == (name, 2)
    tree = html5lib.parse((project / "page.html").read_text(encoding="utf-8"), namespaceHTMLElements=False)
    assert not list(tree.iter("script"))
    assert tree.find(".//title").text == f"OneTool stats: {name}"
    assert [row.text.strip() for row in tree.findall(".//tbody/tr/th")].count(name) == 2  # a tool, and its error


@pytest.mark.parametrize(
    ("file", "reason"), [("no/page.html", "No such file or directory"), ("full", "Is a directory")]
)
def test_a_page_that_cannot_be_written(used, file, reason):
    (used / "full").mkdir()
    done = invoke("stats", "--html", file, cwd=used)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    if file == "full":
        assert (done.returncode, "File 'full' is a directory." in done.stderr) == (2, True)
    else:
        assert (done.returncode, done.stderr) == (1, f"Error: Cannot write to '{used / file}': {reason}\n")


@pytest.fixture
def browser(tmp_path):
    """A browser that writes down what it was asked to open."""
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho noise\necho "$1" > {tmp_path}/opened\n')
    program.chmod(0o755)
    return {"BROWSER": f"{program} %s", "TMPDIR": str(tmp_path)}


def test_it_opens(used, browser, tmp_path):
    done = invoke("stats", "--html", "page.html", "--open", cwd=used, env=browser)
    assert (tmp_path / "opened").read_text().strip() == (used / "page.html").as_uri()
    json.loads(done.stdout)  # and nothing else


def test_it_opens_from_a_file_of_its_own(used, browser, tmp_path):
    told = json.loads(cli("stats", "--open", cwd=used, env=browser).stdout)
    page = Path(told["html_report"])
    assert page.parent == tmp_path
    assert (tmp_path / "opened").read_text().strip() == page.as_uri()
    assert page.stat().st_mode & 0o077 == 0  # what somebody calls is nobody else's business


def test_no_browser(used):
    done = cli(
        "stats", "--html", "page.html", "--open", cwd=used, env={"BROWSER": "/nowhere/browser %s", "PATH": "/nowhere"}
    )
    assert done.returncode == 1
    assert done.stderr == f"Error: No browser could be opened. The report is in {used / 'page.html'}\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("onetool st", "stats"),
        ("onetool stats --per", "--period"),
        ("onetool stats --period we", "week"),
        ("onetool stats --tool wea", "weather"),
    ],
)
def test_completion(project, words, offered):
    env = {"_ONETOOL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    assert f"plain,{offered}\n" in invoke(cwd=project, env=env).stdout


@pytest.mark.parametrize(("amount", "told"), [(-5, "none yet"), (0, "0 tokens"), (1200, "1,200 tokens")])
def test_less_than_nothing_saved_is_none_yet(amount, told):
    summary = {
        "calls_in_runs": 0,
        "runs": 0,
        "latency": {},
        "total_calls": 1,
        "success_rate": 100.0,
        "context_saved": amount,
        "time_saved_ms": amount,
        "tokens_in": 1,
        "tokens_out": 1,
    }
    shown = dict(_in_short(summary))
    assert told in shown["context saved"]
    assert ("none yet" in shown["time saved"]) is (amount < 0)
