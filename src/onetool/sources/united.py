"""What several sources offer, put together: each name once. The first one stays, and both are named."""

from collections.abc import Iterable
from typing import Any

from onetool.core.errors import Mistake
from onetool.core.offer import Prompt, Resource
from onetool.core.registry import duplicate
from onetool.core.source import Catalogue
from onetool.core.spec import ToolSpec


def united(catalogues: Iterable[Catalogue]) -> tuple[list[ToolSpec], list[Mistake]]:
    """All tools under their names."""
    tools: dict[str, ToolSpec] = {}
    mistakes: list[Mistake] = []
    for catalogue in catalogues:
        mistakes += catalogue.mistakes
        first(tools, ((spec.name, spec) for spec in catalogue.tools), mistakes)
    return list(tools.values()), mistakes


def first(known: dict[str, Any], offered: Iterable[tuple[str, Any]], mistakes: list[Mistake]) -> dict[str, Any]:
    """Each under its name. Where two have one name the first stays, and both are named."""
    for name, one in offered:
        there = known.setdefault(name, one)
        if there is not one:
            mistakes.append(_twice(name, there, one))
    return known


def _twice(name: str, there: Any, one: ToolSpec | Prompt | Resource) -> Mistake:
    if isinstance(one, ToolSpec):
        spec, message = one, duplicate(there, one)
    else:
        kind = "prompt" if isinstance(one, Prompt) else "resource"
        spec, message = one.spec, duplicate(there.spec, one.spec, f"{kind} {name!r}")
    file, _, line = (spec.defined_in or "").rpartition(":")
    place = {"file": file, "line": int(line)} if file else {}
    kind, _, server = spec.source.partition(":")
    hint = f"servers.{server}.prefix gives its tools another name" if kind == "proxy" else None
    return Mistake(message=message, key=name, hint=hint, **place)
