"""Loading: the tools of a store under their names in code, again whenever there are others. What the registry gets."""

from collections.abc import Callable, Collection
from threading import RLock
from time import monotonic
from typing import Any, NamedTuple

from onetool.core.source import Catalogue
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.making import Workshop
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.naming import Named
from onetool.sources.bundles.store import Store

FRESH = 0.05  # seconds that what is known of the store's state counts; our own changes are known at once


class Made(NamedTuple):
    """A spec, and what it was made of: as long as that is the same, it is good."""

    tool: Tool
    basis: Any
    spec: ToolSpec


class Loading:
    """The last load, and whether it is still right."""

    def __init__(self, store: Store, workshop: Workshop) -> None:
        self._store = store
        self._workshop = workshop
        self._lock = RLock()
        self._named = Named((), (), workshop.spec, workshop.why_disabled)
        self._made: dict[str, Made] = {}  # by name
        self._state: int | None = None  # what the store was like
        self._changes = 0  # of our own
        self._seen: tuple[float, int, int] | None = None  # when, what the store's state was, after how many of them
        self.count = 0  # of loads: who keeps something made looks whether there was another one

    def load(self, taken: Collection[str] = ()) -> Catalogue:
        """`taken` are names that something else has already."""
        with self._lock:
            state = self._store.state()
            bundles, tools = self._store.everything()
            made: dict[str, Made] = {}

            def make(tool: Tool, name: str, off: str | None) -> ToolSpec:
                basis = self._workshop.basis(tool)
                one = self._made.get(name)
                if one is None or one.tool is not tool or one.basis != basis or one.spec.off != off:
                    one = Made(tool, basis, self._workshop.spec(tool, name, off))
                made[name] = one
                return one.spec

            named = Named(bundles, tools, make, self._workshop.why_disabled, taken)
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

    def is_in_step(self) -> bool:
        return self._state == self.state()

    def state(self) -> int:
        """The store's, as it was a moment ago, or after our own last change: asking it for each call costs too much."""
        now, seen, changes = monotonic(), self._seen, self._changes
        if seen is None or now - seen[0] > FRESH or seen[2] != changes:
            seen = self._seen = now, self._store.state(), changes
        return seen[1]

    def changed(self) -> None:
        """We have changed the store: whoever asks next sees it."""
        self._changes += 1
