"""For any signature: its values fit its schema as JSON and arrive as they were; other values are refused.

A `Kind` is a type hint with strategies for values that it allows and for JSON that it does not. Signatures are made of
kinds, and the real thing is done with them: a function, its ToolSpec, a call.
"""

import dataclasses
import enum
import itertools
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, Union
from uuid import UUID

import annotated_types
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onetool.core.errors import BadArguments
from onetool.core.json_data import plain
from onetool.sdk.pack import tool_from_function

# The JSON types, and a few values of each: what is wrong for a kind is drawn from those that it does not take.
JSON = {
    "null": [None],
    "boolean": [True, False],
    "integer": [0, -7, 12345678901234567890],
    "number": [0.5, -1e9 - 0.25],
    "string": ["", "soon", "é"],
    "array": [[], [None, {}]],
    "object": [{}, {"?": []}],
}


NOTHING = st.nothing()


@dataclasses.dataclass
class Kind:
    hint: Any
    values: st.SearchStrategy
    takes: frozenset[str]  # JSON types
    wrong: st.SearchStrategy
    hashable: bool = True


def kind(hint, values, *takes, wrong=(), inside=NOTHING, hashable=True):
    """What it refuses though it is of a type that it takes: `wrong`, and, drawn, `inside`."""
    others = [value for name, samples in JSON.items() if name not in takes for value in samples]
    refused = st.sampled_from([*others, *wrong]) if others or wrong else NOTHING
    return Kind(hint, values, frozenset(takes), refused | inside, hashable)


class Color(enum.Enum):
    RED = "red"
    GREEN = 2
    BLUE = None


class Weekday(enum.StrEnum):
    MONDAY = "mon"
    FRIDAY = "fri"


