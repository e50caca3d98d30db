"""One tool of a bundle, in full: what it calls, its arguments and limits, and whether what it needs is there."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from onetool.interfaces.cli.bundles.needs import Needs, needs_of
from onetool.interfaces.cli.bundles.telling import say_needs
from onetool.interfaces.cli.output import echo, print_json, print_table, printable

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.bundles.shelf import Shown

WAYS = ("httpImpl", "pythonImpl", "goImpl", "scriptImpl")
KEYS = ("description", "type", "tags", "isEnabled", "disabledReason", "isBuiltIn", "createdAt", "modifiedAt",
        "callCount", "lastCalledAt", "id")  # fmt: skip


def facts(app: "App", bundle: "Shown", tool: "Shown") -> dict[str, Any]:
    """As REST shows it, with its bundle, its name in code, and what it needs."""
    from onetool.sources.bundles.names import code_name

    name = f"{code_name(bundle['slug'])}.{code_name(tool['slug'])}"
    return {
        "bundle": bundle["slug"],
        "name": f"{name}@{tool['version']}",
        **tool,
        "needs": needs_of(app, [tool]).shown(),
    }


def print_facts(app: "App", bundle: "Shown", tool: Mapping[str, Any]) -> None:
    heading = f"{bundle['slug']}/{tool['slug']}@{tool['version']}  {tool['displayName']}"
    echo(click.style(printable(heading), bold=True))
    rows = [(key, _cell(tool[key])) for key in KEYS if tool.get(key) not in (None, (), [], "")]
    print_table("", ("", ""), [("name", tool["name"]), *rows, *_limits(tool)])
    _print_way(tool)
    if arguments := list(argument_rows(tool["argSchema"])):
        print_table("Arguments", ("argument", "type", "", "what it is"), arguments)
    else:
        echo("It takes no arguments.")
    needs = needs_of(app, [tool])
    if needed := list(_needed(needs)):
        print_table("What it needs", ("", "", ""), needed)
    say_needs(app, needs)


def argument_rows(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    from onetool.core.type_names import resolved, type_name

    required = schema.get("required") or ()
    for name, one in (schema.get("properties") or {}).items():
        said = resolved(one, schema) if isinstance(one, Mapping) else {}
        default = f"= {said['default']!r}" if "default" in said else "optional"
        how = "required" if name in required else default
        yield name, type_name(one, schema), how, said.get("description") or ""


def _print_way(tool: Mapping[str, Any]) -> None:
    """What happens when it is called."""
    if (script := tool.get("scriptImpl")) is not None:
        echo(printable(script["code"]))
        return
    if (http := tool.get("httpImpl")) is not None:
        request = http.get("request", {})
        echo(printable(f"{request.get('method', 'GET')} {request.get('urlTemplate', '')}"))
    print_json(next(tool[key] for key in WAYS if tool.get(key) is not None), as_json=False)


def _limits(tool: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in tool["limits"].items():
        yield name, f"{value:,}" if isinstance(value, int) else str(value)


def _needed(needs: Needs) -> Iterator[tuple[str, str, str]]:
    for secret in needs.secrets:
        yield "secret", secret.name, f"set, in the {secret.source}" if secret.source else "NOT SET"
    for host in needs.hosts:
        word = {True: "allowed", False: "NOT ALLOWED", None: "checked when it is called"}[host.allowed]
        yield "host", host.host, word


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
