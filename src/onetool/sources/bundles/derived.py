"""Packs, declared tools and MCP servers as read-only bundles, derived from the catalogue of this process.

They exist in memory only: processes with other configs share the folder of bundles, and must not see them there. Ids
are derived from kind and name, slugs from the name. Settings of users are stored: disabled tools and bundles, and the
examples of each tool. `ReadOnlyBundles` contains the built-in and the derived bundles of a store.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import msgspec

from onetool.core.errors import cut
from onetool.core.registry import lazy_tool
from onetool.core.spec import ToolSpec
from onetool.core.text import replace_surrogates
from onetool.sources.bundles.model import (
    SINCE,
    VERSION,
    Bundle,
    BundleSource,
    Tool,
    ToolExample,
    function_of,
)
from onetool.sources.bundles.names import MAX_SLUG, derived_id, fits
from onetool.sources.bundles.queries import ListQuery, get_id
from onetool.sources.bundles.store.overlay import BuiltIn, Overlay
from onetool.sources.catalogues import Offered

SourceKind = Literal["pack", "config", "server"]

DIGITS = 8  # of the hash in a slug
MAX_WORDS, MAX_TITLE, MAX_TAG, MAX_TAGS = 10_000, 200, 64, 64  # the limits of stored bundles
ABOUT: dict[SourceKind, str] = {"pack": "The pack", "config": "Declared in the config:", "server": "The MCP server"}

MadeTools = dict[str, tuple[ToolSpec, Tool]]
"""Tools by id, each with its source and spec."""


class DerivedTool(NamedTuple):
    """A tool of the catalogue, with its bundle."""

    source: BundleSource
    spec: ToolSpec


class DerivedSet:
    """The bundles of one state of the catalogue, built when first needed."""

    def __init__(self, offered: Offered, built_in: Iterable[str], made: "MadeTools | None" = None) -> None:
        """Create the set. `built_in` tools are left out; tools in `made` are reused."""
        self._servers = offered.servers
        self.made: MadeTools = made or {}
        self.tools = {tool.spec.name: tool for tool in _derived_tools(offered, frozenset(built_in))}

    @cached_property
    def bundles(self) -> list[tuple[Bundle, list[Tool]]]:
        by_source: dict[tuple[SourceKind, str], list[ToolSpec]] = {("server", name): [] for name in self._servers}
        for tool in self.tools.values():
            if not tool.spec.hidden:
                by_source.setdefault((tool.source.kind, tool.source.name), []).append(tool.spec)
        bundles = [
            _bundle(BundleSource(kind=kind, name=name), specs, self.made) for (kind, name), specs in by_source.items()
        ]
        self.made = {tool.id: (self.tools[function_of(tool)].spec, tool) for _, tools in bundles for tool in tools}
        return bundles

    @cached_property
    def by_name(self) -> dict[str, Tool]:
        return {function_of(tool): tool for _, tools in self.bundles for tool in tools}

    @cached_property
    def by_id(self) -> dict[str, tuple[Bundle, list[Tool]]]:
        return {bundle.id: (bundle, tools) for bundle, tools in self.bundles}


class DerivedBundles:
    """The current set. `offered` returns a new object whenever the catalogue has changed."""

    def __init__(self, offered: Callable[[], Offered], built_in: Iterable[str]) -> None:
        self._offered = offered
        self._built_in = tuple(built_in)
        self._known: tuple[Offered, DerivedSet] | None = None
        self._declared: tuple[Offered, frozenset[str]] | None = None

    def now(self) -> DerivedSet:
        offered, known = self._offered(), self._known
        if known is None or known[0] is not offered:
            made = None if known is None else known[1].made
            known = self._known = (offered, DerivedSet(offered, self._built_in, made))
        return known[1]

    def spec(self, name: str) -> ToolSpec | None:
        found = self.now().tools.get(name)
        return None if found is None else found.spec

    def tool(self, name: str) -> Tool | None:
        return self.now().by_name.get(name)

    def id_of(self, spec: ToolSpec) -> str | None:
        """Return the id of a tool that is neither built in nor stored, for counting calls, without building a set."""
        if spec.hidden:
            return None
        if spec.source != "local":
            return tool_id("server", spec.name)
        offered = self._offered()
        if self._declared is None or self._declared[0] is not offered:
            self._declared = (offered, frozenset(spec.name for spec in offered.declared.tools))
        return tool_id("config" if spec.name in self._declared[1] else "pack", spec.name)


def nothing_derived() -> DerivedBundles:
    """Return the derived bundles of a store without a catalogue."""
    nothing = Offered()
    return DerivedBundles(lambda: nothing, ())


def _derived_tools(offered: Offered, built_in: frozenset[str]) -> Iterator[DerivedTool]:
    """Yield the first tool of each name, as in the registry, except built-in tools."""
    seen = {spec.name for spec in offered.own.tools} | built_in
    sources: dict[tuple[SourceKind, str], BundleSource] = {}

    def new(kind: SourceKind, specs: Iterable[ToolSpec]) -> Iterator[DerivedTool]:
        for spec in specs:
            if spec.name not in seen:
                seen.add(spec.name)
                name = spec.source.partition(":")[2] if kind == "server" else spec.pack
                key = (kind, name)
                source = sources.get(key) or sources.setdefault(key, BundleSource(kind=kind, name=name))
                yield DerivedTool(source, spec)

    yield from new("pack", offered.packs.tools)
    yield from new("config", offered.declared.tools)
    lazy = offered.bundles.lazy
    yield from new("server", (spec for spec in offered.served.tools if lazy_tool(lazy, spec.name) is None))


# As bundles and tools


def bundle_id(kind: str, name: str) -> str:
    return derived_id(f"{kind} bundle {name}")


def tool_id(kind: str, name: str) -> str:
    return derived_id(f"{kind} tool {name}")


def slug_of(name: str) -> str:
    """Replace `_` with `-`. Append a hash if the name has both, has other invalid characters, or is too long."""
    dashed = name.replace("_", "-")
    is_reversible = not ("_" in name and "-" in name) and unicodedata.is_normalized("NFC", dashed)
    if is_reversible and 0 < len(dashed) <= MAX_SLUG and all(sign == "-" or fits(sign) for sign in dashed):
        return dashed
    return hashed_slug(name)


def hashed_slug(name: str) -> str:
    signs = unicodedata.normalize("NFC", name.replace("_", "-"))
    head = "".join(sign if fits(sign) else "-" for sign in signs)[: MAX_SLUG - DIGITS - 1].strip("-")
    digest = sha256(name.encode(errors="backslashreplace")).hexdigest()[:DIGITS]
    return f"{head}-{digest}" if head else digest


def _bundle(source: BundleSource, specs: list[ToolSpec], made: MadeTools) -> tuple[Bundle, list[Tool]]:
    names = ", ".join(spec.name for spec in specs)
    about = ABOUT[source.kind] + ("" if source.kind == "config" else f" {source.name}:")
    bundle = Bundle(
        id=bundle_id(source.kind, source.name),
        slug=slug_of(source.name),
        display_name=cut(replace_surrogates(source.name), MAX_TITLE),
        description=cut(replace_surrogates(f"{about} {names}".rstrip(" :")), MAX_WORDS),
        is_built_in=True,
        created_at=SINCE,
        modified_at=SINCE,
        source=source,
    )
    taken: set[str] = set()
    tools: list[Tool] = []
    for spec in sorted(specs, key=lambda spec: "-" in _own_name(spec)):  # of `a_b` and `a-b`, `a_b` keeps its slug
        if replace_surrogates(spec.name) == spec.name:  # JSON can't encode lone surrogates
            slug = slug_of(_own_name(spec))
            slug = hashed_slug(_own_name(spec)) if slug in taken else slug
            taken.add(slug)
            id = tool_id(source.kind, spec.name)
            made_of, tool = made.get(id, (None, None))
            if tool is None or made_of is not spec or tool.slug != slug:
                tool = Tool(
                    id=id,
                    bundle_id=bundle.id,
                    slug=slug,
                    version=VERSION,
                    type="python",
                    display_name=cut(spec.name, MAX_TITLE),
                    description=cut(replace_surrogates(spec.description), MAX_WORDS),
                    tags=tuple(dict.fromkeys(replace_surrogates(tag)[:MAX_TAG] for tag in spec.tags if tag))[:MAX_TAGS],
                    parallel=spec.parallel,
                    arg_schema=_plain(spec.input_schema),
                    output_schema=_plain(spec.output_schema or {}),
                    python_impl={"func": spec.name},
                    is_built_in=True,
                    created_at=SINCE,
                    modified_at=SINCE,
                    source=source,
                )
            tools.append(tool)
    return bundle, tools


def _own_name(spec: ToolSpec) -> str:
    """Return the tool's name without its pack."""
    return spec.name.partition(".")[2] or spec.name


