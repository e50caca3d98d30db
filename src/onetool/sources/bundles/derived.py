"""Packs, declared tools and MCP servers as read-only bundles, made of the catalogue of this process, and in a store.

They are kept in memory alone: processes with other configs share the folder of bundles, and must not see them there.
Ids follow from kind and name, slugs from the name. What people have set of them is kept in a file: what is switched
off, and the examples of each tool.

`WithDerived` adds them to a store; `CatalogueStore` is a folder and them. Both are listed and searched as one: a page
of each is asked for, and they are merged by id or by rank, which depend on nothing but the row. For the search the
derived ones have words of their own; who searches brings them up to date.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from heapq import merge
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from onetool.core.errors import cut
from onetool.core.registry import lazy_tool
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.files.overlay import BuiltIn, read_switches
from onetool.sources.bundles.files.store import FileStore
from onetool.sources.bundles.index import Index
from onetool.sources.bundles.model import (
    SINCE,
    VERSION,
    Bundle,
    BundleSource,
    Tool,
    ToolExample,
    built_in_id,
    function_of,
)
from onetool.sources.bundles.names import LONGEST, derived_id, fits
from onetool.sources.bundles.rules import StoreRules
from onetool.sources.bundles.store import BundleStore, Rank, SearchHit
from onetool.sources.catalogues import Offered

if TYPE_CHECKING:
    from onetool.sources.bundles.searching import BundleSearch

SourceKind = Literal["pack", "config", "server"]

RECENCY = 3  # the last tier of a search
DIGITS = 8  # of the hash in a slug
MOST_WORDS, MOST_TITLE, MOST_TAG, MOST_TAGS = 10_000, 200, 64, 64  # what bundles that people keep may have
ABOUT: dict[SourceKind, str] = {"pack": "The pack", "config": "Declared in the config:", "server": "The MCP server"}


MadeTools = dict[str, tuple[ToolSpec, Tool]]
"""Tools by their ids, and what each was made of."""


class DerivedTool(NamedTuple):
    """A tool of the catalogue, and the bundle that it is shown in."""

    source: BundleSource
    spec: ToolSpec


class DerivedSet:
    """What one state of the catalogue gives. The bundles are made at the first question for them."""

    def __init__(self, offered: Offered, built_in: Iterable[str], made: "MadeTools | None" = None) -> None:
        """`built_in` are tools that have bundles of their own; what was `made` before is used again."""
        self._servers = offered.servers
        self.made: MadeTools = made or {}
        self.tools = {one.spec.name: one for one in _derived(offered, frozenset(built_in))}

    @cached_property
    def bundles(self) -> list[tuple[Bundle, list[Tool]]]:
        found: dict[tuple[SourceKind, str], list[ToolSpec]] = {("server", name): [] for name in self._servers}
        for one in self.tools.values():
            if not one.spec.hidden:
                found.setdefault((one.source.kind, one.source.name), []).append(one.spec)
        bundles = [
            _bundle(BundleSource(kind=kind, name=name), specs, self.made) for (kind, name), specs in found.items()
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
    """The set of now. `offered` is another object whenever the catalogue has changed."""

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
        """The id of a tool that is neither built in nor kept, for who counts calls: it asks for no set."""
        if spec.hidden:
            return None
        if spec.source != "local":
            return tool_id("server", spec.name)
        offered = self._offered()
        if self._declared is None or self._declared[0] is not offered:
            self._declared = (offered, frozenset(one.name for one in offered.declared.tools))
        return tool_id("config" if spec.name in self._declared[1] else "pack", spec.name)


def _derived(offered: Offered, built_in: frozenset[str]) -> Iterator[DerivedTool]:
    """The first of each name, as in the registry; without what bundles have their own of."""
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
    kept = offered.bundles.lazy
    yield from new("server", (spec for spec in offered.served.tools if lazy_tool(kept, spec.name) is None))


# As bundles and tools


def bundle_id(kind: str, name: str) -> str:
    return derived_id(f"{kind} bundle {name}")


def tool_id(kind: str, name: str) -> str:
    return derived_id(f"{kind} tool {name}")


def slug_of(name: str) -> str:
    """`_` becomes `-`. With both of them, with other signs that a slug has not, or too long, it also gets a hash."""
    dashed = name.replace("_", "-")
    if not ("_" in name and "-" in name) and 0 < len(dashed) <= LONGEST and _is_plain(dashed):
        return dashed
    return hashed_slug(name)


def hashed_slug(name: str) -> str:
    signs = unicodedata.normalize("NFC", name.replace("_", "-"))
    head = "".join(sign if fits(sign) else "-" for sign in signs)[: LONGEST - DIGITS - 1].strip("-")
    digest = sha256(name.encode(errors="backslashreplace")).hexdigest()[:DIGITS]
    return f"{head}-{digest}" if head else digest


def _is_plain(text: str) -> bool:
    return unicodedata.is_normalized("NFC", text) and all(sign == "-" or fits(sign) for sign in text)


def _bundle(source: BundleSource, specs: list[ToolSpec], made: MadeTools) -> tuple[Bundle, list[Tool]]:
    names = ", ".join(spec.name for spec in specs)
    about = ABOUT[source.kind] + ("" if source.kind == "config" else f" {source.name}:")
    bundle = Bundle(
        id=bundle_id(source.kind, source.name),
        slug=slug_of(source.name),
        display_name=cut(_text(source.name), MOST_TITLE),
        description=cut(_text(f"{about} {names}".rstrip(" :")), MOST_WORDS),
        is_built_in=True,
        created_at=SINCE,
        modified_at=SINCE,
        source=source,
    )
    taken: set[str] = set()
    tools: list[Tool] = []
    for spec in sorted(specs, key=lambda one: "-" in _own_name(one)):  # of `a_b` and `a-b` the first keeps its slug
        if _is_text(spec.name):
            slug = slug_of(_own_name(spec))
            slug = hashed_slug(_own_name(spec)) if slug in taken else slug
            taken.add(slug)
            id = tool_id(source.kind, spec.name)
            of, tool = made.get(id, (None, None))
            if tool is None or of is not spec or tool.slug != slug:
                tool = _tool(id, bundle, slug, spec, source)
            tools.append(tool)
    return bundle, tools


def _own_name(spec: ToolSpec) -> str:
    """Without its pack."""
    return spec.name.partition(".")[2] or spec.name


def _tool(id: str, bundle: Bundle, slug: str, spec: ToolSpec, source: BundleSource) -> Tool:
    return Tool(
        id=id,
        bundle_id=bundle.id,
        slug=slug,
        version=VERSION,
        type="python",
        display_name=cut(spec.name, MOST_TITLE),
        description=cut(_text(spec.description), MOST_WORDS),
        tags=tuple(dict.fromkeys(_text(tag)[:MOST_TAG] for tag in spec.tags if tag))[:MOST_TAGS],
        parallel=spec.parallel,
        arg_schema=_plain(spec.input_schema),
        output_schema=_plain(spec.output_schema or {}),
        python_impl={"func": spec.name},
        is_built_in=True,
        created_at=SINCE,
        modified_at=SINCE,
        source=source,
    )


def _plain(schema: Any) -> dict[str, Any]:
    """As JSON has it. What JSON can't say, a stranger's server may: then nothing is said."""
    try:
        return msgspec.json.decode(msgspec.json.encode(schema), type=dict[str, Any])
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {}


def _text(text: str) -> str:
    """Without halves of characters, which JSON can't say."""
    return text if _is_text(text) else text.encode(errors="replace").decode()


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# What people have set


