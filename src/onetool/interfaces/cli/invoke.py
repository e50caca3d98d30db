"""Calling one tool from the command line: read the arguments, make the call, give both back as data."""

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click
import msgspec

from onetool.core.call import ToolCall
from onetool.core.secrecy import masked
from onetool.interfaces.cli.person import let_tools_ask
from onetool.interfaces.cli.progress import show_progress

if TYPE_CHECKING:
    from onetool.app import App

MOST_BYTES = 4 * 1024 * 1024


def invoke_tool(
    app: "App", name: str, args: dict[str, Any], timeout: float | None, allowed: list[str] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The call and its result, as JSON types. Secret arguments are masked in what is shown of the call."""
    call = ToolCall(id=uuid4().hex, name=name, args=args, source="cli", timeout=timeout)
    let_tools_ask()
    result = asyncio.run(app.call(call, allowed, show_progress if sys.stderr.isatty() else None))
    spec = app.registry.get(name)
    shown = {"id": call.id, "name": name, "args": masked(args, spec.secrets) if spec else args, "source": call.source}
    return app.redact(msgspec.to_builtins(shown), args), result.to_dict()


def read_args(text: str) -> dict[str, Any]:
    """--args: JSON itself, `@file`, or `-` for standard input."""
    where, source = _source(text)
    try:
        args = json.loads(source, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise click.BadParameter(_where_it_breaks(where, source, error), param_hint="--args") from None
    except _NotStrictError as error:
        raise click.BadParameter(f"{where} {error}", param_hint="--args") from None
    except RecursionError:
        raise click.BadParameter(f"{where} is nested too deep.", param_hint="--args") from None
    except ValueError as error:  # a whole number of thousands of digits
        raise click.BadParameter(f"{where} can't be read: {error}.", param_hint="--args") from None
    if not isinstance(args, dict):
        message = f'{where} is not an object; write the arguments by name, like {{"path": "."}}.'
        raise click.BadParameter(message, param_hint="--args")
    return args


class _NotStrictError(Exception):
    """JSON that Python takes and that would lose something on the way."""


def _no_constant(name: str) -> Any:
    raise _NotStrictError(f"has {name}, which is not in JSON.")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _NotStrictError(f"has {text}, which is too large for a number.")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _NotStrictError(f"has {twice!r} twice; only one of them could be meant.")
    return fields


def _source(text: str) -> tuple[str, str]:
    if text == "-":
        return "standard input", _limited(sys.stdin.buffer.read(MOST_BYTES + 1), "standard input")
    if not text.startswith("@"):
        return "it", text
    file = Path(text[1:])
    try:
        with file.open("rb") as stream:
            return str(file), _limited(stream.read(MOST_BYTES + 1), str(file))
    except OSError as error:
        raise click.BadParameter(f"can't read {file}: {error.strerror}.", param_hint="--args") from None


def _limited(data: bytes, where: str) -> str:
    if len(data) > MOST_BYTES:
        raise click.BadParameter(f"{where} is larger than {MOST_BYTES // 1024**2} MiB.", param_hint="--args")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{where} is not UTF-8 (byte {error.start}).", param_hint="--args") from None


def _where_it_breaks(where: str, source: str, error: json.JSONDecodeError) -> str:
    lines = source.splitlines()
    line = lines[error.lineno - 1] if error.lineno <= len(lines) else ""  # it may break behind the last one
    start = max(0, error.colno - 31)
    pointer = f"\n  {line[start : start + 60]}\n  {' ' * (error.colno - 1 - start)}^" if line else ""
    return f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.{pointer}"
