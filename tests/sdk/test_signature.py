"""A function becomes a tool: what each type hint looks like to a caller."""

import enum
import re
import typing
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
)
from uuid import UUID

import annotated_types
import msgspec
import pytest
import typing_extensions
from helpers import each

from onetool.sdk import tool
from onetool.sdk.pack import tool_from_function

NULL = {"type": "null"}
TEXT = {"type": "string"}
INTEGER = {"type": "integer"}


def schema_of(hint):
    """The whole input schema of a function with one parameter, `x`."""

    def f(x): ...

    f.__annotations__ = {"x": hint}
    return tool_from_function(f, "p").input_schema


def property_of(hint):
    return schema_of(hint)["properties"]["x"]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"
    ALSO_RED = "red"  # noqa: PIE796 - an alias, which is not a choice of its own


class Level(enum.IntEnum):
    LOW = 2
    HIGH = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    """A place on the map.

    Attributes:
        x: How far to the east.
    """

    x: int
    y: int = 0
    names: list[str] = field(default_factory=list)
    length: float = field(init=False, default=0.0)


@dataclass
class Node:
    value: int
    children: "list[Node]" = field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Loose(TypedDict, total=False):
    a: int
    b: Required[int]


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Star(msgspec.Struct, rename="camel", tag="star"):
    full_name: str
    mass: Annotated[float, msgspec.Meta(gt=0)] = 1.0


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str


T = TypeVar("T")
Number = TypeVar("Number", int, str)
Small = TypeVar("Small", bound=int)


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: T | None = None


UserId = NewType("UserId", int)
Celsius = typing_extensions.TypeAliasType("Celsius", float)
Tree = typing_extensions.TypeAliasType("Tree", "dict[str, Tree] | int")

Json = Union[list["Json"], dict[str, "Json"], str]  # noqa: UP007 - text has no `|`


class Slug(str):
    pass


FORMS = [
    (str, TEXT),
    (int, INTEGER),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, NULL),
    (Any, {}),
    (object, {}),
    (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
    (Literal[2, 1], {"type": "integer", "enum": [2, 1]}),
    (Literal["a", 1, None, True], {"enum": ["a", 1, None, True]}),
    (Literal[Color.BLUE], {"type": "string", "enum": ["blue"]}),
    (Color, {"type": "string", "enum": ["red", "blue"]}),
    (Level, {"type": "integer", "enum": [2, 1]}),
    (Access, INTEGER),
    (Optional[str], {"anyOf": [TEXT, NULL]}),  # noqa: UP045
    (int | None, {"anyOf": [INTEGER, NULL]}),
    (Union[int, str], {"anyOf": [INTEGER, TEXT]}),  # noqa: UP007
    (str | Path, TEXT),
    (int | Any, {}),
    (list, {"type": "array"}),
    (list[int], {"type": "array", "items": INTEGER}),
    (typing.List[int], {"type": "array", "items": INTEGER}),  # noqa: UP006
    (Sequence[int], {"type": "array", "items": INTEGER}),
    (Iterable[int], {"type": "array", "items": INTEGER}),
    (set[int], {"type": "array", "items": INTEGER}),
    (frozenset[int], {"type": "array", "items": INTEGER}),
    (AbstractSet[int], {"type": "array", "items": INTEGER}),
    (tuple, {"type": "array"}),
    (tuple[int, ...], {"type": "array", "items": INTEGER}),
    (tuple[int, str], {"type": "array", "prefixItems": [INTEGER, TEXT], "items": False, "minItems": 2, "maxItems": 2}),
    (tuple[()], {"type": "array", "items": False, "minItems": 0, "maxItems": 0}),
    (dict, {"type": "object"}),
    (dict[str, Any], {"type": "object"}),
    (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
    (typing.Dict[str, int], {"type": "object", "additionalProperties": INTEGER}),  # noqa: UP006
    (Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}),
    (OrderedDict[str, int], {"type": "object", "additionalProperties": INTEGER}),
    (defaultdict[str, int], {"type": "object", "additionalProperties": INTEGER}),
    (Counter[str], {"type": "object", "additionalProperties": INTEGER}),
    (
        dict[int, str],
        {"type": "object", "propertyNames": {"pattern": r"^-?\d+$"}, "additionalProperties": TEXT},
    ),
    (
        dict[Color, int],
        {
            "type": "object",
            "propertyNames": {"type": "string", "enum": ["red", "blue"]},
            "additionalProperties": INTEGER,
        },
    ),
    (datetime, {"type": "string", "format": "date-time"}),
    (date, {"type": "string", "format": "date"}),
    (time, {"type": "string", "format": "time"}),
    (timedelta, {"type": "string", "format": "duration"}),
    (UUID, {"type": "string", "format": "uuid"}),
    (Path, TEXT),
    (PathLike[str], TEXT),
    (Decimal, {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}),
    (bytes, {"type": "string", "contentEncoding": "base64"}),
    (Slug, TEXT),
    (UserId, INTEGER),
    (Celsius, {"type": "number"}),
    (T, {}),
    (Small, INTEGER),
    (Number, {"anyOf": [INTEGER, TEXT]}),
]