class KeptSettings(NamedTuple):
    """Disabled tools by their names, each with the place of its switch, and sources that are disabled as a whole."""

    tools: Mapping[str, str] = {}
    sources: frozenset[BundleSource] = frozenset()
    examples: Mapping[str, tuple[ToolExample, ...]] = {}  # of each tool, by its name

    def hides(self, spec: ToolSpec) -> bool:
        """Whether a prompt or a resource with this spec belongs to a disabled source."""
        if spec.source != "local":
            return BundleSource(kind="server", name=spec.source.partition(":")[2]) in self.sources
        return BundleSource(kind="pack", name=spec.pack) in self.sources


def switched_off_in(bundle: Bundle, tools: Iterable[Tool]) -> dict[str, str]:
    if not bundle.is_enabled:
        return {function_of(tool): bundle.slug for tool in tools}
    return {function_of(tool): f"{bundle.slug}/{tool.slug}" for tool in tools if not tool.is_enabled}


class SettingsReader:
    """Reads `KeptSettings` of a store: again only where they may be others."""

    def __init__(self, store: BundleStore, built_in: Collection[str]) -> None:
        self._store, self._built_in = store, built_in
        self._known: tuple[str, KeptSettings] | None = None  # and of which mark

    def read(self) -> KeptSettings:
        state, mark, known = self._store.state(), self._store.built_in_mark(), self._known
        if not mark or not self._store.are_all_on():  # what is derived may be others now
            return _kept_settings(self._store, self._built_in)
        if known is None or known[0] != mark:
            known = (mark, _kept_settings(self._store, self._built_in))
            # What changed meanwhile may be of another mark; and a mark comes back with what is set.
            self._known = known if self._store.state() == state else None
        return known[1]


