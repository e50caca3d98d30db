"""Examples of one owner: kept apart, bounded, private."""

from threading import Thread

import pytest
from document_stores import database, database_url, in_home, places, postgres

from onetool.sources.bundles import editing
from onetool.sources.bundles.editing import OwnExamples, examples_tag, read_own_examples, shown_examples
from onetool.sources.bundles.errors import InvalidError, UnavailableError
from onetool.sources.bundles.model import ToolExample

__all__ = ["database", "database_url", "places", "postgres"]

HI = ToolExample(name="hi", args={"message": "hi"})


@pytest.fixture
def kept(places):
    """In SQLite, then in PostgreSQL."""
    return OwnExamples(places("own_examples"))


@pytest.fixture
def in_sqlite(tmp_path):
    return OwnExamples(in_home(tmp_path, "own_examples"))


def put(kept, owner, *examples, tool="t1", check=lambda before: None):
    kept.put(owner, tool, examples, check)


def test_they_are_of_one_owner_and_of_one_tool(kept, places):
    other = OwnExamples(places("own_examples"))
    put(kept, "ada", HI)
    assert kept.of("ada", "t1") == other.of("ada", "t1") == (HI,)
    assert [kept.of(*one) for one in (("ada", "t2"), ("bob", "t1"), ("", "t1"))] == [(), (), ()]
    put(other, "ada", HI, tool="t2")
    put(kept, "ada")
    assert (kept.of("ada", "t1"), kept.of("ada", "t2"), other.of("ada", "t1")) == ((), (HI,), ())


def test_all_that_is_put_at_once_is_kept(kept, places):
    both = (kept, OwnExamples(places("own_examples")))
    work = [Thread(target=put, args=(one, "ada", HI), kwargs={"tool": f"t{n}"}) for n, one in enumerate(both * 4)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(60)
    assert [kept.of("ada", f"t{number}") for number in range(8)] == [(HI,)] * 8


def test_the_database_does_not_tell_the_owner(in_sqlite, tmp_path):
    put(in_sqlite, "ada", HI)
    assert not any(b"ada" in file.read_bytes() for file in tmp_path.glob("state.db*"))


def test_the_list_of_before_is_looked_at_and_may_refuse(kept):
    put(kept, "ada", HI)
    seen = []

    def check(before):
        seen.append(before)
        raise InvalidError("no")

    with pytest.raises(InvalidError):
        put(kept, "ada", check=check)
    assert (seen, kept.of("ada", "t1")) == ([(HI,)], (HI,))


def test_they_are_bounded(kept, monkeypatch):
    put(kept, "ada", HI)
    monkeypatch.setattr(editing, "MAX_OWNER_BYTES", 100)
    with pytest.raises(InvalidError, match="would exceed 100 bytes"):
        put(kept, "ada", ToolExample(name="x", args={"message": "x" * 100}), tool="t2")
    assert kept.of("ada", "t1") == (HI,)
    monkeypatch.setattr(editing, "MAX_OWNERS", 1)
    with pytest.raises(UnavailableError, match="callers with examples is reached"):
        put(kept, "bob", HI)
    put(kept, "ada")


def test_damaged_ones_are_told(in_sqlite):
    put(in_sqlite, "ada", HI)
    (key,) = in_sqlite._documents.keys()
    in_sqlite._documents.write(key, b"{")
    with pytest.raises(UnavailableError, match="damaged"):
        in_sqlite.of("ada", "t1")


def test_ones_own_takes_the_place_of_one_of_the_same_name():
    common = [{"name": "hi", "args": {}}, {"name": "other", "args": {}}]
    assert shown_examples(common, (HI,)) == {
        "examples": [{"name": "other", "args": {}}, {"name": "hi", "args": {"message": "hi"}}],
        "own": ["hi"],
    }


def test_the_tag_changes_with_them():
    assert examples_tag("t", ()) == "t"
    assert len({examples_tag("t", one) for one in ((), (HI,), (HI, HI))}) == 3


def test_a_list_with_those_of_the_tool_is_read_without_them():
    common = ({"name": "common", "args": {}},)
    sent = {"examples": [{"name": "common", "args": {}, "description": ""}, {"name": "hi", "args": {"message": "hi"}}]}
    assert read_own_examples({**sent, "own": ["hi"]}, common) == (HI,)
    for wrong in ([], {"examples": 1}, {"examples": [1]}, {"examples": [], "more": 1}):
        with pytest.raises(InvalidError):
            read_own_examples(wrong, common)
