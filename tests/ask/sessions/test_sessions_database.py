"""Sessions in a database: one that was begun at one replica goes on at another, one turn at a time."""

import asyncio
import threading
import time

import pytest
from ask.sessions.test_sessions import USAGE, entered, refused, said
from onetool.ask.sessions.moving import SessionMover

from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Call, Result, User
from onetool.ask.sessions import SessionStore
from onetool.ask.sessions.database import DatabaseSessions
from onetool.ask.sessions.records import INTERRUPTED, UNDER_WAY
from onetool.database import ChangeUnknownError, DatabaseAwayError
from onetool.database.moving import Moved, MoveOptions
from onetool.database.postgres import Postgres


@pytest.fixture
def sessions(database):
    return DatabaseSessions(database)


@pytest.fixture
def other(database_url, database, monkeypatch):
    """Of another replica."""
    found = Postgres(database_url)
    yield DatabaseSessions(found)
    found.close()


class Broken:
    """A database that can be broken: `error` is raised before a write, or with `is_done` after it."""

    def __init__(self, database):
        self._database = database
        self.clock = database.clock
        self.error, self.is_done, self.refused = None, False, 0

    def read(self, job):
        return self.write(job)

    def write(self, job):
        if self.error is not None and not self.is_done:
            self.refused += 1
            raise self.error
        done = self._database.write(job)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return done


@pytest.fixture
def broken(database):
    return Broken(database)


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


def test_who_ended_without_a_word_loses_the_session_when_its_lease_ends(sessions, database, monkeypatch):
    monkeypatch.setattr("onetool.ask.sessions.database.LEASE_S", 15.0)

    async def turns():
        async with sessions.turn("x") as dead:
            dead.append(User(text="a"))
            dead.append(Assistant(calls=(Call(id="1", name="t"),)))
            await dead.settle()
            with pytest.raises(SessionError, match="in use"):
                await entered(sessions, "x")
            database.write(lambda work: work.execute("UPDATE ask_sessions SET until = until - 16"))
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


def test_a_lease_is_renewed_while_nothing_is_said(sessions, database, monkeypatch):
    monkeypatch.setattr("onetool.ask.sessions.database.RENEW_S", 0.02)

    async def turn():
        async with sessions.turn("x"):
            database.write(lambda work: work.execute("UPDATE ask_sessions SET until = 0"))
            until = time.monotonic() + 10
            while time.monotonic() < until:
                [(at,)] = database.read(lambda work: work.execute("SELECT until FROM ask_sessions"))
                if at:
                    return True
                await asyncio.sleep(0.01)
        return False

    assert asyncio.run(turn())


def test_what_is_said_holds_up_no_loop(broken):
    """The database answers when the loop says so."""
    sessions, go_on = DatabaseSessions(broken), threading.Event()

    async def turn():
        async with sessions.turn("x") as session:
            write = broken.write
            broken.write = lambda job: go_on.wait(10) and write(job)
            session.append(User(text="a"))
            go_on.set()

    asyncio.run(turn())
    assert sessions.read("x").turns == 1


def test_a_database_that_is_away_for_a_moment_is_waited_for(broken):
    sessions = DatabaseSessions(broken)

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
    monkeypatch.setattr("onetool.ask.sessions.database.PATIENCE_S", 0.05)
    monkeypatch.setattr("onetool.ask.sessions.database.RETRY_S", 0.01)
    sessions = DatabaseSessions(broken)

    async def turn():
        async with sessions.turn("x") as session:
            broken.error = DatabaseAwayError("gone")
            session.append(User(text="a"))
            await session.settle()

    assert "the database can't be reached" in str(refused(turn(), "database_away"))
    assert "the database can't be reached" in str(refused(entered(sessions, None), "database_away"))
    for read in (sessions.list, lambda: sessions.read("x"), lambda: sessions.delete("x"), lambda: sessions.has("x")):
        with pytest.raises(SessionError) as caught:
            read()
        assert caught.value.reason == "database_away"


def test_who_waits_is_told_of_what_nobody_foresaw(broken):
    async def turn():
        async with DatabaseSessions(broken).turn("x") as session:
            broken.error = RuntimeError("can't start new thread")
            session.append(User(text="a"))
            async with asyncio.timeout(20):
                await session.settle()

    assert "RuntimeError: can't start new thread" in str(refused(turn(), "session"))


