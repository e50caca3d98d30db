"""Which results are stored: told to their owners alone, by any process, and without a handle in any file."""

import pytest
from services.result_stores import Clock, harness

from onetool.core.errors import ToolFailure
from onetool.services import results as module
from onetool.services.results import SMALL, ResultStore

__all__ = ["harness"]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "results"


def store(folder, clock, most=8):
    return ResultStore(folder, 60, most, now=clock)


def test_what_another_process_has_stored_is_listed_newest_first(harness):
    texts = {
        harness.open(60, 8).put(text, "me", name).handle: text for text, name in [("a\nb", "files.read"), ("é", None)]
    }
    found = list(harness.open(60, 8).kept("me"))
    assert [one.handle for one in found] == list(texts)[::-1]
    assert [(one.name, one.size, one.lines, one.head) for one in found] == [
        (None, 2, 1, "é"),
        ("files.read", 3, 2, "a\nb"),
    ]
    assert harness.clock.now - 1 < found[1].at < found[0].at < harness.clock.now
    assert [harness.open(60, 8).read(one.handle, "me") for one in found] == ["é", "a\nb"]


def test_a_large_text_is_listed_and_read_as_it_was(harness):
    text = "line\n" * SMALL
    handle = harness.open(60, 8).put(text).handle
    [one] = harness.open(60, 8).kept()
    assert (one.handle, one.size, one.lines, one.head) == (handle, len(text), SMALL, text[:200])
    assert harness.open(60, 8).read(handle) == text


@pytest.mark.parametrize("owner", ["", "me"])
def test_nobody_else_is_told_and_no_file_has_a_handle(folder, clock, owner):
    handle = store(folder, clock).put("some text", owner).handle
    assert [one.handle for one in store(folder, clock).kept(owner)] == [handle]
    assert list(store(folder, clock).kept("you")) == []
    [file] = folder.glob("*.txt")
    assert handle not in file.name
    assert handle.encode() not in file.read_bytes()
    assert bytes.fromhex(handle) not in file.read_bytes()


def test_what_has_ended_or_was_removed_is_not_listed(harness):
    mine = harness.open(60, 8)
    first, second = mine.put("one").handle, mine.put("two").handle
    mine.remove(first)
    assert [one.handle for one in mine.kept()] == [second]
    harness.clock.now += 61
    assert list(mine.kept()) == []


def test_nothing_was_ever_stored(harness):
    assert list(harness.open(60, 8).kept()) == []


def test_only_the_newest_files_are_looked_at(folder, clock, monkeypatch):
    mine = store(folder, clock)
    put = [mine.put(str(number)).handle for number in range(5)]
    monkeypatch.setattr(module, "MOST_LISTED", 3)
    assert [one.handle for one in mine.kept()] == put[:1:-1]


def test_files_that_know_nothing_of_themselves_are_left_out(folder, clock):
    mine = store(folder, clock)
    old, broken, fine = (mine.put(text).handle for text in ("x" * 500, "y" * 500, "fine"))
    (folder / f"{'0' * 32}.txt").write_text("")
    mine._file(old, "").write_text("x" * 500)  # as an older version wrote it
    file = mine._file(broken, "")
    data = bytearray(file.read_bytes())
    data[-24:-16] = b"\xff" * 8
    file.write_bytes(data)
    assert fine in [one.handle for one in mine.kept()]
    assert {old, broken}.isdisjoint(one.handle for one in mine.kept())
    assert mine.read(old) == "x" * 500
    with pytest.raises(ToolFailure, match="can't be read"):
        mine.read(broken)


def test_halves_of_characters_stop_nothing(harness):
    text = "\ud800 and more"
    handle = harness.open(60, 8).put(text, name="a.b").handle
    [one] = harness.open(60, 8).kept()
    assert one.head == "? and more"
    assert harness.open(60, 8).read(handle) == text


def test_one_that_leaves_no_room_is_kept_but_not_listed(folder, clock):
    mine = store(folder, clock, most=1)
    handle = mine.put("x" * SMALL).handle
    assert len(mine.read(handle)) == SMALL
    assert list(mine.kept()) == []


@pytest.mark.parametrize("sign", ["\x01", "€", "\U0001f600", '"'])
def test_what_is_known_has_room_whatever_the_text_is(harness, sign):
    handle = harness.open(60, 8).put(sign * 1000, name=sign * 1000).handle
    [one] = harness.open(60, 8).kept()
    assert (one.handle, one.head, one.name) == (handle, sign * 200, sign * 200)
    assert harness.open(60, 8).read(handle) == sign * 1000
