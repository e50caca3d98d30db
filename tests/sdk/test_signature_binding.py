"""JSON arguments become what the hints ask for, and the function is called with exactly that."""

import asyncio
import enum
import inspect
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict, Unpack
from uuid import UUID

import annotated_types
import msgspec
import pytest
from helpers import each, executor_for, run

from onetool.core.errors import BadArguments
from onetool.sdk.pack import tool_from_function


def handler_of(hint):
    """A tool that gives back its argument as it got it."""

    def f(x):
        return x

    f.__annotations__ = {"x": hint}
    return tool_from_function(f, "p").handler


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Span:
    start: date
    end: date
    tags: set[str] = field(default_factory=set)

    def __post_init__(self):
        if self.end < self.start:
            raise ValueError("it ends before it starts")


@dataclass
class Node:
    at: Path
    inside: "list[Node]" = field(default_factory=list)


class Title(TypedDict):
    title: str


class Movie(TypedDict):
    title: str
    seen: NotRequired[date]


class Pair(NamedTuple):
    left: Path
    right: date = date(2026, 1, 1)


class Star(msgspec.Struct, rename="camel", tag="star"):
    full_name: str
    seen: date | None = None


class Planet(msgspec.Struct, tag="planet"):
    moons: int


class Row(msgspec.Struct, array_like=True):
    at: Path


class Slug(str):
    def __new__(cls, text):
        if " " in text:
            raise ValueError("no spaces, please")
        return super().__new__(cls, text)


UserId = NewType("UserId", UUID)
DAY = date(2026, 1, 31)

