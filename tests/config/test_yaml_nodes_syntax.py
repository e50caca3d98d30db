"""What is not YAML is told in plain words, with line and column, the same by both parsers."""

from typing import Any

import pytest
import yaml
from helpers import calls, each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onetool.config.convert import convert
from onetool.config.node import Findings
from onetool.config.yaml_nodes import ConfigFileError, compose, node_of

# A busy or fresh machine (hypothesis collects Unicode's characters once) is not a mistake of ours.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

PARSERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


@each("parser", PARSERS)
@each(
    ("text", "line", "message", "hint"),
    [
        ("a:\n\tb: 1\n", 2, "a tab is not allowed here, in column 1", "indent with spaces"),
        ("a:\n  b: 1\n\tc: 2\n", 3, "a tab is not allowed here", "indent with spaces"),
        ("a: @x\n", 1, "'@' can't begin a string, in column 4", "quote"),
        ("a: b: c\n", 1, "unexpected ':': a key is not allowed here, in column 5", "quote"),
        ("a: 1\n b: 2\n", 2, "unexpected ':': a key is not allowed here", "indentation"),
        ('a: 1\nb: "x\nc: 2\n', 3, "the quoted text of line 2 is never closed, at the end of the file", "quote"),
        ("a: 1\nb: [1,\n 2\n", 3, "the bracket of line 2 is never closed, at the end of the file", "bracket"),
        ("b: {x: 1 {}}\n", 1, "expected ',' or '}', in column 10", "quote"),
        ("b: [x [], y]\n", 1, "expected ',' or ']', in column 7", "quote"),
        ("a:\n  - b\n c: d\n", 3, "the line does not fit the lines above it, in column 2", "indentation"),
        ("- a\nb: c\n", 2, "the line does not fit the l", "indentation"),
        ("a: *x\n", 1, "'*' refers to an anchor that does not exist, in column 4", "quote"),
        ("a: &x 1\nb: &x 2\n", 2, "the anchor of line 1 is used again", "another name"),
        ("a: 1\n---\nb: 2\n", 2, "a second document begins here", "one document"),
        ('a: "C:\\q"\n', 1, "an unknown escape", "single quotes"),
        ("a: }\n", 1, "'}' is not allowed here, in column 4", "quote"),
        ("[a, b]]\n", 1, "']' is not allowed here, in column 7", "brackets"),
        ("a: !x!y 1\n", 1, "unknown tag after '!'", "quote"),
        ("{a: ${}}\n", 1, "expected ',' or '}'", "quote"),
        ("a: 1\nb\nc: 2\n", None, "", None),
    ],
)  # fmt: skip
def test_syntax_errors(text: str, line: int | None, message: str, hint: str | None, parser: type) -> None:
    with pytest.raises(ConfigFileError) as caught:
        compose(text, parser)
    assert message in caught.value.message
    assert caught.value.line == line or line is None
    assert (hint or "") in (caught.value.hint or "")
    assert "\n" not in caught.value.message


def test_no_message_repeats_what_may_be_a_password() -> None:
    for text in ("A: *sesame\n", "A: !sesame!x y\n", "A: &x 1\nB: &x sesame\n", "A: {sesame ${}\n", "A: 'sesame\n"):
        with pytest.raises(ConfigFileError) as caught:
            compose(text)
        assert "sesame" not in f"{caught.value.message} {caught.value.hint}"


@patient
@given(st.text(st.sampled_from("ab1 \n\t:-,?[]{}#&*!|>%@`'\"\\xUu$<=~.é\x85\u2028"), max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parser in PARSERS:
        line = 1
        try:
            convert(node_of(text, "x.yaml", parser), Any, Findings())
        except ConfigFileError as refused:
            line = refused.line or 0
        assert 1 <= line <= text.count("\n") + text.count("\x85") + text.count("\u2028") + 1


def test_mending_is_bounded() -> None:
    text = "{" + ",".join(f"k{n}: ${{NAME}}" for n in range(20_000)) + "}"
    with calls(100_000), pytest.raises(ConfigFileError, match="expected ','"):
        compose(text)
