"""The pages of tool lists, and the additional fields of tools in lists.

These fields are the name in code, the bundle's slug, the origin and the health.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.named import BundleTools
from onetool.sources.bundles.names import code_name
from onetool.sources.bundles.queries import ListQuery, Visibility
from onetool.sources.bundles.store.store import BundleStore
from onetool.sources.bundles.tool_factory import BundleRuntime, Health

KEPT_HERE, BUILT_IN = "bundle", "built-in"
SIGNATURE = "signature"

T = TypeVar("T")


class RowFacts:
    def __init__(self, store: BundleStore, loading: BundleTools, runtime: BundleRuntime) -> None:
        self._store = store
        self._loading = loading
        self._runtime = runtime

    def of(self, tools: list[tuple[Tool, bool]]) -> Iterable[dict[str, Any]]:
        """Yield the fields of each tool. The flag of each tool tells whether it could be called if enabled."""
        bundles = {id: self._store.bundle(id) for id in {tool.bundle_id for tool, _ in tools}}
        servers = self._runtime.server_health()
        for tool, is_callable in tools:
            bundle = bundles[tool.bundle_id]
            if bundle is None:  # deleted concurrently
                yield {"name": None, "bundleSlug": None, "origin": _origin(tool), "health": "off"}
            else:
                health: Health = "ok"
                if tool.source is not None and tool.source.kind == "server":
                    health = servers.get(tool.source.name, "ok")
                is_on = bundle.is_enabled and tool.is_enabled and is_callable
                yield {
                    "name": self._loading.named.name_in_code(bundle, tool),
                    "bundleSlug": bundle.slug,
                    "origin": _origin(tool),
                    "health": health if is_on else "off",
                }

    def signature(self, name: str | None) -> dict[str, str]:
        found = None if name is None else self._runtime.signature(name)
        return {} if found is None else {SIGNATURE: found}


def _origin(tool: Tool) -> str:
    if tool.source is not None:
        return tool.source.kind
    return BUILT_IN if tool.is_built_in else KEPT_HERE


NameOf = Callable[[Bundle, Tool], str]
MAX_TOOLS = 1_000_000  # a limit above the number of tools in any store


class AllowedOnly(Visibility):
    """The visibility of an allow-list: only its tools and their bundles. The same names decide on calls, so that lists
    and calls agree.
    """

    def __init__(self, store: BundleStore, name_of: NameOf, allowed: Collection[str]) -> None:
        self._store = store
        self._name_of = name_of
        self._allowed = frozenset(allowed)
        self._packs = {name.partition(".")[0] for name in self._allowed}
        self._ids = {name.partition("/")[0] for name in self._allowed}
        self._bundles: dict[str, Bundle | None] = {}  # a page has few bundles

    def tool(self, tool: Tool) -> bool:
        if tool.bundle_id not in self._bundles:
            self._bundles[tool.bundle_id] = self._store.bundle(tool.bundle_id)
        bundle = self._bundles[tool.bundle_id]
        return bundle is not None and self._may_have(bundle) and self._name_of(bundle, tool) in self._allowed

    def bundle(self, bundle: Bundle) -> bool:
        if not self._may_have(bundle):
            return False
        query = ListQuery(bundle_ids=[bundle.id], include_disabled=True, limit=MAX_TOOLS)
        return any(map(self.tool, self._store.tools(query)))

    def _may_have(self, bundle: Bundle) -> bool:
        """Return whether the bundle may have allowed tools, judging by its name, without reading its tools."""
        return bundle.source is not None or code_name(bundle.slug) in self._packs or bundle.id in self._ids


def page_of(
    more: Callable[[Any, int], Iterable[tuple[Any, T]]], is_listed: Callable[[T], bool], after: Any, limit: int
) -> tuple[list[T], Any]:
    """Return at most `limit` listed items, and the place where the next page begins, or None."""
    page: list[T] = []
    last = None
    while True:
        missing = limit + 1 - len(page)
        items = list(more(after, missing))
        for place, item in items:
            if is_listed(item):
                if len(page) == limit:
                    return page, last
                page.append(item)
                last = place
        if len(items) < missing:
            return page, None
        after = items[-1][0]


def age_of(tool: Tool) -> tuple[str, str]:
    """Return the sort key of versions. A name stands for the last version that can be called."""
    return tool.modified_at, tool.id


def takeover(before: Tool, others: Iterable[Tool]) -> dict[str, str]:
    """Return the version that takes over the name of a disabled version, if the latter had the name."""
    newest = max(others, key=age_of, default=before)
    return {"takesOver": newest.version} if age_of(newest) < age_of(before) else {}
