"""`builtin.json`: the users' settings of built-in and derived bundles and tools: switches, and examples."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from onetool.sources.bundles.errors import InvalidError, invalid_at
from onetool.sources.bundles.model import SCHEMA_VERSION, Bundle, Tool, ToolExample
from onetool.sources.bundles.store.paths import MAX_FILE_BYTES
from onetool.sources.bundles.store.text import check_format, parsed
from onetool.sources.bundles.validation import converted

MAX_EXAMPLE_BYTES = MAX_FILE_BYTES // 2  # bytes of JSON of all tools, which leaves room for switches
KIND_SIGN = ":"  # between the kind and the name of a derived bundle; not allowed in slugs

T = TypeVar("T")
BuiltIn = Sequence[tuple[Bundle, Sequence[Tool]]]


class Overlay(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    bundles: dict[str, bool] = {}
    tools: dict[str, bool] = {}
    examples: dict[str, tuple[ToolExample, ...]] = {}  # of tools
    schema_version: str = SCHEMA_VERSION

    def with_bundle(self, bundle: Bundle, is_enabled: bool) -> "Overlay":
        return msgspec.structs.replace(self, bundles=_switched(self.bundles, bundle_key(bundle), is_enabled))

    def with_tool(self, bundle: Bundle, tool: Tool, is_enabled: bool) -> "Overlay":
        return msgspec.structs.replace(self, tools=_switched(self.tools, tool_key(bundle, tool), is_enabled))

    def with_examples(self, bundle: Bundle, tool: Tool, examples: tuple[ToolExample, ...]) -> "Overlay":
        """Return the overlay with these examples of a tool. Raises InvalidError if there are too many."""
        found = {**self.examples, tool_key(bundle, tool): examples}
        if examples and len(msgspec.json.encode(found)) > MAX_EXAMPLE_BYTES:
            what = f"all examples of built-in and derived tools would exceed {MAX_EXAMPLE_BYTES:,} bytes"
            raise invalid_at("/examples", f"{what}; remove or shorten some")
        return msgspec.structs.replace(self, examples={key: one for key, one in sorted(found.items()) if one})

    def bundle(self, bundle: Bundle) -> Bundle:
        """Return the bundle with its switch applied."""
        return msgspec.structs.replace(bundle, is_enabled=self.bundles.get(bundle_key(bundle), bundle.is_enabled))

    def tool(self, bundle: Bundle, tool: Tool) -> Tool:
        key = tool_key(bundle, tool)
        return msgspec.structs.replace(
            tool, is_enabled=self.tools.get(key, tool.is_enabled), examples=self.examples.get(key, tool.examples)
        )

    def over(self, built_in: BuiltIn) -> list[tuple[Bundle, list[Tool]]]:
        return [(self.bundle(bundle), [self.tool(bundle, tool) for tool in tools]) for bundle, tools in built_in]

    def derived_only(self) -> "Overlay":
        """Return the settings of derived bundles only."""
        return Overlay(
            bundles=_derived_only(self.bundles), tools=_derived_only(self.tools), examples=_derived_only(self.examples)
        )


class UnknownOverlay(Overlay, frozen=True, kw_only=True):
    """An overlay for an unreadable file. Everything is disabled, because any tool may have been disabled."""

    def bundle(self, bundle: Bundle) -> Bundle:
        return msgspec.structs.replace(bundle, is_enabled=False)


def overlay_text(overlay: Overlay) -> bytes:
    """Return the text of the file, with one line for each switch and for the examples of each tool.

    Raises InvalidError if it couldn't be read again.
    """
    data = msgspec.to_builtins(overlay)
    lines = [msgspec.json.encode(key) + b": " + msgspec.json.encode(one) for key, one in data.pop("examples").items()]
    text = msgspec.json.format(msgspec.json.encode(data), indent=2)
    if lines:
        text = text.removesuffix(b"\n}") + b',\n  "examples": {\n    ' + b",\n    ".join(lines) + b"\n  }\n}"
    if len(text) >= MAX_FILE_BYTES:
        raise InvalidError(f"the file of switches would have {len(text):,} bytes; the limit is {MAX_FILE_BYTES:,}", "")
    if read_overlay(text) != overlay:
        raise InvalidError("it contains values that JSON can't express", "")
    return text + b"\n"


def read_overlay(text: bytes) -> Overlay:
    """Parse the file. Raises InvalidError."""
    data = parsed(text)
    check_format(data)
    return converted({**data, "schemaVersion": SCHEMA_VERSION}, Overlay)


def bundle_key(bundle: Bundle) -> str:
    """Return the key of a bundle: kind and name if derived, because configs that share a folder may reuse a slug."""
    return bundle.slug if bundle.source is None else f"{bundle.source.kind}{KIND_SIGN}{bundle.source.name}"


def tool_key(bundle: Bundle, tool: Tool) -> str:
    return f"{bundle_key(bundle)}/{tool.slug}@{tool.version}"


def _derived_only(settings: dict[str, T]) -> dict[str, T]:
    return {key: value for key, value in settings.items() if KIND_SIGN in key}


def check_built_in(built_in: BuiltIn) -> None:
    """Raise InvalidError if two built-in tools have the same name, and would share a switch."""
    keys = [key for bundle, tools in built_in for key in (bundle.slug, *(tool_key(bundle, tool) for tool in tools))]
    for key, count in Counter(keys).items():
        if count > 1:
            raise InvalidError(f"there are two built-in things called {key}")


def _switched(switches: dict[str, bool], key: str, is_enabled: bool) -> dict[str, bool]:
    return dict(sorted({**switches, key: is_enabled}.items()))
