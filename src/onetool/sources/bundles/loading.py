"""Loads the tools of a store under their names in code: `bundle.tool`, and `bundle.tool@version` for one version.

Without a version it is the enabled one that was modified last. Where two bundles, or a bundle and a pack, would have
one name, the first keeps it; the other one is reached by its id, over REST. The registry gets what is loaded here.
"""

import builtins
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from keyword import kwlist
from threading import RLock
from time import monotonic
from typing import Any, NamedTuple

from onetool.core.errors import Mistake
from onetool.core.source import Catalogue
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.model import Bundle, Tool, function_of
from onetool.sources.bundles.names import code_name
from onetool.sources.bundles.store import BundleStore, in_a_hurry
from onetool.sources.bundles.tool_factory import ToolFactory

Make = Callable[[Tool, str, str | None], ToolSpec]
"""A tool under a name; and why it must not be called, if so."""

VERSION_SIGN = "@"
_BY_ID = re.compile(rf"([^/]+)/([^/{VERSION_SIGN}]+){VERSION_SIGN}([^/]+)")
PYTHON_NAMES = frozenset((*dir(builtins), *kwlist))  # `len` must go on to be what it is in everybody's code


class ToolVersions(NamedTuple):
    """All versions of one tool."""

    bundle: Bundle
    tools: list[Tool]

    def newest(self, why_not: Callable[[Tool], str | None]) -> Tool:
        """The one that is meant where no version is named. One that can't be called, only if there is no other."""
        if len(self.tools) == 1:
            return self.tools[0]
        return max(self.tools, key=lambda tool: (tool.is_enabled and not why_not(tool), tool.modified_at, tool.id))


class NamedTools:
    """The tools under their names. `get` also finds single versions."""

    def __init__(
        self,
        bundles: Iterable[Bundle],
        tools: Iterable[Tool],
        make: Make,
        why_not: Callable[[Tool], str | None],
        taken: Collection[str] = (),
    ) -> None:
        """`taken` are names that something else has already; `why_not` says why a tool can't run, if so."""
        self._make = make
        self._why_not = why_not
        self._made: dict[str, ToolSpec] = {}
        self.ids: dict[str, str] = {}  # of the tool that a name stands for
        self.mistakes: list[Mistake] = []
        packs = dict(self._packs(bundles, taken))
        self._owners = packs.keys()
        self._versions: dict[str, ToolVersions] = {}
        for tool in tools:
            if (found := packs.get(tool.bundle_id)) is not None:
                name = f"{found[0]}.{code_name(tool.slug)}"
                self._versions.setdefault(name, ToolVersions(found[1], [])).tools.append(tool)

    def _packs(self, bundles: Iterable[Bundle], taken: Collection[str]) -> Iterator[tuple[str, tuple[str, Bundle]]]:
        """Each bundle that has its name, and what code calls it."""
        owners: dict[str, Bundle] = {}
        for bundle in sorted(bundles, key=lambda one: (one.created_at, one.id)):
            if bundle.soft_deleted_at is not None:
                continue
            pack = code_name(bundle.slug)
            if pack in taken or pack in owners or pack in PYTHON_NAMES:
                self.mistakes.append(_shadowed(bundle, owners.get(pack)))
            else:
                owners[pack] = bundle
                yield bundle.id, (pack, bundle)

    def specs(self) -> Iterator[ToolSpec]:
        """One for each name."""
        for name, versions in self._versions.items():
            tool = versions.newest(self._why_not)
            self.ids[name] = tool.id
            yield self._spec(tool, name, versions.bundle)

    def get(self, name: str) -> ToolSpec | None:
        """`bundle.tool@version`."""
        base, at, version = name.rpartition(VERSION_SIGN)
        versions = self._versions.get(base) if at else None
        if versions is None:
            return None
        found = self._made.get(name)
        if found is None:
            tool = next((one for one in versions.tools if one.version == version), None)
            if tool is None:
                return None
            self.ids[name] = tool.id
            found = self._made[name] = self._spec(tool, name, versions.bundle)
        return found

    def name_of(self, bundle: Bundle, tool: Tool) -> str:
        """What a call of this very tool is counted under."""
        if tool.is_built_in:
            return function_of(tool)
        name = f"{code_name(bundle.slug)}.{code_name(tool.slug)}"
        if self.ids.get(name) == tool.id:
            return name
        if bundle.id not in self._owners:  # another one has its name, and what is allowed to that one
            return f"{bundle.id}/{tool.slug}{VERSION_SIGN}{tool.version}"
        return f"{name}{VERSION_SIGN}{tool.version}"

    def name_in_code(self, bundle: Bundle, tool: Tool) -> str | None:
        """None for a tool of a bundle whose name something else has."""
        return self.name_of(bundle, tool) if tool.is_built_in or bundle.id in self._owners else None

    def is_default(self, bundle: Bundle, tool: Tool) -> bool:
        """Whether a name in code without a version stands for it."""
        return tool.is_built_in or self.ids.get(f"{code_name(bundle.slug)}.{code_name(tool.slug)}") == tool.id

    def place_of(self, spec: ToolSpec) -> tuple[str, str, str] | None:
        """The bundle's id, the slug and the version of a kept tool."""
        if (named := _BY_ID.fullmatch(spec.name)) is not None:  # as `name_of` writes it
            return named[1], named[2], named[3]
        name, at, _ = spec.name.rpartition(VERSION_SIGN)
        versions = self._versions.get(name if at else spec.name)
        found = None if versions is None else next((one for one in versions.tools if one.id == spec.kept_as), None)
        return None if found is None else (found.bundle_id, found.slug, found.version)

    def _spec(self, tool: Tool, name: str, bundle: Bundle) -> ToolSpec:
        return self._make(tool, name, self._off(tool, bundle))

    def _off(self, tool: Tool, bundle: Bundle) -> str | None:
        if not bundle.is_enabled:
            return f"its bundle is: onetool bundles enable {bundle.slug}"
        if not tool.is_enabled:
            return f"onetool bundles enable {bundle.slug}/{tool.slug}{VERSION_SIGN}{tool.version}"
        return self._why_not(tool)


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