texts = st.text(max_size=8)
paths = st.text("ab./", max_size=8).map(Path)
moments = st.datetimes() | st.datetimes(timezones=st.just(UTC))
decimals = st.decimals(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
small = Annotated[int, annotated_types.Interval(ge=-5, lt=5)]
short = Annotated[str, annotated_types.Len(1, 3)]

LEAVES = [
    kind(str, texts, "string"),
    kind(int, st.integers(), "integer"),
    kind(float, st.floats(allow_nan=False, allow_infinity=False), "integer", "number"),
    kind(bool, st.booleans(), "boolean"),
    kind(None, st.none(), "null"),
    kind(Literal["b", "a", 3], st.sampled_from(["b", "a", 3]), "string", "integer", wrong=["c", 4, 1]),
    kind(Color, st.sampled_from(Color), "string", "integer", "null", wrong=["blue", 3]),
    kind(Weekday, st.sampled_from(Weekday), "string", wrong=["sun"]),
    kind(datetime, moments, "string", wrong=["soon", "2026-13-01T00:00:00"]),
    kind(date, st.dates(), "string", wrong=["soon", "2026-02-30"]),
    kind(time, st.times(), "string", wrong=["soon", "25:00"]),
    kind(timedelta, st.timedeltas(), "string", wrong=["soon", "1 day"]),
    kind(UUID, st.uuids(), "string", wrong=["soon"]),
    kind(Path, paths, "string"),
    kind(Decimal, decimals, "string", "integer", "number", wrong=["soon", "Infinity", ""]),
    kind(bytes, st.binary(max_size=8), "string", wrong=["a", "soo!"]),
    kind(small, st.integers(-5, 4), "integer", wrong=[-6, 5]),
    kind(short, st.text(min_size=1, max_size=3), "string", wrong=["", "long"]),
]
ANYTHING = kind(Any, json_values, *JSON, hashable=False)
KEYS = [  # the hint, its values, and texts that can't be one
    (str, texts, NOTHING),
    (int, st.integers(), st.sampled_from(["1.5", "soon", ""])),
    (date, st.dates(), st.sampled_from(["2026-02-30", "soon"])),
    (Weekday, st.sampled_from(Weekday), st.sampled_from(["sun", "MONDAY"])),
]


def as_json(value):
    return json.loads(json.dumps(plain(value)))


def list_of(item):
    inside = st.tuples(st.lists(item.values, max_size=2), item.wrong).map(lambda pair: [*as_json(pair[0]), pair[1]])
    return kind(list[item.hint], st.lists(item.values, max_size=3), "array", inside=inside, hashable=False)


def tuple_of(item):
    values = st.lists(item.values, max_size=3).map(tuple)
    inside = item.wrong.map(lambda wrong: [wrong])
    return kind(tuple[item.hint, ...], values, "array", inside=inside, hashable=item.hashable)


def pair_of(left, right):
    inside = st.tuples(left.values, right.wrong).map(lambda pair: [as_json(pair[0]), pair[1]])
    values, hashable = st.tuples(left.values, right.values), left.hashable and right.hashable
    return kind(tuple[left.hint, right.hint], values, "array", wrong=[[]], inside=inside, hashable=hashable)


def set_of(item):
    values = st.lists(item.values, max_size=3).map(frozenset)
    return kind(frozenset[item.hint], values, "array", inside=item.wrong.map(lambda wrong: [wrong]))


def dict_of(key, item):
    hint, keys, wrong_keys = key
    wrong_item = st.tuples(keys, item.wrong).map(lambda pair: dict.fromkeys(as_json({pair[0]: None}), pair[1]))
    wrong_key = st.tuples(wrong_keys, item.values).map(lambda pair: {pair[0]: as_json(pair[1])})
    values = st.dictionaries(keys, item.values, max_size=3)
    return kind(dict[hint, item.hint], values, "object", inside=wrong_item | wrong_key, hashable=False)


def optional(inner):
    wrong = inner.wrong.filter(lambda value: value is not None)
    hint = Union[inner.hint, None]  # noqa: UP007 - `|` is not there for every hint
    return Kind(hint, inner.values | st.none(), inner.takes | {"null"}, wrong, inner.hashable)


def either(left, right):
    """Two that JSON tells apart: of others the first would win, whichever was meant."""
    takes = left.takes | right.takes
    others = [value for name, samples in JSON.items() if name not in takes for value in samples]
    hint, hashable = Union[left.hint, right.hint], left.hashable and right.hashable  # noqa: UP007
    return Kind(hint, left.values | right.values, takes, st.sampled_from(others), hashable)


def record_of(make, parts):
    """A class with these fields. Wrong are: a field too few, one too many, and one that is wrong itself."""
    names = [f"field_{index}" for index in range(len(parts))]
    cls = make("Record", [(name, part.hint) for name, part in zip(names, parts, strict=True)])
    fields = st.fixed_dictionaries({name: part.values for name, part in zip(names, parts, strict=True)})
    with_a_wrong_one = st.tuples(fields, parts[-1].wrong).map(lambda pair: {**as_json(pair[0]), names[-1]: pair[1]})
    with_one_more = fields.map(lambda values: {**as_json(values), "more": 1})
    inside = with_a_wrong_one | with_one_more
    positional = issubclass(cls, tuple)
    if positional:
        inside = inside.map(lambda values: [values[name] for name in sorted(values)])  # they come in any order
    values = fields.map(lambda values: cls(**values))
    return kind(cls, values, "array" if positional else "object", wrong=[[], {}], inside=inside, hashable=False)


def typed_dict(name, fields):
    return TypedDict(name, dict(fields))


MAKERS = [dataclasses.make_dataclass, typed_dict, NamedTuple, msgspec.defstruct]


@st.composite
def kinds(draw, depth=2):
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([*LEAVES, ANYTHING]))
    inner = kinds(depth - 1)
    hashable = inner.filter(lambda one: one.hashable)
    shapes = [
        inner.map(list_of),
        inner.map(tuple_of),
        st.builds(pair_of, inner, inner),
        hashable.map(set_of),
        st.builds(dict_of, st.sampled_from(KEYS), inner),
        inner.filter(lambda one: "null" not in one.takes).map(optional),
        st.tuples(inner, inner).filter(_apart).map(lambda pair: either(*pair)),
        st.builds(record_of, st.sampled_from(MAKERS), st.lists(inner, min_size=1, max_size=3)),
    ]
    return draw(st.one_of(shapes))


def _apart(pair):
    left, right = (one.takes - {"number"} for one in pair)
    return not left & right and len(left | right) < len(JSON) - 1


