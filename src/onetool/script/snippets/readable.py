"""A snippet for its readers: its definition as YAML, and below it what a call of it becomes.

name: research
description: Search the web
params:
  topic: {type: string, description: "What about"}
  count: {type: integer, default: 5}
body: |
  brave.search(query="{{ topic }}", count={{ count }})

# Example with defaults:
# $research topic=Python
# Expands to:
brave.search(query="Python", count=5)
"""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from onetool.script.render import render as render_value
from onetool.script.snippets import ParamLike, SnippetError, SnippetLike, render
from onetool.script.yaml_scalars import literal, quoted, text_of

# What stands in an example for a value that must be given.
STAND_INS = {"string": "Python", "integer": 1, "number": 0.5, "boolean": True, "array": ["a"], "object": {"a": 1}}


def definition(name: str, snippet: SnippetLike) -> str:
    return "\n".join([*_defined(name, snippet), "", *_example(name, snippet)]) + "\n"


def _defined(name: str, snippet: SnippetLike) -> Iterator[str]:
    yield f"name: {text_of(name)}"
    yield f"description: {text_of(snippet.description)}"
    yield "params:" if snippet.params else "params: {}"
    for key, param in snippet.params.items():
        yield from _parameter(text_of(key), _facts(param))
    body = snippet.body.rstrip("\n") + "\n"
    mark = literal(body)
    if mark is None:
        yield f"body: {quoted(snippet.body)}"
        return
    yield f"body: {mark}"
    yield from (f"  {line}" if line else "" for line in body.splitlines())


def _facts(param: ParamLike) -> dict[str, Any]:
    facts: dict[str, Any] = {"type": param.kind}
    if param.default is not UNSET:
        facts["default"] = param.default
    return {**facts, "description": param.description} if param.description else facts


def _parameter(name: str, facts: dict[str, Any]) -> Iterator[str]:
    """On one line, texts in quotes; below it where that would be too deep, or too long."""
    default = facts.get("default")
    parts = default.values() if isinstance(default, dict) else default if isinstance(default, list) else ()
    values = {key: quoted(value) if _is_text(key, value) else render_value(value) for key, value in facts.items()}
    if any(isinstance(part, list | dict) for part in parts) or "\n" in "".join(values.values()):
        yield f"  {name}:"
        yield from (f"    {line}" for line in render_value(facts).splitlines())
    else:
        yield f"  {name}: {{{', '.join(f'{key}: {text}' for key, text in values.items())}}}"


def _is_text(key: str, value: Any) -> bool:
    return isinstance(value, str) and key != "type"


def _example(name: str, snippet: SnippetLike) -> Iterator[str]:
    given = {key: STAND_INS[param.kind] for key, param in snippet.params.items() if param.default is UNSET}
    pairs = (f"{key}={value if isinstance(value, str) else _json(value)}" for key, value in given.items())
    yield "# Example with defaults:"
    yield f"# {' '.join([f'${name}', *pairs])}"
    try:
        code = render(snippet, given, name)
    except SnippetError as error:
        yield f"# It can't be used so: {error}"
        return
    yield "# Expands to:"
    yield code.rstrip("\n")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
