"""YAML -> nodes: equal to what JSON says, with lines, merges and bounds. Both parsers, that of C and that of Python."""

import json
from typing import Any

import pytest
import yaml
from helpers import calls, each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onetool.config.convert import plain
from onetool.config.node import Findings, Node
from onetool.config.yaml_nodes import ConfigFileError, node_of

PARSERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]

# A busy or fresh machine (hypothesis collects Unicode's characters once) is not a mistake of ours.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
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
    findings = Findings()
    data = plain(node_of(text, "x.yaml", parser), findings)
    assert findings.errors == []
    return data


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


def test_lines_and_keys(parser: Any) -> None:
    root = node_of("a:\n  b: 1\n\nlist:\n  - x\n  - y: 2\n    z.z: 3\n", "x.yaml", parser)
    found: dict[str | None, int] = {}

    def walk(node: Node) -> None:
        found[node.key] = node.line
        children = node.value.values() if isinstance(node.value, dict) else node.value
        for child in children if isinstance(node.value, dict | list) else ():
            walk(child)

    walk(root)
    assert found == {
        None: 1, "a": 1, "a.b": 2, "list": 4, "list[0]": 5, "list[1]": 6, "list[1].y": 6, 'list[1]["z.z"]': 7,
    }  # fmt: skip


def test_anchors_aliases_and_merges(parser: Any) -> None:
    text = """
base: &base {x: 1, y: 2}
other: &other {y: 20, z: 30}
one: {<<: *base, x: 5}
two:
  <<: [*base, *other]
same: *base
quoted: {"<<": 1}
"""
    assert data_of(text, parser) == {
        "base": {"x": 1, "y": 2},
        "other": {"y": 20, "z": 30},
        "one": {"x": 5, "y": 2},
        "two": {"x": 1, "y": 2, "z": 30},
        "same": {"x": 1, "y": 2},
        "quoted": {"<<": 1},
    }


def test_empty_files_comments_and_line_ends(parser: Any) -> None:
    assert data_of("", parser) is None
    assert data_of("# nothing\n", parser) is None
    assert data_of("---\n", parser) is None
    assert data_of("a: 1\r\nb: |\r\n  x\r\n  y\r\n", parser) == {"a": 1, "b": "x\ny\n"}


LAUGHS = "\n".join(
    ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        (LAUGHS, "more than 100,000 values", None),
        ("a: 1\nb: &b [*b]\n", "nested more than 100 levels", 2),
        ("a: &a {<<: *a}\n", "nested more than 100 levels", 1),
        ("\n" + "[" * 200_000, "nested more than 100 levels", 2),
        ("{a: " * 50_000, "nested more than 100 levels", 1),
        ("- " * 50_000, "nested more than 100 levels", 1),
        ("[" + "1," * 1_000_000 + "1]", "more than 100,000 values", 1),
    ],
    ids=["laughs", "itself", "merges itself", "brackets", "braces", "dashes", "many"],
)
def test_hostile_files_are_refused_quickly(text: str, message: str, line: int | None) -> None:
    with calls(4_000_000), pytest.raises(ConfigFileError, match=message) as caught:  # else it is endless
        node_of(text, "x.yaml")
    assert line is None or caught.value.line == line


def test_a_hundred_levels_are_fine(parser: Any) -> None:
    assert data_of("[" * 100 + "]" * 100, parser) is not None
    with pytest.raises(ConfigFileError):
        data_of("[" * 101 + "]" * 101, parser)


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "hint"),
    [
        ("a:\n  x: 1\n  y: 2\n  x: 3\n", 4, "a.x", "set twice, in line 2 and in line 4", "remove one of them"),
        ("a:\n  1: x\n", 2, "a", "a key must be a string, but 1 is not", 'quote it: "1"'),
        ("a:\n  true: x\n", 2, "a", "a key must be a string, but true is not", 'quote it: "true"'),
        ("a:\n  ? [1, 2]\n  : x\n", 2, "a", "not a list or a mapping", None),
        ("a:\n  b: !foo 1\n", 2, "a.b", "unknown tag after '!'", "remove the tag"),
        ("a:\n  b: !!set {x}\n", 2, "a.b", "unknown tag after '!'", "remove the tag"),
        ("a:\n  b: !!python/object:os.system {}\n", 2, "a.b", "unknown tag after '!'", "remove the tag"),
        ("a:\n  <<: 5\n", 2, "a", "'<<' can merge only mappings", 'quote the key: "<<"'),
        (f"a: {'9' * 5000}\n", 1, "a", "a number of 5000 digits", "quote it"),
    ],
)
def test_mistakes_inside_of_a_file(text: str, line: int, key: str, message: str, hint: str | None, parser: Any) -> None:
    findings = Findings()
    plain(node_of(text, "x.yaml", parser), findings)
    (mistake,) = findings.errors
    assert (mistake.file, mistake.line, mistake.key) == ("x.yaml", line, key)
    assert message in mistake.message
    assert (mistake.hint or "").startswith(hint or "")


def test_the_first_of_two_keys_stays() -> None:
    assert plain(node_of("{a: 1, a: 2}", "x.yaml"), Findings()) == {"a": 1}


def test_keys_that_an_older_yaml_reads_as_booleans_are_texts() -> None:
    findings = Findings()
    assert plain(node_of("{on: 1, no: 2, 010: 3}", "x.yaml"), findings) == {"on": 1, "no": 2, "010": 3}
    assert findings.warnings == []


@each("text", ["no", "yes", "on", "off", "010", "1:30"])
def test_a_trap_in_free_data_is_a_warning(text: str) -> None:
    findings = Findings()
    assert plain(node_of(f"a:\n  - {text}\n  - '{text}'\n", "x.yaml"), findings) == {"a": [text, text]}
    (warning,) = findings.warnings
    assert (warning.line, warning.key, warning.severity) == (2, "a[0]", "warning")
    assert f'quote it to make it a string: "{text}"' in (warning.hint or "")