def _kept_settings(store: BundleStore, built_in: Collection[str]) -> KeptSettings:
    """What is set of the built-in tools, by their names, and of derived ones."""
    packs = {name.partition(".")[0] for name in built_in}
    bundles: list[tuple[Bundle, Sequence[Tool]]] = [
        (bundle, store.tools((), [bundle.id], True, None, len(built_in)))
        for bundle in store.bundles([built_in_id(pack) for pack in packs], True, None, len(packs))
    ]
    bundles += [] if store.are_all_on() else store.derived()
    off, examples, sources = dict[str, str](), dict[str, tuple[ToolExample, ...]](), set[BundleSource]()
    for bundle, tools in bundles:
        off |= switched_off_in(bundle, tools)
        examples |= {function_of(tool): tool.examples for tool in tools if tool.examples}
        if not bundle.is_enabled and bundle.source is not None:
            sources.add(bundle.source)
    return KeptSettings(off, frozenset(sources), examples)


# In a store


Thing = TypeVar("Thing", Bundle, Tool)


class SwitchedSet:
    """The derived bundles with their switches, and what they were made of."""

    def __init__(self, of: DerivedSet, switches: str) -> None:
        self.of = of
        self.switches = switches
        found = read_switches(switches).over(of.bundles) if switches else of.bundles
        self.by_id: dict[str, tuple[Bundle, Sequence[Tool]]] = {one[0].id: one for one in found}

    @cached_property
    def bundles(self) -> list[Bundle]:
        """In the order of their ids, as the tools are."""
        return sorted((bundle for bundle, _ in self.by_id.values()), key=_id)

    @cached_property
    def tools(self) -> list[Tool]:
        return sorted((tool for _, tools in self.by_id.values() for tool in tools), key=_id)

    def is_in_use(self, tool: Tool) -> bool:
        return tool.is_enabled and self.by_id[tool.bundle_id][0].is_enabled