@dataclasses.dataclass
class Argument:
    name: str
    kind: Kind
    style: str  # positional | either | named
    default: Any  # a list of one, or of none


@st.composite
def signatures(draw):
    """Arguments in an order that Python takes: by position first, those without a default first among them."""
    arguments = [
        Argument(
            f"argument_{index}",
            one,
            draw(st.sampled_from(["positional", "either", "named"])),
            draw(st.lists(one.values, max_size=1)),
        )
        for index, one in enumerate(draw(st.lists(kinds(), min_size=1, max_size=4)))
    ]
    styles = ["positional", "either", "named"]
    arguments.sort(key=lambda one: (one.style == "named", bool(one.default), styles.index(one.style)))
    if any(b.style == "positional" and a.style == "either" for a, b in itertools.pairwise(arguments)):
        for one in arguments:
            one.style = "either" if one.style == "positional" else one.style
    return arguments


def function_of(arguments, as_text=False):
    """A function with this signature, which gives back its arguments as it got them."""
    parts, styles = [], [one.style for one in arguments]
    for index, one in enumerate(arguments):
        if one.style == "named" and "named" not in styles[:index]:
            parts.append("*")
        parts.append(f"{one.name}=DEFAULTS[{index}]" if one.default else one.name)
        if one.style == "positional" and "positional" not in styles[index + 1 :]:
            parts.append("/")
    namespace = {"DEFAULTS": {index: one.default[0] for index, one in enumerate(arguments) if one.default}}
    exec(f"def f({', '.join(parts)}): return dict(locals())", namespace)
    function = namespace["f"]
    for index, one in enumerate(arguments):
        namespace[f"Hint{index}"] = one.kind.hint
        function.__annotations__[one.name] = f"Hint{index}" if as_text else one.kind.hint
    return function


def exactly(value):
    """A value with the types of all its parts, so that 5 differs from 5.0 and "mon" from Weekday.MONDAY."""
    if isinstance(value, dict):
        return type(value), {key: (type(key), exactly(item)) for key, item in value.items()}
    if isinstance(value, frozenset):
        return type(value), frozenset(map(exactly, value))
    if isinstance(value, list | tuple):
        return type(value), tuple(map(exactly, value))
    if dataclasses.is_dataclass(value):
        return type(value), exactly(vars(value))
    if isinstance(value, msgspec.Struct):
        return type(value), exactly(msgspec.structs.asdict(value))
    return type(value), value


slowly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@slowly
@given(signatures(), st.data(), st.booleans())
def test_values_of_a_signature_fit_as_json_and_arrive_as_they_were(arguments, data, as_text):
    spec = tool_from_function(function_of(arguments, as_text), "p")
    values = {
        one.name: data.draw(one.kind.values)
        for one in arguments
        if not one.default or data.draw(st.booleans(), label=f"{one.name} is given")
    }
    sent = as_json(values)
    assert spec.arguments.check(sent) == []
    arrived = spec.handler(**sent)
    defaults = {one.name: one.default[0] for one in arguments if one.default}
    assert exactly(arrived) == exactly({one.name: (defaults | values)[one.name] for one in arguments})


@slowly
@given(signatures().filter(lambda them: not them[-1].kind.wrong.is_empty), st.data())
def test_wrong_values_are_refused(arguments, data):
    spec = tool_from_function(function_of(arguments), "p")
    sent = {one.name: as_json(data.draw(one.kind.values)) for one in arguments}
    sent[arguments[-1].name] = data.draw(arguments[-1].kind.wrong, label="wrong")
    assert spec.arguments.check(json.loads(json.dumps(sent))) or _refuses(spec, sent)


def _refuses(spec, sent):
    with pytest.raises(BadArguments, match=r"^argument_\d"):
        spec.handler(**sent)
    return True


@slowly
@given(kinds(), st.data())
def test_values_of_a_return_hint_fit_its_schema(one, data):
    def f(): ...

    f.__annotations__ = {"return": one.hint}
    output = tool_from_function(f, "p").output
    value = plain(data.draw(one.values))
    assert output is None or output.check(value) == []
