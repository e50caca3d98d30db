"""Members and the rows of MCP sessions and tasks, over both databases."""

from types import SimpleNamespace

import pytest
from helpers import until

from onetool.cluster import ClusterSettings, key_number, mcp_rows, members
from onetool.cluster.mcp_rows import McpSessionRows, McpTaskRows, SessionState, UnreadableRowError
from onetool.cluster.members import Members
from onetool.database.encryption import Seal, SealError

pytestmark = pytest.mark.attack("replicas")

STATE = SessionState(revision="2025-11-25", capabilities={"roots": {}}, name="é\0", menu="direct", watched=("a://b",))
SEAL = Seal(lambda: [b"k"])


def settings(shared, place="here:1"):
    return ClusterSettings(place, b"k", shared)


def test_who_is_there(shared, monkeypatch):
    monkeypatch.setattr(members, "BEAT_S", 0.02)
    one, two = Members(settings(shared, "a:1")), Members(settings(shared, "b:1"), "abcdef01")
    beats = []
    one.on_beat(lambda: beats.append(1) or 1 / 0)  # which harms nobody
    one.start()
    two.start()
    assert [(found.id, found.place) for found in two.alive()] == [(one.id, "a:1"), ("abcdef01", "b:1")]
    assert (one.fate("abcdef01"), one.fate("nobody")) == ("alive", "gone")
    two.drain()
    until(lambda: any(found.is_draining for found in one.alive()))
    two.close()
    until(lambda: len(one.alive()) == 1)
    until(lambda: len(beats) > 2)
    assert one.fate("abcdef01") == "gone"
    one.close()


def test_the_oldest_is_one_of_them(shared):
    one, other = Members(settings(shared, "a:1"), "00000001"), Members(settings(shared, "b:1"), "00000002")
    assert one.is_oldest()  # it knows of nobody yet
    for each in (one, other, one):
        each._beat()
    assert [each.is_oldest() for each in (one, other)] == [True, False]
    one.close()
    other._beat()
    assert other.is_oldest()


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
    rows = McpTaskRows(shared, SEAL)
    rows.put("t", "r", "ada", 100, {"status": "working"})
    assert rows.get("t") == ("ada", "r", {"status": "working"})
    rows.put("t", "r", "ada", 100, {"status": "completed", "result": {"x": "é\0 hidden"}})
    assert rows.get("t").body == {"status": "completed", "result": {"x": "é\0 hidden"}}
    assert b"hidden" not in bytes(shared.read(lambda work: work.execute("SELECT body FROM mcp_tasks"))[0][0])
    rows.put("old", "r", "ada", -1, {"status": "working"})
    assert rows.get("old") is None
    McpSessionRows(shared).sweep(3600, 7)
    assert shared.read(lambda work: work.execute("SELECT id FROM mcp_tasks")) == [("t",)]


def test_old_messages_are_swept(shared):
    receiver = Members(settings(shared))
    receiver.start()
    for id, to, left in (("new", receiver.id, 60), ("old", receiver.id, -1), ("gone", "r", 60)):
        sql = f"INSERT INTO messages VALUES (%s, %s, '', %s, NULL, {shared.clock} + %s)"
        shared.write(lambda work, sql=sql, row=(id, to, b"", left): work.execute(sql, row))
    McpSessionRows(shared).sweep(3600, 7)
    assert shared.read(lambda work: work.execute("SELECT id FROM messages")) == [("new",)]
    receiver.close()


def test_a_sweep_that_finds_nothing_costs_one_statement(shared, monkeypatch):
    McpSessionRows(shared).add("a", "ada", STATE)
    McpTaskRows(shared, SEAL).put("t", "r", "ada", 100, {"status": "working"})
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


@pytest.mark.parametrize("since", ["'NaN'", "'Infinity'"])
def test_a_row_of_no_time_is_nobody(shared, since):
    sql = f"INSERT INTO replicas VALUES ('deadbeef', 'a:1', '9', {since}, {shared.clock}, false, %s, '')"
    shared.write(lambda work: work.execute(sql, (key_number(b"k"),)))
    one = Members(settings(shared))
    one.start()
    assert [found.id for found in one.alive()] == [one.id]
    one.close()


@pytest.mark.parametrize("body", ["[]", "{bad", '{"revision":7}', ""])
def test_rows_that_cannot_be_read(shared, body):
    sessions, tasks = McpSessionRows(shared), McpTaskRows(shared, SEAL)
    sessions.add("a", "ada", STATE)
    tasks.put("t", "r", "ada", 60, {"status": "completed"})
    shared.write(lambda work: work.execute("UPDATE mcp_sessions SET body = %s", (body,)))
    shared.write(lambda work: work.execute("UPDATE mcp_tasks SET body = %s", (body.encode(),)))
    with pytest.raises(UnreadableRowError):
        sessions.get("a")
    assert sessions.touch(["a"]) == {"a": 1}
    with pytest.raises(SealError):
        tasks.get("t")


def test_half_of_a_surrogate_pair_can_be_written(shared):
    McpSessionRows(shared).add("a", "ada", SessionState(revision="2025-11-25", name="a\ud800b"))
    assert McpSessionRows(shared).get("a").state.name == "a\ufffdb"


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


def test_a_row_that_is_nested_too_deeply_is_one_that_cannot_be_read(shared):
    sessions = McpSessionRows(shared)
    sessions.add("s", "anna", STATE)
    deep = '{"revision": "1", "capabilities": ' + DEEP + "}"
    shared.write(lambda work: work.execute("UPDATE mcp_sessions SET body = %s", (deep,)))
    with pytest.raises(UnreadableRowError):
        sessions.get("s")


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
