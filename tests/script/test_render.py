"""Values as text: readable, the same for every reader of YAML, and never without an end."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType

import msgspec
import pytest
import yaml
from helpers import calls, check_each, each, examples
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from onetool.config.edit import OLD_SCALAR
from onetool.core.schema import larger_than
from onetool.core.yaml import plain_value
from onetool.script.render import RenderTooLargeError, render

LOADERS = [yaml.CSafeLoader, yaml.SafeLoader]

# fmt: off
TRICKY = [
    "", " ", "  ", " a", "a ", "a  b", "\t", "a\tb", "no", "No", "NO", "y", "N", "yes", "on", "Off", "true", "False",
    "null", "Null", "~", "010", "0x1f", "0o7", "0b1", "1_000", "1:30", "1:30:00.5", "12e03", "1e3", ".5", "1.", "-1",
    "+1", "-", "--", "---", "...", "--- a", "-a", "- a", ".inf", "-.inf", ".nan", ".", "2024-01-01",
    "2024-01-01T00:00:00Z", "a: b", "a:", "a:b", ":", ":a", "a :b", "::", "std::x", "a::", "a #b", "a#b", "#", "# a",
    "{", "}", "a}", "[a]", "a,b", "a, b", ",", "&a", "*a", "!a", "!!str a", "|", ">", "%a", "@a", "`a", "'a'", '"a"',
    "it's", 'say "x"', "=", "<<", "?", "? a", "a?", "a\\b", "C:\\x", "https://x.y/z?a=1&b=2#c", "a\nb", "\n", "\n\n",
    "a\n", "a\n\n", "\na", " a\nb", "a\n b\n", "a\n\tb", "\ta\nb", "a\r\nb", "a\rb", "a\n\n\nb", "a\n   \nb", "a\n  ",
    "a \nb", "# a\n- b\n", "---\na", "a\n---\n...\nb", "\0", "\x1b[0m", "\x7f", "\x85", "a\x85b\nc", "\xa0", "\xad",
    "\u2028", "a\u2029b\nc", "\ufeff", "\ufeffa\nb", "\ufffe", "\uffff", "\U0001f600", "\U0001fffe", "é",
    "Grüße aus Köln", "日本語", "١٢", "x" * 200, "x y " * 300, "_", "__init__",
    "a long text, over some lines,\nof which this is the second\n",
    "a long text, over some lines,\nof which this is the last",
]
# fmt: on

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**5000), 10**5000)
    | st.floats()
    | st.text()
    | st.sampled_from(TRICKY)
    | st.text(" \n\t:#-abc", min_size=1)
    | st.binary(max_size=20)
)
KEYS = st.text(max_size=20) | st.sampled_from(TRICKY) | st.text("k", min_size=900, max_size=1200)
OTHER_KEYS = KEYS | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
DATA = st.recursive(
    SCALARS,
    lambda parts: (
        st.lists(parts, max_size=6)
        | st.dictionaries(KEYS, parts, max_size=6)
        | st.builds(lambda part, times: [part] * times, parts, st.integers(20, 70))
    ),
    max_leaves=20,
)


def read(text, loader=yaml.CSafeLoader):
    return yaml.load(text, loader)  # both are safe


def same(one, other):
    """Equal in type and value, NaN and -0.0 and the order of keys included."""
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(map(same, map(list, one.items()), map(list, other.items())))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other if isinstance(one, int) else repr(one) == repr(other))


def flow_depth(text):
    """How many levels of flow style are nested in each other at most."""
    open_now, deepest = [], 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            open_now.append(bool(event.flow_style))
            deepest = max(deepest, sum(open_now))
        elif isinstance(event, yaml.CollectionEndEvent):
            open_now.pop()
    return deepest


# What it looks like


@each(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (12, "12"),
        (1.5, "1.5"),
        (1e16, "1.0e+16"),
        ([], "[]"),
        ({}, "{}"),
        ([1, 2, 3], "[1, 2, 3]"),
        ([[1, 2], [3]], "[[1, 2], [3]]"),
        ({"key": "value", "key2": 2}, "{key: value, key2: 2}"),
        ({"a": {"b": [1]}}, "a: {b: [1]}"),
        ({"a": {"b": {"c": {"d": 1}}}}, "a:\n  b: {c: {d: 1}}"),
        ([{"a": 1, "b": 2}, {"a": 3, "b": None}], "- {a: 1, b: 2}\n- {a: 3, b: null}"),
        ([{}], "- {}"),
        ({"rows": [{"a": 1}, {"a": 2}]}, "rows:\n  - {a: 1}\n  - {a: 2}"),
        ([[{"a": 1}, 2], 3], "- - {a: 1}\n  - 2\n- 3"),
        ([{"a": {"b": {"c": 1}}, "d": 2}], "- a: {b: {c: 1}}\n  d: 2"),
        (["no", "1:30", "a, b", "it's"], '["no", "1:30", "a, b", it\'s]'),
        ({"url": "https://x.y/z", "a:b": "x\ny"}, '{url: https://x.y/z, "a:b": "x\\ny"}'),
        ({1: "a", None: "b", 2.5: False}, "{1: a, null: b, 2.5: false}"),
        ({(1, 2): "a"}, "{[1, 2]: a}"),
        (b"hi", '!!binary "aGk="'),
    ],
)
def test_form(value, text):
    assert render(value) == text


def test_long_lists_are_one_item_a_line():
    assert render(list(range(30))) == f"[{', '.join(map(str, range(30)))}]"
    assert render({"all": list(range(50))}).startswith("all:\n  - 0\n  - 1\n")
    assert render(["x" * 100, "y" * 100]) == f"- {'x' * 100}\n- {'y' * 100}"


def test_objects_that_are_too_long_are_one_key_a_line():
    wide = {f"key{number}": "v" * 30 for number in range(20)}
    assert render([wide]).splitlines()[:2] == [f"- key0: {'v' * 30}", f"  key1: {'v' * 30}"]


def test_text_of_several_lines_stands_as_it_is():
    value = {"code": "def f():\n    return 1\n\n\nprint(f(), 'and something more')", "more": 1}
    text = "code: |-\n  def f():\n      return 1\n\n\n  print(f(), 'and something more')\nmore: 1"
    assert render(value) == text
    value = [{"text": "a line that is so long\nand another one after it\n"}]
    assert render(value) == "- text: |\n    a line that is so long\n    and another one after it\n"
    assert read(render(value)) == value


@each("text", ["", "no", "a: b\n", "  x", "{", "\0", "\ud800", "x" * 1_000_000])
def test_text_stays_text(text):
    assert render(text) == text


def test_other_types():
    class Colour(Enum):
        RED = "red"

    class Name(str):
        def __str__(self):
            return self

    class Point(msgspec.Struct):
        x: int
        z: float

    @dataclass
    class Box:
        corner: Point
        tags: tuple[str, ...]

    value = {
        "when": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
        "day": date(2024, 1, 2),
        "cost": Decimal("1.10"),
        "colour": Colour.RED,
        "name": Name("ann"),
        "box": Box(Point(1, 2.5), ("a", "b")),
        "set": {3, 1, 2},
        "map": MappingProxyType({"a": frozenset()}),
        "path": PurePosixPath("/tmp/x"),
        "raw": bytearray(b"hi"),
        "what": object(),
    }
    assert read(render(value)) == {
        "when": "2024-01-02T03:04:05Z",
        "day": "2024-01-02",
        "cost": "1.10",
        "colour": "red",
        "name": "ann",
        "box": {"corner": {"x": 1, "z": 2.5}, "tags": ["a", "b"]},
        "set": [1, 2, 3],
        "map": {"a": []},
        "path": "/tmp/x",
        "raw": b"hi",
        "what": "<object>",
    }
    assert render([Point(1, 2.0), Point(3, 4.0)]) == "- {x: 1, z: 2.0}\n- {x: 3, z: 4.0}"
    assert render(Colour.RED) == "red"
    assert type(render(Name("ann"))) is str
    assert render(date(2024, 1, 2)) == "2024-01-02"
    assert render(Decimal("NaN")) == "NaN"


def test_half_characters_are_shown_as_what_they_are():
    assert read(render(["a\ud800b", "long enough to stand by itself, with a break\n\ud800"]))[0] == "a\ufffdb"
    render({"\ud800": "\udfff"}).encode()


# What it is read as


@pytest.mark.parametrize("loader", LOADERS)
def test_any_text_is_read_as_that_text(loader):
    def is_read_as_it_is(text):
        values = [
            [text],
            {"k": text},
            {text: 1},
            [{"k": text, "l": text}],
            {"k": {"l": {"m": {"n": text}}}},
            [text] * 99,
            [[[[text]]]],
            {"k": [text, [[[text]]]]},
            {text: {text: {text: text}}},
            [{"k": [{"l": text}]}, text],
        ]
        for value in values:
            assert read(render(value), loader) == value

    check_each(TRICKY, is_read_as_it_is)


def test_text_without_quotes_is_text_for_all_readers():
    def is_text(text):
        if render([text])[1:-1] == text:
            assert plain_value(text) == text
            assert not OLD_SCALAR.match(text)

    check_each(TRICKY, is_text)


@settings(max_examples=examples(100), deadline=None)
@given(DATA, st.booleans())
@example({"k" * 1_100: None}, True)
def test_data_is_read_as_the_same_data(value, flow):
    assume(not larger_than(value, 2_000))
    text = render([value], flow=flow)
    assert same(read(text), [value])
    assert flow_depth(text) <= 2


@settings(max_examples=examples(50), deadline=None)
@given(DATA)
def test_the_reader_of_python_agrees(value):
    assume(not larger_than(value, 200))
    assert same(read(render({"k": value}), yaml.SafeLoader), {"k": value})


@given(st.dictionaries(OTHER_KEYS, st.integers(), max_size=5))
def test_keys_that_are_no_text_are_what_they_are(value):
    assert same(read(render(value)), value)


# That it ends


def test_no_more_than_asked_for():
    value = [{"a": number} for number in range(1000)]
    size = len(render(value))
    assert len(render(value, size)) == size
    for most in (0, 1, size - 1):
        with pytest.raises(RenderTooLargeError):
            render(value, most)


def test_the_limit_is_in_bytes():
    assert render(["é" * 10], 22) == f"[{'é' * 10}]"
    for value in (["é" * 10], "é" * 11, ["é" * 10 + "\n" + "é" * 100]):
        with pytest.raises(RenderTooLargeError):
            render(value, 21)


def test_text_has_no_limit_of_its_own():
    assert len(render("x" * 20_000_000)) == 20_000_000
    with pytest.raises(RenderTooLargeError):
        render("x" * 101, 100)
    with pytest.raises(RenderTooLargeError):
        render([["x" * 20_000_000]])


def endless():
    itself = []
    itself.append(itself)
    ring = {}
    ring["a"] = [{"b": ring}]
    pairs, wide = [], {"k": "v"}
    for _ in range(40):
        pairs = [pairs, pairs]
        wide = {"a": wide, "b": wide, "c": [wide] * 50}
    deep = 1
    for _ in range(100_000):
        deep = [deep]
    return [itself, ring, pairs, wide, deep]


@pytest.mark.long
@pytest.mark.parametrize("number", range(5))
def test_what_has_no_end_is_refused_in_time(number):
    value = endless()[number]
    with calls(2_000_000), pytest.raises(RenderTooLargeError):
        render(value, 1_000_000)
    while isinstance(value, list) and value and value[0] is not value:  # taken apart: freeing it whole goes deep
        value = value.pop()


def test_depth():
    value = 1
    for _ in range(60):
        value = [value]
    assert read(render(value)) == value


def test_a_megabyte_takes_a_moment():
    rows = [
        {"name": f"pack.tool_{number}", "description": f"Does something with {number} and tells.", "calls": number}
        for number in range(14_000)
    ]
    with calls(100 * len(rows)):
        text = render(rows)
    assert len(text) > 1_000_000
