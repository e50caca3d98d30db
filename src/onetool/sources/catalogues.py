"""Tools declared in the config, and the merging of the catalogues of several sources, with each name once.

An invalid definition is reported with its place in the file; valid definitions still load.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from onetool.core.errors import DefinitionError, Mistake
from onetool.core.registry import NO_PACKS, Catalogue, Prompt, Resource, duplicate, lazy_tool
from onetool.core.spec import Handlers, ToolSpec, accept


class ToolDeclaration(msgspec.Struct, frozen=True):
    """A definition with its place in the file, for error messages."""

    definition: Any
    file: str
    line: int
    index: int  # in the list of its own file
    mistakes: tuple[Mistake, ...] = ()


def declared_tools(entries: Iterable[ToolDeclaration], builtins: Handlers, internals: Handlers) -> Catalogue:
    """Return the tools that the config defines."""
    tools: list[ToolSpec] = []
    mistakes: list[Mistake] = []
    for entry in entries:
        if entry.mistakes:
            mistakes += entry.mistakes
            continue
        try:
            spec = accept(entry.definition, builtins, internals)
            tools.append(replace(spec, defined_in=f"{entry.file}:{entry.line}"))
        except DefinitionError as error:
            key = f"tools[{entry.index}]" + (f" ({error.tool})" if error.tool else "")
            mistakes.append(Mistake(message=str(error), file=entry.file, line=entry.line, key=key, hint=error.hint))
    return Catalogue(tools=tuple(tools), mistakes=tuple(mistakes))


# Merging catalogues

NOTHING = Catalogue()


class Offered(msgspec.Struct, frozen=True):
    """The current catalogue of each source, for listings by source."""

    own: Catalogue = NOTHING  # the pack `ot`
    packs: Catalogue = NOTHING
    declared: Catalogue = NOTHING
    bundles: Catalogue = NOTHING
    served: Catalogue = NOTHING  # by MCP servers
    servers: tuple[str, ...] = ()  # names of these MCP servers


def united(catalogues: Iterable[Catalogue]) -> tuple[list[ToolSpec], list[Mistake]]:
    """Return the tools, each name once, without the lazy ones, whose names are taken as well; and the mistakes."""
    tools: dict[str, ToolSpec] = {}
    mistakes: list[Mistake] = []
    lazy = NO_PACKS
    for catalogue in catalogues:
        mistakes += catalogue.mistakes
        new = list[ToolSpec]()
        for spec in catalogue.tools:
            if (first := lazy_tool(lazy, spec.name)) is None:
                new.append(spec)
            else:
                mistakes.append(_duplicate_mistake(spec.name, first.spec(), spec))
        add_first(tools, ((spec.name, spec) for spec in new), mistakes)
        lazy = catalogue.lazy or lazy  # only one source has lazy tools
    return list(tools.values()), mistakes


def add_first(known: dict[str, Any], offered: Iterable[tuple[str, Any]], mistakes: list[Mistake]) -> dict[str, Any]:
    """Add each item under its name. If a name is taken, keep the first item and report both."""
    for name, item in offered:
        first = known.setdefault(name, item)
        if first is not item:
            mistakes.append(_duplicate_mistake(name, first, item))
    return known


def _duplicate_mistake(name: str, first: Any, item: ToolSpec | Prompt | Resource) -> Mistake:
    if isinstance(item, ToolSpec):
        spec, message = item, duplicate(first, item)
    else:
        kind = "prompt" if isinstance(item, Prompt) else "resource"
        spec, message = item.spec, duplicate(first.spec, item.spec, f"{kind} {name!r}")
    file, _, line = (spec.defined_in or "").rpartition(":")
    place = {"file": file, "line": int(line)} if file else {}
    kind, _, server = spec.source.partition(":")
    hint = f"servers.{server}.prefix gives its tools another name" if kind == "proxy" else None
    return Mistake(message=message, key=name, hint=hint, **place)
