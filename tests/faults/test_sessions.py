"""Processes that share a session, are killed in the middle of a turn, or can't write."""

import asyncio
import json
import sqlite3

import pytest
from ask.sessions.others import messages, other, said, store_in
from faults.crowd import some
from helpers import session_text

from onetool.ask.errors import SessionError
from onetool.ask.messages import Result, Usage, User
from onetool.ask.sessions.records import INTERRUPTED, UNDER_WAY
from onetool.database import sqlite


async def turn(sessions, *said, wait=0.0):
    async with sessions.turn("x", wait=wait) as session:
        before = list(session.messages)
        for message in said:
            session.append(message)
        if said:
            session.end("p", "m", Usage(input=1), 1)
        return before


def test_killed_in_mid_turn_and_continued(tmp_path):
    sessions = store_in(tmp_path)
    victim = other("hang", tmp_path, "x")
    try:
        assert victim.stdout.readline() == "ready\n"
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


@pytest.mark.long
def test_eight_processes_take_turns_in_one_session(tmp_path):
    """A turn that another process got ahead of is refused and tried again. Nothing is lost, doubled or out of order."""
    count = some(3, 100)
    ended = said("crowd", tmp_path, "take_turns", 8, "x", count, timeout=some(60, 600))
    read = store_in(tmp_path).read("x")
    assert read.damaged == 0
    lines = [json.loads(line) for line in session_text(tmp_path, "x").replace("}{", "}\n{").splitlines()]
    assert [one["type"] for one in lines].count("session") == 1
    assert len(ended) == 8 * count == read.turns == read.usage.input
    for text in ended:
        at = read.messages.index(User(text=text))
        assert list(read.messages[at : at + 5]) == messages(text)


def test_a_home_that_becomes_read_only(tmp_path, monkeypatch):
    sessions = store_in(tmp_path)
    asyncio.run(turn(sessions, User(text="before")))

    async def refused():
        async with sessions.turn("x") as session:
            for connection in sessions._database._idle:
                connection.execute("PRAGMA query_only = ON")
            session.append(User(text="a"))
            await session.settle()

    with pytest.raises(SessionError, match=r"the session x can't be written: .*readonly database"):
        asyncio.run(refused())
    assert [one.text for one in sessions.read("x").messages] == ["before"]


def test_a_locked_file_is_told_and_is_usable_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.01)
    monkeypatch.setattr("onetool.ask.sessions.turn.MAX_AWAY_S", 0.05)
    sessions = store_in(tmp_path)
    asyncio.run(turn(sessions, User(text="before")))
    sessions._database.close()
    holder = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(SessionError, match=r"x can't be written: state\.db is locked by another process") as caught:
        asyncio.run(turn(sessions, User(text="a")))
    assert caught.value.reason == "not_stored"
    assert [one.text for one in sessions.read("x").messages] == ["before"]  # reading goes on
    holder.close()
    assert asyncio.run(turn(sessions, User(text="after"))) == [User(text="before")]
