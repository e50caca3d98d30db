"""Monty's own type checker, asked about the calls of our tools and nothing else. Off unless `run.typecheck` is on.

It follows variables where the check before the run sees literals only, and costs tens of milliseconds a run. It is also
stricter than Python, so that of what it says only the part about our tools counts, and only where it is sure.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from onetool.core.returns import inferred
from onetool.core.spec import ToolSpec
from onetool.core.spelling import spelled
from onetool.script.check import Finding
from onetool.script.names import Names

PREFIX = "OneTool_"
SELF, MORE = f"{PREFIX}self", f"**{PREFIX}more: Any"  # a tool may well have a parameter called `self`
# The types that reach a tool as these: what crosses the boundary is made plain on its way.
TYPES = {"string": "Text", "integer": "int | float", "number": "int | float", "boolean": "bool", "array": "Items"}
HEADER = """
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
Text = str | bytes | date | time | Decimal | PurePath | BaseException
Items = list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]
"""
MEANT = re.compile(rf"(?:bound method `{PREFIX}(?P<pack>\w+)\.(?P<tool>\w+)`|function `(?P<function>\w+)`)")
MOST_FINDINGS = 20  # nobody reads more
RULES = {"invalid-argument-type", "missing-argument", "unknown-argument", "too-many-positional-arguments"}


def stubs(names: Names, words: Collection[str]) -> str:
    """What these packs and functions look like, as declarations."""
    parts = [HEADER]
    for word in sorted(words):
        if pack := names.pack(word):
            methods = [f"    {_function(tool, spec, SELF)}" for tool, spec in pack.tools.items()]
            parts.append("\n".join((f"class {PREFIX}{word}:", *methods, f"{word}: {PREFIX}{word}")))
        else:
            parts.append(_function(word, names.functions[word]))
    return "\n".join(parts)


def _function(name: str, spec: ToolSpec, *first: str) -> str:
    """Its value may be anything: what was inferred is told, and not insisted on, since the next one may have more."""
    told = inferred(spec)
    comment = f"  # returns {told}" if told else ""
    return f"def {name}({', '.join((*first, *_parameters(spec)))}) -> Any: ...{comment}"


def _parameters(spec: ToolSpec) -> Iterator[str]:
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    required = spec.input_schema.get("required") or ()
    for name in spec.order:
        hint = f"{_type(properties[name])}{' | str' if spec.lenient else ''}"  # a text may say what is wanted
        yield f"{spelled(name)}: {hint}" + ("" if name in required else " = ...")
    yield MORE


def _type(schema: Any) -> str:
    if not isinstance(schema, Mapping) or any(word in schema for word in ("anyOf", "oneOf", "allOf", "$ref")):
        return "Any"
    kind = schema.get("type")
    kinds: list[Any] = list(kind) if isinstance(kind, list | tuple) else [kind]
    return " | ".join("None" if one == "null" else TYPES.get(str(one), "Any") for one in kinds)


def findings(report: str, names: Names) -> list[Finding]:
    """What the checker says of our tools. `report` is its own, as JSON."""
    return list(islice(_ours(msgspec.json.decode(report), names), MOST_FINDINGS))


def _ours(diagnostics: Iterable[Mapping[str, Any]], names: Names) -> Iterable[Finding]:
    for one in diagnostics:
        message = str(one["message"])
        found = MEANT.search(message)
        if one["code"] not in RULES or not found or _unsure(message):
            continue
        word = found["function"] or f"{found['pack']}.{found['tool']}"
        if (spec := names.tool(word)) is not None:
            text = message.replace(f" {found[0]}", "").replace("Argument to is", "an argument is", 1)
            yield Finding(int(one["location"]["row"]), text, spec)


def _unsure(message: str) -> bool:
    """`found str | None` may well be a str when it runs."""
    found = message.partition("found `")[2]
    return " | " in found or "Unknown" in found or "Any" in found
