"""`onetool check`: everything that is wrong with the config and the tools, in one list."""

from typing import TYPE_CHECKING

import click
import msgspec

from onetool.core.errors import ConfigError, Mistake
from onetool.interfaces.cli.options import data_options, open_app
from onetool.interfaces.cli.output import echo, print_json, print_mistakes, print_table, wants_json
from onetool.sdk.requirements import Report
from onetool.sdk.requirements import check as check_requirements

if TYPE_CHECKING:
    from onetool.app import App


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
    report = check_requirements({spec.name: spec.requires for spec in app.catalog.registry if spec.requires})
    mistakes = (*app.config.warnings, *app.mistakes, *_missing(report), *_of_bundles(app))
    return f"Config: {place}\nTools: {len(app.catalog.registry)}", mistakes, report


def _of_bundles(app: "App") -> list[Mistake]:
    if not (app.config.home / "bundles").is_dir():
        return []
    from onetool.interfaces.cli.bundles.requirements import bundle_mistakes

    return bundle_mistakes(app)


def _missing(report: Report) -> list[Mistake]:
    """Warnings for missing requirements; each affects only its own tools."""
    return [
        Mistake(
            message=f"needs {found['name']}, which is {found['status']}",
            key=tool,
            hint=found["install"],
            severity="warning",
        )
        for tool, needs in report.items()
        for found in needs
        if found["status"] != "ok"
    ]


def _print_dependencies(report: Report) -> None:
    rows = [
        (tool, found["name"], found["status"], found["version"], found["install"])
        for tool, needs in report.items()
        for found in needs
    ]
    if rows:
        echo()
        print_table("What tools need", ("tool", "needs", "status", "version", "install"), rows)
