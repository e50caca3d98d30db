"""`BundleSearch`: the words of bundles' tools in memory, kept in step tool by tool; and the four tiers over them."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple, Self

from msgspec import Struct

from onetool.services.search.postings import Document, WordIndex
from onetool.services.search.slots import Once, SavedSlots, SlotMap
from onetool.services.search.tiers import SavedTiers, TierIndex, TierRank, row_of
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
    of_bundle: SavedSlots
    disabled: list[int]


class BundleSearch:
    """Who asks or changes it holds `words.lock`."""

    def __init__(self) -> None:
        self.words = WordIndex()
        self._tiers = TierIndex(self.words)
        self._bundles: dict[str, _SearchedBundle] = {}
        self._of_bundle = SlotMap()  # tools by the ids of their bundles
        self._bundle_of: dict[int, str] = {}
        self._disabled = set[int]()  # tools that are, whatever their bundles are

    def __len__(self) -> int:
        return len(self._tiers)

    def slot_of(self, id: str) -> int | None:
        return self._tiers.slot_of(id)

    def search(self, query: str, include_disabled: bool, after: Rank | None, limit: int) -> list[Rank]:
        behind = None if after is None else TierRank(*after)
        return [Rank(*rank) for rank in self._tiers.search(query, include_disabled, behind, limit)]

    def saved(self) -> "SavedSearch":
        return SavedSearch(self._tiers.saved(), self._bundles, self._of_bundle.saved(), list(self._disabled))

    @classmethod
    def restored(cls, saved: "SavedSearch") -> Self:
        found, once = cls(), Once(len(saved.tiers.words.names))
        found._tiers.restore(saved.tiers, once)
        found._bundles, found._disabled = saved.bundles, set(saved.disabled)
        found._of_bundle.restore(saved.of_bundle, once)
        for id in found._of_bundle:
            found._bundle_of |= dict.fromkeys(map(once.slots.__getitem__, found._of_bundle.get(id)), id)
        return found

    # Changing

    def put_tool(self, tool: Tool) -> None:
        self._forget_place(tool.id)
        bundle = self._bundles.get(tool.bundle_id, _NONE)
        row = row_of(tool.id, tool.slug, tool.display_name, age_of(tool.modified_at))
        slot = self._tiers.put(row, _document(bundle, tool), tool.is_enabled and bundle.is_live)
        self._of_bundle.add(tool.bundle_id, slot)
        self._bundle_of[slot] = tool.bundle_id
        if not tool.is_enabled:
            self._disabled.add(slot)

    def drop_tool(self, id: str) -> None:
        if self._forget_place(id):
            self._tiers.drop(id)

    def _forget_place(self, id: str) -> bool:
        """Whether it had one."""
        if (slot := self.slot_of(id)) is None:
            return False
        self._of_bundle.discard(self._bundle_of.pop(slot), slot)
        self._disabled.discard(slot)
        return True

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
        if old == new or not self._of_bundle.get(id):
            return
        if old[:2] != new[:2]:
            for tool in tools():
                self.put_tool(tool)
        for slot in self._of_bundle.get(id):
            self._tiers.switch(slot, new.is_live and slot not in self._disabled)


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
