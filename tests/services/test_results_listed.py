"""Which results are stored: told to their owners alone, by any process."""

from unittest.mock import patch

import pytest
from services.result_stores import BOTH, harness

__all__ = ["harness"]


@BOTH
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
    text = "line\n" * 1_000_000
    handle = harness.open(60, 8).put(text).handle
    [one] = harness.open(60, 8).kept()
    assert (one.handle, one.size, one.lines, one.head) == (handle, len(text), 1_000_000, text[:200])
    assert harness.open(60, 8).read(handle) == text


@BOTH
def test_what_has_ended_or_was_removed_is_not_listed(harness):
    mine = harness.open(60, 8)
    first, second = mine.put("one").handle, mine.put("two").handle
    mine.remove(first)
    assert [one.handle for one in mine.kept()] == [second]
    harness.clock.now += 61
    assert list(mine.kept()) == []


def test_nothing_was_ever_stored(harness):
    assert list(harness.open(60, 8).kept()) == []


@BOTH
def test_a_long_list_comes_whole_and_in_order(harness):
    results = harness.open()
    with patch("onetool.services.results.store.LISTED_AT_ONCE", 3):
        put = [results.put(str(number), "ada").handle for number in range(8)]
        results.put("mine", "bob")
        assert [one.handle for one in results.kept("ada")] == put[::-1]


def test_halves_of_characters_stop_nothing(harness):
    text = "\ud800 and more"
    handle = harness.open(60, 8).put(text, name="a.b").handle
    [one] = harness.open(60, 8).kept()
    assert one.head == "\ufffd and more"
    assert harness.open(60, 8).read(handle) == text


@pytest.mark.parametrize("sign", ["\x01", "€", "\U0001f600", '"'])
def test_what_is_known_has_room_whatever_the_text_is(harness, sign):
    handle = harness.open(60, 8).put(sign * 1000, name=sign * 1000).handle
    [one] = harness.open(60, 8).kept()
    assert (one.handle, one.head, one.name) == (handle, sign * 200, sign * 200)
    assert harness.open(60, 8).read(handle) == sign * 1000
