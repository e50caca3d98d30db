"""`onetool audit`: shows who called what over `onetool serve`, from where, and with what outcome; newest line last.

No tools are loaded. A log in `state.db` can be read with an invalid config: only the place of the state is needed.
"""

import json
import logging
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from onetool.app.database import STATE_FILE
from onetool.app.journal import audit_log
from onetool.config import Found, find
from onetool.config.find import state_home
from onetool.config.load import has_database, load_config
from onetool.database import DatabaseError
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.cli.inputs import STDIN, read_text
from onetool.interfaces.cli.options import complete_tool, completion, data_options, find_here
from onetool.interfaces.cli.output import echo, print_note, print_text, printable, stdout, styled
from onetool.services.journal.audit import LAST, AuditFilter, AuditLog, AuditRecord, read_moment

DEFAULT_LINES = 50  # lines at a terminal
DEFAULT_LINES_FOLLOWED = 10
MAX_LIMIT = 100_000
POLL_S = 0.3
KINDS = ("call", "change", "login", "approval", "refusal", "admin", "gap")  # a test compares them with the log's
OUTCOMES = ("ok", "error", "begun", "invalid_args", "tool_not_found", "execution_error", "timeout", "denied")
COLUMNS = ("time (UTC)", "who", "from", "via", "kind", "what", "outcome", "ms")
MIN_WIDTHS = (19, 8, 9, 4, 8, 24, 12, 0)  # of the columns
WHAT, OUTCOME, MS = 5, 6, 7


class TimeOption(click.ParamType[float]):
    """A time: an age such as 2h, or a date."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = read_moment(value, time.time())
        if found is None:
            self.fail(f"{printable(value)!r} is not a time: write 30m, 2h, 7d, or 2026-11-16T12:00 (UTC).", param, ctx)
        return found


@completion
def complete_who(config: str | None) -> list[str]:
    with _opened(find(config)) as log:
        found = log.page(AuditFilter(), 2000).records
    return sorted({one.who for one in found if one.who})


complete_outcome = completion(lambda _config: OUTCOMES)


@click.command()
@click.option(
    "--since", type=TimeOption(), metavar="TIME", help="Only lines since then: 30m, 2h, 7d (ago), or a date (UTC)."
)
@click.option("--until", type=TimeOption(), metavar="TIME", help="Only lines until then, in the same form.")
@click.option("--who", metavar="NAME", shell_complete=complete_who, help="Only what this token or user did.")
@click.option("--kind", type=click.Choice(KINDS), help="Only lines of this kind.")
@click.option("--tool", metavar="PATTERN", shell_complete=complete_tool, help="Only these tools: web.get, or web.*.")
@click.option(
    "--outcome", metavar="OUTCOME", shell_complete=complete_outcome, help="ok, error, a code, a reason or a status."
)
@click.option("--request", metavar="ID", help="Only this request: its id in X-Request-Id, in a log line or in a trace.")
@click.option("--args", metavar="JSON", help="Only calls with exactly these arguments; - reads them from a pipe.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_LIMIT),
    metavar="N",
    help=f"At most N lines, the newest; {DEFAULT_LINES} at a terminal.",
)
@click.option("--follow", "-f", is_flag=True, help="Keep running, and print new lines as they arrive.")
@data_options
def audit(ctx: click.Context, args: str | None, limit: int | None, follow: bool, as_json: bool, **wanted: Any) -> None:
    """Show the audit log of `onetool serve`.

    Each line says who called or changed what, from where, and with what outcome. Arguments are stored as a keyed hash
    only: --args finds the calls with arguments that you know.
    """
    with _opened(find_here(ctx)) as log, _report_errors():
        only = AuditFilter(**wanted, args=None if args is None else _hash_of(args, log))
        if limit is None and (follow or (stdout().isatty() and not as_json)):
            limit = DEFAULT_LINES_FOLLOWED if follow else DEFAULT_LINES
        key, end = log.table.key(), log.end()
        printer = Printer(as_json)
        if limit is None:
            # For a program: all lines, read forwards and not collected.
            for record in log.read_on(only, end=end):
                printer.print([record])
        else:
            # Read backwards, until enough of the newest lines are found.
            found: list[AuditRecord] = []
            before = None
            while True:
                page = log.page(only, limit - len(found), before, end=end)
                found += page.records
                if (before := page.before) is None or len(found) >= limit:
                    break
            printer.print(found[::-1])
            printer.has_more = before is not None
        if not follow:
            printer.end(log)
        else:
            _follow(log, only, key, end, printer)


def _follow(log: AuditLog, only: AuditFilter, key: bytes, start: int, printer: "Printer") -> None:
    """Print new lines as they arrive. Reports an unreadable log once, and continues when it can be read again."""
    is_reported = False
    while True:
        try:
            if (found := log.table.key()) != key:  # the log was replaced, and its numbering starts again
                key, start = found, -LAST
            end = log.end()
            for record in log.read_on(only, start, end):
                printer.print([record])
            start, is_reported = end, False
        except DatabaseError as error:
            if not is_reported:
                print_note(f"The audit log can't be read now: {error}.")
            is_reported = True
        stdout().flush()
        time.sleep(POLL_S)


class Printer:
    """A printer of lines, as JSON or in columns."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._has_head = False
        self.has_more = False

    def print(self, records: list[AuditRecord]) -> None:
        if self._as_json:
            for record in records:
                print_text(msgspec.json.encode(record).decode())
        elif records:
            rows = [_cells(record) for record in records]
            head = [] if self._has_head else [COLUMNS]
            columns = zip(*head, *rows, strict=True)
            widths = [max(least, *map(len, cells)) for least, cells in zip(MIN_WIDTHS, columns, strict=True)]
            for row in head:
                cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
                echo(styled("  ".join(cells).rstrip(), bold=True))
            for record, row in zip(records, rows, strict=True):
                echo(_coloured(record, row, widths))
            self._has_head = True

    def end(self, log: AuditLog) -> None:
        """Report an empty result, or that there are more lines."""
        if self._as_json:
            return
        if not self._has_head:
            click.echo(f"No matching lines in {printable(log.describe())}.", err=True)
        elif self.has_more and stdout().isatty():
            echo("… and older lines: --limit shows more of them, --since and --who select lines.")


