"""The tools of bundles by their names in code: `bundle.tool`, and `bundle.tool@version` for one version.

A name without a version stands for the enabled version that was modified last. If two bundles, or a bundle and a pack,
have the same name, the first keeps the name; the other can be used by its id over REST. The registry uses the tools
loaded here.

Bundles that have not changed since the last load are skipped. Tools are kept as JSON; a ToolSpec takes ten times the
memory and is created on demand. The tools of each pack are in their own immutable mapping: a change creates a new
mapping.
"""

import builtins
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from keyword import kwlist
from operator import attrgetter
from threading import RLock
from time import monotonic
from typing import Any, NamedTuple
from weakref import ref

import msgspec

from onetool.core.errors import Mistake
from onetool.core.registry import Catalogue, lazy_tool
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.model import Bundle, Tool, function_of
from onetool.sources.bundles.names import code_name
from onetool.sources.bundles.store.contents import Contents, KeptTool, Versions
from onetool.sources.bundles.store.store import BundleStore
from onetool.sources.bundles.tool_factory import ToolFactory

WhyNot = Callable[[str | None], str | None]
"""Return why a tool that calls this function, or none, can't run."""

VERSION_SIGN = "@"
_BY_ID = re.compile(rf"([^/]+)/([^/{VERSION_SIGN}]+){VERSION_SIGN}([^/]+)")
PYTHON_NAMES = frozenset((*dir(builtins), *kwlist))  # a bundle must not replace `len` in code

Make = Callable[[KeptTool, str, str | None], ToolSpec]
"""Create the spec of a tool under a name; the last argument tells why the tool is disabled, if it is."""


class LoadedTool(msgspec.Struct, gc=False, eq=False):
    """A tool of a bundle, a `LazyTool`: the version that its name stands for, and the other versions."""

    pack: str
    row: KeptTool
    others: tuple[KeptTool, ...]
    off: str | None
    make: Make
    function: Any = None  # the row's function; None if there is none or it is missing
    made: "ref[ToolSpec] | None" = None

    @property
    def name(self) -> str:
        return f"{self.pack}.{code_name(self.row.slug)}"

    @property
    def enabled(self) -> bool:
        return self.off is None

    @property
    def kept_as(self) -> str:
        return self.row.id

    @property
    def digest(self) -> bytes:
        """A digest of the tool's descriptions, including those inherited from its function."""
        texts = b"" if self.function is None else _function_texts(self.function)
        return sha256(f"{self.name}\0".encode() + texts + self.row.body).digest()

    def versions(self) -> tuple[KeptTool, ...]:
        return (self.row, *self.others)

    def is_like(self, other: "LoadedTool | None") -> bool:
        """Return whether another tool has the same content."""
        return (
            other is not None
            and (self.row, self.others, self.pack, self.off) == (other.row, other.others, other.pack, other.off)
            and self.function is other.function
        )

    def spec(self) -> ToolSpec:
        spec = None if self.made is None else self.made()
        if spec is None:
            spec = self.make(self.row, self.name, self.off)
            self.made = ref(spec)
        return spec


@lru_cache(256)
def _function_texts(function: ToolSpec) -> bytes:
    """Return a digest of the description and schema that tools may inherit from a function."""
    return sha256(repr((function.description, function.input_schema)).encode(errors="backslashreplace")).digest()


PackTools = Mapping[str, LoadedTool]


