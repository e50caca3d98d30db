"""Calling one tool from the command line: read the arguments, make the call, give both back as data."""

import asyncio
import json
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click
import msgspec

from onetool.core.call import ToolCall
from onetool.core.json_data import StrictJsonError, strict_decoder
from onetool.core.redaction import mask_arguments
from onetool.core.signature import is_text, takes_others
from onetool.core.text import did_you_mean
from onetool.interfaces.cli.inputs import STDIN, read_input, shown_name
from onetool.interfaces.cli.output import printable, show_progress
from onetool.interfaces.cli.person import let_tools_ask

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.core.call import ToolResult
    from onetool.core.spec import ToolSpec

MOST_BYTES = 4 * 1024 * 1024


def invoke_tool(
    app: "App", name: str, args: dict[str, Any], timeout: float | None, allowed: Collection[str] | None
) -> "tuple[dict[str, Any], ToolResult]":
    """The call as JSON types, and its result. Secret arguments are masked in what is shown of the call."""
    call = ToolCall(id=uuid4().hex, name=name, args=args, source="cli", timeout=timeout)
    let_tools_ask()
    result = asyncio.run(app.call(call, allowed, show_progress if sys.stderr.isatty() else None))
    spec = app.catalog.registry.get(name)
    shown = {
        "id": call.id,
        "name": name,
        "args": mask_arguments(args, spec.secrets) if spec else args,
        "source": call.source,
    }
    return app.runtime.redact(msgspec.to_builtins(shown), args), result


def print_outcome(app: "App", result: "ToolResult") -> None:
    """For a person: the value as `run` shows it, all of it, or what went wrong."""
    from onetool.interfaces.cli.run import print_error, print_value
    from onetool.script.run_result import RunResult

    if result.error is not None:
        print_error(result.error)
    else:
        print_value(app, RunResult(ok=True, data=result.data), full=True)


def split_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """`key=value` each, and each key once."""
    given: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise _wrong(f"{pair!r} is no argument: write KEY=VALUE, like path=.")
        if key in given:
            raise _wrong(f"{key} is given twice; only one of them could be meant.")
        given[key] = value
    return given


def read_pairs(given: Mapping[str, str], spec: "ToolSpec | None") -> dict[str, Any]:
    """The arguments: a text where the tool's schema says string, else JSON. Without a tool they are as they are."""
    if spec is None:  # the call says that there is none
        return dict(given)
    return {key: _argument(key, value, spec) for key, value in given.items()}


def _argument(key: str, value: str, spec: "ToolSpec") -> Any:
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    if key not in properties and not takes_others(spec):
        known = did_you_mean(key, properties) or f"it takes {', '.join(spec.order) or 'none'}"
        raise _wrong(f"{spec.name} has no argument {key!r}; {known}.")
    wants_text = is_text(key, spec)
    if wants_text:
        return value
    try:
        return strict_decoder().decode(value)
    except ValueError as error:
        if wants_text is None or spec.prepare is not None:
            return value
        raise _wrong(f"{key}: expected JSON, got {value[:60]!r} ({error}).") from None


def _wrong(message: str) -> click.BadParameter:
    return click.BadParameter(printable(message), param_hint="KEY=VALUE")


def read_args(text: str) -> dict[str, Any]:
    """--args: JSON itself, `@file`, or `-` for standard input."""
    where, source = _source(text)
    try:
        args = strict_decoder().decode(source)
    except json.JSONDecodeError as error:
        raise click.BadParameter(_where_it_breaks(where, source, error), param_hint="--args") from None
    except StrictJsonError as error:
        raise click.BadParameter(f"{where} {error}.", param_hint="--args") from None
    except RecursionError:
        raise click.BadParameter(f"{where} is nested too deep.", param_hint="--args") from None
    except ValueError as error:  # a whole number of thousands of digits
        raise click.BadParameter(f"{where} can't be read: {error}.", param_hint="--args") from None
    if not isinstance(args, dict):
        message = f'{where} is not an object; write the arguments by name, like {{"path": "."}}.'
        raise click.BadParameter(message, param_hint="--args")
    return args


def _source(text: str) -> tuple[str, str]:
    if text != STDIN and not text.startswith("@"):
        return "it", text
    name = text if text == STDIN else str(Path(text[1:]))
    wrong = partial(click.BadParameter, param_hint="--args")
    return shown_name(name), read_input(name, MOST_BYTES, wrong, wrong)


def _where_it_breaks(where: str, source: str, error: json.JSONDecodeError) -> str:
    lines = source.splitlines()
    line = lines[error.lineno - 1] if error.lineno <= len(lines) else ""  # it may break behind the last one
    start = max(0, error.colno - 31)
    pointer = f"\n  {line[start : start + 60]}\n  {' ' * (error.colno - 1 - start)}^" if line else ""
    return f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.{pointer}"