class WithDerived(StoreRules):
    """Goes before the class of a store."""

    def add_derived(self, derived: DerivedBundles) -> None:
        """Before anything else is done with the store."""
        self._derived = derived
        self._switched: SwitchedSet | None = None
        self._searched = DerivedSearch()

    # Reading

    def bundle(self, id: str) -> Bundle | None:
        found = self._current().by_id.get(id)
        return super().bundle(id) if found is None else found[0]

    def bundles(
        self, ids: Iterable[str] = (), include_disabled: bool = False, after: str | None = None, limit: int = 100
    ) -> list[Bundle]:
        wanted = set(ids)
        derived = (
            one
            for one in _behind(self._current().bundles, after)
            if (include_disabled or one.is_enabled) and (not wanted or one.id in wanted)
        )
        found = super().bundles(wanted, include_disabled, after, limit)
        return list(islice(merge(found, derived, key=_id), limit))

    def bundles_of(self, ids: Iterable[str]) -> Mapping[str, Bundle]:
        wanted = set(ids)
        found = super().bundles_of(wanted)
        if not (others := wanted - found.keys()):
            return found
        derived = self._current().by_id
        return {**found, **{id: derived[id][0] for id in others if id in derived}}

    def tool(self, bundle_id: str, slug: str, version: str) -> Tool | None:
        found = self._current().by_id.get(bundle_id)
        if found is None:
            return super().tool(bundle_id, slug, version)
        return next((one for one in found[1] if (one.slug, one.version) == (slug, version)), None)

    def versions(self, bundle_id: str, slug: str) -> list[Tool]:
        found = self._current().by_id.get(bundle_id)
        return super().versions(bundle_id, slug) if found is None else [one for one in found[1] if one.slug == slug]

    def tools(
        self,
        tags: Iterable[str] = (),
        bundle_ids: Iterable[str] = (),
        include_disabled: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Tool]:
        some, wanted, now = set(tags), set(bundle_ids), self._current()
        derived = (
            one
            for one in _behind(now.tools, after)
            if (not wanted or one.bundle_id in wanted)
            and (not some or not some.isdisjoint(one.tags))
            and (include_disabled or now.is_in_use(one))
        )
        found = super().tools(some, wanted, include_disabled, after, limit)
        return list(islice(merge(found, derived, key=_id), limit))

    def search(
        self, query: str, include_disabled: bool = False, after: Rank | None = None, limit: int = 100
    ) -> list[SearchHit]:
        found = super().search(query, include_disabled, after, limit)
        last_tier = found[-1].rank.tier if found and len(found) == limit else RECENCY  # later ones have no room
        derived = self._searched.search(self._current(), query, include_disabled, after, limit, last_tier)
        return list(islice(merge(found, derived, key=lambda hit: hit.rank), limit)) if derived else found

    def derived(self) -> list[tuple[Bundle, Sequence[Tool]]]:
        return list(self._current().by_id.values())

    def are_all_on(self) -> bool:
        return not self._read(Index.switches)

    # How it is done

    def _built_in_bundle(self, id: str) -> tuple[Bundle, Sequence[Tool]] | None:
        return super()._built_in_bundle(id) or self._derived.now().by_id.get(id)

    def _current(self) -> SwitchedSet:
        of, switches, known = self._derived.now(), self._read(Index.switches), self._switched
        if known is None or known.of is not of or known.switches != switches:
            known = self._switched = SwitchedSet(of, switches)
        return known


class CatalogueStore(WithDerived, FileStore):
    def __init__(self, folder: Path, built_in: BuiltIn, derived: DerivedBundles, **options: Any) -> None:
        super().__init__(folder, built_in, **options)
        self.add_derived(derived)


class DerivedSearch:
    """The search over the derived ones. Who searches brings it up to date."""

    def __init__(self) -> None:
        self._of: SwitchedSet | None = None
        self._tools: dict[str, Tool] = {}
        self._lock = Lock()

    @cached_property
    def _found(self) -> "BundleSearch":
        from onetool.sources.bundles.searching import BundleSearch  # which needs numpy

        return BundleSearch()

    def search(
        self, now: SwitchedSet, query: str, include_disabled: bool, after: Rank | None, limit: int, last_tier: int
    ) -> list[SearchHit]:
        if not now.by_id:
            return []
        with self._lock:
            if self._of is not now:
                self._follow(now)
            ranks = self._found.current().search(query, include_disabled, after, limit, last_tier)
            return [SearchHit(Rank(*rank), self._tools[rank[-1]]) for rank in ranks]

    def _follow(self, now: SwitchedSet) -> None:
        before, self._tools = self._tools, {tool.id: tool for tool in now.tools}
        for id in before.keys() - self._tools.keys():
            self._found.drop_tool(id)
        if self._of is not None:
            for id in self._of.by_id.keys() - now.by_id.keys():
                self._found.drop_bundle(id, tuple)
        for bundle, tools in now.by_id.values():
            self._found.put_bundle(bundle, lambda tools=tools: tools)
        for id, tool in self._tools.items():
            if before.get(id) != tool:
                self._found.put_tool(tool)
        self._of = now


def _id(one: Bundle | Tool) -> str:
    return one.id


def _behind(things: list[Thing], after: str | None) -> Iterator[Thing]:
    return islice(things, 0 if after is None else bisect_right(things, after, key=_id), None)