class NamedTools:
    """A snapshot of the tools by name. `get` finds single versions."""

    def __init__(
        self,
        packs: Mapping[str, PackTools],
        owners: Mapping[str, Bundle],
        shadowed: Mapping[str, Mistake],
        why_not: WhyNot,
    ) -> None:
        """Create the snapshot.

        `owners` are the ids of bundles that have their names, `shadowed` the ids of the other bundles.
        """
        self.packs = packs
        self.shadowed = shadowed
        self.owners = owners
        self._why_not = why_not
        self._made: dict[str, ToolSpec] = {}

    def get(self, name: str) -> ToolSpec | None:
        base, at, version = name.rpartition(VERSION_SIGN)
        loaded = self.find(base) if at else None
        if loaded is None:
            return None
        found = self._made.get(name)
        if found is None:
            row = next((row for row in loaded.versions() if row.version == version), None)
            if row is None:
                return None
            off = _why_off(row, self.owners.get(row.bundle_id), self._why_not)
            found = self._made[name] = loaded.make(row, name, off)
        return found

    def find(self, name: str) -> LoadedTool | None:
        found = lazy_tool(self.packs, name)
        return found if isinstance(found, LoadedTool) else None

    def name_of(self, bundle: Bundle, tool: Tool) -> str:
        """Return the name under which calls of this version are counted."""
        if tool.is_built_in:
            return function_of(tool)
        name = f"{code_name(bundle.slug)}.{code_name(tool.slug)}"
        if self._stands_for(bundle, tool):
            return name
        if bundle.id not in self.owners:  # another bundle has the name, with that bundle's permissions
            return f"{bundle.id}/{tool.slug}{VERSION_SIGN}{tool.version}"
        return f"{name}{VERSION_SIGN}{tool.version}"

    def name_in_code(self, bundle: Bundle, tool: Tool) -> str | None:
        """Return a tool's name in code, or None if its bundle's name is taken."""
        return self.name_of(bundle, tool) if tool.is_built_in or bundle.id in self.owners else None

    def is_default(self, bundle: Bundle, tool: Tool) -> bool:
        """Return whether the name in code without a version stands for this version."""
        return tool.is_built_in or self._stands_for(bundle, tool)

    def _stands_for(self, bundle: Bundle, tool: Tool) -> bool:
        """Return whether the name without a version stands for this version."""
        tools = self.packs.get(code_name(bundle.slug))
        found = None if tools is None else tools.get(code_name(tool.slug))
        return found is not None and found.row.id == tool.id

    def place_of(self, spec: ToolSpec) -> tuple[str, str, str] | None:
        """Return the bundle id, slug and version of a stored tool."""
        if (match := _BY_ID.fullmatch(spec.name)) is not None:  # as `name_of` writes it
            return match[1], match[2], match[3]
        name, at, _ = spec.name.rpartition(VERSION_SIGN)
        loaded = self.find(name if at else spec.name)
        rows = () if loaded is None else loaded.versions()
        row = next((row for row in rows if row.id == spec.kept_as), None)
        return None if row is None else (row.bundle_id, row.slug, row.version)

    def spec_of(self, name: str, tool: Tool) -> ToolSpec | None:
        """Return the spec with this name if it belongs to this version and may be called."""
        loaded = self.find(name)
        spec = self.get(name) if loaded is None else loaded.spec()
        loaded = loaded or self.find(name.rpartition(VERSION_SIGN)[0])
        if spec is None or loaded is None or not spec.enabled:
            return None
        return spec if any(row.id == tool.id and row.tool() == tool for row in loaded.versions()) else None


def _why_off(row: KeptTool, bundle: Bundle | None, why_not: WhyNot) -> str | None:
    """Return why a tool is disabled, or None."""
    if bundle is None or not bundle.is_enabled:
        return f"its bundle is disabled: onetool bundles enable {'' if bundle is None else bundle.slug}"
    if not row.is_enabled:
        return f"onetool bundles enable {bundle.slug}/{row.slug}{VERSION_SIGN}{row.version}"
    return None if row.function is None else why_not(row.function)


# Following changes

Basis = tuple[Any, Mapping[str, Any]]
"""What specs depend on besides their tools: a common value, and the functions by name."""


class FollowedTools:
    """All bundles and tools of a store, kept in sync with it. Not thread-safe."""

    def __init__(self, make: Make, why_not: WhyNot, basis: Callable[[Iterable[str]], Basis]) -> None:
        self._make, self._why_not, self._ask_basis = make, why_not, basis
        self.named = NamedTools({}, {}, {}, why_not)
        self._followed: Contents | None = None
        self._basis: Basis = (None, {})
        self._tools: dict[str, PackTools] = {}  # by bundle id
        self._taken: Mapping[str, str] = {}

    def follow(self, contents: Contents, taken: Mapping[str, str]) -> NamedTools:
        """Update the tools to these contents and return them by name. `taken` has what has a name elsewhere."""
        basis, before, known = self._ask_basis(contents.functions), self._basis, self._followed
        is_other = known is None or basis[0] != before[0]
        functions = {name for name, function in basis[1].items() if before[1].get(name) is not function}
        if contents is known and taken == self._taken and not is_other and not functions:
            return self.named
        tools: dict[str, PackTools] = {}
        for id, versions in contents.tools.items():
            bundle = contents.bundle(id)
            if (
                is_other
                or known is None
                or known.tools.get(id) is not versions
                or known.bundle(id) != bundle
                or (functions and any(row.function in functions for row in versions.values()))
            ):
                tools[id] = self._load_bundle({} if is_other else self._tools.get(id, {}), bundle, versions, basis[1])
            else:
                tools[id] = self._tools[id]
        self._tools, self._basis, self._taken, self._followed = tools, basis, taken, contents
        self.named = self._assign_names(contents, taken)
        return self.named

    def _load_bundle(
        self, before: PackTools, bundle: Bundle | None, versions: Versions, functions: Mapping[str, Any]
    ) -> PackTools:
        """Return a bundle's tools, in the order of their ids. Unchanged tools stay the same objects."""
        pack, by_slug = "" if bundle is None else code_name(bundle.slug), dict[str, list[KeptTool]]()
        for row in versions.values():
            by_slug.setdefault(row.slug, []).append(row)
        tools: list[LoadedTool] = []
        for slug, rows in by_slug.items():
            row = rows[0]
            if len(rows) > 1:  # a name without a version stands for the newest version that can be called
                can_run = {row.id: row.is_enabled and self._why_not(row.function) is None for row in rows}
                row = max(rows, key=lambda row: (can_run[row.id], row.modified_at, row.id))
            others = tuple(other for other in rows if other is not row)
            function = functions[row.function] if row.function else None
            tool = LoadedTool(pack, row, others, _why_off(row, bundle, self._why_not), self._make, function)
            known = before.get(code_name(slug))
            tools.append(known if known is not None and tool.is_like(known) else tool)
        return {code_name(tool.row.slug): tool for tool in sorted(tools, key=attrgetter("kept_as"))}

    def _assign_names(self, contents: Contents, taken: Mapping[str, str]) -> NamedTools:
        """Assign names in code to the bundles, and return the tools by name."""
        packs, owners, shadowed = dict[str, PackTools](), dict[str, Bundle](), dict[str, Mistake]()
        first: dict[str, Bundle] = {}
        live = (kept.bundle for kept in contents.bundles.values() if kept.bundle.soft_deleted_at is None)
        for bundle in sorted(live, key=attrgetter("created_at", "id")):
            pack = code_name(bundle.slug)
            if pack in taken or pack in first or pack in PYTHON_NAMES:
                other = "Python itself" if pack in PYTHON_NAMES else taken.get(pack)
                if (owner := first.get(pack)) is not None:
                    other = f"the bundle {owner.id}"
                shadowed[bundle.id] = Mistake(
                    message=f"the bundle {bundle.slug!r} ({bundle.id}) is shadowed: {other} has the same name in code",
                    key=f"bundles.{bundle.slug}",
                    hint="choose another slug, or call the tools by id over REST",
                    severity="warning",
                )
            else:
                first[pack] = owners[bundle.id] = bundle
                if tools := self._tools.get(bundle.id):
                    packs[pack] = tools
        return NamedTools(packs, owners, shadowed, self._why_not)


