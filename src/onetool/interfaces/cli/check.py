"""`onetool check`: everything that is wrong with the config and the tools, in one list."""

import click
import msgspec

from onetool.app.findings import findings
from onetool.core.errors import ConfigError, Mistake
from onetool.interfaces.cli.options import data_options, open_app
from onetool.interfaces.cli.output import echo, print_json, print_mistakes, print_table, wants_json
from onetool.sdk.requirements import Report


@click.command()
@data_options
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Check the config and every tool. Exit code 1 when something is wrong."""
    import logging

    logging.getLogger("onetool").setLevel(logging.CRITICAL)  # it would say the same again, line by line
    summary, mistakes, report = _inspect(ctx)
    if wants_json(as_json):
        print_json([msgspec.to_builtins(mistake) for mistake in mistakes])
    else:
        print_mistakes(summary, mistakes)
        _print_dependencies(report)
    ctx.exit(1 if any(mistake.severity == "error" for mistake in mistakes) else 0)


def _inspect(ctx: click.Context) -> tuple[str, tuple[Mistake, ...], Report]:
    try:
        app = open_app(ctx)
    except ConfigError as error:
        return "The config can't be used.", error.mistakes, {}
    place = app.config.path or "no config file: the defaults are in force"
    mistakes, report = findings(app)
    return f"Config: {place}\nTools: {len(app.catalog.registry)}", mistakes, report


def _print_dependencies(report: Report) -> None:
    rows = [
        (tool, found["name"], found["status"], found["version"], found["install"])
        for tool, needs in report.items()
        for found in needs
    ]
    if rows:
        echo()
        print_table("What tools need", ("tool", "needs", "status", "version", "install"), rows)
