"""Bundles and tools for the tests of the index, and what must hold of its tables at any time."""

from datetime import UTC, datetime

from onetool.sources.bundles.index import Index, IndexTransaction, Stamp
from onetool.sources.bundles.index.feed import IndexedSearch
from onetool.sources.bundles.index.rows import tool_row
from onetool.sources.bundles.model import Bundle, Tool

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


def put(index: Index, *things: Bundle | Tool) -> None:
    with index.changing() as changes:
        put_into(changes, *things)


def put_into(changes: IndexTransaction, *things: Bundle | Tool) -> None:
    for thing in things:
        write = changes.put_bundle if isinstance(thing, Bundle) else changes.put_tool
        write(thing, path_of(thing), STAMP)


def slugs(found) -> list[str]:
    """Of tools, or of what a search found."""
    return [getattr(one, "tool", one).slug for one in found]


def in_step(index: Index) -> None:
    """The tables agree; and the search says what one says that has read everything anew."""

    def look(held):
        db = held.database
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        numbers = dict(db.execute("SELECT id, no FROM tools"))
        assert {no for (no,) in db.execute("SELECT no FROM bodies")} == set(numbers.values())
        everyone = index.tools(include_disabled=True, limit=10_000)
        for one in everyone:
            assert tool_row(one) == db.execute("SELECT * FROM tools WHERE id = ?", (one.id,)).fetchone()[1:]
        assert set(db.execute("SELECT tag, id FROM tags")) == {(tag, one.id) for one in everyone for tag in one.tags}
        anew = IndexedSearch()
        for query in ("", "alpha", "bta", "größe beta", "天气", "s1", "box", "two"):
            for off in (True, False):
                assert index.search(query, off) == anew.search(held, query, off, None, 100), query

    index._access.read(look)