# Loading

MAX_MADE = 1_000  # recently created specs that are kept without other references
FRESH = 0.05  # seconds during which the last answer of a store counts as current


class SeenState(NamedTuple):
    """The state of a store, with a stamp that shows without a query whether the state is current."""

    state: int
    stamp: Hashable
    at: float


class BundleTools:
    """The tools as last loaded, with checks of whether they are current."""

    def __init__(self, store: BundleStore, factory: ToolFactory) -> None:
        self._store = store
        self._factory = factory
        self._lock = RLock()
        self._recent = deque[ToolSpec](maxlen=MAX_MADE)
        self._followed = FollowedTools(self._make, factory.why_gone, factory.basis)
        self.named = self._followed.named
        self._seen: SeenState | None = None
        self.count = 0  # of loads, so that callers can notice a new one

    def look(self) -> SeenState:
        """Return the current state of the store."""
        at, stamp = monotonic(), self._store.stamp()  # before the query, so that a later change is noticed
        return SeenState(self._store.state(), stamp, at)

    def load(self, taken: Mapping[str, str], seen: SeenState | None = None) -> Catalogue:
        """Load the tools. `taken` has what has a name elsewhere; `seen` is the state before the caller's first read."""
        with self._lock:
            self.count += 1  # also if loading fails, because earlier specs are outdated
            seen = seen or self.look()
            named = self._followed.follow(self._store.contents(), taken)
            self.named, self._seen = named, seen
            self.count += 1
            return Catalogue(lazy=named.packs, mistakes=(*named.shadowed.values(), *self._store.mistakes()))

    def _make(self, row: KeptTool, name: str, off: str | None) -> ToolSpec:
        spec = self._factory.spec(row.tool(), name, off)
        self._recent.append(spec)
        return spec

    def why_unnamed(self, bundle_id: str) -> str | None:
        """Return why the tools of a bundle have no name in code, or None."""
        mistake = self.named.shadowed.get(bundle_id)
        return None if mistake is None else f"{mistake.message}: {mistake.hint}"

    def is_unchanged(self, at_once: bool = False) -> bool:
        """Return whether the tools are known to be current. Never blocks; an unknown state counts as changed.

        For a store that must be queried, a recent answer is enough, unless `at_once` is set.
        """
        seen = self._seen
        if seen is None or seen.stamp is None or seen.stamp != self._store.stamp():
            return False
        return not self._store.must_ask or (not at_once and monotonic() - seen.at < FRESH)

    def is_current(self, at_once: bool = False) -> bool:
        """Return whether the tools are current. Queries the store if that is unknown."""
        if self.is_unchanged(at_once):
            return True
        seen, now = self._seen, self.look()
        if seen is None or seen.state != now.state:
            return False
        self._seen = now
        return True
