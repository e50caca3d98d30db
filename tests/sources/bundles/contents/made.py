"""Bundles and tools for the tests of what is in memory, and what must hold of it at any time."""

from datetime import UTC, datetime
from pathlib import Path

from onetool.sources.bundles.model import Bundle, Tool, shown
from onetool.sources.bundles.store.contents import Contents, FileRow
from onetool.sources.bundles.store.storage import FolderStorage
from onetool.sources.bundles.store.store import BundleStore, reserved_ids
from onetool.sources.bundles.store.text import body_of


def at(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def bundle_id(number: int) -> str:
    return f"01900000-0000-7000-8000-{number:012x}"


def tool_id(number: int) -> str:
    return f"01900000-0001-7000-8000-{number:012x}"


def bundle(number: int = 1, slug: str = "box", **more) -> Bundle:
    return Bundle(**{"id": bundle_id(number), "slug": slug, "created_at": at(0), "modified_at": at(0), **more})


def tool(number: int = 1, slug: str | None = None, of: int = 1, **more) -> Tool:
    default = {
        "id": tool_id(number),
        "bundle_id": bundle_id(of),
        "slug": slug or f"tool-{number}",
        "version": "1",
        "type": "script",
        "script_impl": {"code": "1"},
        "created_at": at(number),
        "modified_at": at(number),
    }
    return Tool(**default | more)


def path_of(thing: Bundle | Tool) -> str:
    if isinstance(thing, Bundle):
        return f"{thing.id}/bundle.json"
    slug = thing.slug.replace("/", "~")  # which no slug of a file has
    return f"{thing.bundle_id}/tools/{slug}@{thing.version}.json"


class MemoryStorage(FolderStorage):
    """A storage whose contents are set by tests."""

    def __init__(self, state: Path | None, reserved) -> None:
        self._state = state
        self.now = Contents(reserved).following(())

    def contents(self) -> Contents:
        return self.now

    def state_folder(self) -> Path | None:
        return self._state

    def file(self, path: str) -> str:
        return path


class MemoryStore(BundleStore):
    def __init__(self, state: Path | None = None, built_in=()) -> None:
        super().__init__(MemoryStorage(state, reserved_ids(built_in)), None, built_in)

    @property
    def now(self) -> Contents:
        return self._storage.now

    @now.setter
    def now(self, contents: Contents) -> None:
        self._storage.now = contents

    def follow(self, *rows: FileRow, gone=()) -> None:
        self.now = self.now.following(rows, gone)


def row_of(thing: Bundle | Tool, path: str | None = None) -> FileRow:
    return FileRow(path or path_of(thing), body_of(shown(thing)), 1)


def put(store: MemoryStore, *things: Bundle | Tool) -> None:
    store.follow(*map(row_of, things))


def drop(store: MemoryStore, *things: Bundle | Tool | str) -> None:
    store.follow(gone=[one if isinstance(one, str) else path_of(one) for one in things])


def slugs(found) -> list[str]:
    """Of tools, or of what a search found."""
    return [getattr(one, "tool", one).slug for one in found]


def in_step(store: MemoryStore) -> None:
    """What is there agrees with what one says that has read everything anew, and so does the search."""
    now = store.now
    anew = MemoryStore(built_in=store.built_in)
    anew.follow(*(row for files in now.files.values() for row in files.values()))
    assert (anew.now.bundles, anew.now.tools, anew.now.refused) == (now.bundles, now.tools, now.refused)
    assert anew.now.by_id == now.by_id
    assert all(now.files.values())
    assert all(now.tools.values())
    for query in ("", "alpha", "bta", "größe beta", "天气", "s1", "box", "two"):
        for off in (True, False):
            assert store.search(query, off) == anew.search(query, off), query
