"""Placeholders without quotes inside of braces."""

import pytest
from helpers import calls, each

from onetool.config.read import ConfigFileError, parse


@each(
    ("text", "data"),
    [
        ("http: {port: 1, token: ${ONETOOL_TOKEN}}", {"http": {"port": 1, "token": "${ONETOOL_TOKEN}"}}),
        ("[${A}, ${B}]", ["${A}", "${B}"]),
        ("{a: Bearer ${T}, b: 1}", {"a": "Bearer ${T}", "b": 1}),
        ("{a: http://${H}:80/v#x?y=${K}, b: it's ${C} }", {"a": "http://${H}:80/v#x?y=${K}", "b": "it's ${C}"}),
        ('{"a":${A}, é: ${B}}', {"a": "${A}", "é": "${B}"}),
        ("{${A}: 1, b: x ${A} y}", {"${A}": 1, "b": "x ${A} y"}),
        ("{a: ${A} # why\n}", {"a": "${A}"}),
        ("{a: '${A}', b: \"x${B}\", c: ${C}}", {"a": "${A}", "b": "x${B}", "c": "${C}"}),
        ("a: ${A}\nb: x ${B} y\n", {"a": "${A}", "b": "x ${B} y"}),
        ("{\n  a: [\n    ${A},\n    x: ${B}\n  ]\n}", {"a": ["${A}", {"x": "${B}"}]}),
    ],
)
def test_it_reads_what_is_meant(text: str, data: object) -> None:
    document = parse(text)
    assert (document.data, document.problems) == (data, [])


def test_lines_stay_right() -> None:
    assert parse("{a: ${A},\n b: ${B},\n c: 1}").lines == {"": 1, "a": 1, "b": 2, "c": 3}


@each("text", ["{a: ${}}", "{a: ${A B}}", "{a: $ {A}}", "{"])
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigFileError):
        parse(text)


def test_repairing_is_bounded() -> None:
    text = "{" + ",".join(f"k{n}: ${{NAME}}" for n in range(20_000)) + "}"
    with calls(400_000), pytest.raises(ConfigFileError, match="did not find expected ','"):
        parse(text)
