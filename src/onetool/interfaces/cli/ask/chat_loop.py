"""Takes the turns of a chat: reads them, and puts a question to the model, calls a tool, or runs a command.

A turn is a line, or several that belong together, from a terminal or from a pipe.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from onetool.ask.errors import SessionError
from onetool.core.redaction import mask_arguments
from onetool.interfaces.cli.ask.chat_commands import A_QUESTION, ChatCommands, CommandError, print_problem
from onetool.interfaces.cli.ask.runner import (
    INTERRUPTED,
    MOST_TEXT,
    PATIENCE,
    TERMINATED,
    AskInput,
    AskRunner,
    end_heeded,
)
from onetool.interfaces.cli.output import printable, stdout, styled
from onetool.interfaces.cli.person import LineEditor, at_terminal, let_tools_ask
from onetool.script.call_lines import CallLine, read_call_line, write_call_line
from onetool.script.parse import ScriptError

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.core.call import ToolResult

WELCOME = "Ask something, or call a tool: +tool key=value. /help says more; Ctrl-C stops an answer, Ctrl-D ends."
PROMPT, FURTHER = "> ", ".. "
QUOTES = '"""'
CONTINUED = "\\"
TOO_LONG = f"That is larger than {MOST_TEXT // 1024**2} MiB. A tool can read a large file in parts: name it."
NOT_TEXT = "That is not UTF-8."


class Turn(NamedTuple):
    """What was said at once. `is_quoted`: in three quotes, so that it is a question, however it begins."""

    text: str
    is_quoted: bool = False
    problem: str = ""  # why it can't be taken


class TurnReader:
    """Iterate over it for the turns, up to the end of what is typed or piped in."""

    def __init__(self, history: Path, complete: Callable[[str], list[str]]) -> None:
        self._editor = LineEditor(history, complete, " \t\n")
        self.is_live = self._editor.is_live

    def __iter__(self) -> Iterator[Turn]:
        while (turn := self._turn()) is not None:
            if turn.text.strip() or turn.problem:
                yield turn

    def remember(self, turn: Turn, remembered: str | None) -> None:
        """Offer the lines of a turn again; in later chats those of `remembered`."""
        for line in turn.text.split("\n"):
            self._editor.remember(line)
        for line in (remembered or "").split("\n"):
            self._editor.keep(line)

    def save(self) -> None:
        self._editor.save()

    def _turn(self) -> Turn | None:
        """None at the end. Ctrl-C at a terminal throws away what was typed."""
        lines: list[str] = []
        try:
            return self._read_into(lines)
        except EOFError:
            if self.is_live:
                click.echo(err=True)
            return _joined(lines) if lines else None
        except KeyboardInterrupt:
            if not self.is_live:
                raise
            click.echo(err=True)
            return Turn("")
        except UnicodeDecodeError:
            return Turn("", problem=NOT_TEXT)
        except _TooLongError:
            return Turn("", problem=TOO_LONG)

    def _read_into(self, lines: list[str]) -> Turn:
        while True:
            lines.append(self._line(FURTHER if lines else PROMPT))
            if sum(map(len, lines)) > MOST_TEXT:
                raise _TooLongError
            if lines[0].lstrip().startswith(QUOTES):
                if _is_closed(lines):
                    return _joined(lines)
            elif not lines[-1].endswith(CONTINUED):
                return _joined(lines)

    def _line(self, prompt: str) -> str:
        if self.is_live:
            return self._editor.read(prompt)
        line = sys.stdin.buffer.readline(MOST_TEXT + 1)
        if not line:
            raise EOFError
        if len(line) > MOST_TEXT:
            while line and not line.endswith(b"\n"):  # the rest of it is no turn of its own
                line = sys.stdin.buffer.readline(MOST_TEXT)
            raise _TooLongError
        return line.decode("utf-8-sig").rstrip("\r\n")


class _TooLongError(Exception):
    pass


def _is_closed(lines: list[str]) -> bool:
    first, last = lines[0].strip(), lines[-1].rstrip()
    return last.endswith(QUOTES) and (len(lines) > 1 or len(first) >= 2 * len(QUOTES))


def _joined(lines: list[str]) -> Turn:
    text = "\n".join(lines)
    if lines[0].lstrip().startswith(QUOTES):
        return Turn(text.strip().removeprefix(QUOTES).removesuffix(QUOTES).strip("\n"), is_quoted=True)
    return Turn("\n".join(line.removesuffix(CONTINUED) for line in lines))


