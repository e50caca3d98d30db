"""The user at the terminal: typed lines, and questions from tools.

Questions go to standard error, and answers are read from standard input. If standard input is a pipe, `at_terminal`
reads answers from the terminal itself.

Typed lines have history and completion where Python was built with readline. The history is one text file per command,
readable only by its owner. Each process appends the lines that were typed in it.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import click

from onetool.core.call import CannotAsk, Declined, ForPerson, ForRoots, Level, Question, current_caller
from onetool.core.context import paused_for_caller
from onetool.core.os_files import private
from onetool.core.state_folders import make_home
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


# Typed lines, with history and completion

MAX_HISTORY = 1000  # lines


class LineEditor:
    """A line editor with history and completion.

    `complete` returns the possible completions of a line's last word, which ends at a space.
    """

    def __init__(self, history: Path, complete: Callable[[str], list[str]]) -> None:
        self._history = history
        self._complete = complete
        self._new: list[str] = []  # lines to add to the history file
        self.is_live = sys.stdin.isatty()
        self._readline: ModuleType | None = None
        with suppress(ImportError):
            if self.is_live:
                import readline

                self._readline = readline
                self._set_up(readline)

    def read(self, prompt: str) -> str:
        """Read a line. Raises EOFError at the end.

        A pipe gets no prompt: `input` would write it to standard output, which is for results.
        """
        if not self.is_live:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\n")
        return input(prompt)

    def remember(self, line: str) -> None:
        """Add a line to the history of this process."""
        if self._readline is not None and line.strip():
            self._readline.add_history(line)

    def keep(self, line: str) -> None:
        """Add a line to the history of later processes."""
        if self.is_live and line.strip():
            self._new.append(line)

    def save(self) -> None:
        """Write the history file, if there are new lines."""
        if not self._new:
            return
        try:
            make_home(self._history.parent)
            lines = [*self._read_history(), *self._new][-MAX_HISTORY:]
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with open(private(self._history, flags), "w", encoding="utf-8", errors="replace") as stream:
                stream.writelines(f"{line}\n" for line in lines)
        except OSError as error:
            click.echo(f"The history could not be saved: {error}", err=True)

    def _read_history(self) -> list[str]:
        try:
            text = self._history.read_text(encoding="utf-8", errors="replace")
        except OSError:  # missing or unreadable: start without history
            return []
        return [line for line in text.split("\n") if line][-MAX_HISTORY:]

    def _set_up(self, readline: ModuleType) -> None:
        found: list[str] = []

        def complete(_word: str, state: int) -> str | None:
            if state == 0:
                line = readline.get_line_buffer()[: readline.get_endidx()]
                found[:] = self._complete(line)
            return found[state] if state < len(found) else None

        readline.set_completer(complete)
        readline.set_completer_delims(" \t\n")
        readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
        readline.set_auto_history(False)
        for line in self._read_history():
            readline.add_history(line)
