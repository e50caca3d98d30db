"""The commands of a chat, and completion of what can be typed in it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from onetool.ask.errors import SessionError
from onetool.ask.providers import NAMES
from onetool.ask.sessions.records import LAST, check_id, is_generated
from onetool.core.spec import ToolSpec
from onetool.core.text import did_you_mean
from onetool.interfaces.cli.output import echo, printable, stdout, styled
from onetool.interfaces.cli.tools import first_line
from onetool.script.call_lines import call_line_completions

if TYPE_CHECKING:
    from onetool.app import App

MOST_LISTED = 40  # tools, for a person
MOST_FOUND = 10
LIST, NEW = "list", "new"
A_QUESTION = "a line that begins with a space is a question"

HELP = {
    "/help": "this list",
    "/tools [WORDS]": "the tools that there are, or those that fit",
    "/model [NAME]": "which model answers; or another one from now on (/model PROVIDER NAME: of another provider)",
    "/session [NAME|list|new]": "the session; go on with another one, list them, or begin a new one",
    "/quit": "end the chat, as Ctrl-D does",
    "+TOOL KEY=VALUE …": "call a tool yourself: the model reads the call and its result with the next question",
    '"""': "begins and ends a text of several lines; a line that ends with a backslash goes on, too",
}


class CommandError(Exception):
    """A command that can't be done: why, and what to do."""


class ChatCommands:
    """Runs commands. They change `options`, which all later questions go by."""

    def __init__(self, app: "App", options: dict[str, Any]) -> None:
        self._app = app
        self._options = options
        self.last_model = ""  # that has answered
        self._commands: dict[str, Callable[[Sequence[str]], None]] = {
            "/help": self._help,
            "/tools": self._tools,
            "/model": self._model,
            "/session": self._session,
            "/quit": self._quit,
        }
        self.is_over = False

    def run(self, text: str) -> None:
        """Raises CommandError."""
        word, *words = text.split()
        command = self._commands.get(word)
        if command is None:
            rather = did_you_mean(word, self._commands) or f"there are {', '.join(self._commands)}."
            raise CommandError(f"there is no {word}; {rather}", A_QUESTION)
        command(words)

    def complete(self, line: str) -> list[str]:
        """Every word that the last one could become."""
        if line.startswith("+"):
            tools = self._app.catalog.registry.snapshot()
            names = self._app.runtime.engine.names(tools)
            return call_line_completions(line, names, tools.allowing(self._options["allowed"]))
        word, space, begun = line.partition(" ")
        if not line.startswith("/"):
            return []
        known = self._arguments(word) if space else self._commands
        return [f"{one} " for one in known if one.startswith(begun if space else word)]

    def _arguments(self, command: str) -> Sequence[str]:
        if command != "/session":
            return NAMES if command == "/model" else ()
        try:
            return [LIST, NEW, LAST, *(one.id for one in self._app.sessions.list())]
        except SessionError:
            return [LIST, NEW]

    # The commands

    def _help(self, _words: Sequence[str]) -> None:
        width = max(map(len, HELP))
        for command, told in HELP.items():
            echo(f"{command:<{width}}  {told}")

    def _quit(self, _words: Sequence[str]) -> None:
        self.is_over = True

    def _tools(self, words: Sequence[str]) -> None:
        app = self._app
        app.catalog.wait_for_servers_sync(None)
        allowed = app.catalog.registry.allowing(self._options["allowed"])
        fitting = (spec for spec, _ in app.search(" ".join(words), MOST_FOUND, allowed))
        found = list(fitting) if words else app.tools(allowed)
        most = MOST_LISTED if stdout().isatty() else len(found)
        for spec in found[:most]:
            echo(printable(f"{_usage(spec)}  {first_line(spec.description)}"))
        if len(found) > most:
            echo(f"… and {len(found) - most:,} more: /tools WORDS finds them")
        if not found:
            echo("Nothing found. Try other words." if words else "There are no tools.")

    def _model(self, words: Sequence[str]) -> None:
        if len(words) > 2 or (len(words) == 2 and words[0] not in NAMES):
            rather = did_you_mean(words[0], NAMES) or f"providers are {', '.join(NAMES)}."
            raise CommandError(f"write /model NAME, or /model PROVIDER NAME; {rather}")
        if len(words) == 2:
            self._options["provider"] = words[0]
        if words:
            self._options["model"], self.last_model = words[-1], ""
        echo(printable(self._shown_model()))

    def _shown_model(self) -> str:
        if self.last_model:
            return self.last_model
        options, ask = self._options, self._app.config.ask
        model = options["model"] or (ask.model if options["provider"] in (None, ask.provider) else None)
        provider = options["provider"] or ask.provider
        return f"{model or 'the first one that there is'}{f' ({provider})' if provider else ''}"

    def _session(self, words: Sequence[str]) -> None:
        name = " ".join(words)
        if not name:
            echo(printable(self._options["session"] or "a new one: it begins with what is said next"))
        elif name == LIST:
            self._list_sessions()
        elif name == NEW:
            self._options.update(session=None, new_session=False)
            echo("a new one: it begins with what is said next")
        else:
            self._choose_session(name)

    def _list_sessions(self) -> None:
        from onetool.interfaces.cli.sessions import print_sessions

        found = self._app.sessions.list()
        if not found:
            echo("There are no sessions yet.")
        elif stdout().isatty():
            print_sessions(found)
        else:
            for one in found:
                echo(f"{one.id}\t{printable(one.title)}")

    def _choose_session(self, name: str) -> None:
        store = self._app.sessions
        try:
            if name == LAST or is_generated(name) or store.has(check_id(name)):
                read = store.read(name)
                told = f"{read.id}: {read.turns:,} question{'' if read.turns == 1 else 's'} so far"
                name = read.id
            else:
                others = store.similar_ids(name)
                told = f"{name}: a new one{f'; there is {others[0]}' if others else ''}"
        except SessionError as error:
            raise CommandError(str(error), *error.hints) from None
        self._options.update(session=name, new_session=False)
        echo(printable(told))


def _usage(spec: ToolSpec) -> str:
    """`+fs.read_file path=… [maxBytes=…]`."""
    required = spec.input_schema.get("required") or ()
    words = (f"{name}=…" if name in required else f"[{name}=…]" for name in spec.order)
    return " ".join((f"+{spec.name}", *words))


def print_problem(*lines: str) -> None:
    """What went wrong, and below it what to do, on standard error."""
    first, *hints = map(printable, lines)
    click.echo(f"{styled('Error:', fg='red')} {first}", err=True)
    for hint in hints:
        click.echo(f"  {hint}", err=True)
