"""AllowLists: which tools each caller of a server may call, made once for a catalogue."""

from collections.abc import Callable, Collection

from onetool.app import App
from onetool.core.principal import AllowList, Principal, current_principal
from onetool.core.registry import Snapshot

MAX_KEPT = 256  # lists; there are as many as tokens have different ones


class AllowLists:
    """The tools that a server offers (`--tool-allow`), and of these what a principal may call.

    A list holds for one snapshot of the tools. After a change it is made anew, so that a pattern covers new tools.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], offered: Collection[str] | None = None) -> None:
        """`offered` are names and patterns; None offers everything."""
        self._snapshot = snapshot
        self._offered = None if offered is None else tuple(offered)
        self._made: tuple[Snapshot | None, dict[tuple[str, ...] | None, Collection[str] | None]] = None, {}

    @property
    def is_limited(self) -> bool:
        """Whether the server offers some tools only, whoever calls."""
        return self._offered is not None

    def current(self) -> Collection[str] | None:
        """Return what the caller of the current request may call; None is everything."""
        return self.of(current_principal.get())

    def of(self, principal: Principal) -> Collection[str] | None:
        if self._offered is None and principal.tools is None:
            return None
        snapshot, (made_of, lists) = self._snapshot(), self._made
        if snapshot is not made_of or len(lists) > MAX_KEPT:
            lists = {}
            self._made = snapshot, lists  # both at once: other threads read them
        if principal.tools not in lists:
            lists[principal.tools] = self._make(principal.tools, snapshot)
        return lists[principal.tools]

    def _make(self, tools: tuple[str, ...] | None, snapshot: Snapshot) -> Collection[str] | None:
        offered = None if self._offered is None else AllowList(self._offered, snapshot.names())
        return offered if tools is None else AllowList(tools, snapshot.names(), within=offered)


Offered = AllowLists | Collection[str] | None
"""The tools that a server offers: names and patterns, or the lists that are made of them. None offers everything."""


def allow_lists(app: App, offered: Offered) -> AllowLists:
    """Return the lists of a server. All its routes share them, so that each list is made once."""
    if isinstance(offered, AllowLists):
        return offered
    return AllowLists(lambda: app.catalog.registry.snapshot(), offered)
