"""`BundleSearch`: the words of bundles' tools in memory, kept in step tool by tool; and the four tiers over them."""

from array import array
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from typing import NamedTuple
from zlib import crc32

from msgspec import Struct

from onetool.services.search.documents import FIELDS, Document
from onetool.services.search.frozen import Overlaid, Texts, numbers_in
from onetool.services.search.slots import SavedSlots, SlotMap
from onetool.services.search.tiers import SavedTiers, TierIndex, row_of
from onetool.services.search.words import name_keys, split_words, stem, tool_words
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.names import code_name
from onetool.sources.bundles.store import Rank


class _SearchedBundle(NamedTuple):
    slug: str
    display_name: str
    is_live: bool  # neither disabled nor soft-deleted


_NONE = _SearchedBundle("", "", False)


class SavedSearch(Struct, frozen=True):
    """A BundleSearch, for a file."""

    tiers: SavedTiers = SavedTiers()
    bundles: dict[str, _SearchedBundle] = {}
    of_bundle: SavedSlots = SavedSlots()
    bundle_of: bytes = b""  # by slot: the number of the bundle's id
    disabled: list[int] = []


class BundleSearch:
    """Who asks or changes it holds `words.lock`."""

    def __init__(self, saved: SavedSearch | None = None) -> None:
        saved = saved or SavedSearch()
        self._tiers = TierIndex(saved.tiers)
        self.words = self._tiers.words
        self._bundles = dict(saved.bundles)
        self._of_bundle = SlotMap(saved.of_bundle)  # tools by the ids of their bundles
        self._bundle_of = Overlaid[int](
            numbers_in(saved.bundle_of).__getitem__
        )  # by slot: the number of the bundle's id
        self._disabled = set(saved.disabled)  # tools that are, whatever their bundles are

    def __len__(self) -> int:
        return len(self._tiers)

    def slot_of(self, id: str) -> int | None:
        return self._tiers.slot_of(id)

    def slots(self) -> dict[str, int]:
        return self._tiers.slots()

    def search(
        self, query: str, include_disabled: bool, after: Rank | None, limit: int, last: Rank | None = None
    ) -> list[Rank]:
        """What ranks behind `last` is not looked for."""
        return self._tiers.search(query, include_disabled, after, limit, last)

    def saved(self) -> "SavedSearch":
        tiers, slots = self._tiers.saved()
        of_bundle = self._of_bundle.saved(slots.get)
        numbers = {id: number for number, id in enumerate(Texts(of_bundle.keys.words))}
        bundle_of = array("I", (numbers[self._bundle_id(slot)] for slot in slots))
        disabled = [slots[slot] for slot in self._disabled]
        return SavedSearch(tiers, self._bundles, of_bundle, bundle_of.tobytes(), disabled)

    # Changing

    def put_tool(self, tool: Tool) -> None:
        self._forget_place(tool.id)
        bundle = self._bundles.get(tool.bundle_id, _NONE)
        row = row_of(tool.id, tool.slug, tool.display_name, age_of(tool.modified_at))
        slot = self._tiers.put(row, _document(bundle, tool), tool.is_enabled and bundle.is_live)
        self._bundle_of[slot] = self._of_bundle.add(tool.bundle_id, slot)
        if not tool.is_enabled:
            self._disabled.add(slot)

    def drop_tool(self, id: str) -> None:
        if self._forget_place(id):
            self._tiers.drop(id)

    def _forget_place(self, id: str) -> bool:
        """Whether it had one."""
        if (slot := self.slot_of(id)) is None:
            return False
        self._of_bundle.discard(self._bundle_id(slot), slot)
        self._bundle_of.drop(slot)
        self._disabled.discard(slot)
        return True

    def _bundle_id(self, slot: int) -> str:
        return self._of_bundle.keys.text(self._bundle_of[slot])

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


_SAMPLE = Tool(
    type="http",
    id="1",
    bundle_id="1",
    slug="read-textFiles2",
    version="1",
    display_name="Reading files",
    description="Reads the texts of files, 文件 and pages. It is quick.",
    tags=("Web Pages",),
    arg_schema={"type": "object", "properties": {"path": {"type": "string", "description": "Which of them."}}},
    created_at="",
    modified_at="2026-01-02T03:04:05.678Z",
)


@cache
def word_mark() -> str:
    """Another one where tools would have other words, stems or ages, or fields other weights, than in a file."""
    document = _document(_SearchedBundle("a-b", "Some things", True), _SAMPLE)
    stems = [stem(word) for words in document.fields for word in words]
    row = row_of(_SAMPLE.id, _SAMPLE.slug, _SAMPLE.display_name, age_of(_SAMPLE.modified_at))
    return f"{crc32(repr((document, stems, FIELDS, row, name_keys(document.name))).encode()):08x}"
