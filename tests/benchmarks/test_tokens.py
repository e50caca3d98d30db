"""The budget of tokens, counted with a real vocabulary: menus of any size, and tasks of two calls over real tools."""

import json
from itertools import count, islice
from statistics import median

import pytest
from bench import tokens
from bench.tokens_ways import WAYS, Request

from onetool import App, ToolSpec
from onetool.interfaces.mcp.menus import menu

pytestmark = pytest.mark.long

SIZES = (10, 527, 10_000)


@pytest.fixture(scope="module")
def tasks():
    return json.loads(tokens.TASKS.read_text())


@pytest.fixture(scope="module", params=SIZES)
def app(request, tmp_path_factory, live_tools):
    """So many tools: those of real servers, and then the same again from servers with other names."""
    config = tmp_path_factory.mktemp("menus") / "onetool.yaml"
    config.write_text("stats: {enabled: false}\n")
    named = (
        ToolSpec(name=f"{turn or ''}{one['name']}", description=one["description"] or "", input_schema=SCHEMA)
        for turn in count()
        for one in live_tools
    )
    with App.open(config) as app:
        for spec in islice(named, request.param):
            app.catalog.registry.add(spec)
        yield app


SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}}


def test_the_vocabulary_is_a_real_one():
    assert tokens.tokens("hello world") == 2
    assert tokens.tokens("ot.search('words')") == 5


@pytest.mark.parametrize(("kind", "most"), [("run", 500), ("search", 650)])
def test_a_menu_costs_no_more_however_many_tools_there_are(app, kind, most):
    listing = menu(kind, app).listing
    assert len(app.tools()) >= 10
    assert 150 < tokens.tokens(tokens.for_a_model(listing)) <= most
    assert tokens.tokens(json.dumps(listing, ensure_ascii=False)) <= most  # with titles and hints, too


def test_the_menu_direct_grows_with_the_tools_and_is_for_few_of_them(app):
    tools = len(app.tools())
    counted = tokens.tokens(tokens.for_a_model(menu("direct", app).listing))
    assert 40 * tools < counted < 400 * tools


# Tasks


def test_the_tasks_are_twenty_with_two_calls_that_their_tools_take(tasks, live_tools):
    known = {tool["name"]: tool for tool in live_tools}
    assert len({task["task"] for task in tasks}) == 20
    for one in (call for task in tasks for call in task["calls"]):
        spec = ToolSpec(name="a.b", description="", input_schema=known[one["tool"]]["inputSchema"])
        assert spec.arguments.check(one["args"]) == [], one
    assert {len(task["calls"]) for task in tasks} == {2}


def test_a_tool_is_found_by_an_answer_to_a_request_that_did_not_name_it():
    searched, asked_for = Request("search", {"query": "the time"}), Request("get_schema", {"tools": ["time.now"]})
    assert tokens.told("time.now", [(searched, "- time.now: The time.")])
    assert not tokens.told("time.now", [(searched, "nothing"), (asked_for, "### time.now")])


def test_a_usual_task_stays_within_the_budget(tasks, tmp_path, monkeypatch):
    """A real server, asked over stdio what a model would ask it."""
    monkeypatch.setattr(tokens, "THINKING_S", 2)
    (way,) = [way for way in WAYS if (way.server, way.menu) == ("onetool", "run")]
    spent = tokens.spent_on(way, tasks, tmp_path)
    assert median(one.whole for one in spent) <= tokens.AIM
    assert sum(one.found for one in spent) >= 36  # of 40, at the first search
    assert {one.menu for one in spent} <= set(range(150, 501))
    assert all(one.whole == one.menu + one.look + one.call for one in spent)
