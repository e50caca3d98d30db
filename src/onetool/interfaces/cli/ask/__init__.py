"""`onetool ask` and `onetool chat`: the commands, their options, and the flag `--with-tools` that may have a value.

runner     asks one question, from reading it to the exit code
terminal   shows what happens, and asks the user to approve calls
wording    writes calls and their arguments
chat_loop  reads the turns of a chat, and asks the model, calls a tool or runs a command

The option parser would take the word after `--with-tools`, such as the prompt, as its value. The value is therefore
joined to the flag before parsing: the next word if it is true or false, else `true`.

At a terminal the lines of a chat are edited. In a pipe each line is a turn, and only answers,
values and lists go to standard output.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from onetool.core.errors import cut
from onetool.core.model_providers import PROVIDERS
from onetool.interfaces.cli.options import OneOf, allow_option, config_option, data_options, open_app
from onetool.interfaces.cli.output import printable

WITH_TOOLS = "--with-tools"
MAX_SHOWN = 60  # characters of a question

F = TypeVar("F", bound=Callable[..., Any])


class WithToolsCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(join_switch_value(args))
        try:
            return super().parse_args(ctx, [*words])
        except click.NoSuchOption as error:
            for word in words:  # a word with spaces is not an option, but a question that looks like one
                if word.startswith(error.option_name) and " " in word:
                    shown = printable(cut(word, MAX_SHOWN)).replace("\n", " ")
                    hint = f'Put a question that begins with a dash after --: onetool ask -- "{shown}"'
                    raise click.UsageError(hint, error.ctx) from None
            raise


def join_switch_value(args: list[str]) -> Iterator[str]:
    """Yield the words with the value joined to the switch."""
    rest = iter(args)
    for word in rest:
        if word == "--":
            yield word
            yield from rest
        elif word == WITH_TOOLS:
            following = next(rest, None)
            if following is not None and following.lower() in ("true", "false"):
                yield f"{WITH_TOOLS}={following}"
            else:
                yield f"{WITH_TOOLS}=true"
                yield from join_switch_value([*([] if following is None else [following]), *rest])
        else:
            yield word


class TrueOrFalse(click.types.BoolParamType):
    """A boolean whose error names the values to write."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self.str_to_bool(value) is None:
            self.fail(f"expected true or false, got {value!r}.", param, ctx)
        return super().convert(value, param, ctx)


# `onetool ask`: the command and its options.

# Repeated here, because the config takes longer to load than all of --help; a test compares them.
MENUS = ("direct", "run")
MAX_TEMPERATURE = 2.0

HELP = {
    "with_tools": "Whether the model can use tools: --with-tools[=false]. Default: as in the config, else true.",
    "provider": "The provider, instead of the one in the config.",
    "model": "The model, by the provider's name.",
    "session": "Continue this session; `last` is the last one used. By default, every question begins a new session.",
    "new_session": "Begin a new session; with --session, under that name, which must be unused.",
    "max_steps": "How often the model may call tools before it has to answer. Default: as in the config, else 8.",
    "system": "The system prompt, instead of the built-in one.",
    "temperature": "The sampling temperature, from 0 to 2.",
    "menu": "What the model sees: every tool (direct), or one tool that runs code (run).",
    "approve": "Approve calls of tools not marked read-only: ask (default at a terminal), always, never (elsewhere).",
    "files": "Attach a text or picture (PNG, JPEG, GIF, WebP); - is standard input. May be repeated.",
    "no_stream": "Wait for the complete answer instead of streaming it.",
}


