"""The person at the terminal, for tools that ask: questions on standard error, answers from standard input."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from onetool.core.caller import CannotAsk, Declined, ForPerson, ForRoots, Level, Question, current_caller
from onetool.core.context import waiting
from onetool.core.threads import Threads
from onetool.interfaces.cli.output import printable


def let_tools_ask() -> None:
    """From here on, calls of this context can ask the person; if there is one."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        current_caller.set(Person())


class Person:
    """One who answers one question at a time."""

    owner = ""

    def __init__(self) -> None:
        self._threads = Threads(most=1)

    def can(self, what: str) -> bool:
        return what in ("elicitation", "roots")

    def lacks(self, error: CannotAsk) -> None:
        """Its message is what is shown."""

    def log(self, level: Level, data: Any, logger: str | None) -> None:
        click.echo(f"{level}: {printable(str(data))}", err=True)

    async def ask(self, question: Question) -> Any:
        if isinstance(question, ForRoots):
            return [{"uri": Path.cwd().as_uri(), "name": Path.cwd().name}]
        if not isinstance(question, ForPerson):
            raise CannotAsk("sampling", "there is no model at a terminal")
        with waiting():
            return await self._threads.run(_filled_in, {"question": question})


def _filled_in(question: ForPerson) -> dict[str, Any]:
    click.echo(printable(question.message), err=True)
    required = question.schema.get("required", ())
    filled: dict[str, Any] = {}
    for name, field in question.schema["properties"].items():
        value = _answer(name, field, name in required)
        if value is not None:
            filled[name] = value
    return filled


def _answer(name: str, field: Mapping[str, Any], required: bool) -> Any:
    """One field, asked until it is right. Nothing, where something is needed, is a no."""
    from onetool.core.schema import CompiledSchema  # brings the validator with it; most tools never ask

    told = printable(str(field.get("title") or field.get("description") or name))
    check = CompiledSchema({"type": "object", "properties": {name: field}}, closed=False)
    while True:
        click.echo(f"  {told}{_choices(field)}: ", nl=False, err=True)
        text = _line()
        if not text:
            if "default" in field or not required:
                return field.get("default")
            raise Declined("decline")
        value = _read(text, field.get("type"))
        problems = check.check({name: value})
        if not problems:
            return value
        click.echo(f"  {printable('; '.join(map(str, problems)))}", err=True)


def _line() -> str:
    """A line that somebody types. Not by `input`: at an interrupt the interpreter could not end while that waits."""
    typed = b""
    while not typed.endswith(b"\n"):
        part = os.read(0, 4096)
        if not part:  # Ctrl-D
            raise Declined("cancel")
        typed += part
    return typed.decode(errors="replace").strip()


def _choices(field: Mapping[str, Any]) -> str:
    named = field.get("enum") or [one.get("const") for one in field.get("oneOf", ())]
    if field.get("type") == "boolean":
        named = ["y", "n"]
    words = [printable(str(one)) for one in named]
    more = f" ({'/'.join(words)})" if words else ""
    return f"{more} [{printable(str(field['default']))}]" if "default" in field else more


def _read(text: str, kind: Any) -> Any:
    """As the type that is wanted; as it is, where it is none of that type."""
    if kind == "boolean":
        return {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}.get(text.lower(), text)
    if kind == "array":
        return [part.strip() for part in text.split(",")]
    try:
        return {"integer": int, "number": float}.get(kind, str)(text)
    except ValueError:
        return text
