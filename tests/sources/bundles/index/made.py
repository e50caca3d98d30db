"""Bundles and tools for the tests of the index, and what must hold of its tables at any time."""

from datetime import UTC, datetime

from onetool.sources.bundles.index import Index, IndexTransaction, Stamp
from onetool.sources.bundles.index.rows import bundle_row, tool_row
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
    """The search's tables say what the rows say, and nothing else is there."""

    def look(held):
        db = held.database
        db.execute("INSERT INTO finding (finding) VALUES ('integrity-check')")
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        texts = {no: rest for no, *rest in db.execute("SELECT rowid, * FROM finding")}
        words = dict(db.execute("SELECT id, words FROM bundles"))
        numbers = dict(db.execute("SELECT id, no FROM tools"))
        bodies = dict(db.execute("SELECT no, body FROM bodies"))
        assert set(texts) == set(bodies) == set(numbers.values())
        known = {word for (word,) in db.execute("SELECT word FROM letters")}
        for one in index.tools(include_disabled=True, limit=10_000):
            row, own = tool_row(one)
            assert texts[numbers[one.id]] == [*own, words.get(one.bundle_id, "")]
            assert {word for text in own for word in text.split() if len(word) > 3 and word.isalpha()} <= known
            assert row == db.execute("SELECT * FROM tools WHERE id = ?", (one.id,)).fetchone()[1:]
        for one in index.bundles(include_disabled=True, limit=10_000):
            assert words[one.id] == bundle_row(one).words
        tags = set(db.execute("SELECT tag, id FROM tags"))
        everyone = index.tools(include_disabled=True, limit=10_000)
        assert tags == {(tag, one.id) for one in everyone for tag in one.tags}

    index._access.read(look)
