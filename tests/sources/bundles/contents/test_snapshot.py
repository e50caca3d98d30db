"""The contents in a file: the next process has them at once, and whatever lies there harms nobody."""

import itertools
import os
from zlib import crc32

import pytest
from sources.bundles.contents.made import STAMP, MemoryStore, bundle, in_step, path_of, put, tool

from onetool.sources.bundles.contents import BundleCache, Contents
from onetool.sources.bundles.files.overlay import Overlay, UnknownOverlay
from onetool.sources.bundles.model import ToolExample

ODD = "b/tools/\udcff.json"  # a name that isn't UTF-8


@pytest.fixture
def file(tmp_path):
    return tmp_path / "bundles.cache"


@pytest.fixture
def store():
    made = MemoryStore()
    put(
        made,
        bundle(1, "größe"),
        bundle(2, is_enabled=False),
        tool(1, tags=("a",)),
        tool(2, of=2, description="\x00é😀"),
    )
    with made.changing() as change:
        change.put_broken("b/x.json", STAMP, "it is half a file")
        change.put_broken(ODD, STAMP, "what is this")
        change.put_overlay(Overlay(bundles={"fs": False}))
        change.put_note("how far")
    return made


def read(file, reserved=frozenset()) -> Contents:
    return BundleCache(1).read(file, reserved)


def test_what_is_written_is_read(store, file):
    BundleCache(1).write(file, store.now)
    assert file.stat().st_mode & 0o777 == 0o600
    again = MemoryStore()
    again.now = found = read(file)
    assert (found.bundles, found.tools) == (store.now.bundles, store.now.tools)
    assert (found.overlay, found.note) == (store.now.overlay, "how far")
    assert [mistake.file for mistake in found.mistakes()] == ["b/x.json"], "the other one is read at each start"
    assert found.revision > store.now.revision
    in_step(again)


def test_a_reason_that_names_a_file_whose_name_is_not_utf8_keeps_nothing_else_out(store, file):
    with store.changing() as change:
        change.put_broken("b/tools/copy.json", STAMP, f"the tool is in {ODD} already")
    BundleCache(1).write(file, store.now)
    assert read(file).bundles == store.now.bundles
    assert read(file).file("b/tools/copy.json") is None, "it is read again"


def test_what_msgpack_can_not_say_is_not_written_and_harms_nobody(store, file):
    example = ToolExample(name="large", args={"n": 10**30})
    with store.changing() as change:
        change.put_overlay(Overlay(examples={"fs/read@1": (example,)}))
    BundleCache(1).write(file, store.now)
    assert read(file).bundles == {}


def test_a_file_that_is_nested_too_deep_is_ignored(file):
    """Its checksum is right: somebody has made it."""
    body = (
        b"\x93\x90\x84\xa7bundles\x80\xa5tools\x80\xadschemaVersion\xa11\xa8examples\x81\xa1a\x91\x82\xa4args\x81\xa1a"
    )
    body += b"\x91" * 100_000 + b"\xc0" + b"\xa4name\xa1a" + b"\xa0"
    file.write_bytes(b"onetool bundles 1\n" + crc32(body).to_bytes(4, "big") + body)
    assert read(file).bundles == {}


def test_switches_that_nobody_could_read_are_unknown_to_the_next_process_too(store, file):
    with store.changing() as change:
        change.put_overlay(UnknownOverlay())
    BundleCache(1).write(file, store.now)
    assert read(file).known_overlay is None
    assert isinstance(read(file).overlay, UnknownOverlay)


def test_what_has_become_built_in_is_read_again(store, file):
    BundleCache(1).write(file, store.now)
    found = read(file, frozenset({bundle(2).id, tool(1).id}))
    assert found.file(path_of(bundle(2))) is found.file(path_of(tool(1))) is None
    assert (len(found.bundles), len(found.by_id)) == (1, 1)


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:200] + b"?" + data[201:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data.replace(b"bundles 1\n", b"bundles 0\n"),
    ],
    ids=["empty", "half", "a byte", "the last bit", "another layout"],
)
def test_a_damaged_file_is_ignored(store, file, harm):
    BundleCache(1).write(file, store.now)
    file.write_bytes(harm(file.read_bytes()))
    assert (read(file).bundles, read(file).note, read(file).known_overlay) == ({}, "", None)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("elsewhere", path)])
def test_something_else_in_its_place_is_ignored(store, file, make):
    BundleCache(1).write(file.with_name("elsewhere"), store.now)
    make(file)
    assert read(file).bundles == {}
    BundleCache(1).write(file, store.now)  # or it is not, and that is not an error


def test_it_is_written_when_much_has_changed(store, file, monkeypatch):
    times = itertools.count(100.0, 0.01)  # each look at the clock takes as long as a write
    monkeypatch.setattr("onetool.sources.bundles.contents.monotonic", lambda: next(times))
    snapshot = BundleCache(min_changed=3)
    with store.changing() as change:
        change.put_overlay(Overlay())
    snapshot.count(2)
    assert not snapshot.is_due(store.now)
    snapshot.count(1)
    assert snapshot.is_due(store.now)
    snapshot.write(file, store.now)
    snapshot.count(9)
    assert not snapshot.is_due(store.now), "nothing has changed"
    put(store, tool(1, description="another one"))
    assert not snapshot.is_due(store.now), "it was written a moment ago"
    assert snapshot.is_due(store.now, is_last=True)


def test_switches_are_worth_a_file(store):
    assert BundleCache(min_changed=1000).is_due(store.now)
