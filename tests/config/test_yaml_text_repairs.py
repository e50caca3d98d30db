"""Placeholders without quotes inside of braces, and JSON's pairs of escapes."""

import yaml
from helpers import each

from onetool.config.convert import plain
from onetool.config.node import Findings
from onetool.config.yaml_nodes import node_of, repaired

PARSERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


@each("parser", PARSERS)
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
        ('["\\ud83d\\ude00 \\uD83D\\uDE00", "\\\\ud83d"]', ["😀 😀", "\\ud83d"]),
    ],
)
def test_it_reads_what_is_meant(text: str, data: object, parser: type) -> None:
    findings = Findings()
    assert plain(node_of(text, "x.yaml", parser), findings) == data
    assert findings.errors == []


def test_lines_stay_right() -> None:
    root = node_of("{a: ${A},\n b: ${B},\n c: 1}", "x.yaml")
    assert [node.line for node in root.value.values()] == [1, 2, 3]


@each("text", ["{a: x}", "{a: ${}}", "{a: ${A B}}", "{a: $ {A}}", "", "{"])
def test_everything_else_is_left_alone(text: str) -> None:
    assert all(repaired(text, index) is None for index in range(len(text) + 1))
