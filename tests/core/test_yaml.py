"""The one reader of YAML: plain data equal to what JSON says, with lines, merges and bounds; by both parsers."""

import json
import math
from typing import Any

import pytest
import yaml
from helpers import calls, each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onetool.core.yaml import YamlDocument, YamlError, plain_value, read

PARSERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]

# A busy or fresh machine (hypothesis collects Unicode's characters once) is not a mistake of ours.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# JSON writes characters above U+FFFF as two escapes, which YAML does not know.
texts = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF), max_size=20)
floats = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(texts, children, max_size=4),
    max_leaves=20,
)


@pytest.fixture(params=PARSERS, ids=lambda parser: parser.__name__)
def parser(request: pytest.FixtureRequest) -> Any:
    return request.param


def data_of(text: str, parser: Any = None) -> Any:
    document = read(text, parser=parser)
    assert document.problems == []
    return document.data


# Scalars


@each(
    ("text", "value"),
    [
        ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None),
        ("0", 0), ("-7", -7), ("+5", 5), ("0o17", 15), ("0xFf", 255), ("12345678901234567890", 12345678901234567890),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-1.5E-3", -0.0015), (".inf", math.inf),
        ("-.INF", -math.inf),
    ],
)  # fmt: skip
def test_values_of_the_core_schema(text: str, value: object) -> None:
    assert plain_value(text) == value
    assert type(plain_value(text)) is type(value)


def test_not_a_number_is_one() -> None:
    assert math.isnan(plain_value(".nan"))  # pyright: ignore[reportArgumentType]


@each(
    "text",
    ["2024-01-01", "2024-01-01T10:00:00Z", "y", "n", "tRUE", "nan", "inf", "0o8", "0xg", "1.2.3", "127.0.0.1", "-",
     "+", ".", "e5", "8080:80", "=", "١", "yes", "No", "ON", "off", "010", "00", "08", "-012", "1:30", "12:30:45",
     "1_000", "0b101"],
)  # fmt: skip
def test_texts_that_stay_texts(text: str) -> None:
    assert plain_value(text) == text


def test_keys_and_values_that_an_older_yaml_reads_otherwise_are_texts(parser: Any) -> None:
    expected = {"on": "no", "010": "1:30", "no": ["off"]}
    assert data_of("{on: no, 010: 1:30, no: [off]}", parser) == expected


@each("text", ["9" * 5000, "0x" + "f" * 4998])
def test_numbers_are_bounded(text: str) -> None:
    with pytest.raises(YamlError, match="a number of 5000 digits is too long"):
        read(f"a: {text}")


# Data


@patient
@given(json_values, st.sampled_from([None, 2]))
def test_what_a_json_dumper_writes_reads_back_equal(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    for parser in PARSERS:
        again = data_of(text, parser)
        assert again == value
        assert json.dumps(again) == json.dumps(value)  # 1, 1.0 and true are equal, but not the same


@patient
@given(st.dictionaries(texts, texts, max_size=4))
def test_what_a_yaml_dumper_quotes_reads_back_equal(value: dict[str, str]) -> None:
    assert data_of(yaml.safe_dump(value, default_style='"')) == value


def test_lines_by_path(parser: Any) -> None:
    assert read("a:\n  b: 1\n\nlist:\n  - x\n  - y: 2\n    z.z: 3\n", parser=parser).lines == {
        "": 1, "a": 1, "a.b": 2, "list": 4, "list[0]": 5, "list[1]": 6, "list[1].y": 6, 'list[1]["z.z"]': 7,
    }  # fmt: skip
    assert read("a: 1", with_lines=False, parser=parser) == YamlDocument(data={"a": 1}, lines={}, problems=[])


def test_anchors_aliases_and_merges(parser: Any) -> None:
    text = """
base: &base {x: 1, y: 2}
other: &other {y: 20, z: 30}
one: {<<: *base, x: 5}
two:
  <<: [*base, *other]
same: *base
quoted: {"<<": 1}
word: &word tea
tea: {*word : 1}
"""
    assert data_of(text, parser) == {
        "base": {"x": 1, "y": 2},
        "other": {"y": 20, "z": 30},
        "one": {"x": 5, "y": 2},
        "two": {"x": 1, "y": 2, "z": 30},
        "same": {"x": 1, "y": 2},
        "quoted": {"<<": 1},
        "word": "tea",
        "tea": {"tea": 1},
    }


def test_empty_files_comments_and_line_ends(parser: Any) -> None:
    assert data_of("", parser) is None
    assert data_of("# nothing\n", parser) is None
    assert data_of("---\n", parser) is None
    assert data_of("a: 1\r\nb: |\r\n  x\r\n  y\r\n", parser) == {"a": 1, "b": "x\ny\n"}


def test_keys_whose_values_stay_as_written(parser: Any) -> None:
    text = "openapi: 3.0\ninfo: {version: 1.10, deep: {version: 1.10}}\n"
    data = read(text, text_keys=("openapi", "version"), parser=parser).data
    assert data == {"openapi": "3.0", "info": {"version": "1.10", "deep": {"version": 1.1}}}


# Bounds


LAUGHS = "\n".join(
    ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
)

DEEP = "\n".join(
    ["a0: &a0 " + "[" * 90 + "]" * 90] + [f"a{n}: &a{n} {'[' * 90}*a{n - 1}{']' * 90}" for n in range(1, 40)]
)
KEYS = "".join("{" + "k" * 1000 + ": " for _ in range(90))  # 90 kB of path for each value below


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        (LAUGHS, "more than 100,000 values", 5),
        ("a: 1\nb: &b [*b]\n", "an anchor that does not exist", 2),
        ("a: &a {<<: *a}\n", "an anchor that does not exist", 1),
        ("\n" + "[" * 200_000, "nested more than 100 levels", 2),
        ("{a: " * 50_000, "nested more than 100 levels", 1),
        ("- " * 50_000, "nested more than 100 levels", 1),
        ("[" + "1," * 200_000 + "1]", "more than 100,000 values", 1),
        (DEEP, "nested more than 100 levels", 2),
        (f"{KEYS}[{'1,' * 90_000}1]{'}' * 90}", "keys above this value are too long", 1),
        (f"a: &a [{'1,' * 40_000}1]\nb: {KEYS}*a{'}' * 90}\nc: 1", "keys above this value are too long", 3),
        (
            f"a: &a {KEYS}[{'1,' * 400}1]{'}' * 90}\nb: [{', '.join(['*a'] * 90)}]\nc: 1",
            "keys above this value are too long",
            2,
        ),
    ],
    ids=[
        "laughs",
        "itself",
        "merges itself",
        "brackets",
        "braces",
        "dashes",
        "many",
        "deep aliases",
        "long keys",
        "long keys above an alias",
        "long keys in an alias",
    ],
)
def test_hostile_texts_are_refused_quickly(text: str, message: str, line: int) -> None:
    with calls(4_000_000), pytest.raises(YamlError, match=message) as caught:  # else it is endless
        read(text)
    assert caught.value.line == line


