"""Examples of one owner: kept apart, bounded, private."""

import stat
from threading import Thread

import pytest
from document_places import database, database_url, places, postgres

from onetool.sources.bundles import editing
from onetool.sources.bundles.editing import OwnExamples, examples_tag, read_own_examples, shown_examples
from onetool.sources.bundles.errors import InvalidError, UnavailableError
from onetool.sources.bundles.model import ToolExample

__all__ = ["database", "database_url", "places", "postgres"]

HI = ToolExample(name="hi", args={"message": "hi"})


@pytest.fixture
def kept(places):
    """In a folder, then in a database."""
    return OwnExamples(places("own_examples"))


@pytest.fixture
def in_files(tmp_path):
    return OwnExamples(tmp_path / "own_examples")


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


def test_a_file_is_private_and_does_not_tell_its_owner(in_files, tmp_path):
    put(in_files, "ada", HI)
    (file,) = (tmp_path / "own_examples").glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "ada" not in file.name


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
    monkeypatch.setattr(editing, "LARGEST_OF_OWNER", 100)
    with pytest.raises(InvalidError, match="more than 100 bytes"):
        put(kept, "ada", ToolExample(name="x", args={"message": "x" * 100}), tool="t2")
    assert kept.of("ada", "t1") == (HI,)
    monkeypatch.setattr(editing, "MOST_OWNERS", 1)
    with pytest.raises(UnavailableError, match="no more can"):
        put(kept, "bob", HI)
    put(kept, "ada")


def test_a_link_or_a_damaged_file_is_said_and_not_followed(in_files, tmp_path):
    kept = in_files
    put(kept, "ada", HI)
    (file,) = (tmp_path / "own_examples").glob("*.json")
    file.write_text("{")
    with pytest.raises(UnavailableError, match="damaged"):
        kept.of("ada", "t1")
    (tmp_path / "link").symlink_to(tmp_path / "own_examples")
    with pytest.raises(UnavailableError, match="link"):
        put(OwnExamples(tmp_path / "link"), "bob", HI)


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
