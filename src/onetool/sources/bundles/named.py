"""The tools of bundles under their names in code: `bundle.tool`, and `bundle.tool@version` for one version.

Without a version it is the enabled one that was modified last. Where two bundles, or a bundle and a pack, would have
one name, the first keeps it; the other one is reached by its id, over REST. The registry gets what is loaded here.

The store is followed change by change: what has not changed is not looked at. Of a tool there is its row and its JSON,
from when somebody first asks for a tool of its bundle; a ToolSpec takes ten times the room, and is made when somebody
needs it. Each pack's tools are in a mapping of their own that nobody changes any more once it is shown: a change makes
another one.
"""

import builtins
import re
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import partial
from keyword import kwlist
from threading import RLock
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from onetool.core.errors import Mistake
from onetool.core.registry import Catalogue, lazy_tool
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.loaded import LazyPack, LoadedTool, Make, PackTools
from onetool.sources.bundles.model import Bundle, Tool, function_of
from onetool.sources.bundles.names import code_name
from onetool.sources.bundles.store import BundleRows, BundleStore, KnownTool, SeenRevision, ToolChanges, in_a_hurry
from onetool.sources.bundles.tool_factory import ToolFactory

WhyNot = Callable[[str | None], str | None]
"""Why a tool of that function, if it has one, can't run."""

VERSION_SIGN = "@"
_BY_ID = re.compile(rf"([^/]+)/([^/{VERSION_SIGN}]+){VERSION_SIGN}([^/]+)")
PYTHON_NAMES = frozenset((*dir(builtins), *kwlist))  # `len` must go on to be what it is in everybody's code


class NamedTools:
    """The tools under their names at one moment. `get` finds single versions."""

    def __init__(
        self,
        packs: Mapping[str, PackTools],
        owners: Mapping[str, Bundle],
        shadowed: Mapping[str, Mistake],
        off: "Off",
    ) -> None:
        """By ids: `owners` are the bundles that have their names, `shadowed` those whose name something else has."""
        self.packs = packs
        self.shadowed = shadowed
        self.owners = owners
        self._off = off
        self._made: dict[str, ToolSpec] = {}

    def get(self, name: str) -> ToolSpec | None:
        """`bundle.tool@version`."""
        base, at, version = name.rpartition(VERSION_SIGN)
        loaded = self.find(base) if at else None
        if loaded is None:
            return None
        found = self._made.get(name)
        if found is None:
            row = next((one for one in loaded.versions() if one.version == version), None)
            if row is None:
                return None
            off = self._off(row, self.owners.get(row.bundle_id))
            found = self._made[name] = loaded.make(row, name, off)
        return found

    def find(self, name: str) -> LoadedTool | None:
        found = lazy_tool(self.packs, name)
        return found if isinstance(found, LoadedTool) else None

    def name_of(self, bundle: Bundle, tool: Tool) -> str:
        """What a call of this very tool is counted under."""
        if tool.is_built_in:
            return function_of(tool)
        name = _name(bundle, tool)
        if self._stands_for(bundle, tool):
            return name
        if bundle.id not in self.owners:  # another one has its name, and what is allowed to that one
            return f"{bundle.id}/{tool.slug}{VERSION_SIGN}{tool.version}"
        return f"{name}{VERSION_SIGN}{tool.version}"

    def name_in_code(self, bundle: Bundle, tool: Tool) -> str | None:
        """None for a tool of a bundle whose name something else has."""
        return self.name_of(bundle, tool) if tool.is_built_in or bundle.id in self.owners else None

    def is_default(self, bundle: Bundle, tool: Tool) -> bool:
        """Whether a name in code without a version stands for it."""
        return tool.is_built_in or self._stands_for(bundle, tool)

    def _stands_for(self, bundle: Bundle, tool: Tool) -> bool:
        """Whether its name without a version does."""
        tools = self.packs.get(code_name(bundle.slug))
        found = None if tools is None else tools.get(code_name(tool.slug))
        return found is not None and found.row.id == tool.id

    def place_of(self, spec: ToolSpec) -> tuple[str, str, str] | None:
        """The bundle's id, the slug and the version of a kept tool."""
        if (named := _BY_ID.fullmatch(spec.name)) is not None:  # as `name_of` writes it
            return named[1], named[2], named[3]
        name, at, _ = spec.name.rpartition(VERSION_SIGN)
        loaded = self.find(name if at else spec.name)
        rows = () if loaded is None else loaded.versions()
        found = next((one for one in rows if one.id == spec.kept_as), None)
        return None if found is None else (found.bundle_id, found.slug, found.version)

    def spec_of(self, name: str, tool: Tool) -> ToolSpec | None:
        """The spec of that name, if it was made of this very tool and may be called."""
        loaded = self.find(name)
        spec = self.get(name) if loaded is None else loaded.spec()
        loaded = loaded or self.find(name.rpartition(VERSION_SIGN)[0])
        if spec is None or loaded is None or not spec.enabled:
            return None
        return spec if any(row.id == tool.id and row.tool() == tool for row in loaded.versions()) else None


