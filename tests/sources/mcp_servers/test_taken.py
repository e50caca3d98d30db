"""Arguments of calls of other people's servers: what is taken for what, and what code is refused for."""

import asyncio

import pytest
from helpers import each
from sources.mcp_servers.harness import call, ran

from onetool import ToolCall, ToolSpec
from onetool.core.lenient import taken

PROPERTIES = {
    "type": {"enum": ["png", "jpeg"]},
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "full": {"type": "boolean"},
    "codes": {"type": "array", "items": {"type": "integer"}},
    "words": {"type": "string"},
}


def loose(**more):
    schema = {"type": "object", "properties": PROPERTIES, **more}
    return ToolSpec(name="odd.loose", description="", input_schema=schema, lenient=True)


@pytest.fixture
def app(harness):
    with harness.app({"odd": harness.nasty("wraps")}) as app:
        yield app


def got(result):
    assert result.error is None, result.error
    return result.data


def test_what_is_required_and_has_a_default_may_be_left_out(app):
    assert got(call(app, "odd.loose")) == {"type": "png"}
    assert got(call(app, "odd.loose", type="jpeg")) == {"type": "jpeg"}
    assert got(ran(app, "odd.loose(count=2)")) == {"type": "png", "count": 2}
    assert "type: Literal['png', 'jpeg'] = 'png'" in ran(app, "ot.signature('odd.loose')").data


@pytest.mark.parametrize(
    ("name", "given", "sent"),
    [
        ("count", "3", 3),
        ("count", "-12", -12),
        ("ratio", "0.5", 0.5),
        ("ratio", "3", 3),
        ("full", "true", True),
        ("full", "False", False),
        ("codes", ["1", 2], [1, 2]),
        ("codes", "[1, 2]", [1, 2]),
        ("options", {"depth": "4"}, {"depth": 4}),
        ("options", '{"depth": 4}', {"depth": 4}),
        ("either", "3", 3),
        ("tags", "a", ["a"]),
        ("tags", '["a", "b"]', ["a", "b"]),
        ("tags", ["a"], ["a"]),
        ("some_tags", "a", ["a"]),
        ("words", "3", "3"),
    ],
)
def test_a_text_is_taken_for_what_it_says_where_nothing_is_lost(app, name, given, sent):
    assert got(call(app, "odd.loose", **{name: given}))[name] == sent
    assert got(ran(app, f"odd.loose({name}={given!r})"))[name] == sent
    assert got(ran(app, f"value = {given!r}\nodd.loose({name}=value, type=str('png'))"))[name] == sent


@each(
    ("name", "given"),
    [
        ("count", "007"),
        ("count", "3.5"),
        ("count", " 3"),
        ("count", "three"),
        ("count", "1_000"),
        ("count", "٣"),
        ("count", ""),
        ("count", "9" * 5000),
        ("ratio", "0.12345678901234567890123"),
        ("ratio", "1e999"),
        ("ratio", "nan"),
        ("full", "yes"),
        ("codes", "{}"),
        ("codes", "[" * 100_000),
        ("words", 3),
        ("type", "gif"),
    ],
)
def test_what_would_lose_something_is_refused(name, given):
    result = taken(loose(), {"type": "png", name: given})
    assert [problem.path for problem in result.problems] == [name]


def test_an_unknown_argument_is_sent_on_and_told(app):
    result = call(app, "odd.loose", colour="red", type="png")
    assert got(result)["colour"] == "red"
    assert result.meta["warnings"] == ["colour: odd.loose does not list this argument; it was sent on to the server"]
    ran_with = ran(app, "odd.loose(colour='red')")
    assert got(ran_with)["colour"] == "red"
    assert len(ran_with.meta["warnings"]) == 1
    assert "warnings" not in call(app, "odd.loose", count=1).meta


def test_a_near_miss_in_code_is_refused_with_the_name_that_was_meant(app):
    assert "did you mean count?" in ran(app, "odd.loose(cuont=3)").error.message
    assert "did you mean count?" in ran(app, "n = 3\nodd.loose(cuont=n)").error.message


def test_a_closed_schema_takes_nothing_else(app):
    refused = ran(app, "odd.closed(colour='red')")
    assert refused.error.code == "invalid_args"
    assert "colour: unknown argument" in refused.error.message
    assert got(call(app, "odd.closed", count="3"))["count"] == 3


def test_unknown_ones_are_told_together_with_what_is_wrong():
    problems = taken(loose(required=["words"]), {"colour": 1}).problems
    assert [(problem.path, problem.got) for problem in problems] == [
        ("colour", "unknown argument"),
        ("words", "nothing"),
    ]


def test_a_wrong_value_is_never_taken_for_an_unknown_argument():
    borrowed = loose(allOf=[{"properties": {"depth": {"type": "integer"}}}])
    assert taken(borrowed, {"depth": 2, "type": "png"}).problems == []
    assert taken(borrowed, {"depth": {}, "type": "png"}).problems != []


def test_whoever_approves_sees_what_is_sent(app):
    asked = []

    async def gate(call, spec):
        asked.append(dict(call.args))

    result = asyncio.run(app.call(ToolCall("1", "odd.loose", {"count": "3", "type": "png"}), gate=gate))
    assert got(result)["count"] == 3
    assert asked == [{"count": 3, "type": "png"}]


def test_packs_and_declared_tools_stay_strict(harness):
    tool = {
        "name": "weather",
        "description": "Tells the weather.",
        "type": "function",
        "handler": "weather",
        "parameters": {
            "type": "object",
            "properties": {"days": {"type": "integer", "default": 1}},
            "required": ["days"],
        },
        "implementation": {"type": "mock", "mock_response": 1},
    }
    with harness.app({}, tools=[tool]) as app:
        for args in ({"days": "3"}, {}, {"days": 1, "colour": "red"}):
            assert call(app, "weather", **args).error.code == "invalid_args"
        assert call(app, "time.now", colour="red").error.code == "invalid_args"


@pytest.mark.parametrize("menu", ["direct", "search", "run"])
def test_the_warning_reaches_a_client_of_mcp(harness, menu):
    from sources.mcp_servers.test_relayed import through

    result = asyncio.run(through(menu, harness, "loose", {"colour": "red"}))
    assert "red" in result.content[0].text
    [warning] = result.meta["onetool/warnings"]
    assert warning.startswith("colour: ")
