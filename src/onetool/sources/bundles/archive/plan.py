"""What taking in an archive would change, before anything is: a table of it, and whether it can be done at all."""

import time
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from onetool.sources.bundles.archive.zip_file import Unpacked
from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.model import Bundle, BundleContent, Tool, ToolContent
from onetool.sources.bundles.names import new_id

What = Literal["new", "same", "changed", "clash", "kept"]


class Row(NamedTuple):
    """One line: a tool, or the bundle itself (without a version)."""

    slug: str
    version: str
    what: What  # "kept": it is here and not in the archive, and stays
    detail: str = ""


class Plan(NamedTuple):
    bundle: Bundle  # as it would be; with another id where a new one was asked for
    rows: list[Row]
    refused: list[str]  # why it can't be done; empty where it can
    new_tools: list[Tool]  # those that would be put
    is_new: bool  # whether the bundle is

    @property
    def changes(self) -> bool:
        return any(row.what in ("new", "changed") for row in self.rows)


def plan(
    unpacked: Unpacked,
    existing_bundle: Bundle | None,
    existing_tools: Iterable[Tool],
    as_new: bool = False,
    now: Callable[[], float] = time.time,
) -> Plan:
    """Hold an archive against what is here of the same bundle id. `as_new`: make another bundle of it, beside that."""
    if unpacked.bundle is None:
        raise Invalid("the archive's bundle can't be used: " + "; ".join(map(str, unpacked.mistakes[:3])))
    refused = [str(mistake) for mistake in unpacked.mistakes]
    if as_new or existing_bundle is None:
        bundle, tools = _renamed(unpacked, now()) if as_new else (unpacked.bundle, unpacked.tools)
        rows = [Row(bundle.slug, "", "new"), *(Row(tool.slug, tool.version, "new") for tool in tools)]
        return Plan(bundle, rows, refused, tools, is_new=True)
    return _beside(unpacked.bundle, unpacked.tools, existing_bundle, list(existing_tools), refused)


def _renamed(unpacked: Unpacked, now: float) -> tuple[Bundle, list[Tool]]:
    assert unpacked.bundle is not None  # noqa: S101 - for the type checker: its caller has looked
    bundle = replace(unpacked.bundle, id=new_id(now))
    return bundle, [replace(tool, id=new_id(now), bundle_id=bundle.id) for tool in unpacked.tools]


def _beside(bundle: Bundle, tools: list[Tool], here: Bundle, tools_here: list[Tool], refused: list[str]) -> Plan:
    known = {(tool.slug, tool.version): tool for tool in tools_here}
    rows = [_bundle_row(bundle, here)]
    new: list[Tool] = []
    for tool in tools:
        found = known.pop((tool.slug, tool.version), None)
        rows.append(_tool_row(tool, found))
        if found is None:
            new.append(tool)
    rows += [Row(slug, version, "kept", "it is here, and not in the archive") for slug, version in known]
    refused = [*refused, *_in_the_way(here, rows, bool(new))]
    taken = replace(here, **{name: getattr(bundle, name) for name in BundleContent.__struct_fields__})
    return Plan(replace(taken, is_enabled=here.is_enabled), rows, refused, new, is_new=False)


def _bundle_row(bundle: Bundle, here: Bundle) -> Row:
    names = ("slug", "display_name", "description")
    other = [name for name in names if getattr(bundle, name) != getattr(here, name)]
    if here.soft_deleted_at is not None:
        return Row(bundle.slug, "", "changed", "it was deleted here, and comes back")
    if not other:
        return Row(bundle.slug, "", "same")
    keys = {field.name: field.encode_name for field in msgspec.structs.fields(Bundle)}
    return Row(bundle.slug, "", "changed", f"other: {', '.join(keys[name] for name in other)}")


def _tool_row(tool: Tool, here: Tool | None) -> Row:
    if here is None:
        return Row(tool.slug, tool.version, "new")
    fields = {field.name: field.encode_name for field in msgspec.structs.fields(ToolContent)}
    other = [key for name, key in fields.items() if getattr(tool, name) != getattr(here, name)]
    if other == ["isEnabled"] or not other:
        stays = f"it stays {'enabled' if here.is_enabled else 'disabled'}, as it is here" if other else ""
        return Row(tool.slug, tool.version, "same", stays)
    return Row(tool.slug, tool.version, "clash", f"other: {', '.join(other)}")


def _in_the_way(here: Bundle, rows: list[Row], adds: bool) -> list[str]:
    if here.is_built_in:
        return [f"the bundle {here.slug} is built in and can't be changed; import it as a new bundle"]
    clashes = [f"{row.slug}@{row.version}" for row in rows if row.what == "clash"]
    if clashes:
        few = ", ".join(clashes[:5]) + (f" and {len(clashes) - 5} more" if len(clashes) > 5 else "")
        return [f"{few}: the same version is here with other content; import it as a new bundle, or remove it here"]
    if adds and not here.is_enabled:
        return [f"the bundle {here.slug} is disabled here, and takes no tools; enable it first"]
    return []
