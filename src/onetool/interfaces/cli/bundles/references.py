"""References to bundles and tools, and what the tools need.

BUNDLE[/TOOL[@VERSION]] is parsed and looked up. The spelling of code is accepted, too: `weather.get_forecast@1` is
`weather/get-forecast@1`. Missing secrets, hosts and functions are printed as lines to paste.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import click

from onetool.app import App
from onetool.app.bundles import all_bundles, all_tools
from onetool.app.grants import allow_hosts, read_host
from onetool.app.requirements import Requirements
from onetool.config.find import user_config
from onetool.core.errors import cut
from onetool.core.text import or_rather
from onetool.http.allowed_hosts import host_entry
from onetool.interfaces.cli.options import completion
from onetool.interfaces.cli.output import print_note, printable
from onetool.sources.bundles.service import BundleService, Shown

MAX_DESCRIPTION_LENGTH = 120  # characters of a description, in a list


def title(thing: dict[str, Any]) -> str:
    """Return the first line of the description, or the name."""
    return _one_line(thing["description"] or thing["displayName"])


def heading(bundle: dict[str, Any]) -> str:
    """Return the display name, or the description if the name is only the slug."""
    name = bundle["displayName"]
    return _one_line(bundle["description"] if name in ("", bundle["slug"]) else name)


def origin(thing: dict[str, Any]) -> str:
    """Return the origin of a bundle or tool that can't be changed here; '' for stored ones."""
    if source := thing.get("source"):
        return "declared" if source["kind"] == "config" else source["kind"]
    return "built in" if thing["isBuiltIn"] else ""


def _one_line(text: str) -> str:
    return cut(text.strip().partition("\n")[0], MAX_DESCRIPTION_LENGTH)


# Parsing and finding references

_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class ToolReference(NamedTuple):
    bundle: str  # a slug, or an id
    tool: str | None = None
    version: str | None = None

    def __str__(self) -> str:
        tool = "" if self.tool is None else f"/{self.tool}"
        return f"{self.bundle}{tool}" + ("" if self.version is None else f"@{self.version}")


class ReferenceType(click.ParamType):
    """A click type for references. `tool` is whether a tool must be named; None means that it may be."""

    name = "place"

    def __init__(self, tool: bool | None = None) -> None:
        self._tool = tool

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> ToolReference:
        if isinstance(value, ToolReference):
            return value
        place = parse_reference(value)
        if place.bundle == "" or place.tool == "" or place.version == "":
            self.fail(f"{printable(value)!r} has an empty part; write BUNDLE/TOOL@VERSION.", param, ctx)
        if self._tool is True and place.tool is None:
            self.fail(
                f"{printable(value)!r} doesn't name a tool; write BUNDLE/TOOL, like weather/forecast.", param, ctx
            )
        if self._tool is False and place.tool is not None:
            self.fail(f"{printable(value)!r} names a tool; expected a bundle.", param, ctx)
        return place


def parse_reference(text: str) -> ToolReference:
    name, at, version = text.partition("@")
    bundle, slash, tool = name.partition("/")
    if not slash and "." in name and not name.startswith("."):  # the spelling of code: neither slugs nor ids have a dot
        bundle, slash, tool = (part.replace("_", "-") for part in name.partition("."))
    if at and not slash:
        return ToolReference(bundle, "", version)
    return ToolReference(bundle, tool if slash else None, version if at else None)


def find_bundle(bundles: BundleService, name: str, deleted: bool = False, otherwise: str = "") -> Shown:
    """Return the bundle with this slug or id; with `deleted`, a deleted bundle.

    `otherwise` is a hint for the error if there is no such bundle.
    """
    everything = list(all_bundles(bundles))
    own = [one for one in everything if name in (one["slug"], one["id"])] or [
        one for one in everything if _ID.fullmatch(name) and one["id"] == name.lower()
    ]
    found = [one for one in own if (one["softDeletedAt"] is not None) == deleted]
    found = [one for one in found if "source" not in one] or found  # a bundle comes before a pack of its name
    if len(found) == 1:
        return found[0]
    if found:
        lines = [
            f"  {one['id']}  {origin(one) or 'created ' + one['createdAt']}  {one['displayName']}" for one in found
        ]
        message = "\n".join([f"There are {len(found)} bundles {name}; choose one by its id:", *lines])
        raise click.ClickException(message)
    if own and deleted:
        message = f"The bundle {own[0]['slug']} is not deleted: there is nothing to restore."
        raise click.ClickException(message)
    if own:
        slug, at = own[0]["slug"], own[0]["softDeletedAt"][:10]
        message = f"The bundle {slug} was deleted on {at}. To restore it: onetool bundles restore {slug}"
        raise click.ClickException(message)
    known = [one["slug"] for one in everything if (one["softDeletedAt"] is not None) == deleted]
    raise unknown_bundle(name, known, otherwise)


