"""The built-in packs as bundles: with fixed ids, read-only. Their tools are slugs with dashes, in version 1."""

from collections.abc import Iterable
from copy import deepcopy

from onetool.core.spec import ToolSpec
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.names import derived_id

VERSION = "1"
SINCE = "2026-01-01T00:00:00.000Z"  # they are older than everything that people keep


def built_in_id(name: str) -> str:
    """Of a pack, or of a tool: the same one on every machine."""
    return derived_id(f"built-in {name}")


def as_slug(name: str) -> str:
    return name.replace("_", "-")


def built_in_bundles(tools: Iterable[ToolSpec]) -> list[tuple[Bundle, list[Tool]]]:
    packs: dict[str, list[ToolSpec]] = {}
    for spec in tools:
        packs.setdefault(spec.pack, []).append(spec)
    return [(_bundle(pack, found), [_tool(spec) for spec in found]) for pack, found in packs.items()]


def _bundle(pack: str, tools: list[ToolSpec]) -> Bundle:
    names = ", ".join(spec.name for spec in tools)
    return Bundle(
        id=built_in_id(pack),
        slug=as_slug(pack),
        display_name=pack,
        description=f"Built in: {names}",
        is_built_in=True,
        created_at=SINCE,
        modified_at=SINCE,
    )


def _tool(spec: ToolSpec) -> Tool:
    return Tool(
        id=built_in_id(spec.name),
        bundle_id=built_in_id(spec.pack),
        slug=as_slug(spec.name.removeprefix(f"{spec.pack}.")),
        version=VERSION,
        type="python",
        display_name=spec.name,
        description=spec.description,
        tags=spec.tags,
        arg_schema=deepcopy(dict(spec.input_schema)),
        output_schema=deepcopy(dict(spec.output_schema or {})),
        python_impl={"func": spec.name},
        is_built_in=True,
        created_at=SINCE,
        modified_at=SINCE,
    )
