"""New tools into the store: one into a bundle, or a whole new bundle with its tools at once."""

from collections.abc import Iterable, Mapping
from time import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from onetool.interfaces.cli.bundles.changing import live_of
from onetool.interfaces.cli.bundles.places import Place, find_bundle, next_version
from onetool.interfaces.cli.bundles.telling import say_if_taken
from onetool.interfaces.cli.output import printable

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.bundles.model import Bundle, Tool
    from onetool.sources.bundles.shelf import Shown

FIRST = "1"

create_option = click.option("--create", is_flag=True, help="Make the bundle, if it is not there.")


def version_of(place: Place, data: Any) -> str:
    """The one that is named, or that the tool says of itself, or the first."""
    said = data.get("version") if isinstance(data, Mapping) else None
    return place.version or (said if isinstance(said, str) else None) or FIRST


def put_tool(app: "App", place: Place, data: Any, create: bool) -> "Shown":
    """Checked as REST checks it. With `create` a bundle that is not there is made, of one piece with the tool."""
    from onetool.sources.bundles.errors import Conflict

    shelf, version = app.bundles, version_of(place, data)
    if create and live_of(shelf, place.bundle) is None and shelf.store.bundle(place.bundle) is None:
        bundle, (tool,) = made({"slug": place.bundle}, [(str(place.tool), version, data)])
        shelf.check(tool)
        say_if_taken(app, bundle.slug)
        shelf.store.put_all(bundle, [tool])
        return shelf.get_tool(bundle.id, tool.slug, tool.version)[0]
    home = find_bundle(shelf, place.bundle, otherwise="to make it with its first tool: --create")
    try:
        return shelf.put_tool(home["id"], str(place.tool), version, data)[0]
    except Conflict:
        free = next_version(shelf, home["id"], str(place.tool))
        name = f"{home['slug']}/{place.tool}"
        message = f"{name}@{version} is there already, and stays as it is. Put it beside that one: {name}@{free}"
        raise click.ClickException(printable(message)) from None


def check_tool(app: "App", place: Place, data: Any) -> dict[str, Any]:
    """The same without putting it anywhere: the tool as it would be."""
    _, (tool,) = made({"slug": "draft"}, [(str(place.tool), version_of(place, data), data)])
    app.bundles.check(tool)
    return as_put(tool)


def made(content: Any, tools: Iterable[tuple[str, str, Any]], id: str | None = None) -> "tuple[Bundle, list[Tool]]":
    """A bundle and its tools out of what PUT takes, with new ids. Raises Invalid."""
    from onetool.sources.bundles.files.times import as_text
    from onetool.sources.bundles.model import Bundle, Tool
    from onetool.sources.bundles.names import check_slug, check_version, new_id
    from onetool.sources.bundles.reading import read_bundle, read_tool

    now = time()
    times: dict[str, Any] = {"created_at": as_text(now), "modified_at": as_text(now)}
    read = read_bundle(content)
    check_slug(read.slug)
    bundle = Bundle(**msgspec.structs.asdict(read), id=id or new_id(now), **times)
    found = [
        Tool(
            **msgspec.structs.asdict(read_tool(data, check_slug(slug), check_version(version))),
            id=new_id(now),
            bundle_id=bundle.id,
            slug=slug,
            version=version,
            **times,
        )
        for slug, version, data in tools
    ]
    return bundle, found


def as_put(tool: "Tool") -> dict[str, Any]:
    """What a person gives of a tool: as PUT takes it, with its place."""
    from onetool.sources.bundles.model import shown
    from onetool.sources.bundles.reading import KEPT

    return {key: value for key, value in shown(tool).items() if key not in KEPT}