def find_tool(bundles: BundleService, bundle: Shown, place: ToolReference) -> Shown:
    """Return the tool in the named version, or else the enabled version that was modified last."""
    versions = _versions(bundles, bundle, place)
    if place.version is not None:
        return _in_version(versions, place)
    return max(versions, key=lambda one: (one["isEnabled"], one["modifiedAt"], one["id"]))


def find_only_tool(bundles: BundleService, bundle: Shown, place: ToolReference) -> Shown:
    """Return the tool to change; an error if several versions match."""
    versions = _versions(bundles, bundle, place)
    if place.version is not None:
        return _in_version(versions, place)
    if len(versions) > 1:
        known = ", ".join(f"{place}@{one['version']}" for one in versions)
        raise click.ClickException(f"{place} has {len(versions)} versions; choose one: {known}")
    return versions[0]


def next_version(bundles: BundleService, bundle_id: str, slug: str) -> str:
    taken = {one["version"] for one in all_tools(bundles, bundle_id) if one["slug"] == slug}
    return next(str(number) for number in range(1, len(taken) + 2) if str(number) not in taken)


def unknown_bundle(name: str, known: Iterable[str], otherwise: str = "") -> click.ClickException:
    near = or_rather(name, known)
    hint = f"{near} {otherwise[:1].upper()}{otherwise[1:]}" if near else f"; {otherwise}"
    return click.ClickException(
        f"There is no bundle {name}{hint if otherwise else near or '; see: onetool bundles list --all'}"
    )


def complete_ref(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete bundles; after a slash, complete their tools."""

    @completion
    def names(config: str | None) -> list[str]:
        with App.open(config, imports=False, makes_tables=False) as app:
            live = [one for one in all_bundles(app.bundles) if one["softDeletedAt"] is None]
            if "/" not in incomplete:
                return [one["slug"] for one in live]
            slug = incomplete.partition("/")[0]
            ids = [one["id"] for one in live if one["slug"] == slug]
            return [f"{slug}/{one['slug']}@{one['version']}" for id in ids for one in all_tools(app.bundles, id)]

    return names(ctx, _param, incomplete)


def _versions(bundles: BundleService, bundle: Shown, place: ToolReference) -> list[Shown]:
    tools = list(all_tools(bundles, bundle["id"]))
    found = [one for one in tools if one["slug"] == place.tool]
    if not found:
        known = dict.fromkeys(one["slug"] for one in tools)
        hint = or_rather(place.tool or "", known) or f"; see: onetool bundles show {place.bundle}"
        raise click.ClickException(f"There is no tool {place.tool} in the bundle {bundle['slug']}{hint}")
    return found


def _in_version(versions: list[Shown], place: ToolReference) -> Shown:
    for one in versions:
        if one["version"] == place.version:
            return one
    known = ", ".join(one["version"] for one in versions)
    message = f"{place.bundle}/{place.tool} has no version {place.version}; it has {known}"
    raise click.ClickException(message)


# Printing outcomes and requirements


def warn_if_name_taken(app: App, slug: str) -> None:
    """Warn if the name of a new bundle already means something else in code."""
    from onetool.app.bundle_import import name_taken

    if taken := name_taken(app, slug):
        print_note(f"warning: {taken}")


allow_hosts_option = click.option(
    "--allow", is_flag=True, help="Allow the hosts that its tools call: adds them to allowedHosts in the config."
)


def allowing(ctx: click.Context, needs: Requirements) -> Requirements:
    """Allow the missing hosts, print each of them, and return what is still needed."""
    closed = [one.host for one in needs.hosts if one.entry is not None]
    if not closed:
        return needs
    allow_in_config(ctx, closed)
    allowed = (one._replace(allowed=True, entry=None, need=None) if one.entry else one for one in needs.hosts)
    return needs._replace(hosts=tuple(allowed))


def allow_in_config(ctx: click.Context, texts: Iterable[str]) -> None:
    """Allow hosts, or the hosts of URLs, in the config: the one in use, or else the user's own."""
    from onetool.config.server_import import ConfigTarget

    target = ConfigTarget(ctx.find_root().obj, new=user_config())
    try:
        wanted = [read_host(text) for text in texts]
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="HOST") from None
    for host in allow_hosts(target, wanted):
        print_note(f"Allowed {host} in {target.file}.")


def print_requirements(app: App, needs: Requirements) -> None:
    """Print each requirement as a line to paste."""
    if entries := needs.closed():
        # Without a config, name the one next to the bundles: with another config they are not seen.
        file = app.config.path or f"{user_config()} (a new file)"
        print_note(f"To let the tools call their host{'s' if len(entries) > 1 else ''}, add to {file}:")
        there = [host_entry(one.host, one.allow_private) for one in app.config.allowed_hosts]
        print_note(f"  allowedHosts: [{', '.join(dict.fromkeys([*there, *entries]))}]")
        print_note(f"or run: onetool hosts allow {' '.join(one.host for one in needs.hosts if one.entry)}")
    if unset := needs.unset():
        print_note("Secrets to set:" if len(unset) > 1 else "Secret to set:")
        for one in unset:
            print_note(f"  {one.command}")