def test_a_hundred_levels_are_fine(parser: Any) -> None:
    assert data_of("[" * 100 + "]" * 100, parser) is not None
    with pytest.raises(YamlError):
        data_of("[" * 101 + "]" * 101, parser)


# Mistakes


@each(
    ("text", "path", "line", "message"),
    [
        ("a:\n  x: 1\n  y: 2\n  x: 3\n", "a.x", 4, "this key is set twice, in line 2 and in line 4"),
        ("a:\n  1: x\n", "a", 2, "a key must be a string, but 1 is not"),
        ("a:\n  true: x\n", "a", 2, "a key must be a string, but true is not"),
        ("a:\n  ~: x\n", "a", 2, "a key must be a string, but ~ is not"),
    ],
)
def test_problems_of_keys(text: str, path: str, line: int, message: str, parser: Any) -> None:
    (problem,) = read(text, parser=parser).problems
    assert (problem.path, problem.line, problem.message) == (path, line, message)


def test_the_first_of_two_keys_stays() -> None:
    assert read("{a: 1, a: 2}").data == {"a": 1}


@each(
    ("text", "line", "message", "hint"),
    [
        ("a:\n  b: !foo 1\n", 2, "unknown tag after '!'", "remove the tag"),
        ("a:\n  b: !!set {x}\n", 2, "unknown tag after '!'", "remove the tag"),
        ("a:\n  b: !!python/object:os.system {}\n", 2, "unknown tag after '!'", "remove the tag"),
        ("a: !!int abc\n", 1, "does not match its tag", "remove the tag"),
        ("a:\n  <<: 5\n", 2, "'<<' can merge only mappings", 'quote the key: "<<"'),
        ("a:\n  ? [1, 2]\n  : x\n", 2, "not a list or a mapping", "write a string"),
        ("a: *x\n", 1, "'*' refers to an anchor that does not exist", "quote"),
        ("a: 1\n---\nb: 2\n", 2, "a second document begins here", "one document"),
        ("a:\n\tb: 1\n", 2, "in column 1", "indent with spaces"),
        ("a: b: c\n", 1, "mapping values are not allowed", "quote"),
        ('a: 1\nb: "x\nc: 2\n', 3, "of line 2", "quote"),
        ("a: 1\nb: [1,\n 2\n", 3, "of line 2", "quote"),
        ('a: "\\ud83d"\n', 1, "", None),
    ],
)
def test_errors(text: str, line: int, message: str, hint: str | None, parser: Any) -> None:
    with pytest.raises(YamlError) as caught:
        read(text, parser=parser)
    assert message in caught.value.message
    assert caught.value.line == line
    assert (hint or "") in (caught.value.hint or "")
    assert "\n" not in caught.value.message


@each("text", ["A: *sesame\n", "A: !sesame!x y\n", "A: {sesame ${}\n", "A: 'sesame\n"])
def test_no_message_repeats_what_may_be_a_password(text: str, parser: Any) -> None:
    with pytest.raises(YamlError) as caught:
        read(text, parser=parser)
    assert "sesame" not in f"{caught.value.message} {caught.value.hint}"


@patient
@given(st.text(st.sampled_from("ab1 \n\t:-,?[]{}#&*!|>%@`'\"\\xUu$<=~.é\x85\u2028"), max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parser in PARSERS:
        line = 1
        try:
            read(text, parser=parser)
        except YamlError as refused:
            line = refused.line
        assert 1 <= line <= text.count("\n") + text.count("\x85") + text.count("\u2028") + 1


def test_a_repair_is_tried_as_often_as_allowed() -> None:
    def repair(text: str, index: int) -> str:
        return text.replace("@", "x", 1)

    assert read("a: @\nb: @\n", repair=repair, repairs=2).data == {"a": "x", "b": "x"}
    with pytest.raises(YamlError):
        read("a: @\nb: @\n", repair=repair, repairs=1)
