"""Type stubs of tools for the sandbox's type checker, and its findings on tool calls.

Monty's type checker is off unless `run.typecheck` is on: it costs tens of milliseconds per run and is stricter than
Python, so only its findings on calls of our tools count.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from onetool.core.signature import as_identifier
from onetool.core.spec import ToolSpec
from onetool.core.type_names import inferred_type
from onetool.script.check import CodeFinding
from onetool.script.names import ScriptNames

PREFIX = "OneTool_"
SELF, MORE = f"{PREFIX}self", f"**{PREFIX}more: Any"  # a tool may have a parameter called `self`
# The types that the boundary converts to these JSON types.
TYPES = {"string": "Text", "integer": "int | float", "number": "int | float", "boolean": "bool", "array": "Items"}
HEADER = """
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
Text = str | bytes | date | time | Decimal | PurePath | BaseException
Items = list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]
"""
CALLEE = re.compile(rf"(?:bound method `{PREFIX}(?P<pack>\w+)\.(?P<tool>\w+)`|function `(?P<function>\w+)`)")
MAX_FINDINGS = 20  # more are not useful
RULES = {"invalid-argument-type", "missing-argument", "unknown-argument", "too-many-positional-arguments"}


def type_stubs(names: ScriptNames, words: Collection[str]) -> str:
    """Return stub declarations of these packs and functions."""
    parts = [HEADER]
    for word in sorted(words):
        if pack := names.pack(word):
            own = {"__call__": names.functions[word]} if word in names.functions else {}
            methods = [f"    {_function_stub(tool, spec, SELF)}" for tool, spec in (*own.items(), *pack.tools.items())]
            parts.append("\n".join((f"class {PREFIX}{word}:", *methods, f"{word}: {PREFIX}{word}")))
        else:
            parts.append(_function_stub(word, names.functions[word]))
    return "\n".join(parts)


def _function_stub(name: str, spec: ToolSpec, *first: str) -> str:
    """Return the stub of a tool. Its inferred return type is shown but not enforced: the next value may differ."""
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    required = spec.input_schema.get("required") or ()
    parameters = list(first)
    for key in spec.order:
        if spec.prepare is not None or not spec.strict:  # it may accept other types, or optional arguments
            parameters.append(f"{as_identifier(key)}: Any = ...")
            continue
        schema, kinds = properties[key], list[Any]([None])
        if isinstance(schema, Mapping) and not any(word in schema for word in ("anyOf", "oneOf", "allOf", "$ref")):
            kind = schema.get("type")
            kinds = list(kind) if isinstance(kind, list | tuple) else [kind]
        types = ["None" if kind == "null" else TYPES.get(str(kind), "Any") for kind in kinds]
        hint = " | ".join([*types, "str"] if spec.lenient else types)  # lenient tools also accept text
        parameters.append(f"{as_identifier(key)}: {hint}" + ("" if key in required else " = ..."))
    returned = inferred_type(spec)
    comment = f"  # returns {returned}" if returned else ""
    return f"def {name}({', '.join((*parameters, MORE))}) -> Any: ...{comment}"


def type_findings(report: str, names: ScriptNames) -> list[CodeFinding]:
    """Return the type checker's findings on our tools. `report` is its output as JSON."""
    findings: list[CodeFinding] = []
    for finding in msgspec.json.decode(report):
        message = str(finding["message"])
        callee = CALLEE.search(message)
        actual = message.partition("found `")[2]  # `str | None` may be a str at run time
        is_unsure = " | " in actual or "Unknown" in actual or "Any" in actual
        if finding["code"] not in RULES or not callee or is_unsure:
            continue
        word = callee["function"] or f"{callee['pack']}.{callee['tool']}"
        if (spec := names.tool(word)) is not None:
            text = message.replace(f" {callee[0]}", "").replace("Argument to is", "an argument is", 1)
            findings.append(CodeFinding(int(finding["location"]["row"]), text, spec))
            if len(findings) == MAX_FINDINGS:
                break
    return findings
