"""One turn at a time among all processes and replicas; what a turn does while the database is away."""

import asyncio
import threading
import time
from contextlib import suppress

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
        self.clock, self.process_name, self.find_process = database.clock, database.process_name, database.find_process
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


@on_both
def test_a_session_goes_on_at_another_replica_while_the_first_can_not_have_it(sessions, other):
    async def turns():
        async with sessions.turn(None) as session:
            session.append(User(text="a"))
            session.append(Assistant(calls=(Call(id="1", name="t"),)))
            await session.settle()
            assert other.read(session.id).messages[-1].content == UNDER_WAY
            for change in (other.delete, lambda name: other.rename(name, "x")):
                with pytest.raises(SessionError) as caught:
                    change(session.id)
                assert caught.value.reason == "busy"
            with pytest.raises(SessionError, match="in use by"):
                await entered(other, session.id)
            waiting = asyncio.create_task(entered(other, session.id, wait=20))
            await asyncio.sleep(0.05)
            session.append(Result(call="1", name="t", content="3"))
            session.end("p", "m", USAGE, 1)
        assert (await waiting)[1][-1].content == "3"
        return session.id

    id = asyncio.run(turns())
    said(other, id, "b")
    assert [one.text for one in sessions.read("last").messages if isinstance(one, User)] == ["a", "b"]


@on_both
def test_who_ended_without_a_word_loses_the_session_when_its_lease_ends(sessions, harness):
    async def turns():
        async with sessions.turn("x") as dead:
            dead.append(User(text="a"))
            dead.append(Assistant(calls=(Call(id="1", name="t"),)))
            await dead.settle()
            with pytest.raises(SessionError, match="in use"):
                await entered(sessions, "x")
            harness.write("UPDATE ask_sessions SET until = until - 16")
            async with sessions.turn("x") as later:
                assert later.messages[-1].content == INTERRUPTED
                later.append(User(text="b"))
                await later.settle()
                dead.append(User(text="from the dead"))
                with pytest.raises(SessionError, match="another turn has taken it"):
                    await dead.settle()

    with pytest.raises(SessionError, match="another turn has taken it"):
        asyncio.run(turns())
    assert [one.text for one in sessions.read("x").messages if isinstance(one, User)] == ["a", "b"]


@on_both
def test_a_lease_is_renewed_while_nothing_is_said(sessions, harness, monkeypatch):
    monkeypatch.setattr("onetool.ask.sessions.rows.RENEW_S", 0.02)

    async def turn():
        async with sessions.turn("x"):
            harness.write("UPDATE ask_sessions SET until = 0")
            until = time.monotonic() + 10
            while time.monotonic() < until:
                [(at,)] = harness.write("SELECT until FROM ask_sessions")
                if at:
                    return True
                await asyncio.sleep(0.01)
        return False

    assert asyncio.run(turn())


def test_what_is_said_holds_up_no_loop(broken):
    """The database answers when the loop says so."""
    sessions, go_on = SessionStore(broken), threading.Event()

    async def turn():
        async with sessions.turn("x") as session:
            write = broken.write
            broken.write = lambda job, durable=False: go_on.wait(10) and write(job)
            session.append(User(text="a"))
            go_on.set()

    asyncio.run(turn())
    assert sessions.read("x").turns == 1


def test_a_database_that_is_away_for_a_moment_is_waited_for(broken):
    sessions = SessionStore(broken)

    async def turn():
        async with sessions.turn("x") as session:
            broken.error = DatabaseAwayError("gone")
            session.append(User(text="a"))
            while not broken.refused:
                await asyncio.sleep(0.01)
            session.append(Assistant(text="b"))
            broken.error = None
            await session.settle()

    asyncio.run(turn())
    assert [one.text for one in sessions.read("x").messages] == ["a", "b"]


def test_one_that_stays_away_is_told_and_no_tool_is_called(broken, monkeypatch):
    monkeypatch.setattr("onetool.ask.sessions.rows.MAX_AWAY_S", 0.05)
    monkeypatch.setattr("onetool.ask.sessions.rows.RETRY_S", 0.01)
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


def test_who_waits_is_told_of_what_nobody_foresaw(broken):
    async def turn():
        async with SessionStore(broken).turn("x") as session:
            broken.error = RuntimeError("can't start new thread")
            session.append(User(text="a"))
            async with asyncio.timeout(20):
                await session.settle()

    assert "RuntimeError: can't start new thread" in str(refused(turn(), "session"))


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


@on_both
def test_many_take_turns(sessions, open_another):
    """Each sees what all before it have said."""

    def turns(number):
        own = open_another()

        async def take():
            for _ in range(3):
                async with SessionStore(own).turn("x", wait=60) as session:
                    before = len(session.messages)
                    session.append(User(text=f"{number} after {before}"))

        asyncio.run(take())

    threads = [threading.Thread(target=turns, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    told = [one.text for one in sessions.read("x").messages]
    assert [int(text.split()[-1]) for text in told] == list(range(12))


def test_the_session_of_a_process_that_has_ended_is_free_at_once(sessions, open_another):
    """On one machine; replicas wait for the end of the lease."""

    async def turns():
        ended = open_another()
        async with SessionStore(ended).turn("x") as dead:
            dead.append(User(text="a"))
            dead.append(Assistant(calls=(Call(id="1", name="t"),)))
            await dead.settle()
            assert sessions.read("x").messages[-1].content == UNDER_WAY
            ended.close()  # as the end of its process would: its lock is gone
            assert sessions.read("x").messages[-1].content == INTERRUPTED
            sessions.rename("x", "Tea")
            async with sessions.turn("x") as session:
                session.append(User(text="b"))

    with suppress(SessionError):  # the turn of the dead can't be finished
        asyncio.run(turns())
    assert [one.text for one in sessions.read("x").messages if isinstance(one, User)] == ["a", "b"]
    assert sessions.info("x").title == "Tea"


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


@on_both
def test_sessions_that_killed_turns_left_empty_are_removed(sessions, harness):
    for id, age in (("old", 7200), ("new", 0)):
        harness.write(
            "INSERT INTO ask_sessions (owner, id, modified, size, lines, first, ended, titled, questions) "
            f"VALUES ('', '{id}', {harness.database.clock} - {age}, 0, 0, '', '', '', 0)"
        )

    async def turn():
        async with sessions.turn("x") as session:
            session.append(User(text="a"))
            await session.settle()

    asyncio.run(turn())
    rows = harness.database.read(lambda work: work.execute("SELECT id FROM ask_sessions ORDER BY id"))
    assert rows == [("new",), ("x",)]
