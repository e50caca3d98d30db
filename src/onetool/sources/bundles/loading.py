"""Loads the tools of a store under their names in code: `bundle.tool`, and `bundle.tool@version` for one version.

Without a version it is the enabled one that was modified last. Where two bundles, or a bundle and a pack, would have
one name, the first keeps it; the other one is reached by its id, over REST. The registry gets what is loaded here.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable
from threading import RLock
from time import monotonic
from typing import NamedTuple

import msgspec

from onetool.core.registry import Catalogue
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.named import FollowedTools
from onetool.sources.bundles.store import BundleStore, KnownTool, in_a_hurry
from onetool.sources.bundles.tool_factory import ToolFactory

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

    def load(self, taken: Collection[str] = ()) -> Catalogue:
        """`taken` are names that something else has already."""
        with self._lock:
            self.count += 1  # also of a load that fails: what was made before is out of date
            state = self._ask_state()
            followed = self._followed
            named = followed.follow(self._store.changes(followed.seen), taken)
            self._named, self._state = named, state
            self.count += 1
            return Catalogue(lazy=named.packs, mistakes=(*named.mistakes, *self._store.mistakes()))

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
