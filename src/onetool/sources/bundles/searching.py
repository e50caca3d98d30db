"""`StoreSearch`, the in-memory search index of a store's tools, updated tool by tool. Imports numpy."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from heapq import merge
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Generic, NamedTuple, Protocol, TypeVar
from zlib import crc32

import msgspec
import numpy as np
from msgspec.structs import replace

from onetool.core.spec import ToolSpec
from onetool.services.search.documents import Document, tool_document, with_titles
from onetool.services.search.files import read_arrays, write_arrays
from onetool.services.search.part import ARRAY_NAMES, TEXT_NAMES, IndexPart
from onetool.services.search.postings import WordIndex, Words
from onetool.services.search.tiers import TierSearch
from onetool.services.search.words import split_words
from onetool.sources.bundles.derived import ReadOnlyBundles
from onetool.sources.bundles.model import Bundle, Tool, inherited
from onetool.sources.bundles.names import code_name
from onetool.sources.bundles.queries import Rank, SearchHit, is_live
from onetool.sources.bundles.store.contents import Contents, KeptTool


class _SearchedBundle(NamedTuple):
    slug: str
    display_name: str
    is_live: bool  # neither disabled nor soft-deleted
    is_imported: bool = False  # of an MCP server


_NO_BUNDLE = _SearchedBundle("", "", False)


class _SavedState(NamedTuple):
    """The checksums of a cached index: of the tools' JSON and of what they inherit from functions, with the bundles."""

    digests: dict[str, int]
    functions: dict[str, int]
    bundles: dict[str, _SearchedBundle]


T = TypeVar("T", Tool, KeptTool)


class BundleSearch(Generic[T]):
    """A search index of the tools that `read` returns. Updates are not thread-safe; `current` returns a snapshot."""

    def __init__(self, read: Callable[[T], Tool]) -> None:
        self._read = read
        self._index = WordIndex()
        self._bundles: dict[str, _SearchedBundle] = {}
        self._tools: Mapping[str, T | None] = {}
        self._current: TierSearch | None = None

    def current(self) -> TierSearch:
        words = self._index.current()
        if self._current is None or self._current.words is not words:
            on = np.ones(words.size, bool)
            for part, place in words.placed():
                is_live = [self._bundles.get(group, _NO_BUNDLE).is_live for group in part.groups]
                on[place] = part.enabled & np.array(is_live, bool)[part.group_of]
            self._current = TierSearch(words, on, {id for id, bundle in self._bundles.items() if bundle.is_imported})
        return self._current

    def follow(
        self, bundles: Iterable[Bundle], tools: Mapping[str, T], is_stale: Callable[[str, T], bool] = lambda *_: False
    ) -> int:
        """Update the index to these tools, and return the number of tools read or removed.

        Tools are read again if the object is new, if `is_stale`, or if the bundle's name has changed.
        """
        before, known = self._bundles, self._tools
        self._bundles = {
            bundle.id: _SearchedBundle(
                slug=bundle.slug,
                display_name=bundle.display_name,
                is_live=is_live(bundle),
                is_imported=bundle.source is not None and bundle.source.kind == "server",
            )
            for bundle in bundles
        }
        if before != self._bundles:
            self._current = None
        ids = before.keys() | self._bundles.keys()
        renamed = {id for id in ids if before.get(id, _NO_BUNDLE)[:2] != self._bundles.get(id, _NO_BUNDLE)[:2]}
        stale = [
            (id, tool)
            for id, tool in tools.items()
            if known.get(id) is not tool or tool.bundle_id in renamed or is_stale(id, tool)
        ]
        gone = known.keys() - tools.keys()
        for id in gone:
            self._index.drop(id)
        for id, tool in stale:
            self._index.put(id, _document(self._bundles.get(tool.bundle_id, _NO_BUNDLE), self._read(tool)))
        self._tools = tools
        return len(gone) + len(stale)

    # The cache file

    def restore(self, part: IndexPart, bundles: dict[str, _SearchedBundle], tools: Mapping[str, T | None]) -> None:
        """Restore a saved index. `tools` are its tools, with None for tools that have changed since."""
        self._index, self._bundles, self._tools, self._current = WordIndex(part), bundles, tools, None

    def saved(self) -> tuple[Mapping[str, np.ndarray], dict[str, _SearchedBundle]]:
        return self._index.merged().saved(), self._bundles


MIN_SAVED = 500  # tools and changes; fewer are read as quickly from their files
SAVED_SHARE = 20  # save after a change to this fraction (1 in …) of the tools
RECENCY = 3  # the last tier


class SearchedStore(Protocol):
    """The part of a store that a search needs."""

    function: Callable[[str], ToolSpec | None]

    def contents(self) -> Contents: ...

    def read_only(self) -> ReadOnlyBundles: ...


