"""The root of the command line, and `onetool completion`.

The module of each command is imported when that command is used, so that a short command starts fast.
"""

import os
import sys
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import click

from onetool._version import __version__
from onetool.core.errors import ConfigError, OneToolError
from onetool.interfaces.cli.output import printable, stdout

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


OPERATIONS = [Path(__file__).parents[2] / "app" / "operations"]
"""The folders with the modules of operations, which may have commands."""


class LazyGroup(click.Group):
    """A group whose commands live in modules of their own, which help and completion don't import.

    A module of operations with commands that begin with its name, such as `tokens add`, is a group, too. Its help is
    the first line of the module.
    """

    own_commands: ClassVar[dict[str, tuple[str, str]]] = {
        "run": (".run:run", "Run CODE, which can call every tool, in the sandbox."),
        "mcp": (".serve:mcp", "Serve the tools to an MCP client over stdio."),
        "serve": (".serve:serve", "Serve MCP and REST over HTTP."),
        "page": (".page:page", "Print a link that opens the page of a running server."),
        "ask": (".ask:ask", "Ask a model that can use your tools."),
        "chat": (".ask:chat", "Chat with a model that can use your tools."),
        "tools": (".tools:tools", "List, inspect, call, search and export tools."),
        "bundles": (".bundles:bundles", "Manage stored tools: HTTP requests and scripts."),
        "packs": (".packs:packs", "Write and check packs: Python files whose functions are tools."),
        "servers": (".servers:servers", "Manage MCP servers whose tools you use."),
        "auth": (".auth:auth", "Store API keys and other secrets."),
        "db": (".db:db", "Show and copy what OneTool has stored; set up a database that several machines share."),
        "stats": (".stats:stats", "Show what was called, and what it saved."),
        "audit": (".audit:audit", "Show the audit log of `onetool serve`."),
        "api": (".api:api", "Send a request to the REST API, in this process or to a running server."),
        "check": (".check:check", "Check the config and every tool."),
        "trust": (".trust:trust", "Trust a project's folder: PATH, or the current one."),
        "init": (".init:init", "Write a config, or set up an MCP client."),
        "completion": (":completion", "Print the completion script for a shell."),
    }

    @cached_property
    def commands_in(self) -> dict[str, tuple[str, str]]:
        """The place and the help of every command."""
        found = {file.stem: file.read_text("utf-8") for folder in OPERATIONS for file in sorted(folder.glob("*.py"))}
        groups = {
            name: (f".operations:{name}", text.partition("\n")[0].strip('"').partition(". ")[0].rstrip(".") + ".")
            for name, text in found.items()
            if f'"{name} ' in text and name not in self.own_commands  # the name of a command
        }
        return {**self.own_commands, **groups}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_in)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place, _ = self.own_commands.get(cmd_name) or self.commands_in.get(cmd_name) or ("", "")
        if not place:
            return None
        module, _, attribute = place.partition(":")
        return getattr(import_module(__name__ + module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.commands_in.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=text)
            for name, (_, text) in self.commands_in.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = printable(error.message)  # messages may quote anything
            raise

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in self.commands_in and not ctx.resilient_parsing:  # click would look only at what is loaded
            tools = self.get_command(ctx, "tools")
            if isinstance(tools, click.Group) and args[0] in tools.commands:
                rather = join([str(ctx.info_name), "tools", *args])
                raise click.UsageError(f"No such command {args[0]!r}. Did you mean: {rather}", ctx)
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.commands_in, ctx=ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.option("--config", metavar="FILE", help="Use this config instead of the one found from the current folder.")
@click.option("-v", "--verbose", count=True, help="Log more on standard error: -v calls, -vv everything.")
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, config: str | None, verbose: int) -> None:
    """OneTool: define a tool once, use it from everywhere."""
    import logging

    from onetool.services.logs import LEVELS, set_up_logging

    ctx.obj = config
    level = {0: os.environ.get("ONETOOL_LOG", "warning").lower(), 1: "info"}.get(verbose, "debug")
    if level not in LEVELS:
        raise click.UsageError(f"Invalid ONETOOL_LOG: {level!r} (expected one of {', '.join(LEVELS)}).")
    set_up_logging(level)
    if ctx.invoked_subcommand not in ("serve", "mcp"):  # the other commands report problems with storage themselves
        logging.getLogger("onetool.database.storage").setLevel(logging.CRITICAL)


def main() -> NoReturn:
    """Run the command line and exit: 0 for success, 1 for failure, 2 for wrong usage or config, 130 if interrupted."""
    # Open /dev/null in place of a closed standard stream, so that no other file gets its descriptor.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - for the whole process
    if "_ONETOOL_COMPLETE" in os.environ:
        import logging

        logging.disable()  # the shell is completing a line: log lines would disturb it
    # Click's standalone mode would exit with 1 when interrupted.
    leave_after(lambda: cli.main(prog_name="onetool", standalone_mode=False))


def leave_after(command: Callable[[], Any]) -> NoReturn:
    """Run the command and exit with its code; print errors for the user."""
    try:
        sys.exit(command())
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("Interrupted.", code=130)
    except BrokenPipeError:
        _discard_stdout()  # the reader has closed the pipe
        sys.exit(1)
    except ConfigError as error:
        _fail("The config can't be used:", *map(str, error.mistakes), code=2)
    except OneToolError as error:
        from onetool.database.connection import with_folder

        _fail(f"Error: {with_folder(str(error), error)}", code=1)
    except OSError as error:
        _discard_stdout()  # standard output may be what failed
        _fail(f"Error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}", code=1)
    except UnicodeEncodeError as error:
        _discard_stdout()
        _fail(f"Error: this terminal can't show {error.object[error.start]!a}: set PYTHONUTF8=1, or use --json", code=1)
    except Exception as error:
        if os.environ.get("ONETOOL_LOG", "").lower() == "debug":
            raise
        _fail(
            f"Internal error: {type(error).__name__}: {error}",
            "This is a bug in OneTool. ONETOOL_LOG=debug shows where; please report it.",
            code=1,
        )


def _discard_stdout() -> None:
    """Redirect standard output to /dev/null, because the interpreter would write to it again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in {1, stdout().fileno()}:
        os.dup2(nowhere, stream)


def _fail(*lines: str, code: int) -> NoReturn:
    for line in lines:
        click.echo(line, err=True)
    sys.exit(code)


# `onetool completion SHELL`: completion of commands, options and tool names.

_WHERE = {
    "bash": '~/.bashrc:  eval "$(onetool completion bash)"',
    "zsh": '~/.zshrc:  eval "$(onetool completion zsh)"',
    "fish": "a shell:  onetool completion fish > ~/.config/fish/completions/onetool.fish",
}


@click.command(epilog="\b\nPut into " + "\n\b\nor into ".join(_WHERE.values()))
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    if script is None:
        raise click.ClickException(f"No completion for {shell}.")
    click.echo(script(ctx.find_root().command, {}, "onetool", "_ONETOOL_COMPLETE").source())
