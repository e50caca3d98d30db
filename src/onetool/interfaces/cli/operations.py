"""The commands of operations: their options, completions and output, made from the declarations in `app/operations`.

A name in the path is an argument, and each field of the query or the body is an option: `dryRun` is `--dry-run`. A
field that is true by default has an option that makes it false, such as `--no-whole`. `At.say` prints the result in
words, in place of JSON; a list is a table at a terminal, and JSON for a program.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from importlib import import_module
from inspect import cleandoc, isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import inspect

from onetool.app.access import open_token_store
from onetool.app.journal import noted_command
from onetool.app.operations import OPERATIONS, At, Command, Operation
from onetool.ask.errors import SessionError
from onetool.config import Config, load_config, load_secrets
from onetool.config.find import user_config
from onetool.core.errors import OneToolError
from onetool.interfaces.cli.options import (
    OneOf,
    complete_tool,
    complete_tools,
    data_options,
    find_here,
    open_app,
    split_names,
    warn_unmatched,
)
from onetool.interfaces.cli.output import (
    confirm,
    counted,
    echo,
    print_json,
    print_note,
    print_table,
    printable,
    tell_running_servers,
    wants_json,
)
from onetool.sources.bundles.errors import BundleError, InvalidError
from onetool.sources.bundles.validation import converted

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.ask.sessions import SessionStore
    from onetool.config.server_import import ConfigTarget
    from onetool.services.access_tokens import TokenStore
    from onetool.services.secrets import Secrets

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
COMPLETIONS: dict[str, Complete] = {"tool": complete_tool, "tools": complete_tools}


class CommandAt(At):
    """The command line as the place of an operation. The app is opened when an operation first uses it."""

    is_command = True

    def __init__(self, ctx: click.Context, as_json: bool = False) -> None:
        self._ctx = ctx
        self.as_json = as_json
        self.is_shown = not wants_json(as_json)
        self.removals = {}
        self.has_said = False

    @cached_property
    def app(self) -> "App":  # pyright: ignore[reportIncompatibleVariableOverride]
        return open_app(self._ctx, imports=False)

    @property
    def config(self) -> Config:
        return self._config

    @cached_property
    def _config(self) -> Config:
        return load_config(find_here(self._ctx))

    @property
    def secrets(self) -> "Secrets":
        return load_secrets(find_here(self._ctx))  # without the config, which may need the secret

    @contextmanager
    def tokens(self) -> "Iterator[TokenStore]":
        logging.getLogger("onetool.serve").setLevel(logging.CRITICAL)  # it would repeat what the command prints
        with open_token_store(self.config) as store:
            yield store

    @property
    def sessions(self) -> "SessionStore":
        from onetool.app.database import open_sessions

        store, close = open_sessions(find_here(self._ctx))
        self._ctx.find_root().call_on_close(close)
        return store

    def config_target(self) -> "ConfigTarget":
        from onetool.config.server_import import ConfigTarget

        return ConfigTarget(self._ctx.find_root().obj, new=user_config())

    def load(self, file: Path, *, settings_only: bool = False, is_code: bool = False) -> None:
        vars(self).pop("app", None)  # it has the config from before
        vars(self).pop("_config", None)
        if not settings_only:
            tell_running_servers(file, is_code=is_code)

    def say(self, text: str) -> None:
        self.has_said = True
        if not self.as_json:
            echo(printable(text) if self.is_shown else text)

    def confirm(self, question: str, yes: bool, to_do: str, done: str) -> None:
        confirm(question, yes, to_do, done)

    def note(self, text: str) -> None:
        self.has_said = True
        print_note(text)

    def warn_unmatched(self, field: str, names: Iterable[str]) -> None:
        if names := list(names):
            packs = {name.partition(".")[0] for name in names}
            warn_unmatched(f"--{field}", open_app(self._ctx, packs=packs, imports=False), names)

    def option(self, field: str) -> str:
        return f"--{field}"


# Groups


def __getattr__(name: str) -> click.Group:
    """Return the group of the commands of a module of operations."""
    if name.startswith("_"):
        raise AttributeError(name)
    module = import_module(f"onetool.app.operations.{name}")
    group = click.Group(name, help=cleandoc(module.__doc__ or ""), no_args_is_help=True)
    add_to(group)
    return group


def add_to(group: click.Group, *modules: str) -> None:
    """Add the commands of the operations whose names begin with the group's. `modules` have some, too."""
    for module in (group.name, *modules):
        import_module(f"onetool.app.operations.{module}")
    for one in OPERATIONS:
        if one.command is not None and one.command.name.startswith(f"{group.name} "):
            group.add_command(command_of(one, one.command))


# Commands


def command_of(operation: Operation, command: Command) -> click.Command:
    """Return the command of an operation."""
    names: list[tuple[str, Complete | None]] = [(name, completion_of(name)) for name in operation.names]
    options: list[click.Parameter] = []
    for field in _inputs(operation):
        extra = _extra(field.type)
        if "argument" not in extra:
            options.append(_option(field))
        elif isinstance(_plain(field.type), inspect.VarTupleType):
            complete = completion_of(extra["completes"])
            several = click.Argument([field.encode_name], nargs=-1, metavar=extra["metavar"], shell_complete=complete)
            options.append(several)
        else:
            names.append((field.encode_name, None))
    arguments = [click.Argument([name], shell_complete=complete) for name, complete in names]
    if command.many:
        last = arguments[-1]
        last.nargs, last.metavar = -1, f"{last.make_metavar(click.Context(click.Command('')))}..."

    def run(ctx: click.Context, as_json: bool, **params: Any) -> None:
        _run(ctx, operation, command, params, as_json)

    made = click.command(command.name.rpartition(" ")[2], help=operation.doc)(data_options(run))
    made.params = [*arguments, *options, *made.params]
    return made


