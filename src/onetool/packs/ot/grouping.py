"""What `ot.packs` gives: the packs that tools make up, and those of servers that have yet to tell theirs."""

from collections.abc import Iterable
from typing import Any

import msgspec

from onetool.packs.ot.filtering import Info, has, wanted
from onetool.packs.ot.listing import Listed, in_short


class PackView(msgspec.Struct, frozen=True, kw_only=True):
    """A pack under the name that code has for it."""

    name: str
    source: str  # local or proxy
    tools: tuple[Listed, ...] = ()
    instructions: str | None = None

    def in_short(self) -> dict[str, Any]:
        return {"name": self.name, "source": self.source, "tool_count": len(self.tools)}

    def in_full(self) -> dict[str, Any]:
        told = {"instructions": self.instructions} if self.instructions else {}
        return {**self.in_short(), **told, "tools": [in_short(tool) for tool in self.tools]}


def grouped(tools: Iterable[Listed], servers: Iterable[str], instructions: dict[str, str]) -> dict[str, PackView]:
    """The packs by their names, in the order of the tools; then servers whose tools are not known yet."""
    members: dict[str, list[Listed]] = {}
    for tool in tools:
        members.setdefault(tool.pack, []).append(tool)
    for name in servers:
        members.setdefault(name, [])
    return {name: _pack(name, tools, instructions) for name, tools in members.items()}


def listed(packs: Iterable[PackView], pattern: str, info: Info) -> list[Any]:
    found = [pack for pack in packs if has(wanted(pattern), pack.name)]
    if info == "list":
        return [pack.name for pack in found]
    return [pack.in_short() if info == "min" else pack.in_full() for pack in found]


def _pack(name: str, tools: list[Listed], instructions: dict[str, str]) -> PackView:
    remote = not tools or tools[0].spec.source.startswith("proxy:")
    own = next((tool.spec.pack for tool in tools), name)
    return PackView(
        name=name,
        source="proxy" if remote else "local",
        tools=tuple(tools),
        instructions=instructions.get(own) or instructions.get(name),
    )
