"""Documents behave the same in SQLite and in PostgreSQL: locks, what is encrypted, what is known while it is away."""

import asyncio
import threading

import pytest
from helpers import until

from onetool.database import DatabaseAwayError
from onetool.database import documents as documents_module
from onetool.database.documents import Documents
from onetool.database.encryption import Seal, SealError
from onetool.database.postgres import Postgres
from onetool.database.sqlite import SqliteDatabase

SECRET = b"a secret that all replicas know, and nobody else"


@pytest.fixture(params=["sqlite", "postgres", "sealed"])
def two(request, tmp_path):
    """The documents as two processes see them."""
    if request.param == "sqlite":
        files = (SqliteDatabase(tmp_path / "state.db") for _ in range(2))
        yield tuple(Documents(one, "things", None, "at once") for one in files)
        return
    database, other = request.getfixturevalue("database"), Postgres(request.getfixturevalue("database_url"))
    seal = Seal(lambda: [SECRET]) if request.param == "sealed" else None
    yield tuple(Documents(one, "things", seal, "at once") for one in (database, other))
    other.close()


@pytest.fixture
def waits(monkeypatch):
    """Set when somebody waits for a lock on the event loop: it pauses between two attempts."""
    found, sleep = asyncio.Event(), asyncio.sleep

    async def pause(seconds):
        found.set()
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    return found


def test_commits_of_others_cost_a_look_at_the_version_alone(tmp_path, monkeypatch):
    file = tmp_path / "state.db"
    mine, theirs = SqliteDatabase(file), SqliteDatabase(file)
    documents, others = Documents(mine, "things", None, "at once"), Documents(theirs, "things", None, "at once")
    others.write("a", b"1")
    version = documents.load("a").version
    assert documents.load("b").version is None
    monkeypatch.setattr(mine, "read", None)  # it would be a transaction
    for number in range(3):
        others.write("c", b"%d" % number)
        assert (documents.version("a"), documents.version("b")) == (version, None)
    monkeypatch.undo()
    others.write("b", b"2")
    others.delete("a")
    assert (documents.version("a"), documents.read("b")) == (None, b"2")


def test_what_is_written_is_read_by_all(two):
    one, other = two
    assert (one.read("a"), one.version("a"), other.keys()) == (None, None, [])
    version = one.write("a", b"1")
    assert one.version("a") == version == one.load("a").version
    assert (one.read("a"), other.read("a"), other.keys()) == (b"1", b"1", ["a"])
    before = other.version("a")
    other.write("b", b"2")
    one.write("a", b"3")
    until(lambda: other.version("a") != before)
    assert (other.read("a"), other.keys()) == (b"3", ["a", "b"])
    assert [one.delete("a"), one.delete("a")] == [True, False]
    until(lambda: other.version("a") is None)
    assert (one.read("a"), other.read("a"), one.keys()) == (None, None, ["b"])


