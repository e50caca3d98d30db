"""What is asked of a change before it is made, and what is the same before and after it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from onetool.sources.bundles.errors import Conflict, NotFound, Stale
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.names import check_id, check_slug, check_version
from onetool.sources.bundles.store import Tag, tag_of


def fields_of(content: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(content, name) for name in content.__struct_fields__}


def structure(bundle: Bundle) -> tuple[str, str, str]:
    """What `modifiedAt` is about: a switch is no change of it, nor is being deleted and brought back."""
    return bundle.slug, bundle.display_name, bundle.description


def refuse_stale(thing: Bundle | Tool | None, match: Tag | None) -> None:
    if match is not None and (thing is None or (match != "*" and match != tag_of(thing))):
        what = "it is not there" if thing is None else "somebody has changed it since"
        raise Stale(f"{what}: get it again, and decide anew")


def not_empty(bundle: Bundle, folder: str, files: list[str]) -> str:
    some = ", ".join(files[:3]) + (" …" if len(files) > 3 else "")
    where = f"bundles/{folder}/tools: {some}"
    return f"the bundle {bundle.slug} is not empty: delete its {len(files)} tools first ({where})"


def tool_of(one: tuple[Bundle, Sequence[Tool]], slug: str, version: str) -> Tool:
    for tool in one[1]:
        if (tool.slug, tool.version) == (slug, version):
            return tool
    raise NotFound(f"there is no tool {slug}@{version} in the bundle {one[0].slug}")


def check_set(tools: Sequence[Tool]) -> None:
    names, ids = set[tuple[str, str]](), set[str]()
    for number, tool in enumerate(tools):
        check_id(tool.id, f"/tools/{number}/id")
        check_slug(tool.slug, f"/tools/{number}/slug")
        check_version(tool.version, f"/tools/{number}/version")
        if (tool.slug, tool.version) in names or tool.id in ids:
            raise Conflict(f"{tool.slug}@{tool.version} or its id {tool.id} is in there twice", "exists")
        names.add((tool.slug, tool.version))
        ids.add(tool.id)
