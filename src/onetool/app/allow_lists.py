"""AllowLists: the tools that each caller of a server may call, computed once per snapshot."""

from collections.abc import Collection

from onetool.app import App
from onetool.core.principal import AllowList, Principal, current_principal
from onetool.core.registry import Snapshot
from onetool.sources.packs import Registry

MAX_KEPT = 256  # lists; there is one for each different `tools` of a token


class AllowLists:
    """The tools that a server offers (`--tool-allow`), and the tools among them that each principal may call.

    A list is valid for one snapshot of the tools. It is rebuilt after a change, so that patterns cover new tools.
    """

    def __init__(self, registry: Registry, offered: Collection[str] | None = None) -> None:
        """Create the lists of a server that offers these names and patterns; None offers everything."""
        self._registry = registry
        self._offered = None if offered is None else tuple(offered)
        self._made: tuple[Snapshot | None, dict[tuple[str, ...] | None, Collection[str] | None]] = None, {}

    @property
    def is_limited(self) -> bool:
        """Whether the server offers only some tools, to all callers."""
        return self._offered is not None

    def current(self) -> Collection[str] | None:
        """Return the tools that the caller of the current request may call; None allows everything."""
        return self.of(current_principal.get())

    def of(self, principal: Principal) -> Collection[str] | None:
        if self._offered is None and principal.tools is None:
            return None
        snapshot, (made_of, lists) = self._registry.snapshot(), self._made
        if snapshot is not made_of or len(lists) > MAX_KEPT:
            lists = {}
            self._made = snapshot, lists  # assigned together: other threads read them
        if (tools := principal.tools) not in lists:
            offered = None if self._offered is None else AllowList(self._offered, snapshot.names())
            lists[tools] = offered if tools is None else AllowList(tools, snapshot.names(), within=offered)
        return lists[tools]


Offered = AllowLists | Collection[str] | None
"""The tools that a server offers: names and patterns, or AllowLists made of them. None offers everything."""


def allow_lists(app: App, offered: Offered) -> AllowLists:
    """Return the allow-lists of a server. All its routes share them, so that each list is computed once."""
    if isinstance(offered, AllowLists):
        return offered
    return AllowLists(app.catalog.registry, offered)
