"""The user at the terminal: questions from tools.

Questions go to standard error, and answers are read from standard input. If standard input is a pipe, `at_terminal`
reads answers from the terminal itself.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import click

from onetool.core.call import CannotAsk, Declined, ForPerson, ForRoots, Level, Question, current_caller
from onetool.core.context import paused_for_caller
from onetool.core.threads import Threads
from onetool.interfaces.cli.inputs import has_data
from onetool.interfaces.cli.output import print_note, printable

WITHDRAW_TIMEOUT = 1.0  # seconds for a question to be taken back
STDIN, TERMINAL = 0, "/dev/tty"


def let_tools_ask() -> None:
    """Let tools called from this context ask the user, if there is a terminal."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        current_caller.set(Person())


def can_be_asked() -> bool:
    """Return whether the user sees questions and can type an answer: see `at_terminal`."""
    keyboard = _keyboard()
    if keyboard not in (None, STDIN):
        os.close(keyboard)
    return keyboard is not None


def at_terminal() -> "Person":
    """Return the user at this process's terminal, even if standard input is something else."""
    keyboard = _keyboard()
    return Person(STDIN if keyboard is None else keyboard)


def _keyboard() -> int | None:
    """Return the stream that the user types into; None if the user would not see a question."""
    if not sys.stderr.isatty():
        return None
    if sys.stdin.isatty():
        return STDIN
    try:
        return os.open(TERMINAL, os.O_RDONLY | getattr(os, "O_NOCTTY", 0))
    except OSError:  # no terminal, or a system without /dev/tty
        return None


class Person:
    """The user, who is asked one question at a time and answers on the descriptor `keyboard`."""

    def __init__(self, keyboard: int = STDIN) -> None:
        self._keyboard = keyboard
        self._threads = Threads(most=1)

    def can(self, what: str) -> bool:
        return what in ("elicitation", "roots")

    def lacks(self, error: CannotAsk) -> None:
        """Do nothing: the message of the error is shown anyway."""

    def log(self, level: Level, data: Any, logger: str | None) -> None:
        click.echo(f"{level}: {printable(str(data))}", err=True)

    async def ask(self, question: Question) -> Any:
        if isinstance(question, ForRoots):
            return [{"uri": Path.cwd().as_uri(), "name": Path.cwd().name}]
        if not isinstance(question, ForPerson):
            raise CannotAsk("sampling", "a terminal has no model")
        form = _Form(question, self._keyboard)
        with paused_for_caller():
            answer = asyncio.ensure_future(self._threads.run(form.ask, {}))
            try:
                return await asyncio.shield(answer)
            except asyncio.CancelledError:
                # Stop reading for a cancelled question, so that typed text goes to the next question.
                form.withdrawn.set()
                if form.is_shown and not answer.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([answer], timeout=WITHDRAW_TIMEOUT)
                if not answer.cancel() and not answer.cancelled():
                    answer.exception()  # marks it as retrieved
                raise


class _Form:
    """One question, asked in a thread; `withdrawn` cancels it."""

    def __init__(self, question: ForPerson, keyboard: int) -> None:
        self._question = question
        self._keyboard = keyboard
        self.withdrawn = Event()
        self.is_shown = False

    def ask(self) -> dict[str, Any]:
        self.is_shown = True
        if self.withdrawn.is_set():  # before its turn came
            raise Declined("cancel")
        with suppress(ImportError, OSError, ValueError):  # not every system has termios
            import termios

            with suppress(termios.error):  # discard what was typed before the question was shown
                termios.tcflush(self._keyboard, termios.TCIFLUSH)
        print_note(self._question.message)
        required = self._question.schema.get("required", ())
        filled: dict[str, Any] = {}
        for name, field in self._question.schema["properties"].items():
            value = self._answer(name, field, name in required)
            if value is not None:
                filled[name] = value
        return filled

    def _answer(self, name: str, field: Mapping[str, Any], required: bool) -> Any:
        """Ask for one field until the answer is valid. An empty answer to a required field declines."""
        from onetool.core.schema import CompiledSchema  # loads the validator; most tools never ask

        label = printable(str(field.get("title") or field.get("description") or name))
        check = CompiledSchema({"type": "object", "properties": {name: field}}, closed=False)
        while True:
            click.echo(f"  {label}{_choices(field)}: ", nl=False, err=True)
            text = self._line()
            if not text:
                if "default" in field or not required:
                    return field.get("default")
                raise Declined("decline")
            value = _parse_answer(text, field.get("type"))
            problems = check.check({name: value})
            if not problems:
                return value
            click.echo(f"  {printable('; '.join(map(str, problems)))}", err=True)

    def _line(self) -> str:
        """Read a typed line. `input` is not used: the interpreter could not exit while `input` waits."""
        typed = b""
        while not typed.endswith(b"\n"):
            while not has_data(self._keyboard, 0.05):
                if self.withdrawn.is_set():
                    click.echo("\n  withdrawn: an answer is no longer needed", err=True)
                    raise Declined("cancel")
            part = os.read(self._keyboard, 4096)
            if not part:  # Ctrl-D
                click.echo(err=True)
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


def _parse_answer(text: str, kind: Any) -> Any:
    """Parse a string as this type; return it unchanged if it isn't of this type."""
    if kind == "boolean":
        return {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}.get(text.lower(), text)
    if kind == "array":
        return [part.strip() for part in text.split(",")]
    try:
        return {"integer": int, "number": float}.get(kind, str)(text)
    except ValueError:
        return text
