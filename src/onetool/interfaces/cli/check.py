"""`onetool check`: lists everything that is wrong with the config and the tools."""

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import msgspec

from onetool.app.database_state import is_reached, read_state
from onetool.app.findings import tool_requirements
from onetool.core.errors import ConfigError, Mistake
from onetool.database import DatabaseError
from onetool.interfaces.cli.options import data_options, open_app
from onetool.interfaces.cli.output import echo, print_json, print_mistakes, print_table, wants_json

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.report import ReplicaRow


@click.command()
@data_options
def check(ctx: click.Context, as_json: bool) -> None:
    """Check the config and every tool. Exit code 1 when something is wrong."""
    logging.getLogger("onetool").setLevel(logging.CRITICAL)  # it would repeat the mistakes
    try:
        app: App | None = open_app(ctx)
        mistakes, report = app.findings(), tool_requirements(app.catalog)
    except ConfigError as error:
        app, mistakes, report = None, error.mistakes, {}
    replicas: tuple[ReplicaRow, ...] = ()
    if app is not None and is_reached(app.config, mistakes):
        from onetool.cluster.report import inspect_replicas

        replicas, wrong = inspect_replicas(app.config)
        mistakes = tuple(dict.fromkeys((*mistakes, *wrong)))
    if wants_json(as_json):
        print_json([msgspec.to_builtins(mistake) for mistake in mistakes])
    else:
        print_mistakes(_summary(app, mistakes), mistakes)
        rows = [
            (tool, found["name"], found["status"], found["version"], found["install"])
            for tool, needs in report.items()
            for found in needs
        ]
        if rows:
            echo()
            print_table("Requirements of tools", ("tool", "needs", "status", "version", "install"), rows)
        if replicas:
            from onetool.interfaces.cli.db import print_replicas

            print_replicas(msgspec.to_builtins(replicas))
    ctx.exit(1 if any(mistake.severity == "error" for mistake in mistakes) else 0)


def _summary(app: "App | None", mistakes: tuple[Mistake, ...]) -> str:
    if app is None:
        return "The config can't be used."
    place = app.config.path or "no config file: the defaults are used"
    database = ""
    if is_reached(app.config, mistakes):
        with suppress(DatabaseError):  # lost since the check
            database = f"\nDatabase: PostgreSQL {read_state(app.config).server}, connected"
    return f"Config: {place}\nTools: {len(app.catalog.registry)}{database}"
