"""The chat: reads turns, and for each of them asks the model, calls a tool, or runs a command.

A turn is a line, or several lines that belong together, from a terminal or a pipe. The commands are `/help`, `/tools`,
`/model`, `/session` and `/quit`.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import click

from onetool.app import App
from onetool.ask.errors import SessionError
from onetool.ask.sessions.records import LAST, check_id, is_generated
from onetool.core.call import ToolResult
from onetool.core.model_providers import PROVIDERS
from onetool.core.text import did_you_mean
from onetool.core.tool_lines import first_sentence
from onetool.interfaces.cli.ask.runner import (
    INTERRUPTED,
    MAX_TEXT_BYTES,
    SESSION_WAIT,
    TERMINATED,
    AskInput,
    AskRunner,
    end_heeded,
)
from onetool.interfaces.cli.output import counted, echo, print_note, print_table, printable, stdout, styled
from onetool.interfaces.cli.person import at_terminal, let_tools_ask
from onetool.interfaces.cli.run import print_data
from onetool.interfaces.cli.tools import print_outcome
from onetool.script.call_lines import CallLine, read_call_line
from onetool.script.parse import ScriptError

WELCOME = "Ask something, or call a tool: +tool key=value. /help says more; Ctrl-C stops an answer, Ctrl-D ends."

MAX_LISTED = 40  # tools listed at a terminal
MAX_FOUND = 10
LIST, NEW = "list", "new"
A_QUESTION = "a line that begins with a space is a question"

HELP = {
    "/help": "this list",
    "/tools [WORDS]": "list the tools, or only matching ones",
    "/model [NAME]": "show or change the model (/model PROVIDER NAME: of another provider)",
    "/session [NAME|list|new]": "show the session, continue another, list all, or begin a new one",
    "/quit": "end the chat, as Ctrl-D does",
    "+TOOL KEY=VALUE …": "call a tool yourself: the model reads the call and its result with the next question",
    '"""': "begins and ends a text of several lines; a backslash at the end of a line continues it",
}
PROMPT, FURTHER = "> ", ".. "
QUOTES = '"""'
CONTINUED = "\\"
TOO_LONG = f"That is larger than {MAX_TEXT_BYTES // 1024**2} MiB. A tool can read a large file in parts: name it."
NOT_TEXT = "That is not UTF-8."


# Reading turns


class Turn(NamedTuple):
    """One input from the user.

    `is_quoted` means that the text was in three quotes: it is a question, however it begins.
    """

    text: str
    is_quoted: bool = False
    problem: str = ""  # why it is invalid


class TurnReader:
    """An iterable of the turns that are typed or piped in."""

    def __init__(self) -> None:
        self.is_live = sys.stdin.isatty()
        with suppress(ImportError):
            if self.is_live:
                import readline  # noqa: F401  # pyright: ignore[reportUnusedImport] - `input` edits lines with it

    def __iter__(self) -> Iterator[Turn]:
        while (turn := self._turn()) is not None:
            if turn.text.strip() or turn.problem:
                yield turn

    def _turn(self) -> Turn | None:
        """Read a turn. Return None at the end. Ctrl-C at a terminal discards what was typed."""
        lines: list[str] = []
        try:
            while True:
                lines.append(self._line(FURTHER if lines else PROMPT))
                if sum(map(len, lines)) > MAX_TEXT_BYTES:
                    raise _TooLongError
                if lines[0].lstrip().startswith(QUOTES):
                    if _is_closed(lines):
                        return _joined(lines)
                elif not lines[-1].endswith(CONTINUED):
                    return _joined(lines)
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

    def _line(self, prompt: str) -> str:
        if self.is_live:
            return input(prompt)
        line = sys.stdin.buffer.readline(MAX_TEXT_BYTES + 1)
        if not line:
            raise EOFError
        if len(line) > MAX_TEXT_BYTES:
            while line and not line.endswith(b"\n"):  # skip the rest of the line
                line = sys.stdin.buffer.readline(MAX_TEXT_BYTES)
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


# Running turns


class CommandError(Exception):
    """The reason why a command failed, and a hint."""