def test_a_write_whose_end_is_unknown_is_repeated_and_counts_once(broken):
    sessions = DatabaseSessions(broken)

    async def turn():
        async with sessions.turn("x") as session:
            broken.error, broken.is_done = ChangeUnknownError(), True
            session.append(User(text="a"))
            session.end("p", "m", USAGE, 1)

    asyncio.run(turn())
    read = sessions.read("x")
    assert (read.turns, len(read.messages), len(read.ended)) == (1, 1, 1)
    assert sessions.info("x").size > 0


def test_many_replicas_take_turns(database_url, database):
    """Each sees what all before it have said."""

    def turns(number):
        own = Postgres(database_url)

        async def take():
            for _ in range(3):
                async with DatabaseSessions(own).turn("x", wait=60) as session:
                    before = len(session.messages)
                    session.append(User(text=f"{number} after {before}"))

        asyncio.run(take())
        own.close()

    threads = [threading.Thread(target=turns, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    told = [one.text for one in DatabaseSessions(database).read("x").messages]
    assert [int(text.split()[-1]) for text in told] == list(range(12))


def test_nothing_is_lost_on_the_way_from_a_folder_and_back(database, tmp_path):
    folder, back = tmp_path / "sessions", tmp_path / "back" / "sessions"
    for owner in ("", "ada", "https://id.example.com|b"):
        said(SessionStore(folder, owner=owner), "trip", f"of {owner}", "more")
        SessionStore(folder, owner=owner).rename("trip", "A \u2028 title")
    said(SessionStore(folder), "open", "x", end=False)
    (folder / "torn.jsonl").write_bytes((folder / "trip.jsonl").read_bytes()[:-20] + b"\n\0\r\x85\n")
    (folder / "empty.jsonl").touch()
    before = {path.relative_to(folder): path for path in folder.rglob("*.jsonl") if path.stat().st_size}

    assert SessionMover().import_folder(tmp_path, database, MoveOptions()) == Moved(len(before)) == Moved(5)
    assert SessionMover().import_folder(tmp_path, database, MoveOptions()) == Moved(0, 5)
    for owner in ("", "ada", "https://id.example.com|b"):
        files, found = SessionStore(folder, owner=owner), DatabaseSessions(database, owner=owner)
        assert [(one.id, one.title, one.turns, one.usage, one.size, one.answered) for one in found.list()] == [
            (one.id, one.title, one.turns, one.usage, one.size, one.answered) for one in files.list()
        ]
        assert found.read("trip").messages == files.read("trip").messages
    said(DatabaseSessions(database, owner="ada"), "trip", "goes on")
    assert SessionMover().import_folder(tmp_path, database, MoveOptions()) == Moved(0, 5)

    assert SessionMover().export_folder(database, back.parent, MoveOptions()) == Moved(5)
    assert SessionMover().export_folder(database, back.parent, MoveOptions()) == Moved(0, 5)
    after = {path.relative_to(back): path for path in back.rglob("*.jsonl")}
    assert after.keys() == before.keys()
    for name, path in before.items():
        assert after[name].read_bytes().startswith(path.read_bytes())
        if len(after[name].read_bytes()) == path.stat().st_size:
            assert abs(after[name].stat().st_mtime - path.stat().st_mtime) < 1e-5
    assert SessionStore(back, owner="ada").read("trip").turns == 3


def test_another_session_of_the_same_name_stays_unless_it_is_forced(database, tmp_path):
    said(SessionStore(tmp_path / "sessions"), "trip", "of the folder")
    said(DatabaseSessions(database), "trip", "of the database")
    done = SessionMover().import_folder(tmp_path, database, MoveOptions())
    assert [(one.what, one.is_conflict) for one in done.left] == [(str(tmp_path / "sessions" / "trip.jsonl"), True)]
    assert DatabaseSessions(database).read("trip").messages[0].text == "of the database"
    assert SessionMover().import_folder(tmp_path, database, MoveOptions(force=True)) == Moved(1)
    assert DatabaseSessions(database).read("trip").messages == SessionStore(tmp_path / "sessions").read("trip").messages
