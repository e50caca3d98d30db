"""What `ot.aliases` and `ot.snippets` give: other names for tools, and templates of code."""

from collections.abc import Mapping
from typing import Any

from onetool.core.failure import cut
from onetool.packs.ot.filtering import Info, has, wanted
from onetool.packs.ot.view import View

SHOWN = 100  # characters of a pattern


def aliases(every: Mapping[str, str], pattern: str, info: Info) -> list[Any]:
    found = {name: target for name, target in every.items() if has(wanted(pattern), name, target)}
    if info == "list":
        return list(found)
    if info == "min":
        return [f"{name} -> {target}" for name, target in found.items()]
    return [{"name": name, "target": target} for name, target in found.items()]


def snippets(view: View, pattern: str, info: Info) -> list[str] | str:
    """In full they are text, made for reading: a definition is code, and shows what it becomes."""
    said = wanted(pattern).removeprefix("$")
    found = {name: one for name, one in view.snippets.items() if has(said, name, one.description)}
    if info == "list":
        return list(found)
    if info == "min":
        return [f"{name}: {one.description}" for name, one in found.items()]
    if not found:
        return f"No snippet matches {cut(pattern, SHOWN)!r}."
    return "\n---\n".join(view.snippet(name).rstrip("\n") for name in found)
