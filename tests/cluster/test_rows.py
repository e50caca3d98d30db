"""Members and the rows of MCP sessions and tasks, over both databases."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from helpers import until

from onetool.cluster import ROWS, ClusterSettings, derived_key, mcp_rows, members, row_signature
from onetool.cluster.cluster import Cluster
from onetool.cluster.mcp_rows import McpSessionRows, McpTaskRows, SessionState, UnreadableRowError
from onetool.cluster.members import Members
from onetool.database import DatabaseAwayError, postgres
from onetool.http.asgi import HttpError
from onetool.interfaces.http.listen import listen_unix

pytestmark = pytest.mark.attack("replicas")

STATE = SessionState(revision="2025-11-25", capabilities={"roots": {}}, name="é\0", menu="direct", watched=("a://b",))


def settings(shared, address="127.0.0.1:1"):
    return ClusterSettings(address, b"k", shared)


def test_who_is_there(shared, monkeypatch):
    monkeypatch.setattr(members, "BEAT_S", 0.02)
    one, two = Members(settings(shared, "unix:/a")), Members(settings(shared, "unix:/b"), "abcdef01")
    beats = []
    one.on_beat(lambda: beats.append(1) or 1 / 0)  # which harms nobody
    one.start()
    two.start()
    assert [(found.id, found.address) for found in two.alive()] == [(one.id, "unix:/a"), ("abcdef01", "unix:/b")]
    assert one.find("abcdef01").address == "unix:/b"
    assert one.find("nobody") is None
    assert abs(one.now() - time.time()) < 5
    two.drain()
    until(lambda: one.find("abcdef01").is_draining)
    two.close()
    until(lambda: len(one.alive()) == 1)
    until(lambda: len(beats) > 2)
    assert one.find("abcdef01") is None
    one.close()


def test_while_the_database_is_away_an_unknown_replica_is_not_called_gone(shared, monkeypatch):
    def away(_):
        raise DatabaseAwayError("it is away")

    monkeypatch.setattr(shared, "read", away)
    with pytest.raises(HttpError) as caught:
        asyncio.run(Cluster(settings(shared)).other("abcdef01"))
    assert (caught.value.status, caught.value.code) == (503, "database_away")


def test_the_oldest_is_one_of_them(shared):
    one, other = Members(settings(shared, "a:1"), "00000001"), Members(settings(shared, "b:1"), "00000002")
    assert one.is_oldest()  # it knows of nobody yet
    for each in (one, other, one):
        each._beat()
    assert [each.is_oldest() for each in (one, other)] == [True, False]
    one.close()
    other._beat()
    assert other.is_oldest()


def test_a_step_of_the_machines_clock_changes_no_time(database, monkeypatch):
    monkeypatch.setattr(members, "BEAT_S", 600.0)  # as if the database were away for the next ones
    one = Members(settings(database))
    one.start()
    before = one.now()
    monkeypatch.setattr(postgres, "time", lambda: time.time() + 3600)
    assert before <= one.now() < before + 1800  # else the others refuse what it forwards
    one.close()


def test_what_fails_at_the_end_leaves_no_row(shared):
    cluster, called = Cluster(settings(shared)), []
    cluster.on_close += [lambda: 1 / 0, lambda: called.append(cluster.members.find(cluster.id).id)]
    cluster.start(listen_unix)
    with pytest.raises(ZeroDivisionError):
        cluster.close()
    assert called == [cluster.id]
    assert shared.read(lambda work: work.execute("SELECT id FROM replicas")) == []


def test_who_falls_silent_is_gone(shared, monkeypatch):
    monkeypatch.setattr(members, "BEAT_S", 0.02)
    monkeypatch.setattr(members, "GONE_S", 0.3)
    one, two = Members(settings(shared)), Members(settings(shared))
    two.start()
    two._ended.set()  # as if it were killed: its row stays
    one.start()
    until(lambda: not one.is_alive(two.id))
    one.close()


def test_no_error_ends_the_heartbeat(shared, monkeypatch, caplog):
    monkeypatch.setattr(members, "BEAT_S", 0.02)
    beats, write = [], shared.write

    def failing(job, **options):
        beats.append(1)
        if len(beats) in (2, 3, 4):
            raise RuntimeError("can't start new thread")
        return write(job, **options)

    monkeypatch.setattr(shared, "write", failing)
    one = Members(settings(shared))
    one.start()
    until(lambda: len(beats) > 6)
    one.close()
    assert [record.getMessage() for record in caplog.records] == [
        "no heartbeat; using the replicas of the last one: RuntimeError: can't start new thread"
    ]


def test_a_session_is_read_changed_and_deleted(shared):
    rows = McpSessionRows(shared)
    assert rows.get("s") is None
    rows.add("s", "ada", STATE)
    assert rows.get("s") == ("ada", STATE, 1)

    def louder(state):
        return SessionState(
            **{**{name: getattr(state, name) for name in state.__struct_fields__}, "log_level": "debug"}
        )

    changed = rows.change("s", louder)
    assert (changed.version, changed.state.log_level, changed.state.watched) == (2, "debug", ("a://b",))
    assert rows.change("s", louder).version == 2
    assert rows.change("none", louder) is None
    assert rows.touch(["s", "none"]) == {"s": 2}
    rows.delete("s")
    assert rows.get("s") is None


def test_many_sessions_are_touched_with_a_few_statements(shared, monkeypatch):
    monkeypatch.setattr(mcp_rows, "BATCH_ROWS", 3)
    rows, statements, write = McpSessionRows(shared), [], shared.write
    for number in range(5):
        rows.add(f"s{number}", "ada", STATE)

    def counting(job):
        def counted(work):
            return job(SimpleNamespace(execute=lambda *args: statements.append(args) or work.execute(*args)))

        return write(counted)

    monkeypatch.setattr(shared, "write", counting)
    assert rows.touch(["none", "s4", "s2", "s0", "s3", "s1", "s1"]) == {f"s{number}": 1 for number in range(5)}
    assert [params for _, params in statements] == [("none", "s0", "s1"), ("s2", "s3", "s4")]
    assert rows.touch([]) == {}


def test_two_changes_at_once_both_count(shared):
    rows = McpSessionRows(shared)
    rows.add("s", "ada", STATE)
    is_first = True

    def add(uri):
        return lambda state: SessionState(revision=state.revision, watched=(*state.watched, uri))

    def late(state):
        nonlocal is_first
        if is_first:
            is_first = False
            rows.change("s", add("b://"))
        return add("c://")(state)

    rows.change("s", late)
    assert rows.get("s").state.watched == ("a://b", "b://", "c://")


def test_sessions_are_swept(shared):
    rows = McpSessionRows(shared)
    for number in range(5):
        rows.add(f"a{number}", "ada", STATE)
        rows.add(f"b{number}", "bob" if number < 2 else "ada", STATE)
    rows.sweep(3600, 7)
    left = [id for number in range(5) for id in (f"a{number}", f"b{number}") if rows.get(id)]
    assert len(left) == 7
    assert {"b0", "b1"} <= set(left)  # nobody pushes out the sessions of others
    shared.write(lambda work: work.execute("UPDATE mcp_sessions SET used_at = used_at - 100"))
    rows.touch(["b0"])
    rows.sweep(50, 7)
    assert [id for id in left if rows.get(id)] == ["b0"]


def test_one_caller_fills_no_disk_with_sessions(shared, monkeypatch):
    monkeypatch.setattr(mcp_rows, "BATCH_ROWS", 10)
    rows = McpSessionRows(shared)
    rows.add("a", "ada", STATE)
    for number in range(45):
        rows.add(f"m{number}", "mallory", STATE)
    rows.sweep(3600, 7)
    assert len([number for number in range(45) if rows.get(f"m{number}")]) == 6
    assert rows.get("a")


def test_tasks(shared):
    rows = McpTaskRows(shared)
    rows.begin("t", "ada", "r", 100)
    assert rows.get("t") == ("ada", "r", "working", None)
    rows.end("t", "ada", "r", 100, {"status": "completed", "result": {"x": "é\0"}})
    rows.begin("t", "ada", "r", 100)  # it comes late
    assert rows.get("t").body == {"status": "completed", "result": {"x": "é\0"}}
    rows.begin("old", "ada", "r", -1)
    assert rows.get("old") is None
    McpSessionRows(shared).sweep(3600, 7)
    assert shared.read(lambda work: work.execute("SELECT id FROM mcp_tasks")) == [("t",)]


def test_a_sweep_that_finds_nothing_costs_one_statement(shared, monkeypatch):
    McpSessionRows(shared).add("a", "ada", STATE)
    McpTaskRows(shared).begin("t", "ada", "r", 100)
    real, statements = shared.write, []

    def write(job, *, apart):
        assert apart  # else BEGIN and COMMIT would be two more

        def counted(work):
            monkeypatch.setattr(type(work), "execute", lambda *args: statements.append(args[1]) or execute(*args))
            return job(work)

        return real(counted, apart=apart)

    execute = real(lambda work: type(work).execute)
    monkeypatch.setattr(shared, "write", write)
    McpSessionRows(shared).sweep(3600, 7)
    assert len(statements) == 1


NO_ADDRESSES = (
    "nonsense",
    "host:notaport",
    "a..b:80",
    "a:0",
    "a:70000",
    "a b:80",
    "a\r\nb:80",
    "x" * 70 + ":80",
    "unix:/b",
)


@pytest.mark.parametrize("address", NO_ADDRESSES)
def test_a_row_without_an_address_is_nobody(shared, address):
    add_row(shared, "deadbeef", address)
    one = Members(settings(shared, "[::1]:80"))
    one.start()
    assert [found.id for found in one.alive()] == [one.id]
    assert one.find("deadbeef") is None
    one.close()


@pytest.mark.parametrize(("since", "later"), [("0", 1e15), ("0", 60.0), ("'NaN'", 0.0), ("'Infinity'", 0.0)])
def test_a_row_of_no_time_is_nobody(shared, since, later):
    add_row(shared, "deadbeef", "a:1", since, later)
    one = Members(settings(shared))
    one.start()
    assert one.find("deadbeef") is None
    assert not one.is_alive("deadbeef")
    one.close()


def test_a_beat_writes_the_address_anew(shared, monkeypatch):
    monkeypatch.setattr(members, "BEAT_S", 0.02)
    one = Members(settings(shared, "a:1"))
    one.start()
    shared.write(lambda work: work.execute("UPDATE replicas SET address = 'evil:1', since = 1e18"))
    ours = "SELECT count(*) FROM replicas WHERE address = 'a:1' AND since < 1e15"
    until(lambda: shared.read(lambda work: work.execute(ours))[0][0] == 1)
    one.close()


def add_row(shared, id, address, since="0", later=0.0):
    """A row that a holder of the key has written."""
    sql = f"INSERT INTO replicas VALUES (%s, %s, '9', {since}, %s, false, %s, '')"

    def job(work):
        seen_at = work.execute(f"SELECT {shared.clock}")[0][0] + later
        signature = row_signature(derived_key(b"k", ROWS), id, address, "9", False, seen_at)
        work.execute(sql, (id, address, seen_at, signature))

    shared.write(job)


@pytest.mark.parametrize("body", ["[]", "{bad", '{"revision":7}', ""])
def test_rows_that_cannot_be_read(shared, body):
    sessions, tasks = McpSessionRows(shared), McpTaskRows(shared)
    sessions.add("a", "ada", STATE)
    tasks.end("t", "ada", "r", 60, {"status": "completed"})
    shared.write(lambda work: work.execute("UPDATE mcp_sessions SET body = %s", (body,)))
    shared.write(lambda work: work.execute("UPDATE mcp_tasks SET body = %s", (body,)))
    with pytest.raises(UnreadableRowError):
        sessions.get("a")
    assert sessions.touch(["a"]) == {"a": 1}
    assert tasks.get("t").body in (None, {"revision": 7})


def test_half_of_a_surrogate_pair_can_be_written(shared):
    McpSessionRows(shared).add("a", "ada", SessionState(revision="2025-11-25", name="a\ud800b"))
    assert McpSessionRows(shared).get("a").state.name == "a\ufffdb"


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


def test_a_row_that_is_nested_too_deeply_is_one_that_cannot_be_read(shared):
    sessions, tasks = McpSessionRows(shared), McpTaskRows(shared)
    sessions.add("s", "anna", STATE)
    tasks.end("t", "anna", "r", 60, {"status": "completed"})
    deep = '{"revision": "1", "capabilities": ' + DEEP + "}"
    shared.write(lambda work: work.execute("UPDATE mcp_sessions SET body = %s", (deep,)))
    shared.write(lambda work: work.execute("UPDATE mcp_tasks SET body = %s", (DEEP,)))
    with pytest.raises(UnreadableRowError):
        sessions.get("s")
    assert tasks.get("t").body is None


@pytest.mark.parametrize("shared", ["postgres"], indirect=True)
def test_no_function_of_another_schema_tells_the_time(shared):
    def job(work):
        work.execute("CREATE SCHEMA evil")
        work.execute(
            "CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT to_timestamp(1) $$"
        )
        work.execute(
            "CREATE FUNCTION evil.date_part(text, timestamptz) RETURNS float8 LANGUAGE sql AS $$ SELECT 1.0::float8 $$"
        )
        work.execute("SET LOCAL search_path = evil, pg_catalog")
        now = work.execute(f"SELECT {shared.clock}")[0][0]
        work.execute("DROP SCHEMA evil CASCADE")
        return now

    assert shared.write(job) > 1_000_000_000


def test_replicas_of_another_version_are_named_once(shared, monkeypatch, caplog):
    one, other = Members(settings(shared, "a:1")), Members(settings(shared, "b:1"))
    monkeypatch.setattr(members, "__version__", "9.9")
    other._beat()
    monkeypatch.undo()
    for _ in range(2):
        one._beat()
    assert [record.getMessage() for record in caplog.records] == [
        f"replica {other.id} at b:1 has version 9.9 of OneTool, and this one has {members.__version__}"
    ]
