"""`BundleSearch`: the words of bundles' tools in memory, kept in step tool by tool; and the four tiers over them."""

from array import array
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple, Self

from msgspec import Struct

from onetool.services.search.postings import Document, Numbers, WordIndex
from onetool.services.search.slots import numbers_in
from onetool.services.search.tiers import SavedTiers, TierIndex, TierRank, TierRow
from onetool.services.search.words import split_words, tool_words
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.names import code_name
from onetool.sources.bundles.store import Rank


class _SearchedBundle(NamedTuple):
    slug: str
    display_name: str
    is_live: bool  # neither disabled nor soft-deleted


_NONE = _SearchedBundle("", "", False)


class SavedSearch(Struct):
    """A BundleSearch, for a file."""

    tiers: SavedTiers
    bundles: dict[str, _SearchedBundle]
    places: list[tuple[str, bool]]  # ids of bundles, and whether a tool of it is enabled: few different ones
    place_of: bytes  # of each tool, in the order of the rows: its number


class BundleSearch:
    """Who asks or changes it holds `words.lock`."""

    def __init__(self) -> None:
        self.words = WordIndex()
        self._tiers = TierIndex(self.words)
        self._bundles: dict[str, _SearchedBundle] = {}
        self._tools: dict[str, tuple[str, bool]] = {}  # id -> its bundle's, and whether it is enabled
        self._of_bundle: dict[str, set[str]] = {}  # ids of tools

    def __len__(self) -> int:
        return len(self._tools)

    def slot_of(self, id: str) -> int | None:
        return self._tiers.slot_of(id)

    def search(self, query: str, include_disabled: bool, after: Rank | None, limit: int) -> list[Rank]:
        behind = None if after is None else TierRank(*after)
        return [Rank(*rank) for rank in self._tiers.search(query, include_disabled, behind, limit)]

    def saved(self) -> "SavedSearch":
        places, tiers = Numbers[tuple[str, bool]](), self._tiers.saved()
        place_of = array("I", [places.of(self._tools[row.id]) for row in tiers.rows])
        return SavedSearch(tiers, self._bundles, places.values, place_of.tobytes())

    @classmethod
    def restored(cls, saved: "SavedSearch") -> Self:
        found = cls()
        found._tiers.restore(saved.tiers)
        places = zip(saved.tiers.rows, numbers_in(saved.place_of), strict=True)
        found._bundles, found._tools = saved.bundles, {row.id: saved.places[number] for row, number in places}
        for id, (bundle_id, _) in found._tools.items():
            found._of_bundle.setdefault(bundle_id, set()).add(id)
        return found

    # Changing

    def put_tool(self, tool: Tool) -> None:
        if tool.id in self._tools:
            self._of_bundle[self._tools[tool.id][0]].discard(tool.id)
        bundle = self._bundles.get(tool.bundle_id, _NONE)
        row = TierRow(tool.id, (tool.slug, tool.display_name), age_of(tool.modified_at))
        self._tiers.put(row, _document(bundle, tool), tool.is_enabled and bundle.is_live)
        self._tools[tool.id] = (tool.bundle_id, tool.is_enabled)
        self._of_bundle.setdefault(tool.bundle_id, set()).add(tool.id)

    def drop_tool(self, id: str) -> None:
        if id in self._tools:
            self._of_bundle[self._tools.pop(id)[0]].discard(id)
            self._tiers.drop(id)

    def put_bundle(self, bundle: Bundle, tools: Callable[[], Iterable[Tool]]) -> None:
        """`tools` gives those that it has now. Their words are other ones only with other names."""
        is_live = bundle.is_enabled and bundle.soft_deleted_at is None
        self._set_bundle(bundle.id, _SearchedBundle(bundle.slug, bundle.display_name, is_live), tools)

    def drop_bundle(self, id: str, tools: Callable[[], Iterable[Tool]]) -> None:
        """Its tools stay, switched off."""
        self._set_bundle(id, _NONE, tools)
        self._bundles.pop(id, None)

    def _set_bundle(self, id: str, new: _SearchedBundle, tools: Callable[[], Iterable[Tool]]) -> None:
        old = self._bundles.get(id, _NONE)
        self._bundles[id] = new
        known = self._of_bundle.get(id)
        if not known or old == new:
            return
        if old[:2] != new[:2]:
            for tool in tools():
                self.put_tool(tool)
        for tool_id in known:
            self._tiers.switch(tool_id, new.is_live and self._tools[tool_id][1])


def _document(bundle: _SearchedBundle, tool: Tool) -> Document:
    name = f"{code_name(bundle.slug)}.{code_name(tool.slug)}" if bundle.slug else code_name(tool.slug)
    words = tool_words(name, tool.description, tool.arg_schema, tool.tags)
    others = split_words("\n".join((tool.display_name, bundle.slug, bundle.display_name)))
    return Document(name, words.names, words.description, words.parameters, words.tags, others, words.everyday)


def age_of(modified_at: str) -> int:
    """Minus its milliseconds since 1970: what is newer comes first. What says no time comes last."""
    try:
        return -round(datetime.fromisoformat(modified_at).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
