"""`onetool bundles`: `list`, `show`, `search`, `login` and `logout`; and the group of all its commands.

references    BUNDLE/TOOL@VERSION and what it stands for; what a tool needs before it can be called
change        create, enable, disable, delete, restore, edit, copy, rename
add_tools     add, add-curl, save
share         export, import
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from onetool.app.bundles import all_bundles, all_tools
from onetool.app.findings import requirements_of
from onetool.app.requirements import read_http_tool
from onetool.core.errors import OneToolError
from onetool.core.type_names import resolve_definition, type_name
from onetool.interfaces.cli.bundles.add_tools import add, add_curl, save
from onetool.interfaces.cli.bundles.change import copy, create, delete, disable, edit, enable, rename, restore
from onetool.interfaces.cli.bundles.references import (
    ReferenceType,
    ToolReference,
    complete_ref,
    find_bundle,
    find_tool,
    heading,
    origin,
    print_requirements,
    title,
)
from onetool.interfaces.cli.bundles.share import export, import_bundle
from onetool.interfaces.cli.options import config_option, data_options, open_app
from onetool.interfaces.cli.output import counted, echo, print_json, print_note, print_table, printable, wants_json

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.http.oauth import ToolLogin
    from onetool.sources.bundles.service import Shown


@click.group(no_args_is_help=True)
def bundles() -> None:
    """Manage stored tools: HTTP requests and scripts.

    BUNDLE is a slug or an id, TOOL is a slug. The default @VERSION is the enabled one that was modified last.
    """


NO_BUNDLES = "Only the built-in bundles exist. Create one: onetool bundles create SLUG, or onetool bundles import FILE"
SHORT_KEYS = ("slug", "version", "displayName", "description", "type", "isEnabled", "disabledReason", "modifiedAt",
         "callCount", "lastCalledAt", "id")  # fmt: skip


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Include disabled and deleted bundles.")
@data_options
def list_bundles(ctx: click.Context, everything: bool, as_json: bool) -> None:
    """List the bundles, each with its number of tools."""
    bundles = open_app(ctx, imports=False).bundles
    counts = Counter(tool["bundleID"] for tool in all_tools(bundles))
    chosen = [
        bundle
        for bundle in all_bundles(bundles)
        if everything or (bundle["isEnabled"] and bundle["softDeletedAt"] is None)
    ]
    chosen.sort(key=lambda bundle: bundle["isBuiltIn"])  # the user's own first
    found = [{**bundle, "tools": counts[bundle["id"]]} for bundle in chosen]
    if wants_json(as_json):
        print_json(found)
        return
    rows = [(one["slug"], one["tools"], state(one), f"{heading(one)}\n{one['id']}".strip()) for one in found]
    print_table(counted(len(rows), "bundle"), ("bundle", "tools", "state", "description and id"), rows)
    if all(one["isBuiltIn"] for one in found):
        echo(NO_BUNDLES)


@click.command()
@click.argument("place", metavar="BUNDLE[/TOOL[@VERSION]]", type=ReferenceType(), shell_complete=complete_ref)
@data_options
def show(ctx: click.Context, place: ToolReference, as_json: bool) -> None:
    """Show a bundle with its tools, or one tool with what it calls, its arguments, and what it needs."""
    app = open_app(ctx)
    bundle = find_bundle(app.bundles, place.bundle)
    if place.tool is None:
        _show_bundle(app, bundle, as_json)
        return
    tool = find_tool(app.bundles, bundle, place)
    if wants_json(as_json):
        needs = requirements_of(app.runtime, [tool]).shown()
        print_json({"bundle": bundle["slug"], **tool, "needs": needs})
    else:
        _show_tool(app, bundle, tool)


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--all", "everything", is_flag=True, help="Include disabled tools.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=1000),
    default=10,
    show_default=True,
    help="The maximum number of results.",
)
@data_options
def search(ctx: click.Context, query: tuple[str, ...], everything: bool, limit: int, as_json: bool) -> None:
    """Find tools of bundles by name or text. Matches at the start of a name come first."""
    bundles = open_app(ctx).bundles
    slugs = {bundle["id"]: bundle["slug"] for bundle in all_bundles(bundles)}
    found = [
        {"bundle": slugs.get(tool["bundleID"]), **tool}
        for tool in bundles.search(" ".join(query), everything, None, limit)[0]
    ]
    if wants_json(as_json):
        print_json([{"bundle": one["bundle"], "bundleID": one["bundleID"], **in_short(one)} for one in found])
        return
    if not found:
        echo("Nothing found. Try other words, --all, or: onetool bundles list")
        return
    rows = [(f"{one['bundle']}/{one['slug']}@{one['version']}", state(one), title(one)) for one in found]
    print_table(f"{len(rows)} found", ("tool", "state", "description"), rows)


def state(thing: "Shown") -> str:
    """Return the state of a bundle or a tool, in a word or two."""
    words = [where] if (where := origin(thing)) else []
    if deleted := thing.get("softDeletedAt"):
        words.append(f"deleted {deleted[:10]}")
    elif not thing["isEnabled"]:
        words.append("off")
    return ", ".join(words) or "on"


def in_short(tool: "Shown") -> dict[str, Any]:
    """Return a tool as lists show it: without its schemas and implementation."""
    return {key: tool[key] for key in SHORT_KEYS if key in tool}


def _show_bundle(app: "App", bundle: "Shown", as_json: bool) -> None:
    tools = sorted(
        all_tools(app.bundles, bundle["id"]), key=lambda one: (one["slug"], one["modifiedAt"], one["version"])
    )
    if wants_json(as_json):
        print_json({**bundle, "tools": [in_short(tool) for tool in tools]})
        return
    keys = ("slug", "displayName", "description", "id", "createdAt", "modifiedAt")
    print_table("", ("", ""), [*((key, bundle[key]) for key in keys if bundle[key]), ("state", state(bundle))])
    for mistake in app.mistakes:
        if bundle["id"] in mistake.message:  # another bundle has the same name in code
            echo(click.style(f"{mistake.message}; {mistake.hint}", fg="yellow"))
    rows = [
        (f"{one['slug']}@{one['version']}", one["type"], one.get("disabledReason") or state(one), title(one))
        for one in tools
    ]
    if rows:
        print_table(counted(len(rows), "tool"), ("tool", "type", "state", "description"), rows)
    elif bundle["isBuiltIn"]:
        echo("It has no tools, or has not listed them yet.")
    else:
        echo(f"It has no tools yet. Add one: onetool bundles add {bundle['slug']}/TOOL FILE")


# `show` of one tool

IMPLEMENTATIONS = ("httpImpl", "pythonImpl", "goImpl", "scriptImpl")
KEYS = ("description", "type", "tags", "isEnabled", "disabledReason", "isBuiltIn", "createdAt", "modifiedAt",
        "callCount", "lastCalledAt", "id")  # fmt: skip


def _show_tool(app: "App", bundle: "Shown", tool: Mapping[str, Any]) -> None:
    tool = {**tool, **tool.get("inherited", {})}
    heading = f"{bundle['slug']}/{tool['slug']}@{tool['version']}  {tool['displayName']}"
    echo(click.style(printable(heading), bold=True))
    rows: list[tuple[str, Any]] = []
    for key in KEYS:
        value = tool.get(key)
        if isinstance(value, bool):
            value = "yes" if value else "no"
        elif isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        if value not in (None, ""):
            rows.append((key, value))
    limits = [(name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in tool["limits"].items()]
    print_table("", ("", ""), [("name", tool["name"]), *rows, *limits])
    for number, one in enumerate(tool.get("preProcessors") or ()):
        echo(printable(f"preProcessors[{number}]:\n{one['code']}"))
    if (script := tool.get("scriptImpl")) is not None:
        echo(printable(script["code"]))
    else:
        http = tool.get("httpImpl") or {}
        for step in http.get("requests") or ([http] if http else []):
            request, name = step.get("request", {}), f"{step['name']}: " if "name" in step else ""
            echo(printable(f"{name}{request.get('method', 'GET')} {request.get('urlTemplate', '')}"))
        print_json(next(tool[key] for key in IMPLEMENTATIONS if tool.get(key) is not None), as_json=False)
    schema = tool["argSchema"]
    arguments: list[tuple[str, str, str, str]] = []
    for name, one in (schema.get("properties") or {}).items():
        resolved = resolve_definition(one, schema) if isinstance(one, Mapping) else {}
        default = f"= {resolved['default']!r}" if "default" in resolved else "optional"
        how = "required" if name in (schema.get("required") or ()) else default
        arguments.append((name, type_name(one, schema), how, resolved.get("description") or ""))
    if arguments:
        print_table("Arguments", ("argument", "type", "", "description"), arguments)
    else:
        echo("It takes no arguments.")
    needs = requirements_of(app.runtime, [tool])
    needed = [("secret", one.name, f"set, in the {one.source}" if one.source else "NOT SET") for one in needs.secrets]
    words = {True: "allowed", False: "NOT ALLOWED", None: "checked when it is called"}
    needed += [("host", one.host, words[one.allowed]) for one in needs.hosts]
    if needed:
        print_table("Requirements", ("", "", ""), needed)
    print_requirements(app, needs)


# `login` and `logout`: the user's login for HTTP tools with the grant authorizationCode


class BundleLogin(NamedTuple):
    """A login of a bundle, with the tools that share it and their origins."""

    login: "ToolLogin"
    origins: list[str]
    tools: list[str]


@click.command()
@click.argument("place", metavar="BUNDLE[/TOOL]", type=ReferenceType(), shell_complete=complete_ref)
@config_option
def login(ctx: click.Context, place: ToolReference) -> None:
    """Log in in the browser for the HTTP tools of a bundle, or for one of them.

    Tools of a bundle with the same authorization server, client and scope share one login. The login is stored, and
    is only for the hosts that these tools call now.
    """
    from onetool.http.oauth import log_in

    app = open_app(ctx, imports=False)
    bundle, found = _logins(app, place)
    for one in found:
        work = log_in(one.login, bundle["slug"], one.origins, say=lambda text: click.echo(text, err=True))
        try:
            scope = asyncio.run(work)
        except OneToolError as error:
            raise click.ClickException(f"{bundle['slug']}: {app.runtime.redact(str(error))}") from None
        rights = f" ({scope})" if scope else ""
        tools = ", ".join(sorted(one.tools))
        print_note(f"Logged in for {bundle['slug']}{rights}. It applies to {tools}.")


@click.command()
@click.argument("place", metavar="BUNDLE[/TOOL]", type=ReferenceType(), shell_complete=complete_ref)
@config_option
def logout(ctx: click.Context, place: ToolReference) -> None:
    """Forget all logins for a bundle, or the login of one tool and of the tools that share it."""
    from onetool.http.login import forget
    from onetool.http.oauth import stored_logins

    app = open_app(ctx, imports=False)
    logins = app.runtime.documents("logins")
    if place.tool is None:  # found by name: the tools may have changed since the login, or lack a secret
        bundle = find_bundle(app.bundles, place.bundle)
        names = stored_logins(logins, bundle["id"])
    else:
        bundle, needed = _logins(app, place)
        names = [one.login.store.name for one in needed]
    if not [name for name in names if forget(logins, name)]:
        raise click.ClickException(f"There is no login for {place}.")
    click.echo(f"Deleted the login for {bundle['slug']}.", err=True)


def _logins(app: "App", place: ToolReference) -> "tuple[Shown, list[BundleLogin]]":
    """Return the bundle, and the logins that the bundle or its tool needs."""
    bundle = find_bundle(app.bundles, place.bundle)
    wanted = None if place.tool is None else find_tool(app.bundles, bundle, place)["id"]
    found: dict[str, BundleLogin] = {}
    ids: set[str] = set()  # of the named tool's logins
    for tool in all_tools(app.bundles, bundle["id"]):
        is_wanted = wanted in (None, tool["id"])
        try:
            needed = list(_logins_of(app, tool))
        except OneToolError as error:  # a secret is not set
            if is_wanted:
                raise click.ClickException("; ".join([str(error), *getattr(error, "hints", ())])) from None
            continue
        for login, address in needed:
            known = found.setdefault(login.key, BundleLogin(login, [], []))
            known.origins.extend([address] if address not in known.origins else [])
            known.tools.extend([tool["slug"]] if tool["slug"] not in known.tools else [])
            if is_wanted:
                ids.add(login.key)
    if not ids:
        whose = "none of its tools has" if wanted is None else "it does not have"
        raise click.ClickException(f"{place} needs no login: {whose} an auth with the grant authorizationCode.")
    return bundle, [one for key, one in found.items() if key in ids]


def _logins_of(app: "App", tool: "Shown") -> Iterator[tuple["ToolLogin", str]]:
    """Yield the logins that a tool needs, each with the origin of its requests. A tool that can't be read needs none.

    Raises ToolFailure if a secret of the tool is not set.
    """
    if tool["type"] != "http":
        return
    from onetool.http.oauth import LoginAuthenticator

    made, context = read_http_tool(tool), app.runtime.http_context
    for one in () if made is None else made.authenticators:
        if isinstance(one, LoginAuthenticator):
            yield one.login(context.secret or app.runtime.secret, context), one.origin


for command in (
    *(list_bundles, show, search, create, add, add_curl, save, edit, copy, rename),
    *(enable, disable, delete, restore, export, import_bundle, login, logout),
):
    bundles.add_command(command)