FRESH = 0.05  # seconds that what is known of the store counts; our own changes are known at once


class SeenState(NamedTuple):
    """What the store was like when it was last asked, and what tells that it still is."""

    state: int
    changes: int  # of our own until then
    stamp: Hashable


class MadeSpec(NamedTuple):
    """A spec with its inputs, to reuse it while they are unchanged."""

    tool: Tool
    basis: Any
    spec: ToolSpec


class BundleTools:
    """The tools as last loaded, and whether they are current."""

    def __init__(self, store: BundleStore, factory: ToolFactory) -> None:
        self._store = store
        self._factory = factory
        self._lock = RLock()
        self._named = NamedTools((), (), factory.spec, factory.why_disabled)
        self._made: dict[str, MadeSpec] = {}  # by name
        self._state: int | None = None  # what the store was like
        self._changes = 0  # of our own
        self._seen: SeenState | None = None
        self._seen_at = 0.0
        self.count = 0  # of loads: who keeps something made looks whether there was another one

    def load(self, taken: Collection[str] = ()) -> Catalogue:
        """`taken` are names that something else has already."""
        with self._lock:
            self.count += 1  # also of a load that fails: what was made before is out of date
            state = self._ask_state()
            bundles, tools = self._store.everything()
            made: dict[str, MadeSpec] = {}

            def make(tool: Tool, name: str, off: str | None) -> ToolSpec:
                basis = self._factory.basis(tool)
                one = self._made.get(name)
                if one is None or one.tool is not tool or one.basis != basis or one.spec.off != off:
                    one = MadeSpec(tool, basis, self._factory.spec(tool, name, off))
                made[name] = one
                return one.spec

            named = NamedTools(bundles, tools, make, self._factory.why_disabled, taken)
            found = tuple(named.specs())
            self._named, self._made, self._state = named, made, state
            self.count += 1
            return Catalogue(tools=found, mistakes=(*named.mistakes, *self._store.mistakes()))

    def versions(self) -> Callable[[str], ToolSpec | None]:
        """Finds `bundle.tool@version` among the tools of this load, also when there has been another one since."""
        return self._named.get

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
        made = self._made.get(name)
        return name, made.spec if made is not None and made.tool == tool and made.spec.enabled else None

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
            return self._state == self._ask_state()
        finally:
            in_a_hurry.reset(token)

    def _ask_state(self) -> int:
        # From before: a change in between is seen the next time.
        now, changes, stamp = monotonic(), self._changes, self._store.stamp()
        self._seen, self._seen_at = SeenState(self._store.state(), changes, stamp), now
        return self._seen.state

    def changed(self) -> None:
        """Mark the store as changed by us, so that the next reader sees it."""
        self._changes += 1