class ChatLoop:
    """Runs one `onetool chat`. The session of the first turn is that of all later ones."""

    def __init__(self, app: "App", options: dict[str, Any]) -> None:
        self._app = app
        self._options = options
        self._commands = ChatCommands(app, options)
        self._turns = TurnReader(app.config.home / "chat_history", self._commands.complete)
        self._person = at_terminal() if options["approve"] == "ask" and not self._turns.is_live else None

    def run(self) -> int:
        """Take turns until the end, and return the exit code: at a terminal 0, in a pipe 1 if a turn has failed."""
        let_tools_ask()
        if self._turns.is_live:
            click.echo(styled(WELCOME, dim=True), err=True)
        failed = 0
        try:
            with asyncio.Runner() as runner:
                for turn in self._turns:
                    code = self._taken(turn, runner)
                    if code == TERMINATED or (code == INTERRUPTED and not self._turns.is_live):
                        return code
                    failed = failed or code
                    if self._commands.is_over:
                        break
        finally:
            self._turns.save()
        if self._turns.is_live:
            self._tell_how_to_go_on()
            return 0
        return 1 if failed else 0

    def _taken(self, turn: Turn, runner: asyncio.Runner) -> int:
        """The exit code of one turn. Whatever ends it does not end the chat."""
        try:
            return self._take(turn, runner)
        except (CommandError, ScriptError) as error:
            print_problem(*map(str, error.args))
            return 1
        except SessionError as error:
            print_problem(str(error), *error.hints)
            return 1
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
            return INTERRUPTED
        except asyncio.CancelledError:
            return TERMINATED

    def _take(self, turn: Turn, runner: asyncio.Runner) -> int:
        if turn.problem:
            raise CommandError(turn.problem)
        first = "" if turn.is_quoted else turn.text[:1]
        if first == "+":
            return self._call(turn, runner)
        self._turns.remember(turn, self._app.runtime.redact(turn.text))
        if first != "/":
            return self._ask(turn.text if turn.is_quoted else turn.text.strip(), runner)
        self._commands.run(turn.text)
        return 0

    def _ask(self, text: str, runner: asyncio.Runner) -> int:
        asking = AskRunner(self._app, AskInput(text), self._options, chat=runner, person=self._person)
        try:
            return asking.run()
        finally:
            if asking.session:
                self._goes_on(asking.session)
            if asking.answer and asking.answer.model:
                self._commands.last_model = f"{asking.answer.model} ({asking.answer.provider})"

    def _goes_on(self, session: str) -> None:
        self._options.update(session=session, new_session=False)

    # A tool that the person calls

    def _call(self, turn: Turn, runner: asyncio.Runner) -> int:
        try:
            call = self._read_call(turn.text)
        except ScriptError as error:
            self._turns.remember(turn, None)  # it is unknown which part is secret
            raise ScriptError(str(error), A_QUESTION) from None
        masked = mask_arguments(call.args, call.spec.secrets)
        self._turns.remember(turn, self._app.runtime.redact(write_call_line(call.spec.name, masked)))
        return self._show(runner.run(self._called(call)))

    def _read_call(self, text: str) -> CallLine:
        """Of a tool that is not known, servers are asked that nobody has seen yet."""
        try:
            return self._call_of(text)
        except ScriptError:
            self._app.catalog.wait_for_servers_sync(None)
            return self._call_of(text)

    def _call_of(self, text: str) -> CallLine:
        tools = self._app.catalog.current_snapshot()
        return read_call_line(text, self._app.runtime.engine.names(tools), tools.allowing(self._options["allowed"]))

    async def _called(self, call: CallLine) -> "ToolResult":
        names = ("session", "new_session", "with_tools", "allowed")
        options = {name: self._options[name] for name in names}
        with end_heeded():
            return await self._app.user_call(call.spec.name, call.args, self._goes_on, **options, wait=PATIENCE)

    def _show(self, result: "ToolResult") -> int:
        from onetool.interfaces.cli.invoke import print_outcome
        from onetool.interfaces.cli.run import print_data

        for warning in result.meta.get("warnings", ()):
            click.echo(printable(f"Warning: {warning}"), err=True)
        if result.ok and not stdout().isatty():
            print_data(result.to_dict()["data"], as_json=False)
        else:
            print_outcome(self._app, result)
        return 0 if result.ok else 1

    def _tell_how_to_go_on(self) -> None:
        session = self._options["session"]
        if session and self._app.sessions.has(session):
            click.echo(styled(printable(f"Go on: onetool chat --session {session}"), dim=True), err=True)