def _plain(schema: Any) -> dict[str, Any]:
    """Convert a schema to JSON data, or to {} if JSON can't express it."""
    try:
        return msgspec.json.decode(msgspec.json.encode(schema), type=dict[str, Any])
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {}


# Settings of users


class KeptSettings(NamedTuple):
    """The settings of read-only bundles: disabled tools, each with the place of its setting, and disabled sources."""

    tools: Mapping[str, str] = {}
    sources: frozenset[BundleSource] = frozenset()
    examples: Mapping[str, tuple[ToolExample, ...]] = {}  # by tool name

    def hides(self, spec: ToolSpec) -> bool:
        """Return whether a prompt or a resource with this spec belongs to a disabled source."""
        if spec.source != "local":
            return BundleSource(kind="server", name=spec.source.partition(":")[2]) in self.sources
        return BundleSource(kind="pack", name=spec.pack) in self.sources


def kept_settings(bundles: Iterable[tuple[Bundle, Sequence[Tool]]]) -> KeptSettings:
    """Return the settings of read-only bundles."""
    off, examples, sources = dict[str, str](), dict[str, tuple[ToolExample, ...]](), set[BundleSource]()
    for bundle, tools in bundles:
        if bundle.is_enabled:
            off |= {function_of(tool): f"{bundle.slug}/{tool.slug}" for tool in tools if not tool.is_enabled}
        else:
            off |= {function_of(tool): bundle.slug for tool in tools}
        examples |= {function_of(tool): tool.examples for tool in tools if tool.examples}
        if not bundle.is_enabled and bundle.source is not None:
            sources.add(bundle.source)
    return KeptSettings(off, frozenset(sources), examples)


class ReadOnlyBundles:
    """The built-in and derived bundles, with users' settings."""

    def __init__(self, built_in: BuiltIn, derived: DerivedSet, overlay: Overlay) -> None:
        self.derived, self.overlay = derived, overlay
        bundles = [*built_in, *derived.bundles]
        bundles = bundles if overlay == Overlay() else overlay.over(bundles)
        self.by_id = {bundle.id: (bundle, tools) for bundle, tools in bundles}
        self.bundles = sorted((bundle for bundle, _ in self.by_id.values()), key=get_id)
        self.tools = sorted((tool for _, tools in self.by_id.values() for tool in tools), key=get_id)

    def listed_tools(self, query: ListQuery) -> Iterator[Tool]:
        ids = query.bundle_ids
        tools = [tool for tool in self.tools if tool.bundle_id in ids] if ids else self.tools
        return query.tools(tools, {bundle.id for bundle in self.bundles if bundle.is_enabled})
