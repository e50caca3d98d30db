"""The schema of what a tool returns describes the value as it leaves: after `core.plain`."""

import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypedDict
from uuid import UUID

import msgspec
import pydantic
from helpers import each

from onetool.core.json_data import plain
from onetool.sdk.pack import tool_from_function

TEXT = {"type": "string"}
INTEGER = {"type": "integer"}


def spec_of(hint):
    def f(): ...

    f.__annotations__ = {"return": hint}
    return tool_from_function(f, "p")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: int
    length: float = field(init=False, default=0.0)


@dataclass
class Node:
    children: "list[Node]"


class Pair(NamedTuple):
    left: int
    right: date


class Listed(TypedDict, total=False):
    when: datetime


class Star(msgspec.Struct, rename="camel", tag=True):
    full_name: str


class City(pydantic.BaseModel):
    name: str = pydantic.Field(alias="cityName")
    founded: date
    area: Decimal

    @pydantic.computed_field
    @property
    def shout(self) -> str:
        return self.name.upper()


class Aliased(pydantic.BaseModel, serialize_by_alias=True):
    name: str = pydantic.Field(alias="cityName")


@pydantic.dataclasses.dataclass
class Spot:
    when: datetime


OSLO = City(cityName="Oslo", founded=date(1040, 1, 1), area=Decimal("454.12"))

VALUES = [
    (str, "a", TEXT),
    (int, 5, INTEGER),
    (float, 5, {"type": "number"}),
    (Literal["b", "a"], "a", {"type": "string", "enum": ["b", "a"]}),
    (datetime, datetime(2026, 1, 31, 12), {"type": "string", "format": "date-time"}),
    (date, date(2026, 1, 31), {"type": "string", "format": "date"}),
    (time, time(12, 30), {"type": "string", "format": "time"}),
    (timedelta, timedelta(days=1, seconds=5), {"type": "string", "format": "duration"}),
    (UUID, UUID(int=7), {"type": "string", "format": "uuid"}),
    (Path, Path("a/b"), TEXT),
    (Decimal, Decimal("1.50"), {"type": "string", "format": "decimal"}),
    (bytes, b"abc", {"type": "string", "contentEncoding": "base64"}),
    (Color, Color.RED, {"type": "string", "enum": ["red", "blue"]}),
    (Access, Access.READ | Access.WRITE, INTEGER),
    (set[int], {1, 2}, {"type": "array", "items": INTEGER}),
    (frozenset[Path], frozenset([Path("a")]), {"type": "array", "items": TEXT}),
    (dict[date, int], {date(2026, 1, 31): 1}, {"type": "object"}),
    (dict[int, Path], {-1: Path("a")}, {"type": "object", "additionalProperties": TEXT}),
    (tuple[int, Path], (1, Path("a")), {"type": "array", "prefixItems": [INTEGER, TEXT]}),
    (Pair, Pair(1, date(2026, 1, 31)), {"type": "array"}),
    (Point, Point(1), {"type": "object", "required": ["x"]}),
    (Node, Node([Node([])]), {"$ref": "#/$defs/Node"}),
    (list[Node], [Node([])], {"type": "array", "items": {"$ref": "#/$defs/Node"}}),
    (Listed, {"when": datetime(2026, 1, 31)}, {"type": "object"}),
    (Star, Star("Sun"), {"type": "object", "required": ["type", "fullName"]}),
    (City, OSLO, {"type": "object", "required": ["name", "founded", "area", "shout"]}),
    (Aliased, Aliased(cityName="Oslo"), {"type": "object", "required": ["cityName"]}),
    (list[City | None], [OSLO, None], {"type": "array"}),
    (dict[str, list[City]], {"no": [OSLO]}, {"type": "object"}),
    (Spot, Spot(datetime(2026, 1, 31)), {"type": "object"}),
    (int | None, None, {"anyOf": [INTEGER, {"type": "null"}]}),
]


@each(("hint", "value", "schema"), VALUES)
def test_the_schema_describes_the_value_that_leaves(hint, value, schema):
    spec = spec_of(hint)
    assert {key: spec.output_schema[key] for key in schema} == schema
    assert spec.output.check(plain(value)) == []


class Socket: ...


@each(
    "hint", [Any, None, object, NoReturn, Socket, list[Socket], Callable[[], int], Iterator[int], "Nowhere", type[int]]
)
def test_a_hint_that_says_nothing_in_json_gives_no_schema(hint):
    assert spec_of(hint).output_schema is None


def test_no_hint_gives_no_schema():
    def f(): ...

    assert tool_from_function(f, "p").output_schema is None


def test_what_is_awaited_counts():
    async def a() -> int: ...

    def b() -> Awaitable[int]: ...

    assert tool_from_function(a, "p").output_schema == tool_from_function(b, "p").output_schema == INTEGER


def test_of_a_generator_it_is_the_list_of_what_it_yields():
    def a() -> Iterator[int]:
        yield 1

    def b() -> Generator[int, None, None]:
        yield 1

    async def c() -> AsyncIterator[int]:
        yield 1

    schemas = [tool_from_function(f, "p").output_schema for f in (a, b, c)]
    assert schemas == [{"type": "array", "items": INTEGER}] * 3


def test_an_object_stands_at_the_top_and_not_behind_a_reference():
    assert "$defs" not in spec_of(Point).output_schema


def test_more_fields_than_the_hint_names_may_leave():
    assert spec_of(Listed).output.check({"when": "2026-01-31", "more": 1}) == []


def test_the_docstring_describes_it():
    def f() -> Node:
        """Grow.

        Returns:
            The tree.
        """

    assert tool_from_function(f, "p").output_schema["description"] == "The tree."
