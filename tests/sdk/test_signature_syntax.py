"""Hints as whole modules write them: as text, and with the syntax of later Pythons."""

import sys
from types import ModuleType

import pytest

from onetool.sdk.pack import tool_from_function

INTEGER = {"type": "integer"}
TEXT = {"type": "string"}


@pytest.fixture
def tool_of(monkeypatch):
    """The tool of a module's function `f`."""

    def make(code):
        module = ModuleType("some_pack")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(code, "some_pack.py", "exec", dont_inherit=True), vars(module))
        return tool_from_function(module.f, "p")

    return make


AS_TEXT = """
from __future__ import annotations
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, NamedTuple, NotRequired, TypedDict

if TYPE_CHECKING:
    from somewhere import Something

def f(when: date, stay: Stay | None = None, films: list[Film] = [], spot: Spot | None = None) -> Something:
    return when, stay, films, spot

@dataclass
class Stay:
    start: date
    after: Stay | None = None

class Film(TypedDict):
    title: Annotated[str, "as on the poster"]
    seen: NotRequired[date]

class Spot(NamedTuple):
    day: date
"""


def test_all_hints_may_be_text(tool_of):
    spec = tool_of(AS_TEXT)
    assert list(spec.input_schema["$defs"]) == ["Stay", "Film", "Spot"]
    assert spec.input_schema["$defs"]["Film"]["required"] == ["title"]
    assert spec.input_schema["$defs"]["Film"]["properties"]["title"] == TEXT | {"description": "as on the poster"}


def test_values_for_hints_that_are_text_are_converted(tool_of):
    when, stay, films, spot = tool_of(AS_TEXT).handler(
        when="2026-01-31",
        stay={"start": "2026-01-30"},
        films=[{"title": "a", "seen": "2026-01-29"}],
        spot=["2026-01-28"],
    )
    assert [when.day, stay.start.day, films[0]["seen"].day, spot.day.day] == [31, 30, 29, 28]


def test_a_return_hint_that_names_nothing_at_run_time_gives_no_schema(tool_of):
    assert tool_of(AS_TEXT).output_schema is None


def test_a_field_whose_hint_names_nothing_is_told(tool_of):
    code = "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: 'Nowhere'\ndef f(a: A): ..."
    with pytest.raises(TypeError, match=r"^parameter 'a': A can't be represented in JSON: .*'Nowhere' is not defined"):
        tool_of(code)


def test_a_function_that_a_decorator_wraps_keeps_its_signature(tool_of):
    code = """
from functools import wraps
from pathlib import Path

def twice(function):
    @wraps(function)
    def call(*args, **kwargs):
        return [function(*args, **kwargs), function(*args, **kwargs)]
    return call

@twice
def f(at: "Path", /): return at
"""
    spec = tool_of(code)
    assert spec.input_schema["properties"] == {"at": TEXT}
    assert [str(path) for path in spec.handler(at="a")] == ["a", "a"]


new_syntax = pytest.mark.skipif(sys.version_info < (3, 12), reason="the `type` statement came with Python 3.12")


@new_syntax
def test_an_alias_stands_for_its_value(tool_of):
    assert tool_of("type Names = list[str]\ndef f(x: Names): ...").input_schema["properties"]["x"]["items"] == TEXT


@new_syntax
def test_a_generic_alias_is_filled_in(tool_of):
    spec = tool_of("type Pair[T] = tuple[T, T]\ndef f(x: Pair[int]): ...")
    assert spec.input_schema["properties"]["x"]["prefixItems"] == [INTEGER, INTEGER]


@new_syntax
def test_an_alias_may_contain_itself(tool_of):
    spec = tool_of("type Tree = dict[str, Tree] | int\ndef f(x: Tree) -> Tree: return x")
    assert spec.arguments.check({"x": {"a": {"b": 1}}}) == []
    assert spec.arguments.check({"x": {"a": {"b": "c"}}}) != []
    assert spec.handler(x={"a": {"b": 1.0}}) == {"a": {"b": 1}}
    assert spec.output.check({"a": 1}) == []


@new_syntax
def test_type_variables_of_a_function_take_what_their_bound_takes(tool_of):
    schema = tool_of("def f[T: int, A](x: T, y: list[A]): ...").input_schema
    assert schema["properties"] == {"x": INTEGER, "y": {"type": "array"}}
