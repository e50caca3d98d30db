"""`BundleSearch`: the words of bundles' tools in memory, kept in step tool by tool. It imports numpy."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from onetool.services.search.documents import Document, tool_document, with_titles
from onetool.services.search.files import read_arrays, write_arrays
from onetool.services.search.part import ARRAY_NAMES, TEXT_NAMES, Part
from onetool.services.search.postings import WordIndex
from onetool.services.search.tiers import TierSearch
from onetool.services.search.words import split_words
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.names import code_name


class _SearchedBundle(NamedTuple):
    slug: str
    display_name: str
    is_live: bool  # neither disabled nor soft-deleted


_NONE = _SearchedBundle("", "", False)


class _SavedState(NamedTuple):
    """Of which index and revision a file is, and its bundles."""

    born: int
    revision: int
    bundles: dict[str, _SearchedBundle]


class BundleSearch:
    """One thread changes it at a time. What `current` returns never changes."""

    def __init__(self, part: Part | None = None, bundles: dict[str, _SearchedBundle] | None = None) -> None:
        self._index = WordIndex(part)
        self._bundles = bundles or {}
        self._current: TierSearch | None = None

    def current(self) -> TierSearch:
        words = self._index.current()
        if self._current is None or self._current.words is not words:
            on = np.ones(words.size, bool)
            for part, place in words.placed():
                is_live = [self._bundles.get(group, _NONE).is_live for group in part.groups]
                on[place] = part.enabled & np.array(is_live, bool)[part.group_of]
            self._current = TierSearch(words, on)
        return self._current

    # Changing

    def put_tool(self, tool: Tool) -> None:
        self._index.put(tool.id, _document(self._bundles.get(tool.bundle_id, _NONE), tool))

    def drop_tool(self, id: str) -> None:
        self._index.drop(id)

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
        self._bundles[id], self._current = new, None
        if old[:2] != new[:2] and self._index.has_group(id):
            for tool in tools():
                self.put_tool(tool)

    # In a file

    @classmethod
    def read(cls, file: Path, born: int) -> "tuple[int, BundleSearch] | None":
        """Return the revision of this index that a file is about, and the search; None where there is none of use."""
        found = read_arrays(file, _head(), (*TEXT_NAMES, *ARRAY_NAMES, "state"))
        if found is None:
            return None
        state = msgspec.json.decode(found["state"].tobytes(), type=_SavedState)
        return (state.revision, cls(Part.read(found), state.bundles)) if state.born == born else None

    def write(self, file: Path, born: int, revision: int) -> None:
        """Where it can't be written, the next process reads everything."""
        state = msgspec.json.encode(_SavedState(born, revision, self._bundles))
        write_arrays(file, _head(), {**self._index.merged().saved(), "state": np.frombuffer(state, np.uint8)})


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
def _head() -> str:
    """The first line of a file: another one where tools would have other words or ages than there."""
    document = _document(_SearchedBundle("a-b", "Some things", True), _SAMPLE)
    return f"search 5 {crc32(repr(document).encode()):08x}"