def _inputs(operation: Operation) -> list[inspect.Field]:
    """Return the fields of the query and of the body."""
    return [*_fields(operation.query), *_fields(operation.takes)]


def _fields(shape: Any) -> tuple[inspect.Field, ...]:
    info = None if shape is None else inspect.type_info(shape)
    return info.fields if isinstance(info, inspect.StructType) else ()


def _extra(kind: inspect.Type) -> dict[str, Any]:
    """Return the `extra` of a type's `Meta`."""
    found: dict[str, Any] = {"description": ""}
    while isinstance(kind, inspect.Metadata):
        schema = kind.extra_json_schema or {}
        found = {**(kind.extra or {}), **found, "description": found["description"] or schema.get("description", "")}
        kind = kind.type
    return found


def _plain(kind: inspect.Type) -> inspect.Type:
    """Return a type without its metadata and without null."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return _plain(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
    return kind


def _option(field: inspect.Field) -> click.Option:
    """Return the option of a field."""
    kind, extra = _plain(field.type), _extra(field.type)
    default: Any = None if field.default is msgspec.NODEFAULT else field.default
    facts: dict[str, Any] = {} if default is None else {"default": default, "show_default": True}
    name = _option_name(field.encode_name)
    if isinstance(kind, inspect.BoolType):
        name, facts = (f"no-{name}", {"flag_value": False, "default": True}) if default is True else (name, {})
        facts["is_flag"] = True
    elif isinstance(kind, inspect.LiteralType):
        facts["type"] = OneOf(list(map(str, kind.values)))
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        facts = {"multiple": True, "callback": split_names if extra.get("split") else None}
    elif isinstance(kind, inspect.IntType):
        facts["type"] = int
    facts["metavar"] = extra.get("metavar", None if "type" in facts or "is_flag" in facts else name.upper())
    complete = COMPLETIONS.get(extra.get("complete", ""))
    short = [extra["short"]] if "short" in extra else []
    return click.Option(
        [*short, f"--{name}", field.encode_name], help=extra["description"], shell_complete=complete, **facts
    )


def _option_name(name: str) -> str:
    return "".join(f"-{sign.lower()}" if sign.isupper() else sign for sign in name)


def completion_of(name: str) -> Complete:
    """Complete a name in a path with the list that has it."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        listing = next((one for one in OPERATIONS if one.completes == name), None)
        if listing is None:
            return []
        try:
            ctx.find_root().obj = ctx.find_root().params.get("config")
            query = [] if listing.query is None else [listing.query()]
            found = msgspec.to_builtins(listing.run(CommandAt(ctx, as_json=True), *query))
            rows = next(rows for rows in found.values() if isinstance(rows, list | tuple))
        except OneToolError:
            return []
        names = [next(iter(row.values())) for row in rows]
        return [name for name in names if name.startswith(incomplete)]

    return complete


# Running one


def _run(ctx: click.Context, operation: Operation, command: Command, params: dict[str, Any], as_json: bool) -> None:
    path = [params.pop(name) for name in operation.names]
    given = {name: value for name, value in params.items() if value not in (None, ())}
    at = CommandAt(ctx, as_json)
    with _as_usage_error(operation):
        shapes = [_converted(given, shape) for shape in (operation.query, operation.takes) if shape is not None]
        arguments = [given.get(one.encode_name) for one in _inputs(operation) if "argument" in _extra(one.type)]
        words = [word for word in (*path, *arguments) if isinstance(word, str)]
        is_noted = command.noted and not params.get(command.unless)
        what = " ".join([command.name, *words])
        with (
            noted_command(at.config, what, waits=command.waits, typos=(click.UsageError, InvalidError))
            if is_noted
            else nullcontext()
        ):
            ways = [[*path[:-1], one] for one in path[-1]] if command.many else [path]
            for way in ways:
                _show(command, at, _waited(operation.run(at, *way, *shapes)))


def _converted(given: dict[str, Any], shape: Any) -> Any:
    names = {one.encode_name for one in _fields(shape)}
    return converted({name: value for name, value in given.items() if name in names}, shape)


def _waited(found: Any) -> Any:
    async def wait() -> Any:
        return await found

    return asyncio.run(wait()) if isawaitable(found) else found


@contextmanager
def _as_usage_error(operation: Operation) -> Iterator[None]:
    """Raise a wrong value as a wrong argument or option."""
    try:
        yield
    except InvalidError as error:
        if error.pointer is None:
            raise click.UsageError(f"{error}.") from None
        name = error.pointer.partition("/")[2]
        options = [one.encode_name for one in _inputs(operation) if "argument" not in _extra(one.type)]
        hint = f"--{_option_name(name)}" if name in options else name.upper() or None
        raise click.BadParameter(f"{error.what}.", param_hint=hint) from None
    except (BundleError, SessionError) as error:
        raise click.ClickException("\n  ".join([str(error), *getattr(error, "hints", ())])) from None


def _show(command: Command, at: CommandAt, found: Any) -> None:
    """Print a result, unless the operation has printed it."""
    data = msgspec.to_builtins(found)
    if command.rows:
        data = data[command.rows]
    if command.flat:
        data |= data.pop(command.flat)
    if command.columns and at.is_shown:
        if not data:
            if command.empty:
                echo(command.empty)
            return
        rows = [tuple(_cell(row.get(name)) for name in command.columns) for row in data]
        noun = command.rows or command.name.partition(" ")[0]
        print_table(counted(len(rows), noun.removesuffix("s")), command.columns, rows)
    elif at.as_json or (isinstance(data, list) and not at.is_shown) or not (at.has_said or data is None):
        print_json(data)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else printable(value)