def _complete_session(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from onetool.app.operations import sessions  # noqa: F401  # pyright: ignore[reportUnusedImport] - has the list
    from onetool.interfaces.cli.operations import completion_of

    found = completion_of("session")(ctx, _param, incomplete)
    return ["last", *found] if found and "last".startswith(incomplete) else found


def _complete_file(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _temperature(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value <= MAX_TEMPERATURE:  # so that `nan` is refused too
        raise click.BadParameter(f"expected a number from 0 to {MAX_TEMPERATURE:g}, got {value:g}.")
    return value


def model_options(command: F) -> F:
    """Add the options for how questions are answered: see `read_options`."""
    options = (
        click.option(WITH_TOOLS, "with_tools", type=TrueOrFalse(), metavar="[=true|false]", help=HELP["with_tools"]),
        allow_option,
        click.option("--approve", type=click.Choice(("ask", "always", "never")), help=HELP["approve"]),
        click.option("--provider", type=OneOf(PROVIDERS), help=HELP["provider"]),
        click.option("--model", metavar="NAME", help=HELP["model"]),
        click.option("--session", metavar="ID", shell_complete=_complete_session, help=HELP["session"]),
        click.option("--new-session", is_flag=True, help=HELP["new_session"]),
        click.option("--max-steps", type=click.IntRange(min=1), metavar="N", help=HELP["max_steps"]),
        click.option("--menu", type=click.Choice(MENUS), help=HELP["menu"]),
        click.option("--system", metavar="TEXT", help=HELP["system"]),
        click.option("--temperature", type=float, metavar="T", callback=_temperature, help=HELP["temperature"]),
        click.option("--no-stream", is_flag=True, help=HELP["no_stream"]),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options as arguments of `App.ask`. Raises UsageError for invalid values."""
    approval = _approval(given["approve"])
    from onetool.app.operations.sessions import checked_session
    from onetool.interfaces.cli.ask.runner import checked
    from onetool.sources.bundles.errors import InvalidError

    texts = {"--model": given["model"], "--session": given["session"], "--system": given["system"]}
    for option, text in {**texts, "--tool-allow": ",".join(given["allowed"] or ())}.items():
        checked(text or "", option)
    if given["session"] is not None:
        try:
            checked_session(given["session"], given["new_session"])
        except InvalidError as error:
            raise click.UsageError(f"{error}.") from None
    options = {name: value for name, value in given.items() if name != "no_stream"}
    return {**options, "approve": approval, "stream": not given["no_stream"]}


@click.command(cls=WithToolsCommand)
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@click.option("--file", "-f", "names", metavar="FILE", multiple=True, shell_complete=_complete_file, help=HELP["files"])
@model_options
@data_options
def ask(ctx: click.Context, words: tuple[str, ...], names: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Ask a model that can use your tools. Prints the answer. The exit code is 1 if there is none.

    Without PROMPT, or with `-`, the question is read from standard input. With PROMPT, piped input is attached to it.

    \b
    onetool ask "What is the largest file here?"
    onetool ask --session last "And the smallest?"
    git diff | onetool ask "Review this." --with-tools=false
    """
    options = read_options({**given, "no_stream": given["no_stream"] or as_json})
    from onetool.interfaces.cli.ask.runner import INTERRUPTED, AskRunner, print_interrupted, read_question

    question = read_question(words, names)
    try:
        app = open_app(ctx, options["allowed"])
    except KeyboardInterrupt:  # while waiting for slow servers
        if not as_json:
            raise
        print_interrupted()
        ctx.exit(INTERRUPTED)
    ctx.exit(AskRunner(app, question, options, as_json).run())


def _approval(wanted: str | None) -> str:
    """Return the approval mode. With piped input, asking has to be requested explicitly."""
    from onetool.interfaces.cli.person import can_be_asked

    if wanted == "ask" and not can_be_asked():
        raise click.UsageError("--approve ask needs a terminal to ask at; use always or never.")
    return wanted or ("ask" if sys.stdin.isatty() and sys.stderr.isatty() else "never")


@click.command(cls=WithToolsCommand)
@model_options
@config_option
def chat(ctx: click.Context, **given: Any) -> None:
    """Chat with a model that can use your tools; Ctrl-C stops an answer, Ctrl-D ends the chat.

    `+tool key=value` calls a tool yourself: the model reads the call and its result with your next question. Tab
    completes tools and their arguments. `/help` lists the commands. Three quotes begin and end a text of several
    lines; a backslash at the end of a line continues it. A line that begins with a space is always a question.

    In a pipe each line is a turn; exit code 0 when all went well, 1 when one failed.

    \b
    onetool chat
    onetool chat --session last
    printf '+fs.list_dir path=.\\nWhich of these is the largest?\\n' | onetool chat
    """
    options = read_options(given)
    from onetool.interfaces.cli.ask.chat_loop import ChatLoop

    ctx.exit(ChatLoop(open_app(ctx, options["allowed"]), options).run())
