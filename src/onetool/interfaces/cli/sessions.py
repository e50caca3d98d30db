"""`onetool sessions …`: lists, shows, exports and deletes conversations.

No tools are loaded. The config is read only if it may name a database: only the place of the state is needed.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from time import time
from typing import Any

import click
import msgspec

from onetool.app.database import STATE_FILE, AppDatabase
from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, SessionMessage, User, UserCall, unmark
from onetool.ask.sessions import SessionInfo, SessionStore, Transcript
from onetool.ask.sessions.markdown import markdown, utc_time
from onetool.ask.sessions.records import LAST, NO_ANSWER, UNDER_WAY, check_id
from onetool.config import load_config
from onetool.config.find import find, find_config, state_home
from onetool.core.call import ToolCall
from onetool.core.errors import cut
from onetool.core.limits import DAY
from onetool.core.principal import lasting_owners
from onetool.core.redaction import mask_arguments
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.cli.ask.wording import call_line, readable
from onetool.interfaces.cli.options import completion, config_option, data_options, find_here
from onetool.interfaces.cli.output import (
    confirm,
    counted,
    echo,
    print_json,
    print_note,
    print_table,
    printable,
    stdout,
    styled,
    wants_json,
)

MAX_RESULT = 300  # characters of a tool's result that are shown
USUAL = 20  # sessions in a list, at a terminal
COLUMNS = ("session", "last used", "questions", "model", "begins with")
GAP = 3  # spaces between two columns
DATABASE_WORDS = (b"database", b"include")  # a config without these has no database
NO_SESSIONS = 'There are no sessions yet. Begin one: onetool ask "What time is it?"'


@completion
def complete_session(config: str | None) -> list[str]:
    return [LAST, *(one.id for one in _sessions(config).list())]  # newest first


def check_session(id: str, new: bool = False) -> str:
    """Return the id. Raises UsageError for an invalid id, and for `last` if the id is for a `new` session."""
    try:
        return id if id == LAST and not new else check_id(id)
    except SessionError as error:
        raise click.UsageError(f"{error}.") from None


def _checked(_ctx: click.Context, _param: click.Parameter, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    for id in (value,) if isinstance(value, str) else value:
        check_session(id)
    return value


class Days(click.ParamType[int]):
    name = "days"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            days = int(value)
        except ValueError:
            days = -1
        if days < 0:
            self.fail(f"expected a number of days, 0 or more, got {printable(value)!r}.", param, ctx)
        return days


id_argument = click.argument("id", shell_complete=complete_session, callback=_checked)


@click.group(no_args_is_help=True)
def sessions() -> None:
    """List, show, export and delete conversations of `onetool ask`. The ID `last` is the session used
    last.
    """


@sessions.command("list")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"At most N sessions; {USUAL} at a terminal.")
@data_options
def list_sessions(ctx: click.Context, limit: int | None, as_json: bool) -> None:
    """List the sessions, newest first."""
    find_here(ctx)
    found = _sessions(ctx.find_root().obj).list()
    if wants_json(as_json):
        rows = [msgspec.to_builtins(one) for one in found[:limit]]
        print_json([{**row, "created": _iso(row["created"]), "modified": _iso(row["modified"])} for row in rows])
    elif not found:
        echo(NO_SESSIONS)
    else:
        print_sessions(found, limit or USUAL)
        if len(found) > (limit or USUAL):
            echo(f"… and {len(found) - (limit or USUAL):,} more: --limit {len(found)} lists all of them")


@sessions.command()
@id_argument
@data_options
def show(ctx: click.Context, id: str, as_json: bool) -> None:
    """Show the messages and tool calls of a session."""
    transcript = _read_transcript(ctx, id)
    if wants_json(as_json):
        facts = msgspec.to_builtins(transcript)
        times = facts.pop("times")
        del facts["ended"]  # its sum is in it
        messages = [{**message, "at": _iso(at)} for message, at in zip(facts.pop("messages"), times, strict=True)]
        moments = {"created": _iso(transcript.created), "modified": _iso(transcript.modified)}
        print_json({**facts, **moments, "messages": messages})
        return
    for place, (message, at) in enumerate(zip(transcript.messages, transcript.times, strict=True)):
        _print(message, at, transcript.model or "model")
        if transcript.lacks_answer(place):
            echo(styled(f"  {NO_ANSWER}", dim=True))
    if transcript.damaged:
        are = "is" if transcript.damaged == 1 else "are"
        click.echo(f"{counted(transcript.damaged, 'record')} can't be read, and {are} left out.", err=True)


@sessions.command()
@id_argument
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@config_option
def export(ctx: click.Context, id: str, output: str | None, force: bool) -> None:
    """Write a session as Markdown."""
    text = markdown(_read_transcript(ctx, id))
    if output is None or output == "-":
        echo(printable(text) if stdout().isatty() else text.removesuffix("\n"))
        return
    try:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
        with os.fdopen(os.open(output, flags, 0o600), "w", encoding="utf-8") as file:  # a session may be private
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{output} already exists; --force replaces it.") from None
    except OSError as error:
        raise click.ClickException(f"Can't write {output}: {error.strerror}.") from None
    print_note(f"Wrote {output}.")


@sessions.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=complete_session, callback=_checked)
@click.option("--older-than", "days", type=Days(), metavar="DAYS", help="Delete sessions not used for this long.")
@click.option("--all", "everything", is_flag=True, help="Delete all sessions.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
def delete(ctx: click.Context, ids: tuple[str, ...], days: int | None, everything: bool, yes: bool) -> None:
    """Delete sessions permanently. Give IDs, --older-than or --all."""
    ways = bool(ids) + (days is not None) + everything
    if ways != 1:
        which = "Give ID, --older-than DAYS, or --all" if not ways else "Give one of ID, --older-than and --all"
        raise click.UsageError(f"{which}{', not several' if ways else ''}.")
    find_here(ctx)
    sessions = _sessions(ctx.find_root().obj)
    oldest = time() - (days or 0) * DAY
    chosen = list(dict.fromkeys(ids)) or [one.id for one in sessions.list() if everything or one.modified < oldest]
    if not chosen:
        click.echo("There are no sessions to delete.", err=True)
        return
    what = chosen[0] if len(chosen) == 1 else counted(len(chosen), "session")
    confirm(f"Delete {what} permanently?", yes, "delete", "deleted")
    deleted = 0
    for id in chosen:
        try:
            sessions.delete(id)
            deleted += 1
        except SessionError as error:
            print_note(_with_hints(error))
    if deleted:
        sessions.shrink()
    click.echo(f"Deleted {counted(deleted, 'session')}.", err=True)
    ctx.exit(0 if deleted == len(chosen) else 1)


# Finding sessions


def _sessions(config: str | None) -> SessionStore:
    """Open the database with the state. Reads the config only if it may name a database. Raises ConfigError."""
    found = find(config)
    has_database = found.config is not None
    with suppress(OSError):  # `load_config` reports why
        text = found.config.read_bytes() if found.config else b""
        has_database = any(word in text for word in DATABASE_WORDS)
    if has_database:
        database = AppDatabase(load_config(found)).state()
    else:
        database = SqliteDatabase(state_home(find_config(config), os.environ) / STATE_FILE, makes_folder=True)
    if context := click.get_current_context(silent=True):
        context.find_root().call_on_close(database.close)
    return SessionStore(database, owners=lasting_owners())


def _read_transcript(ctx: click.Context, id: str) -> Transcript:
    find_here(ctx)
    try:
        return _sessions(ctx.find_root().obj).read(id)
    except SessionError as error:
        raise click.ClickException(_with_hints(error)) from None


def _with_hints(error: SessionError) -> str:
    return "\n  ".join([str(error), *error.hints])


# Printing


def print_sessions(found: Sequence[SessionInfo], limit: int = USUAL) -> None:
    """Print the first sessions as a table."""
    from shutil import get_terminal_size

    shown = found[:limit]
    facts = [(one.id, _moment(one.modified), one.turns, one.model if one.answered else NO_ANSWER) for one in shown]
    widths = [max(len(str(cell)) for cell in column) for column in zip(COLUMNS[:-1], *facts, strict=True)]
    room = get_terminal_size().columns - sum(widths) - GAP * len(COLUMNS)  # left for the titles
    rows = [(*row, cut(one.title, max(12, room))) for row, one in zip(facts, shown, strict=True)]
    print_table(counted(len(found), "session"), COLUMNS, rows)


def _print(message: SessionMessage, at: float, model: str) -> None:
    if isinstance(message, User):
        echo(styled(f"\nYou, {_moment(at)}", bold=True))
        for file in message.files:
            echo(styled(printable(f"  [{file.name}, {file.kind}]"), dim=True))
        echo(readable(message.text))
    elif isinstance(message, Assistant):
        if message.text:
            ending = " (interrupted)" if message.broken_off else ""
            echo(styled(printable(f"\n{model}{ending}"), bold=True))
            echo(readable(message.text))
        for call in message.calls:
            try:
                line = call_line(ToolCall(call.id, call.name, mask_arguments(call.args)))
            except RecursionError:  # nested too deeply to look for secrets
                line = printable(f"{call.name}(…)")
            echo(styled(f"  → {line}", fg="cyan"))
    else:
        if isinstance(message, UserCall):
            echo(styled(f"\nYou, {_moment(at)}", bold=True))
        short = cut(" ".join(unmark(message.content)[0].split()), MAX_RESULT)
        is_bad = not message.ok and message.content != UNDER_WAY
        echo(styled(printable(f"  {message.name}: {short}"), fg="red" if is_bad else None, dim=not is_bad))


def _moment(seconds: float) -> str:
    when = utc_time(seconds)
    return when.astimezone().strftime("%Y-%m-%d %H:%M") if when else "?"


def _iso(seconds: float) -> str | None:
    when = utc_time(seconds)
    return when.isoformat(timespec="seconds").replace("+00:00", "Z") if when else None