@each(("hint", "schema"), FORMS)
def test_a_hint_has_one_form(hint, schema):
    assert property_of(hint) == schema


CONSTRAINTS = [
    (Annotated[int, msgspec.Meta(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
    (Annotated[int, msgspec.Meta(gt=1, lt=9)], {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9}),
    (Annotated[str, msgspec.Meta(pattern="^a", max_length=3)], {**TEXT, "pattern": "^a", "maxLength": 3}),
    (Annotated[str, msgspec.Meta(title="T", description="D")], {**TEXT, "title": "T", "description": "D"}),
    (Annotated[str, msgspec.Meta(examples=["a"])], {**TEXT, "examples": ["a"]}),
    (Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"})], {**TEXT, "format": "email"}),
    (Annotated[int, annotated_types.Ge(1)], {**INTEGER, "minimum": 1}),
    (Annotated[int, annotated_types.Gt(1)], {**INTEGER, "exclusiveMinimum": 1}),
    (Annotated[int, annotated_types.Le(1)], {**INTEGER, "maximum": 1}),
    (Annotated[int, annotated_types.Lt(1)], {**INTEGER, "exclusiveMaximum": 1}),
    (Annotated[int, annotated_types.MultipleOf(5)], {**INTEGER, "multipleOf": 5}),
    (Annotated[int, annotated_types.Interval(ge=1, lt=5)], {**INTEGER, "minimum": 1, "exclusiveMaximum": 5}),
    (Annotated[str, annotated_types.MinLen(2)], {**TEXT, "minLength": 2}),
    (Annotated[list[int], annotated_types.MaxLen(2)], {"type": "array", "items": INTEGER, "maxItems": 2}),
    (Annotated[dict[str, int], annotated_types.Len(1, 2)], {"minProperties": 1, "maxProperties": 2}),
    (Annotated[str | None, annotated_types.MaxLen(2)], {"anyOf": [{**TEXT, "maxLength": 2}, NULL]}),
    (Annotated[str, "the city"], {**TEXT, "description": "the city"}),
    (Annotated[str, typing_extensions.Doc("the city")], {**TEXT, "description": "the city"}),
    (Annotated[Annotated[int, annotated_types.Ge(1)], "n"], {**INTEGER, "minimum": 1, "description": "n"}),
    (Annotated[bytes, annotated_types.MaxLen(2)], {"type": "string", "contentEncoding": "base64"}),
    (Annotated[str, re.compile("^a")], {**TEXT, "pattern": "^a"}),
    (Annotated[date, msgspec.Meta(examples=[date(2026, 1, 31), Color])], {"examples": ["2026-01-31"]}),
    (Annotated[float, annotated_types.Le(float("inf"))], {"type": "number"}),
    (Annotated[str, 17, Slug], TEXT),
]


@each(("hint", "schema"), CONSTRAINTS)
def test_annotated_adds_to_the_form(hint, schema):
    found = property_of(hint)
    assert {key: found[key] for key in schema} == schema


def test_a_dataclass_is_a_closed_object_with_the_words_of_its_docstring():
    schema = schema_of(Point)
    assert schema["properties"]["x"] == {"$ref": "#/$defs/Point"}
    assert schema["$defs"]["Point"] == {
        "description": "A place on the map.",
        "type": "object",
        "properties": {
            "x": {"type": "integer", "description": "How far to the east."},
            "y": {"type": "integer", "default": 0},
            "names": {"type": "array", "items": TEXT},
        },
        "required": ["x"],
        "additionalProperties": False,
    }


def test_a_dataclass_may_contain_itself():
    items = schema_of(Node)["$defs"]["Node"]["properties"]["children"]["items"]
    assert items == {"$ref": "#/$defs/Node"}


def test_a_generic_dataclass_is_defined_by_what_it_holds():
    schema = schema_of(Page[int])
    assert schema["$defs"]["Page_int"]["properties"]["items"] == {"type": "array", "items": INTEGER}


def test_a_typed_dict_knows_what_is_required():
    assert schema_of(Movie)["$defs"]["Movie"]["required"] == ["title"]
    assert schema_of(Loose)["$defs"]["Loose"]["required"] == ["b"]


def test_a_named_tuple_is_an_array_whose_places_have_names():
    assert schema_of(Pair)["$defs"]["Pair"] == {
        "type": "array",
        "prefixItems": [{"title": "left", **INTEGER}, {"title": "right", **TEXT, "default": "r"}],
        "items": False,
        "minItems": 1,
        "maxItems": 2,
    }


def test_a_struct_has_its_names_in_json_and_its_tag():
    definition = schema_of(Star)["$defs"]["Star"]
    assert definition["properties"] == {
        "type": {"type": "string", "enum": ["star"]},
        "fullName": TEXT,
        "mass": {"type": "number", "exclusiveMinimum": 0, "default": 1.0},
    }
    assert definition["required"] == ["type", "fullName"]


def test_an_array_like_struct_is_an_array():
    assert schema_of(Row)["$defs"]["Row"]["type"] == "array"


def test_an_alias_that_contains_itself_is_a_definition():
    tree = {"anyOf": [{"type": "object", "additionalProperties": {"$ref": "#/$defs/Tree"}}, INTEGER]}
    schema = schema_of(Tree)
    assert schema["properties"]["x"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"] == {"Tree": tree}


def test_a_plain_alias_that_contains_itself_is_a_definition():
    schema = schema_of(Json)
    assert schema["$defs"]["Json"]["anyOf"][0]["items"] == {"$ref": "#/$defs/Json"}


def test_definitions_stand_once_at_the_top():
    def f(a: Point, b: list[Point], c: dict[str, Point | None]): ...

    schema = tool_from_function(f, "p").input_schema
    assert list(schema["$defs"]) == ["Point"]
    assert all("$defs" not in part for part in schema["properties"].values())


def test_two_classes_of_one_name_are_two_definitions():
    other = dataclass(type("Point", (), {"__annotations__": {"z": str}}))

    def f(a, b): ...

    f.__annotations__ = {"a": Point, "b": other}
    schema = tool_from_function(f, "p").input_schema
    assert schema["properties"] == {"a": {"$ref": "#/$defs/Point"}, "b": {"$ref": "#/$defs/Point2"}}
    assert list(schema["$defs"]["Point2"]["properties"]) == ["z"]


# Parameters


def test_hints_may_be_text():
    def f(x: "list[Point] | None"): ...

    assert tool_from_function(f, "p").input_schema["properties"]["x"]["anyOf"][1] == NULL


def test_a_parameter_without_a_hint_takes_anything():
    def f(x): ...

    assert tool_from_function(f, "p").input_schema == {"type": "object", "properties": {"x": {}}, "required": ["x"]}


def test_a_default_of_none_takes_null_whatever_the_hint_says():
    def f(x: str = None): ...  # noqa: RUF013 - people write it

    found = tool_from_function(f, "p").input_schema["properties"]["x"]
    assert found == {"anyOf": [TEXT, NULL], "default": None}


@each(
    ("default", "shown"),
    [(1, 1), ((1, 2), [1, 2]), (Color.RED, "red"), (Path("a"), "a"), (date(2026, 1, 31), "2026-01-31"), ({"a"}, ["a"])],
)
def test_a_default_that_is_data_is_shown(default, shown):
    def f(x=default): ...

    assert tool_from_function(f, "p").input_schema["properties"]["x"]["default"] == shown


@pytest.mark.parametrize("default", [object(), float("nan"), len, msgspec.UNSET])
def test_a_default_that_is_no_data_is_not_shown(default):
    def f(x: Any = default): ...

    assert tool_from_function(f, "p").input_schema == {"type": "object", "properties": {"x": {}}}


def test_arguments_are_by_name_however_python_passes_them():
    def f(a: int, /, b: int, *, c: int): ...

    schema = tool_from_function(f, "p").input_schema
    assert list(schema["properties"]) == schema["required"] == ["a", "b", "c"]


def test_further_positional_arguments_are_an_array():
    def f(a: int, *rest: str): ...

    schema = tool_from_function(f, "p").input_schema
    assert schema["properties"]["rest"] == {"type": "array", "items": TEXT}
    assert schema["required"] == ["a"]


def test_further_named_arguments_open_the_schema():
    def anything(**kwargs): ...

    def numbers(**kwargs: int): ...

    assert tool_from_function(anything, "p").input_schema["additionalProperties"] is True
    assert tool_from_function(numbers, "p").input_schema["additionalProperties"] == INTEGER


def test_named_arguments_that_a_typed_dict_lists_are_properties():
    def f(**kwargs: Unpack[Movie]): ...

    schema = tool_from_function(f, "p").input_schema
    assert schema == {"type": "object", "properties": {"title": TEXT, "year": INTEGER}, "required": ["title"]}


# Hints that are none


class Socket: ...


@each("hint", [Socket, Callable[[], int], type[int], list[Socket], complex, Iterable[Socket], 5, [int], Literal[b"a"]])
def test_a_hint_without_a_form_names_the_parameter_and_what_to_use(hint):
    with pytest.raises(TypeError, match=r"^parameter 'x': .+ can't be represented in JSON: .+"):
        schema_of(hint)


def test_a_hint_that_names_nothing_is_told():
    def f(x: "Nowhere"): ...  # noqa: F821

    with pytest.raises(TypeError, match=r"^parameter 'x': Nowhere is not defined: import or define it in this file"):
        tool_from_function(f, "p")


def test_objects_can_not_be_keys():
    with pytest.raises(TypeError, match="keys in JSON are texts"):
        schema_of(dict[tuple[int, int], str])


# The rest of the spec


def test_the_decorator_and_the_docstring_are_in_it():
    @tool(name="find", pure=True, timeout=3, tags=["a"], examples=["find(1)"])
    def f(x: int) -> str:
        """Find it.

        Args:
            x: Where.

        Returns:
            What was there.
        """

    spec = tool_from_function(f, "p")
    assert (spec.name, spec.description, spec.timeout) == ("p.find", "Find it.", 3)
    assert (spec.pure, spec.idempotent, spec.tags, spec.examples) == (True, True, ("a",), ("find(1)",))
    assert spec.input_schema["properties"]["x"]["description"] == "Where."
    assert spec.output_schema == {"type": "string", "description": "What was there."}


def test_the_words_of_the_docstring_stand_nearer_than_those_of_the_hint():
    def f(x: Annotated[str, "a city"]):
        """Go.

        :param x: where to go
        """

    assert tool_from_function(f, "p").input_schema["properties"]["x"]["description"] == "where to go"
