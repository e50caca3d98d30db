"""Names in a call: long ones and far too many are refused unread, and recorded with few characters."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetool import Executor, Registry, ToolCall, ToolSpec
from onetool.core import redaction
from onetool.core.redaction import sounds_secret
from onetool.core.signature import arguments_by_name
from onetool.core.threads import run_blocking

LONG = "k" * 1_000_000
REGISTERED = "n" * 400
OPEN = {"type": "object", "properties": {REGISTERED: {}}, "additionalProperties": True}
CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}}


class Calls:
    """An executor with three tools that notes the events of its calls."""

    def __init__(self):
        registry = Registry()
        for name, schema in (("open", OPEN), ("closed", CLOSED), ("n" * 300, CLOSED)):
            registry.register(
                ToolSpec(name=name, description="d", input_schema=schema, handler=lambda **args: len(args))
            )
        self.events = []
        self.executor = Executor(registry, recorders=[self.events.append])

    def __call__(self, name, args, way="execute"):
        call = ToolCall("1", name, args)
        if way == "execute":
            return asyncio.run(self.executor.execute(call))
        return run_blocking(self.executor.execute(call))


@pytest.fixture
def calls():
    return Calls()


@pytest.mark.attack("other callers")
@pytest.mark.parametrize("way", ["execute", "blocking"])
@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("open", {LONG: 1}, "its name has more than 400 characters"),
        ("open", {"m" * 401: "x"}, "its name has more than 400 characters"),
        ("closed", {LONG: "x"}, "its name has more than 256 characters"),
        ("closed", {"a": 1, LONG: "x"}, "its name has more than 256 characters"),
        ("closed", {f"{number}{LONG}": 1 for number in range(20)}, "its name has more than 256 characters"),
        ("closed", {f"k{number}": {} for number in range(20)}, "10 more unknown arguments"),
        ("closed", {"x": {f"k{number}": "text" for number in range(20_000)}}, "x: unknown argument"),
        (LONG, {LONG: 1}, "Tool not found: kkk"),
        ("n" * 301, {f"k{number}": [{}] * 2000 for number in range(20)}, "Tool not found: nnn"),
    ],
)
def test_wrong_names_are_refused_and_recorded_in_short(calls, name, args, words, way):
    result = calls(name, args, way)
    assert words in result.error.message
    (event,) = calls.events
    assert len(str(result)) + len(str(event.error)) + len(event.tool) < 8000
    args = json.loads(event.args)
    assert len(args) <= 11
    assert all(len(name) <= 256 and len(str(value)) < 100 for name, value in args.items())


def test_registered_names_may_be_longer(calls):
    assert calls("open", {REGISTERED: 1, "m" * 399: 2}).data == 2
    assert calls("n" * 300, {"a": 1}).ok


def test_a_small_call_is_told_all_that_is_wrong(calls):
    error = calls("closed", {"a": "x", "b": 1}).error
    assert {one.path for one in error.details} == {"a", "b"}


def test_unknown_members_of_an_argument_are_counted(calls):
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    schema = {"type": "object", "properties": {"x": closed}}
    (*described, counted) = ToolSpec(name="t", description="", input_schema=schema).arguments.check(
        {"x": {f"k{number}": 1 for number in range(1000)}}
    )
    assert len(described) == 10
    assert str(counted) == "x: 990 more unknown arguments"


@pytest.mark.attack("other callers")
@pytest.mark.parametrize("name", [LONG, LONG + "_password", "Ab" * 500_000, "_" * 1_000_000 + "apiKey"])
def test_the_end_of_a_name_says_whether_it_is_secret(monkeypatch, name):
    """A pattern over all of a name of 15 MB took seconds, in which nothing else ran."""
    read = []
    pattern = redaction._NAME.search
    monkeypatch.setattr(redaction._NAME, "search", lambda text: read.append(len(text)) or pattern(text))
    assert sounds_secret(name) == name.endswith(("_password", "apiKey"))
    assert max(read) < 200


@given(st.text(alphabet="aA_-.k", max_size=100), st.sampled_from(["password", "Token", "api_key", "signingKey", "x"]))
def test_a_cut_name_sounds_as_the_whole_one(start, end):
    name = start + end
    whole = bool(redaction._NAME.search(redaction._CAMEL.sub("_", name)))
    assert sounds_secret(name) == whole


@pytest.mark.attack("other callers")
def test_finding_parameters_by_name_is_linear():
    """Each argument was compared with each parameter."""

    class Word(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Word.compared += 1
            return str.__eq__(self, other)

    properties = {f"p{number}": {} for number in range(100)}
    spec = ToolSpec(name="t", description="", input_schema={"type": "object", "properties": properties})
    given_args = {Word(f"k{number}"): 1 for number in range(1000)}
    assert arguments_by_name(spec, [], given_args) == given_args
    assert Word.compared < 10_000