class StoreSearch:
    """The search of a store. A cache file provides the index of stored tools at once.

    A missing, damaged or foreign cache is ignored. Read-only tools have a separate index, because processes with other
    read-only tools share the file.
    """

    def __init__(self, store: SearchedStore, cache: Path | None) -> None:
        self._store, self._cache = store, cache
        self._functions: dict[str, ToolSpec | None] = {}  # whose words are in the index
        self._kept = BundleSearch[KeptTool](self._tool)
        self._read_only = BundleSearch[Tool](lambda tool: tool)
        self._seen: tuple[Contents | None, ReadOnlyBundles | None] = (None, None)
        self._unsaved = 0
        self._lock = Lock()

    def words(self) -> Words:
        """Return the words of the stored tools."""
        with self._lock:
            return self._follow(self._store.contents()).words

    def search(self, query: str, include_disabled: bool, after: Rank | None, limit: int) -> list[SearchHit]:
        with self._lock:
            contents, others = self._store.contents(), self._store.read_only()
            found = self._follow(contents).search(query, include_disabled, after, limit)
            last_tier = found[-1][0] if len(found) == limit else RECENCY  # later tiers can't add hits
            if self._seen[1] is not others:
                self._read_only.follow(others.bundles, {tool.id: tool for tool in others.tools})
                self._seen = (contents, others)
            more = self._read_only.current().search(query, include_disabled, after, limit, last_tier)
        ranks = [Rank(*rank) for rank in islice(merge(found, more), limit)]
        read_only = {tool.id: tool for tool in others.tools} if more else {}
        return [SearchHit(rank, read_only.get(rank.id) or contents.by_id[rank.id].tool()) for rank in ranks]

    def _follow(self, contents: Contents) -> TierSearch:
        functions = {name: self._store.function(name) for name in contents.functions}
        changed = {name for name, function in functions.items() if self._functions.get(name) is not function}
        if self._seen[0] is not contents or changed:
            self._functions = functions
            if self._seen[0] is None:
                saved = self._load(contents)
                changed = {name for name, function in functions.items() if saved.get(name) != _digest(function)}
            self._unsaved += self._kept.follow(
                (kept.bundle for kept in contents.bundles.values()),
                contents.by_id,
                lambda _, row: row.function in changed,
            )
            self._seen = (contents, self._seen[1])
            self._save(contents)
        return self._kept.current()

    def _load(self, contents: Contents) -> dict[str, int]:
        """Restore the index from the cache, and return the checksums of its functions."""
        names = (*TEXT_NAMES, *ARRAY_NAMES, "state")
        found = None if self._cache is None else read_arrays(self._cache, _head(), names)
        if found is None:
            return {}
        try:
            state = msgspec.json.decode(found["state"].tobytes(), type=_SavedState)
        except msgspec.DecodeError:  # written by another program with the same head
            return {}
        same = {id: contents.by_id.get(id) for id in state.digests}
        for id, row in same.items():
            if row is not None and crc32(row.body) != state.digests[id]:
                same[id] = None
        self._kept.restore(IndexPart.read(found), state.bundles, same)
        return state.functions

    def _save(self, contents: Contents) -> None:
        """Save the index. If that fails, the next process reads all tools."""
        size = len(contents.by_id)
        if self._cache is not None and size >= MIN_SAVED and self._unsaved > max(MIN_SAVED, size // SAVED_SHARE):
            part, bundles = self._kept.saved()
            digests = {id: crc32(row.body) for id, row in contents.by_id.items()}
            functions = {name: _digest(function) for name, function in self._functions.items()}
            state = np.frombuffer(msgspec.json.encode(_SavedState(digests, functions, bundles)), np.uint8)
            write_arrays(self._cache, _head(), {**part, "state": state})
            self._unsaved = 0

    def _tool(self, row: KeptTool) -> Tool:
        """Return a tool with the description and schemas inherited from its function."""
        tool = row.tool()
        return tool if row.function is None else replace(tool, **inherited(tool, self._functions.get(row.function)))


def _digest(function: ToolSpec | None) -> int:
    """Return a checksum of the description and schemas that a tool may inherit from its function."""
    texts = None if function is None else (function.description, function.input_schema)
    return crc32(repr(texts).encode(errors="backslashreplace"))


def _document(bundle: _SearchedBundle, tool: Tool) -> Document:
    name = f"{code_name(bundle.slug)}.{code_name(tool.slug)}" if bundle.slug else code_name(tool.slug)
    document = tool_document(name, tool.description, tool.arg_schema, tool.tags)
    return with_titles(document, tool.slug, tool.display_name)._replace(
        others=split_words("\n".join((tool.display_name, bundle.slug, bundle.display_name))),
        group=tool.bundle_id,
        enabled=tool.is_enabled,
        age=age_of(tool.modified_at),
    )


def age_of(modified_at: str) -> int:
    """Return the negated milliseconds since 1970, so that newer tools come first. Invalid times come last."""
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
def _head() -> str:
    """Return the first line of the cache, which differs if the code derives other words or ages."""
    document = _document(_SearchedBundle("a-b", "Some things", True), _SAMPLE)
    return f"search 6 {crc32(repr(document).encode()):08x}"
