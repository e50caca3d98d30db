"""What comes of an import: carried out, or only shown; and said, without a single value of a secret."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onetool.interfaces.cli.output import counted, echo, print_json, printable

if TYPE_CHECKING:
    from onetool.interfaces.cli.importing.plan import Plan
    from onetool.interfaces.cli.importing.writing import Target


def write(target: "Target", plan: "Plan", as_json: bool) -> None:
    from onetool.config.add_servers import put_servers

    if plan.servers:
        target.write(partial(put_servers, servers=plan.servers), plan.secrets)
    if as_json:
        print_json({"file": str(target.file), **_facts(plan)})
        return
    if plan.servers:
        echo(
            printable(
                f"Wrote {counted(len(plan.servers), 'server')} into {shown(target.file)}: {_names(plan.servers)}."
            )
        )
    else:
        echo(f"{shown(target.file)} stays as it is: there is nothing to add.")
    if plan.secrets:
        secrets = counted(len(plan.secrets), "secret")
        echo(f"Kept {secrets} in {shown(target.secrets.file or target.file)}: {_names(plan.secrets)}.")
    _tell(plan, err=False)
    if plan.servers:
        echo("Next: onetool servers test")


def print_draft(plan: "Plan", as_json: bool) -> None:
    """The YAML alone on standard output; everything about it goes to standard error."""
    from onetool.config.add_servers import servers_yaml

    if as_json:
        print_json({"config": {"servers": plan.servers}, **_facts(plan)})
        return
    if plan.servers:
        echo(servers_yaml(plan.servers).rstrip("\n"))
    if plan.secrets:
        click.echo(f"These would be kept as secrets: {_names(plan.secrets)}.", err=True)
    _tell(plan, err=True)


def _tell(plan: "Plan", *, err: bool) -> None:
    lines = [f"Left out {name}: {why}." for name, why in plan.skipped.items()]
    if plan.kept:
        lines.append(f"There already, and kept as they are: {_names(plan.kept)} (--replace replaces them).")
    for line in (*lines, *(f"Note: {note}." for note in plan.notes)):
        click.echo(printable(line), err=True) if err else echo(printable(line))


def _facts(plan: "Plan") -> dict[str, Any]:
    return {
        "servers": list(plan.servers),
        "kept": plan.kept,
        "skipped": plan.skipped,
        "secrets": list(plan.secrets),
        "notes": plan.notes,
    }


def _names(names: Any) -> str:
    return ", ".join(names)


def shown(file: Path) -> str:
    """From here, if it is below; else with ~ for the home."""
    for start, sign in ((Path.cwd(), ""), (Path.home(), "~/")):
        if file.is_relative_to(start):
            return sign + str(file.relative_to(start))
    return str(file)