def _name(bundle: Bundle, tool: Tool) -> str:
    return f"{code_name(bundle.slug)}.{code_name(tool.slug)}"


class Off:
    """Says why a tool must not be called."""

    def __init__(self, why_not: WhyNot) -> None:
        self.why_not = why_not

    def __call__(self, row: KnownTool, bundle: Bundle | None) -> str | None:
        if bundle is None or not bundle.is_enabled:
            return f"its bundle is: onetool bundles enable {'' if bundle is None else bundle.slug}"
        if not row.is_enabled:
            return f"onetool bundles enable {bundle.slug}/{row.slug}{VERSION_SIGN}{row.version}"
        return None if row.function is None else self.why_not(row.function)

    def count(self, rows: BundleRows, bundle: Bundle | None) -> int | None:
        """How many names stand for tools that may be called, if that can be told without looking at each."""
        if bundle is None or not bundle.is_enabled:
            return 0
        return rows.count(lambda kind: kind.is_enabled and (kind.function is None or not self.why_not(kind.function)))


# Following changes


Basis = tuple[Any, Mapping[str, Any]]
"""What specs depend on beside their tools: one thing for all of them, and each function by its name."""

Touched = dict[str, dict[str, list[KnownTool]]]
"""Bundle -> name inside of it -> the versions that it has now."""


