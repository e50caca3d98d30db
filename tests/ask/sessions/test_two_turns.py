"""Two turns in one session, here and in two processes; what a turn does while the database is away."""

import asyncio

import pytest
from ask.sessions.harness import harness, on_both
from ask.sessions.test_sessions import USAGE, entered, refused, said

from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Call, Result, User
from onetool.ask.sessions import SessionStore
from onetool.ask.sessions.records import INTERRUPTED, UNDER_WAY
from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError
from onetool.database.postgres import Postgres
from onetool.database.sqlite import SqliteDatabase

__all__ = ["harness"]


@pytest.fixture
def sessions(harness):
    return harness.open()


@pytest.fixture
def open_another(request, harness):
    """Opens the same database again, as another process or replica does."""
    opened = []

    def open_it():
        is_file = isinstance(harness.database, SqliteDatabase)
        url = None if is_file else request.getfixturevalue("database_url")
        again = SqliteDatabase(harness.database.file, makes_folder=True) if is_file else Postgres(url)
        opened.append(again)
        return again

    yield open_it
    for one in opened:
        one.close()


@pytest.fixture
def other(open_another):
    return SessionStore(open_another())


class Broken:
    """A database that can be broken: `error` is raised before a write, or with `is_done` after it."""

    def __init__(self, database):
        self._database = database
        self.clock, self.describe = database.clock, database.describe
        self.error, self.is_done, self.refused = None, False, 0

    def read(self, job):
        return self.write(job)

    def write(self, job, durable=False):
        if self.error is not None and not self.is_done:
            self.refused += 1
            raise self.error
        done = self._database.write(job)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return done


@pytest.fixture
def broken(harness):
    return Broken(harness.database)


def test_a_database_that_is_away_for_a_moment_is_waited_for(broken):
    sessions = SessionStore(broken)

    async def turn():
        async with sessions.turn("x") as session:
            broken.error = DatabaseAwayError("gone")
            session.append(User(text="a"))
            session.append(Assistant(text="b"))
            writing = asyncio.create_task(session.settle())
            while not broken.refused:
                await asyncio.sleep(0.01)
            broken.error = None
            await writing

    asyncio.run(turn())
    assert [one.text for one in sessions.read("x").messages] == ["a", "b"]


def test_one_that_stays_away_is_told_and_no_tool_is_called(broken, monkeypatch):
    monkeypatch.setattr("onetool.ask.sessions.turn.MAX_AWAY_S", 0.05)
    monkeypatch.setattr("onetool.ask.sessions.turn.RETRY_S", 0.01)
    sessions = SessionStore(broken)

    async def turn():
        async with sessions.turn("x") as session:
            broken.error = DatabaseAwayError("gone")
            session.append(User(text="a"))
            await session.settle()

    error = refused(turn(), "not_stored")  # tools may have run before
    assert str(error) == "the session x can't be written: the database can't be reached"
    assert error.hints == ("calls of this turn may have changed something: check that before you repeat them",)
    assert "the database can't be reached" in str(refused(entered(sessions, None), "database_away"))
    for read in (sessions.list, lambda: sessions.read("x"), lambda: sessions.delete("x"), lambda: sessions.has("x")):
        with pytest.raises(SessionError) as caught:
            read()
        assert caught.value.reason == "database_away"


@on_both
def test_the_second_writer_is_refused_before_its_tool_runs(sessions, other, monkeypatch):
    """Turns of two processes: neither knows of the other before it writes."""
    said(sessions, "x", "before")
    monkeypatch.setattr(other._database, "describe", lambda: "another process")

    async def turns():
        async with sessions.turn("x") as first, other.turn("x") as second:
            first.append(User(text="a"))
            first.append(Assistant(calls=(Call(id="1", name="t"),)))
            second.append(User(text="b"))
            await first.settle()
            with pytest.raises(SessionError, match="x is in use: another turn has gone on with it") as caught:
                await second.settle()
            assert caught.value.reason == "busy"
            assert other.read("x").messages[-1].content == UNDER_WAY
            first.append(Result(call="1", name="t", content="3"))

    assert "in use" in str(refused(turns(), "busy"))
    assert [one.text for one in sessions.read("x").messages if isinstance(one, User)] == ["before", "a"]
    said(other, "x", "b")
    assert sessions.read("x").turns == 3


@on_both
def test_a_turn_whose_session_another_process_deletes_is_told(sessions, other, monkeypatch):
    said(sessions, "x", "before")
    monkeypatch.setattr(other._database, "describe", lambda: "another process")

    async def turn():
        async with sessions.turn("x") as session:
            session.append(User(text="a"))
            await session.settle()
            other.rename("x", "Tea")
            other.delete("x")
            session.append(Assistant(text="b"))

    assert "it was deleted" in str(refused(turn(), "session"))
    assert sessions.list() == []


def test_the_last_call_of_a_turn_that_was_killed_is_not_under_way_for_ever(sessions, harness):
    async def turn():
        async with sessions.turn("x") as session:
            session.append(User(text="a"))
            session.append(Assistant(calls=(Call(id="1", name="t"),)))

    asyncio.run(turn())
    assert sessions.read("x").messages[-1].content == UNDER_WAY
    harness.write("UPDATE ask_sessions SET modified = modified - 61")
    assert sessions.read("x").messages[-1].content == INTERRUPTED


@on_both
def test_a_write_whose_end_is_unknown_is_repeated_and_counts_once(broken):
    sessions = SessionStore(broken)

    async def turn():
        async with sessions.turn("x") as session:
            broken.error, broken.is_done = ChangeUnknownError(), True
            session.append(User(text="a"))
            session.end("p", "m", USAGE, 1)

    asyncio.run(turn())
    read = sessions.read("x")
    assert (read.turns, len(read.messages), len(read.ended)) == (1, 1, 1)
    assert sessions.info("x").size > 0


def test_a_write_that_the_database_refuses_is_told_and_nothing_else_is_lost(broken):
    sessions = SessionStore(broken)
    said(sessions, "x", "before")

    async def turn():
        async with sessions.turn("x") as session:
            broken.error = DatabaseError("state.db can't be used: database or disk is full")
            session.append(User(text="a"))
            await session.settle()

    assert "the session x can't be written: state.db can't be used: database or disk is full" in str(
        refused(turn(), "session")
    )
    broken.error = None
    assert [one.text for one in sessions.read("x").messages] == ["before", "re before"]