class ChatLoop:
    """One run of `onetool chat`. All turns belong to the session of the first turn."""

    def __init__(self, app: App, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options
        self._commands = ChatCommands(app, options)
        self._turns = TurnReader()
        self._person = at_terminal() if options["approve"] == "ask" and not self._turns.is_live else None

    def run(self) -> int:
        """Run turns until the end, and return the exit code: at a terminal 0, in a pipe 1 if a turn has failed."""
        let_tools_ask()
        if self._turns.is_live:
            click.echo(styled(WELCOME, dim=True), err=True)
        failed = 0
        with asyncio.Runner() as runner:
            for turn in self._turns:
                code = self._run_turn(turn, runner)
                if code == TERMINATED or (code == INTERRUPTED and not self._turns.is_live):
                    return code
                failed = failed or code
                if self._commands.is_over:
                    break
        if not self._turns.is_live:
            return 1 if failed else 0
        session = self._options["session"]
        if session and self._app.sessions.has(session):
            click.echo(styled(printable(f"Continue: onetool chat --session {session}"), dim=True), err=True)
        return 0

    def _run_turn(self, turn: Turn, runner: asyncio.Runner) -> int:
        """Run one turn, and return its exit code. Errors do not end the chat."""
        try:
            return self._dispatch(turn, runner)
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

    def _dispatch(self, turn: Turn, runner: asyncio.Runner) -> int:
        if turn.problem:
            raise CommandError(turn.problem)
        first = "" if turn.is_quoted else turn.text[:1]
        if first == "+":
            return self._call(turn, runner)
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
                self._use_session(asking.session)
            if asking.answer and asking.answer.model:
                self._commands.last_model = f"{asking.answer.model} ({asking.answer.provider})"

    def _use_session(self, session: str) -> None:
        self._options.update(session=session, new_session=False)

    # Tools that the user calls

    def _call(self, turn: Turn, runner: asyncio.Runner) -> int:
        try:
            try:
                call = self._read_call(turn.text)
            except ScriptError:  # perhaps a tool of a server that was never connected
                self._app.catalog.wait_for_servers_sync(None)
                call = self._read_call(turn.text)
        except ScriptError as error:
            raise ScriptError(str(error), A_QUESTION) from None

        async def called() -> ToolResult:
            names = ("session", "new_session", "with_tools", "allowed")
            options = {name: self._options[name] for name in names}
            with end_heeded():
                return await self._app.user_call(
                    call.spec.name, call.args, self._use_session, **options, wait=SESSION_WAIT
                )

        result = runner.run(called())
        for warning in result.meta.get("warnings", ()):
            print_note(f"Warning: {warning}")
        if result.ok and not stdout().isatty():
            print_data(result.to_dict()["data"], as_json=False)
        else:
            print_outcome(self._app, result)
        return 0 if result.ok else 1

    def _read_call(self, text: str) -> CallLine:
        tools = self._app.catalog.current_snapshot()
        return read_call_line(text, self._app.runtime.engine.names(tools), tools.allowing(self._options["allowed"]))


# Commands


class ChatCommands:
    """The commands of a chat. They change `options`, which apply to all later questions."""

    def __init__(self, app: App, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options
        self.last_model = ""  # the model that answered last
        self._commands: dict[str, Callable[[Sequence[str]], None]] = {
            "/help": self._help,
            "/tools": self._tools,
            "/model": self._model,
            "/session": self._session,
            "/quit": self._quit,
        }
        self.is_over = False

    def run(self, text: str) -> None:
        """Run a command. Raises CommandError."""
        word, *words = text.split()
        command = self._commands.get(word)
        if command is None:
            rather = did_you_mean(word, self._commands) or f"the commands are {', '.join(self._commands)}."
            raise CommandError(f"there is no {word}; {rather}", A_QUESTION)
        command(words)

    def _help(self, _words: Sequence[str]) -> None:
        width = max(map(len, HELP))
        for command, text in HELP.items():
            echo(f"{command:<{width}}  {text}")

    def _quit(self, _words: Sequence[str]) -> None:
        self.is_over = True

    def _tools(self, query: Sequence[str]) -> None:
        app = self._app
        app.catalog.wait_for_servers_sync(None)
        allowed = app.catalog.registry.allowing(self._options["allowed"])
        fitting = (spec for spec, _ in app.search(" ".join(query), MAX_FOUND, allowed))
        found = list(fitting) if query else app.tools(allowed)
        most = MAX_LISTED if stdout().isatty() else len(found)
        for spec in found[:most]:
            required = spec.input_schema.get("required") or ()
            words = (f"{name}=…" if name in required else f"[{name}=…]" for name in spec.order)
            echo(printable(f"{' '.join((f'+{spec.name}', *words))}  {first_sentence(spec.description)}"))
        if len(found) > most:
            echo(f"… and {len(found) - most:,} more: /tools WORDS finds them")
        if not found:
            echo("Nothing found. Try other words." if query else "There are no tools.")

    def _model(self, words: Sequence[str]) -> None:
        if len(words) > 2 or (len(words) == 2 and words[0] not in PROVIDERS):
            rather = did_you_mean(words[0], PROVIDERS) or f"providers are {', '.join(PROVIDERS)}."
            raise CommandError(f"write /model NAME, or /model PROVIDER NAME; {rather}")
        if len(words) == 2:
            self._options["provider"] = words[0]
        if words:
            self._options["model"], self.last_model = words[-1], ""
        options, ask = self._options, self._app.config.ask
        model = options["model"] or (ask.model if options["provider"] in (None, ask.provider) else None)
        provider = options["provider"] or ask.provider
        next_one = f"{model or 'the first available model'}{f' ({provider})' if provider else ''}"
        echo(printable(self.last_model or next_one))

    def _session(self, words: Sequence[str]) -> None:
        name = " ".join(words)
        if not name:
            echo(printable(self._options["session"] or "a new session, from the next question on"))
        elif name == LIST:
            found = self._app.sessions.list()
            if not found:
                echo("There are no sessions yet.")
            elif stdout().isatty():
                rows = [(one.id, str(one.turns), one.title) for one in found[:MAX_LISTED]]
                print_table(counted(len(found), "session"), ("session", "questions", "begins with"), rows)
            else:
                for one in found:
                    echo(f"{one.id}\t{printable(one.title)}")
        elif name == NEW:
            self._options.update(session=None, new_session=False)
            echo("a new session, from the next question on")
        else:
            self._choose_session(name)

    def _choose_session(self, name: str) -> None:
        store = self._app.sessions
        try:
            if name == LAST or is_generated(name) or store.has(check_id(name)):
                read = store.read(name)
                text = f"{read.id}: {read.turns:,} question{'' if read.turns == 1 else 's'} so far"
                name = read.id
            else:
                others = store.similar_ids(name)
                text = f"{name}: a new session{f'; did you mean {others[0]}?' if others else ''}"
        except SessionError as error:
            raise CommandError(str(error), *error.hints) from None
        self._options.update(session=name, new_session=False)
        echo(printable(text))


def print_problem(*lines: str) -> None:
    """Print an error, and its hints below it, on standard error."""
    first, *hints = map(printable, lines)
    click.echo(f"{styled('Error:', fg='red')} {first}", err=True)
    for hint in hints:
        click.echo(f"  {hint}", err=True)
