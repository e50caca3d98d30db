"""What a client sees of the shelf: everything, or under an allow-list the tools that it names, and their bundles."""

from collections.abc import Callable, Collection

from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.names import code_name
from onetool.sources.bundles.store import Store

NameOf = Callable[[Bundle, Tool], str]
MOST = 1_000_000  # tools of one bundle: all of them


class Sight:
    """Everything is there."""

    def tool(self, tool: Tool) -> bool:
        return True

    def bundle(self, bundle: Bundle) -> bool:
        return True


class Narrow(Sight):
    """Tools are compared by the names that calls of them are allowed under, so that lists and calls agree."""

    def __init__(self, store: Store, name_of: NameOf, allowed: Collection[str]) -> None:
        self._store = store
        self._name_of = name_of
        self._allowed = frozenset(allowed)
        self._packs = {name.partition(".")[0] for name in self._allowed}
        self._ids = {name.partition("/")[0] for name in self._allowed}
        self._bundles: dict[str, Bundle | None] = {}  # of one page there are few

    def tool(self, tool: Tool) -> bool:
        if tool.bundle_id not in self._bundles:
            self._bundles[tool.bundle_id] = self._store.bundle(tool.bundle_id)
        bundle = self._bundles[tool.bundle_id]
        return bundle is not None and self._may_have(bundle) and self._name_of(bundle, tool) in self._allowed

    def bundle(self, bundle: Bundle) -> bool:
        if not self._may_have(bundle):
            return False
        return any(map(self.tool, self._store.tools((), [bundle.id], True, None, MOST)))

    def _may_have(self, bundle: Bundle) -> bool:
        """Told by its name alone: of most bundles no tool has to be looked at."""
        return code_name(bundle.slug) in self._packs or bundle.id in self._ids


EVERYTHING = Sight()
