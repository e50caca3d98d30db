"""`builtin.json`: which built-in bundles and tools are switched on or off, against what they come with. By their names,
so that people can read it:

    {"bundles": {"shell": false}, "tools": {"fs/read-file@1": false}, "schemaVersion": "1"}
"""

from collections.abc import Iterable, Sequence

import msgspec

from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.files.form import parsed
from onetool.sources.bundles.files.migrations import migrated
from onetool.sources.bundles.model import SCHEMA_VERSION, Bundle, Tool
from onetool.sources.bundles.reading import converted

BuiltIn = Sequence[tuple[Bundle, Sequence[Tool]]]


class Overlay(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    bundles: dict[str, bool] = {}
    tools: dict[str, bool] = {}
    schema_version: str = SCHEMA_VERSION

    def with_bundle(self, bundle: Bundle, is_enabled: bool) -> "Overlay":
        return msgspec.structs.replace(self, bundles=_switched(self.bundles, bundle.slug, is_enabled))

    def with_tool(self, bundle: Bundle, tool: Tool, is_enabled: bool) -> "Overlay":
        return msgspec.structs.replace(self, tools=_switched(self.tools, tool_key(bundle, tool), is_enabled))

    def bundle(self, bundle: Bundle) -> Bundle:
        """As it is with its switch."""
        return msgspec.structs.replace(bundle, is_enabled=self.bundles.get(bundle.slug, bundle.is_enabled))

    def tool(self, bundle: Bundle, tool: Tool) -> Tool:
        return msgspec.structs.replace(tool, is_enabled=self.tools.get(tool_key(bundle, tool), tool.is_enabled))

    def over(self, built_in: BuiltIn) -> list[tuple[Bundle, list[Tool]]]:
        return [(self.bundle(bundle), [self.tool(bundle, tool) for tool in tools]) for bundle, tools in built_in]


def overlay_text(overlay: Overlay) -> bytes:
    return msgspec.json.format(msgspec.json.encode(overlay), indent=2) + b"\n"


def read_overlay(text: bytes) -> Overlay:
    """Raises Invalid."""
    data = migrated("overlay", parsed(text))
    return converted({**data, "schemaVersion": SCHEMA_VERSION}, Overlay)


def tool_key(bundle: Bundle, tool: Tool) -> str:
    return f"{bundle.slug}/{tool.slug}@{tool.version}"


def check_built_in(built_in: BuiltIn) -> None:
    """What is given at the start is the program's own; two of one name would share a switch."""
    keys = [key for bundle, tools in built_in for key in (bundle.slug, *(tool_key(bundle, tool) for tool in tools))]
    if twice := _twice(keys):
        raise Invalid(f"there are two built-in things called {twice}")


def _twice(keys: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    return None


def _switched(switches: dict[str, bool], key: str, is_enabled: bool) -> dict[str, bool]:
    return dict(sorted({**switches, key: is_enabled}.items()))