def test_nothing_is_lost_where_many_change_one_document(two):
    def add(documents):
        for _ in range(10):
            with documents.locked("n", 30) as held:
                held.write(b"%d" % (int(held.load().body or 0) + 1))

    threads = [threading.Thread(target=add, args=(documents,)) for documents in (*two, *two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with two[0].locked("n", 1) as held:
        assert held.load().body == b"40"


def test_who_waits_for_a_lock_waits_so_long_and_no_longer(two):
    one, other = two
    with one.locked("a", 1):
        with pytest.raises(TimeoutError), other.locked("a", 0.1):
            pass
        with other.locked("b", 1):  # another document
            pass

        async def in_vain():
            async with other.locked_async("a", 0.1):
                pass

        with pytest.raises(TimeoutError):
            asyncio.run(in_vain())
    with other.locked("a", 1) as held:
        held.check()


def test_an_event_loop_goes_on_while_it_waits_and_gets_the_lock(two, waits):
    one, other = two
    order = []

    async def first(begun):
        async with one.locked_async("a", 5) as held:
            begun.set()
            await waits.wait()
            await asyncio.to_thread(held.write, b"1")
            order.append("first")

    async def second(begun):
        await begun.wait()
        async with other.locked_async("a", 5) as held:
            order.append((await asyncio.to_thread(held.load)).body)

    async def both():
        begun = asyncio.Event()
        await asyncio.gather(first(begun), second(begun))

    asyncio.run(both())
    assert order == ["first", b"1"]


def test_who_is_cancelled_while_it_waits_holds_nothing(two, waits):
    one, other = two

    async def cancelled():
        async def wait():
            async with other.locked_async("a", 30):
                pass

        task = asyncio.create_task(wait())
        await waits.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    with one.locked("a", 1):
        asyncio.run(cancelled())
    with one.locked("a", 1):
        pass


# SQLite alone


def test_a_change_that_was_committed_before_is_seen_at_once(tmp_path):
    one, other = (Documents(SqliteDatabase(tmp_path / "state.db"), "things") for _ in range(2))
    for number in range(5):
        version = one.write("a", b"%d" % number)
        assert (other.version("a") == version) or number == 0  # what was never asked for is not known
        assert other.read("a") == b"%d" % number
    one.delete("a")
    assert (other.version("a"), other.read("a")) == (None, None)


def test_a_change_of_something_else_reads_no_body_again(tmp_path):
    one, other = (Documents(SqliteDatabase(tmp_path / "state.db"), "things") for _ in range(2))
    one.write("a", b"1")
    body = other.load("a").body
    one.write("b", b"2")
    assert other.load("a").body is body


def test_what_was_read_from_a_log_that_is_gone_does_not_count(tmp_path):
    """Also while another thread still reads from it."""
    database = SqliteDatabase(tmp_path / "state.db")
    documents, is_reading, ends = Documents(database, "things"), threading.Event(), threading.Event()
    documents.write("a", b"1")
    documents.read("a")
    database.shrink()  # now the file has everything
    reader = threading.Thread(target=database.read, args=(lambda _: (is_reading.set(), ends.wait()),))
    reader.start()
    is_reading.wait()
    for end in ("-wal", "-shm"):
        (tmp_path / f"state.db{end}").unlink()
    with pytest.raises(DatabaseAwayError, match=r"its log was replaced"):
        documents.read("a")
    ends.set()
    reader.join()
    assert documents.read("a") == b"1"


# PostgreSQL alone


def ended(database):
    """All of its connections, but the one that does this."""
    with database.connect(autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def test_a_lock_that_was_lost_with_its_connection_is_told(database, database_url):
    other = Postgres(database_url)
    with Documents(database, "things").locked("a", 1) as held:
        held.check()
        ended(other)
        for _ in range(2):
            with pytest.raises(DatabaseAwayError):
                held.check()
        with Documents(other, "things").locked("a", 1):  # somebody else may have it now
            pass
        with pytest.raises(DatabaseAwayError):
            held.check()
    other.close()


@pytest.mark.long
def test_what_is_known_goes_on_while_the_database_is_away(postgres, database):
    documents = Documents(database, "things", follow="at once")
    documents.write("a", b"1")
    assert (documents.read("a"), documents.read("none")) == (b"1", None)
    version = documents.version("a")
    postgres.stop()
    try:
        with pytest.raises(DatabaseAwayError):
            documents.write("a", b"2")
        assert (documents.version("a"), documents.read("a"), documents.read("none")) == (version, b"1", None)
        with pytest.raises(DatabaseAwayError):
            documents.read("never asked for")
        with pytest.raises(DatabaseAwayError), documents.locked("a", 5):
            pass
    finally:
        assert postgres.start_again()
    until(lambda: not database.is_away)
    until(lambda: documents.version("never asked for") is None)  # it was followed from then on
    documents.write("a", b"2")
    assert documents.read("a") == b"2"


def test_a_question_that_is_asked_once_starts_no_listener(database, database_url, monkeypatch):
    monkeypatch.setattr(documents_module, "FRESH_S", float("inf"))
    documents, other = Documents(database, "things"), Postgres(database_url)
    documents.write("a", b"1")
    fresh = Documents(other, "things")
    assert (fresh.read("a"), fresh.read("a"), other._listener) == (b"1", b"1", None)
    documents.write("a", b"2")
    monkeypatch.setattr(documents_module, "FRESH_S", 0.0)
    assert fresh.version("a") != fresh.version("a")  # not known any more
    assert fresh.read("a") == b"2"
    assert other._listener is not None
    other.close()


def rows(database):
    return database.read(lambda work: work.execute("SELECT body FROM documents ORDER BY key"))


def test_what_is_sealed_is_read_by_nobody_who_has_the_database_alone(database):
    sealed = Documents(database, "things", Seal(lambda: [SECRET]), "never")
    sealed.write("a", b"hunter2")
    sealed.write("b", b"hunter2")
    (one,), (other,) = rows(database)
    assert b"hunter2" not in bytes(one)
    assert bytes(one) != bytes(other)
    assert sealed.read("a") == b"hunter2"
    with pytest.raises(SealError, match=r"things/a .* another cluster\.key"):
        Documents(database, "things", Seal(lambda: [b"another"]), "never").read("a")
    both = Documents(database, "things", Seal(lambda: [b"another", SECRET]), "never")
    assert both.read("a") == b"hunter2"
    both.write("a", b"hunter3")  # with the first key
    with pytest.raises(SealError):
        sealed.read("a")


@pytest.mark.parametrize("how", ["moved", "changed", "cut", "plain"])
def test_what_was_tampered_with_is_not_taken(database, how):
    sealed = Documents(database, "things", Seal(lambda: [SECRET]), "never")
    sealed.write("a", b"hunter2")
    sealed.write("b", b"hunter3")
    body = bytes(rows(database)[0][0])
    new = {"moved": bytes(rows(database)[1][0]), "changed": body[:-1] + b"x", "cut": body[:20], "plain": b"hunter2"}
    database.write(lambda work: work.execute("UPDATE documents SET body = %s WHERE key = 'a'", (new[how],)))
    with pytest.raises(SealError, match="damaged"):
        sealed.read("a")