def _cells(record: AuditRecord) -> tuple[str, ...]:
    outcome = ": ".join(part for part in (record.outcome, record.reason) if part)
    outcome = f"{record.status} {outcome}" if record.status is not None else outcome
    when = record.time[:19].replace("T", " ")
    ms = "" if record.ms is None else f"{record.ms:,.1f}"
    what = f"{record.what} to {', '.join(record.hosts)}" if record.hosts else record.what
    cells = (when, record.who or "-", record.address or "-", record.via or "-", record.kind, what, outcome, ms)
    return tuple(map(printable, cells))


def _coloured(record: AuditRecord, row: tuple[str, ...], widths: list[int]) -> str:
    cells: list[str] = []
    for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
        padded = cell if place == MS else cell.ljust(width)
        if place == WHAT:
            padded = styled(padded, fg="cyan")
        elif place == OUTCOME:
            padded = styled(padded, fg="red" if record.failed else "green" if record.outcome == "ok" else None)
        cells.append(padded)
    return "  ".join(cells).rstrip()


def _hash_of(args: str, log: AuditLog) -> str:
    """Return the hash of these arguments in the log."""
    try:
        data = json.loads(read_text(STDIN) if args == STDIN else args)
    except (ValueError, RecursionError):
        raise click.BadParameter('expected JSON: {"name": "value"}.', param_hint="--args") from None
    if not isinstance(data, dict):
        raise click.BadParameter('expected a JSON object: {"name": "value"}.', param_hint="--args")
    return log.hash_of(data)


@contextmanager
def _opened(found: Found) -> Generator[AuditLog]:
    """Open the log: in the config's database, else in `state.db`."""
    if found.config is None or not has_database(found.config):
        state = SqliteDatabase(state_home(found.config, os.environ) / STATE_FILE)
        try:
            yield AuditLog(state)
        finally:
            state.close()
        return
    database_log = logging.getLogger("onetool.database")
    level = database_log.level
    database_log.setLevel(logging.CRITICAL)  # it would repeat the error
    try:
        with audit_log(load_config(found)) as log:
            yield log
    finally:
        database_log.setLevel(level)


@contextmanager
def _report_errors() -> Generator[None]:
    try:
        yield
    except DatabaseError as error:
        message = f"The audit log can't be read: {error}. `onetool db` shows the state of the database."
        raise click.ClickException(message) from None