CONVERSIONS = [
    (int, 5.0, 5),
    (int | None, 5.0, 5),
    (datetime, "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    (datetime, "2026-01-31", datetime(2026, 1, 31)),
    (date, "2026-01-31", DAY),
    (time, "12:30:00", time(12, 30)),
    (timedelta, "P1DT2H", timedelta(days=1, hours=2)),
    (UUID, "00000000-0000-0000-0000-000000000007", UUID(int=7)),
    (UserId, "00000000-0000-0000-0000-000000000007", UUID(int=7)),
    (Path, "a/b", Path("a/b")),
    (PurePosixPath, "a/b", PurePosixPath("a/b")),
    (str | PathLike[str], "a", "a"),
    (PathLike[str], "a", Path("a")),
    (Decimal, "1.50", Decimal("1.50")),
    (Decimal, 0.1, Decimal("0.1")),
    (bytes, "YWJj", b"abc"),
    (bytearray, "YWJj", bytearray(b"abc")),
    (Color, "blue", Color.BLUE),
    (Level, 1.0, Level.LOW),
    (Access, 3, Access.READ | Access.WRITE),
    (Literal[1, "a", Color.RED], "red", Color.RED),
    (Slug, "a-b", Slug("a-b")),
    (list[int], [1.0, 2], [1, 2]),
    (list[Path], ["a"], [Path("a")]),
    (Sequence[date], ["2026-01-31"], [DAY]),
    (Iterable[date], ["2026-01-31"], [DAY]),
    (set[int], [1, 2, 2], {1, 2}),
    (frozenset[str], ["a"], frozenset(["a"])),
    (tuple[Path, ...], ["a", "b"], (Path("a"), Path("b"))),
    (tuple[int, Path], [1, "b"], (1, Path("b"))),
    (tuple, ["b"], ("b",)),
    (dict[str, date], {"a": "2026-01-31"}, {"a": DAY}),
    (dict[int, str], {"-1": "a"}, {-1: "a"}),
    (dict[date, int], {"2026-01-31": 1}, {DAY: 1}),
    (dict[Level, str], {"1": "a"}, {Level.LOW: "a"}),
    (Mapping[Color, Any], {"red": None}, {Color.RED: None}),
    (OrderedDict[str, str], {"a": "b"}, OrderedDict(a="b")),
    (defaultdict[str, str], {"a": "b"}, defaultdict(None, a="b")),
    (Counter[str], {"a": 2}, Counter("aa")),
    (Span, {"start": "2026-01-01", "end": "2026-01-31", "tags": ["a"]}, Span(date(2026, 1, 1), DAY, {"a"})),
    (Node, {"at": "a", "inside": [{"at": "b"}]}, Node(Path("a"), [Node(Path("b"))])),
    (Movie, {"title": "a", "seen": "2026-01-31"}, {"title": "a", "seen": DAY}),
    (Pair, ["a"], Pair(Path("a"))),
    (Star, {"type": "star", "fullName": "Sun", "seen": "2026-01-31"}, Star("Sun", DAY)),
    (Star | Planet, {"type": "planet", "moons": 2.0}, Planet(2)),
    (Row, ["a"], Row(Path("a"))),
    (date | None, None, None),
    (date | int | str, "2026-01-31", DAY),
    (date | int | str, "soon", "soon"),
    (str | date, "2026-01-31", "2026-01-31"),
    (list[date] | dict[str, date], {"a": "2026-01-31"}, {"a": DAY}),
    (Annotated[date | None, annotated_types.Ge(date(2026, 1, 1))], "2026-01-31", DAY),
    (Annotated[str, annotated_types.Predicate(str.islower)], "a", "a"),
    (Any, {"a": [1]}, {"a": [1]}),
]


@each(("hint", "json", "value"), CONVERSIONS)
def test_json_becomes_what_the_hint_asks_for(hint, json, value):
    converted = handler_of(hint)(x=json)
    assert converted == value
    assert type(converted) is type(value)


REFUSALS = [
    (datetime, "soon", "x: expected a date and time like 2026-01-31T12:00:00Z, got the string 'soon'"),
    (date, "2026-02-30", "x: expected a date like 2026-01-31, got the string '2026-02-30'"),
    (
        timedelta,
        "P1Y",
        "x: expected a duration in days, hours, minutes and seconds like P1DT2H30M, got the string 'P1Y'",
    ),
    (UUID, "7", "x: expected a UUID, got the string '7'"),
    (bytes, "a", "x: expected bytes in base64, got the string 'a'"),
    (Decimal, "much", "x: expected a decimal number like 12.50, got the string 'much'"),
    (Decimal, "NaN", "x: expected a decimal number like 12.50, got the string 'NaN'"),
    (Access, 8, "x: expected a sum of its flags, got the number 8"),
    (Slug, "a b", "x: no spaces, please"),
    (list[date], ["2026-01-31", "soon"], "x[1]: expected a date like 2026-01-31, got the string 'soon'"),
    (tuple[int, date], [1, "soon"], "x[1]: expected a date like 2026-01-31, got the string 'soon'"),
    (tuple[int, date], [1], "x: expected a list of 2, got a list of 1 item"),
    (set[tuple[Any]], [[{}]], "x: expected items that a set can hold, got a list of 1 item"),
    (dict[str, date], {"a": "soon"}, "x.a: expected a date like 2026-01-31, got the string 'soon'"),
    (dict[date, str], {"soon": "a"}, "x: expected keys that are a date like 2026-01-31, got the string 'soon'"),
    (Span, {"start": "2026-01-31", "end": "2026-01-01"}, "x: it ends before it starts"),
    (Span, {"start": "2026-01-31"}, "x: expected an object with end, got an object with start"),
    (Span, {"start": "2026-01-31", "end": "2026-01-31", "on": 1}, "x.on: unknown; known: start, end, tags"),
    (Node, {"at": "a", "inside": [{"at": 1}]}, "x.inside[0].at: expected a path, got the number 1"),
    (Movie, {"title": "a", "seen": "soon"}, "x.seen: expected a date like 2026-01-31, got the string 'soon'"),
    (Pair, [], "x: expected a list of 1 to 2, got an empty list"),
    (Star | Planet, {"type": "moon", "fullName": "a"}, "x.type: expected one of 'star', got the string 'moon'"),
    (date | None, "soon", "x: expected a date like 2026-01-31, got the string 'soon'"),
    (date | int, "soon", "x: expected a date like 2026-01-31 or a whole number, got the string 'soon'"),
    (Annotated[Decimal, annotated_types.Ge(1)], "0.5", "x: expected at least 1, got the string '0.5'"),
    (
        Annotated[set[int], annotated_types.MinLen(2)],
        [1, 1],
        "x: expected a length of at least 2, got a list of 2 items",
    ),
    (Annotated[bytes, annotated_types.MaxLen(2)], "YWJj", "x: expected a length of at most 2, got the string 'YWJj'"),
    (
        Annotated[datetime, msgspec.Meta(tz=True)],
        "2026-01-31",
        "x: expected a value with a time zone, got the string '2026-01-31'",
    ),
    (
        Annotated[str, annotated_types.Predicate(str.islower)],
        "A",
        "x: expected a value that passes islower, got the string 'A'",
    ),
    (date, "x" * 100, f"x: expected a date like 2026-01-31, got the string '{'x' * 59}…'"),
]


@each(("hint", "json", "message"), REFUSALS)
def test_a_value_that_can_not_be_converted_is_told_with_its_place(hint, json, message):
    with pytest.raises(BadArguments) as refused:
        handler_of(hint)(x=json)
    assert str(refused.value) == message


COLLIDING = [(2**61 - 1) * n for n in range(40_000)]  # they have the hash 0, all of them


@pytest.mark.parametrize(
    ("hint", "json"),
    [
        (set[int], COLLIDING),
        (frozenset[int], COLLIDING),
        (set[tuple[int, ...]], [[n] for n in COLLIDING]),
        (dict[int, int], {str(n): 0 for n in COLLIDING}),
    ],
)
def test_numbers_that_were_made_to_collide_make_no_set(hint, json):
    """It would take a minute, in which nothing else runs."""
    with pytest.raises(BadArguments, match="x: expected at most 100 numbers with the same hash"):
        handler_of(hint)(x=json)


def test_numbers_that_are_there_often_do():
    assert handler_of(set[int])(x=[-1, -2, 0] * 1000) == {-1, -2, 0}
    assert handler_of(set[int])(x=[*range(5000)]) == {*range(5000)}
    assert handler_of(dict[int, str])(x={str(n): "a" for n in range(5000)}) == dict.fromkeys(range(5000), "a")


def test_a_secret_is_not_repeated():
    def f(api_key: UUID): ...

    with pytest.raises(BadArguments, match=r"^api_key: expected a UUID, got \*\*\*$"):
        tool_from_function(f, "p").handler(api_key="hunter2")


def test_the_caller_gets_a_result_that_says_invalid_args():
    result = run(executor_for(handler_of(date), {"type": "object", "properties": {"x": {}}}), x="soon")
    assert result.error.code == "invalid_args"


# How the function is called


@each("hint", [str, float, bool, None, Any, list[str], dict[str, Any], Literal["a"], str | None, Title])
def test_what_json_already_has_costs_nothing(hint):
    def f(x): ...

    f.__annotations__ = {"x": hint}
    assert tool_from_function(f, "p").handler is f


def test_positional_arguments_are_passed_by_position():
    def f(a, b=2, /, *, c=3):
        return a, b, c

    handler = tool_from_function(f, "p").handler
    assert handler(a=1) == (1, 2, 3)
    assert handler(c=9, b=8, a=7) == (7, 8, 9)


def test_a_positional_argument_may_be_left_out_before_one_that_is_not():
    def f(a=1, b=2, /):
        return a, b

    assert tool_from_function(f, "p").handler(b=5) == (1, 5)


def test_a_missing_positional_argument_is_told():
    def f(a, /): ...

    with pytest.raises(BadArguments, match=r"^a: expected a value \(required\), got nothing$"):
        tool_from_function(f, "p").handler()


def test_further_positional_arguments_are_spread():
    def f(a: Path, b: int = 2, *rest: date, c: int = 3):
        return a, b, rest, c

    handler = tool_from_function(f, "p").handler
    assert handler(a="x", rest=["2026-01-31"]) == (Path("x"), 2, (DAY,), 3)
    assert handler(a="x", b=1.0, c=4.0) == (Path("x"), 1, (), 4)


def test_further_positional_arguments_of_a_fixed_kind():
    def f(*rest: *tuple[int, Path]):
        return rest

    assert tool_from_function(f, "p").handler(rest=[1, "a"]) == (1, Path("a"))


def test_further_named_arguments_are_converted():
    def f(a: str, **others: date):
        return a, others

    assert tool_from_function(f, "p").handler(a="x", when="2026-01-31") == ("x", {"when": DAY})


def test_named_arguments_of_a_typed_dict_are_converted():
    def f(**others: Unpack[Movie]):
        return others

    assert tool_from_function(f, "p").handler(title="x", seen="2026-01-31") == {"title": "x", "seen": DAY}


def test_an_argument_that_is_absent_keeps_its_default():
    default = object()

    def f(x: date | None = default):
        return x

    assert tool_from_function(f, "p").handler() is default


@each("name", ["self", "function", "arguments", "args", "positional"])
def test_an_argument_may_have_any_name(name):
    namespace = {"Path": Path}
    exec(f"def f({name}: Path): return {name}", namespace)
    assert tool_from_function(namespace["f"], "p").handler(**{name: "a"}) == Path("a")


def test_an_async_function_stays_one():
    async def f(x: date):
        return x

    spec = tool_from_function(f, "p")
    assert inspect.iscoroutinefunction(spec.handler)
    assert spec.is_async
    assert asyncio.run(spec.handler(x="2026-01-31")) == DAY


def test_a_generator_gives_the_list_of_what_it_yields():
    def f(n: int):
        yield from range(n)

    assert tool_from_function(f, "p").handler(n=3) == [0, 1, 2]


def test_an_async_generator_too():
    async def f(n: int):
        for i in range(n):
            yield i

    spec = tool_from_function(f, "p")
    assert spec.is_async
    assert asyncio.run(spec.handler(n=3)) == [0, 1, 2]


def test_the_handler_has_the_name_and_the_words_of_the_function():
    def f(x: date):
        """Words."""

    handler = tool_from_function(f, "p").handler
    assert (handler.__name__, handler.__doc__, handler.__wrapped__) == ("f", "Words.", f)