class FollowedTools:
    """All bundles and tools of a store, in step with it. One thread at a time uses it."""

    def __init__(self, make: Make, why_not: WhyNot, basis: Callable[[Iterable[str]], Basis]) -> None:
        self.seen: SeenRevision | None = None  # of the store
        self._make, self._off, self._ask_basis = make, Off(why_not), basis
        self.named = NamedTools({}, {}, {}, self._off)
        self._bundles: dict[str, Bundle] = {}
        self._rows: dict[str, KnownTool] | None = {}  # by id; None until the first change after a whole load
        self._tools: dict[str, PackTools] = {}  # by the id of the bundle
        self._basis: Basis = (None, {})
        self._taken: Collection[str] = ()

    def follow(self, changes: ToolChanges, taken: Collection[str]) -> NamedTools:
        """`taken` are names that something else has already."""
        self.seen = None  # should this fail
        touched: Touched = {}
        if changes.is_whole:
            self._take_all(changes)
        else:
            self._take_bundles(changes, touched)
            self._take_tools(changes, touched)
            self._take_basis(changes, touched)
        for id, versions in touched.items():
            before, bundle = self._tools.get(id, {}), self._bundles.get(id)
            self._tools[id] = self._loaded(before, bundle, versions, self._basis[1])
        if changes.is_whole or changes.bundles or changes.gone_bundles or taken != self._taken:
            self._name(taken)
        elif touched:
            self._rename(touched)
        self.seen = changes.seen
        return self.named

    def _take_bundles(self, changes: ToolChanges, touched: Touched) -> None:
        for id in changes.gone_bundles:
            if self._bundles.pop(id, None) is not None:
                self._touch(touched, id)
        for bundle in changes.bundles:
            self._bundles[bundle.id] = bundle
            self._touch(touched, bundle.id)

    def _touch(self, touched: Touched, bundle_id: str) -> None:
        """All tools of a bundle that is another one now."""
        tools = self._tools.get(bundle_id, {})
        touched[bundle_id] = {own: list(one.versions()) for own, one in tools.items()}

    def _take_all(self, changes: ToolChanges) -> None:
        """There may be very many tools: of each bundle, they are made when somebody asks for one."""
        self._bundles = {bundle.id: bundle for bundle in changes.bundles}
        self._rows = None
        self._basis = self._ask_basis(changes.functions)
        self._tools = {rows.bundle_id: self._unread(rows) for rows in changes.everything}

    def _unread(self, rows: BundleRows) -> LazyPack:
        bundle = self._bundles.get(rows.bundle_id)
        load = partial(self._first_load, rows, bundle, self._basis[1])
        return LazyPack(rows.count(), self._off.count(rows, bundle), load)

    def _first_load(self, rows: BundleRows, bundle: Bundle | None, functions: Mapping[str, Any]) -> PackTools:
        versions: dict[str, list[KnownTool]] = {}
        for row in rows.tools():
            versions.setdefault(row.own, []).append(row)
        return self._loaded({}, bundle, versions, functions)

    def _take_tools(self, changes: ToolChanges, touched: Touched) -> None:
        for id in changes.gone_tools:
            self._forget(id, touched)
        for row in changes.tools:
            self._forget(row.id, touched)
            self._known_rows()[row.id] = row
            self._versions(row, touched).append(row)

    def _forget(self, id: str, touched: Touched) -> None:
        if (old := self._known_rows().pop(id, None)) is not None:
            self._versions(old, touched).remove(old)

    def _known_rows(self) -> dict[str, KnownTool]:
        if self._rows is None:
            every = (one for tools in self._tools.values() for one in tools.values())
            self._rows = {row.id: row for one in every for row in one.versions()}
        return self._rows

    def _versions(self, row: KnownTool, touched: Touched) -> list[KnownTool]:
        of, own = touched.setdefault(row.bundle_id, {}), row.own
        if own not in of:
            there = self._tools.get(row.bundle_id, {}).get(own)
            of[own] = [] if there is None else list(there.versions())
        return of[own]

    def _take_basis(self, changes: ToolChanges, touched: Touched) -> None:
        """Tools whose spec would be another one now, though they are the same, are loaded anew."""
        before, self._basis = self._basis, self._ask_basis({*self._basis[1], *changes.functions})
        is_other = before[0] != self._basis[0]
        others = {name for name, one in before[1].items() if self._basis[1][name] is not one}
        if is_other or others:
            for bundle_id, tools in self._tools.items():
                for own, one in tools.items():
                    if is_other or any(row.function in others for row in one.versions()):
                        touched.setdefault(bundle_id, {}).setdefault(own, list(one.versions()))

    def _loaded(
        self,
        before: PackTools,
        bundle: Bundle | None,
        versions: Mapping[str, list[KnownTool]],
        functions: Mapping[str, Any],
    ) -> PackTools:
        """A bundle's tools: those of before, and these in their places."""
        pack = "" if bundle is None else code_name(bundle.slug)
        tools = dict(before.items())
        last, is_sorted = next((tools[own].kept_as for own in reversed(tools)), ""), True
        for own, rows in versions.items():
            if not rows:
                tools.pop(own, None)
                continue
            row, others = rows[0], ()
            if len(rows) > 1:
                row = self._newest(rows)
                others = tuple(one for one in rows if one is not row)
            if (known := tools.get(own)) is None:
                is_sorted, last = is_sorted and row.id > last, row.id
            elif known.kept_as != row.id:  # another version has its name now: its place is another one
                is_sorted = False
            function = functions[row.function] if row.function else None
            tools[own] = LoadedTool(pack, row, others, self._off(row, bundle), self._make, function)
        if not is_sorted:
            tools = dict(sorted(tools.items(), key=lambda item: item[1].kept_as))
        return tools

    def _newest(self, rows: list[KnownTool]) -> KnownTool:
        """The one that is meant where no version is named. One that can't be called, only if there is no other."""
        can = {row.id: row.is_enabled and self._off.why_not(row.function) is None for row in rows}
        return max(rows, key=lambda row: (can[row.id], _modified_at(row), row.id))

    def _rename(self, touched: Iterable[str]) -> None:
        """The same packs with other tools, unless one of them is the first or the last of its pack."""
        owners, packs = self.named.owners, dict(self.named.packs)
        for bundle in (owners[id] for id in touched if id in owners):
            pack, tools = code_name(bundle.slug), self._tools[bundle.id]
            if not tools or pack not in packs:
                self._name(self._taken)
                return
            packs[pack] = tools
        self.named = NamedTools(packs, owners, self.named.shadowed, self._off)

    def _name(self, taken: Collection[str]) -> None:
        """Each bundle that has its name, and what code calls it."""
        self._taken = taken
        packs, owners, shadowed = dict[str, PackTools](), dict[str, Bundle](), dict[str, Mistake]()
        first: dict[str, Bundle] = {}
        for bundle in sorted(self._bundles.values(), key=lambda one: (one.created_at, one.id)):
            if bundle.soft_deleted_at is not None:
                continue
            pack = code_name(bundle.slug)
            if pack in taken or pack in first or pack in PYTHON_NAMES:
                shadowed[bundle.id] = _shadowed(bundle, first.get(pack))
            else:
                first[pack] = owners[bundle.id] = bundle
                if tools := self._tools.get(bundle.id):
                    packs[pack] = tools
        self.named = NamedTools(packs, owners, shadowed, self._off)


def _modified_at(row: KnownTool) -> str:
    """What the index gave us may be damaged: such a tool says so when it is called."""
    try:
        return row.tool().modified_at
    except msgspec.DecodeError:
        return ""


def _shadowed(bundle: Bundle, by: Bundle | None) -> Mistake:
    other = (
        f"the bundle {by.id}" if by else "Python itself" if code_name(bundle.slug) in PYTHON_NAMES else "something else"
    )
    return Mistake(
        message=f"the bundle {bundle.slug!r} ({bundle.id}) is shadowed: {other} has this name in code already",
        key=f"bundles.{bundle.slug}",
        hint="give it another slug, or call its tools by id over REST",
        severity="warning",
    )


