"""Processes that share a session, are killed in the middle of a turn, or have no room to write."""

import asyncio
import json
import os

import pytest
from ask.sessions.others import messages, other, said
from faults.crowd import some

from onetool.ask.errors import SessionError
from onetool.ask.messages import Result, Usage, User
from onetool.ask.sessions import SessionStore, store
from onetool.ask.sessions.records import INTERRUPTED, UNDER_WAY
from onetool.core import flock, os_files


async def turn(sessions, *said, wait=0.0):
    async with sessions.turn("x", wait=wait) as session:
        before = list(session.messages)
        for message in said:
            session.append(message)
        if said:
            session.end("p", "m", Usage(input=1), 1)
        return before


def test_killed_in_mid_turn_and_continued(tmp_path):
    sessions = SessionStore(tmp_path)
    victim = other("hang", tmp_path, "x")
    try:
        assert victim.stdout.readline() == "ready\n"
        with pytest.raises(
            SessionError, match=f"the session x is in use by (process {victim.pid}|another process)"
        ) as caught:
            asyncio.run(turn(sessions))
        assert caught.value.reason == "busy"
        with pytest.raises(SessionError) as caught:
            sessions.delete("x")
        assert caught.value.reason == "busy"
        now = sessions.read("x")
        assert (now.turns, now.messages[-1]) == (1, Result(call="2", name="t", content=UNDER_WAY, ok=False))
    finally:
        victim.kill()
        victim.communicate()
    expected = [*messages("first")[:3], Result(call="2", name="t", content=INTERRUPTED, ok=False)]
    assert asyncio.run(turn(sessions, *messages("second"))) == expected
    read = sessions.read("x")
    assert list(read.messages) == expected + messages("second")
    assert (read.turns, read.damaged, read.usage) == (2, 0, Usage(input=1))


def test_four_processes_take_turns_in_one_session(tmp_path):
    count = some(8, 200)
    said("crowd", tmp_path, "take_turns", 4, "x", count, timeout=some(60, 600))
    read = SessionStore(tmp_path).read("x")
    assert (read.turns, read.damaged, read.usage.input) == (4 * count, 0, 4 * count)
    size = len(messages(""))
    turns = [read.messages[start : start + size] for start in range(0, len(read.messages), size)]
    assert [list(one) for one in turns] == [messages(one[0].text) for one in turns]
    assert len({one[0].text for one in turns}) == 4 * count
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [one["turns"] for one in lines if one["type"] == "ended"] == list(range(1, 4 * count + 1))
    assert [one["type"] for one in lines].count("session") == 1


def test_turns_and_deletions_at_once_never_have_two_holders(tmp_path):
    said("crowd", tmp_path, "take_and_delete", 4, "x", some(0.5, 20))
    assert {path.name for path in tmp_path.iterdir()} <= {"x.jsonl", ".gitignore", ".onetool-state"}


def test_a_full_disk(tmp_path):
    sessions = SessionStore(tmp_path)
    asyncio.run(turn(sessions, User(text="before")))
    before = (tmp_path / "x.jsonl").read_bytes()
    count, *words = said("fill", tmp_path, "x", 2000)
    assert "the session x can't be written" in words[0]
    assert "File too large; what was said before is kept" in words[0]
    full = (tmp_path / "x.jsonl").read_bytes()
    assert full.startswith(before)
    assert len(full) == 2000
    assert not full.endswith(b"\n")
    read = sessions.read("x")
    assert (len(read.messages), read.damaged) == (int(count), 1)
    assert asyncio.run(turn(sessions, User(text="after"))) == list(read.messages)
    assert sessions.read("x").messages == (*read.messages, User(text="after"))
    assert (tmp_path / "x.jsonl").read_bytes().startswith(full + b"\n")


@pytest.mark.parametrize("call", ["open", "fstat", "pread", "write", "fsync", "stat"])
def test_the_system_says_no(tmp_path, monkeypatch, call):
    """An error in words, whichever call it is; the lock is given back; what was there is there."""
    sessions = SessionStore(tmp_path)
    asyncio.run(turn(sessions, User(text="before")))
    before = (tmp_path / "x.jsonl").read_bytes()

    def no(*_, **__):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        for module in (store, flock, os_files):
            patch.setattr(module, "os", _Faulty(call, no))
        with pytest.raises(SessionError, match="Input/output error"):
            asyncio.run(turn(sessions, User(text="a")))
    assert (tmp_path / "x.jsonl").read_bytes().startswith(before)
    assert asyncio.run(turn(sessions, User(text="after")))[0] == User(text="before")


class _Faulty:
    def __init__(self, name, call):
        setattr(self, name, call)

    def __getattr__(self, name):
        return getattr(os, name)
