"""Bundles and tools for the tests of what is in memory, and what must hold of it at any time."""

from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import time

from onetool.sources.bundles.contents import Contents, ContentsChange, KeptTool
from onetool.sources.bundles.files.disk import Stamp
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.rules import MAX_TOOLS, BundleStore

STAMP = Stamp(1, 2, 3)


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
    return f"{thing.bundle_id}/tools/{thing.slug}@{thing.version}.json"


class MemoryStore(BundleStore):
    """A store whose contents are set by tests."""

    def __init__(self, state: Path | None = None, built_in=()) -> None:
        super().__init__(built_in, time, MAX_TOOLS, None, None, 1)
        self.now, self._state = Contents.empty(), state

    def contents(self) -> Contents:
        return self.now

    @contextmanager
    def changing(self):
        change = ContentsChange(self.now, self.reserved)
        yield change
        self.now = change.done()

    def _state_folder(self) -> Path | None:
        return self._state

    def mistakes(self):
        return self.now.mistakes()

    change = sync = catch_up = watch = stamp = file_of = key = close = None


MemoryStore.__abstractmethods__ = frozenset()


def put(store: MemoryStore, *things: Bundle | Tool) -> None:
    with store.changing() as change:
        for thing in things:
            write = change.put_bundle if isinstance(thing, Bundle) else change.put_tool
            write(thing, path_of(thing), STAMP)


def slugs(found) -> list[str]:
    """Of tools, or of what a search found."""
    return [getattr(one, "tool", one).slug for one in found]


def in_step(store: MemoryStore) -> None:
    """What is there agrees; and the search says what one says that has read everything anew."""
    now = store.now
    every = {file.path: file for files in now.files.values() for file in files.values()}
    assert {file.tool.id: file.tool for file in every.values() if file.tool} == now.by_id
    assert {file.bundle.bundle.id: file.bundle for file in every.values() if file.bundle} == now.bundles
    assert all(path == file.path for path, file in every.items())
    assert all(now.files.values())
    assert all(now.tools.values())
    for bundle_id, versions in now.tools.items():
        for (slug, version), row in versions.items():
            assert row == KeptTool.of(row.tool(), row.path)
            assert (row.bundle_id, row.slug, row.version) == (bundle_id, slug, version)
    anew = MemoryStore(built_in=store.built_in)
    anew.now = now
    for query in ("", "alpha", "bta", "größe beta", "天气", "s1", "box", "two"):
        for off in (True, False):
            assert store.search(query, off) == anew.search(query, off), query