# Loading


MOST_MADE = 1_000  # specs that are kept though nobody has them: those that were made last
DAMAGED = "the index of the bundles is damaged: end onetool, delete bundles/.state, and start it again"
FRESH = 0.05  # seconds that what is known of the store counts; our own changes are known at once


class SeenState(NamedTuple):
    """What the store was like when it was last asked, and what tells that it still is."""

    state: int
    changes: int  # of our own until then
    stamp: Hashable


class BundleTools:
    """The tools as last loaded, and whether they are current."""

    def __init__(self, store: BundleStore, factory: ToolFactory) -> None:
        self._store = store
        self._factory = factory
        self._lock = RLock()
        self._recent = deque[ToolSpec](maxlen=MOST_MADE)
        self._followed = FollowedTools(self._make, factory.why_gone, factory.basis)
        self._named = self._followed.named
        self._state: int | None = None  # what the store was like
        self._changes = 0  # of our own
        self._seen: SeenState | None = None
        self._seen_at = 0.0
        self.count = 0  # of loads: who keeps something made looks whether there was another one

    def load(self, taken: Collection[str] = (), state: int | None = None) -> Catalogue:
        """`taken` are names that something else has already. `state` is from before, if more was read of the store."""
        with self._lock:
            self.count += 1  # also of a load that fails: what was made before is out of date
            state = self.ask_state() if state is None else state
            followed = self._followed
            named = followed.follow(self._store.changes(followed.seen), taken)
            self._named, self._state = named, state
            self.count += 1
            return Catalogue(lazy=named.packs, mistakes=(*named.shadowed.values(), *self._store.mistakes()))

    def _make(self, row: KnownTool, name: str, off: str | None) -> ToolSpec:
        try:
            spec = self._factory.spec(row.tool(), name, off)
        except msgspec.DecodeError:  # what the index gave us was damaged: the others work
            return ToolSpec(name=name, description=row.slug, enabled=False, off=DAMAGED, kept_as=row.id)
        self._recent.append(spec)
        return spec

    def versions(self) -> Callable[[str], ToolSpec | None]:
        """Finds `bundle.tool@version` among the tools of this load, also when there has been another one since."""
        return self._named.get

    def why_unnamed(self, bundle_id: str) -> str | None:
        """Why code has no name for the tools of a bundle, if so."""
        mistake = self._named.shadowed.get(bundle_id)
        return None if mistake is None else f"{mistake.message}: {mistake.hint}"

    def name_of(self, bundle: Bundle, tool: Tool) -> str:
        """What a call of this very tool is counted under."""
        return self._named.name_of(bundle, tool)

    def name_in_code(self, bundle: Bundle, tool: Tool) -> str | None:
        return self._named.name_in_code(bundle, tool)

    def is_default(self, bundle: Bundle, tool: Tool) -> bool:
        return self._named.is_default(bundle, tool)

    def place_of(self, spec: ToolSpec) -> tuple[str, str, str] | None:
        return self._named.place_of(spec)

    def name_and_spec(self, bundle: Bundle, tool: Tool) -> tuple[str, ToolSpec | None]:
        """What a call of this very tool is counted under; and its spec, if the one of that name was made of it."""
        name = self.name_of(bundle, tool)
        return name, self._named.spec_of(name, tool)

    def is_unchanged(self, at_once: bool = False) -> bool:
        """Whether the tools are known to be current. It never blocks: where nobody can tell, they are not.

        A change by another process counts after a moment; with `at_once`, immediately.
        """
        seen, now = self._seen, monotonic()
        if seen is None or (seen.state, seen.changes) != (self._state, self._changes):
            return False
        if not at_once and now - self._seen_at < FRESH:
            return True
        if seen.stamp is None or seen.stamp != self._store.stamp():
            return False
        self._seen_at = now
        return True

    def is_current(self, at_once: bool = False, hurried: bool = False) -> bool:
        """The same, and the store is asked where nobody can tell. `hurried`: for an event loop that waits for it."""
        if self.is_unchanged(at_once):
            return True
        token = in_a_hurry.set(hurried)
        try:
            return self._state == self.ask_state()
        finally:
            in_a_hurry.reset(token)

    def ask_state(self) -> int:
        """What the store is like now."""
        # From before: a change in between is seen the next time.
        now, changes, stamp = monotonic(), self._changes, self._store.stamp()
        self._seen, self._seen_at = SeenState(self._store.state(), changes, stamp), now
        return self._seen.state

    def changed(self) -> None:
        """Mark the store as changed by us, so that the next reader sees it."""
        self._changes += 1
