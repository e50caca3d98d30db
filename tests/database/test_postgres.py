"""PostgreSQL: the pool, the breaker, the listener. What SQLite does as well is in test_database.py."""

import threading

import pytest
from helpers import until

from onetool.database import ChangeUnknownError, DatabaseAwayError
from onetool.database.migrations import migrate
from onetool.database.postgres import Postgres


def count(database):
    return database.read(lambda work: work.execute("SELECT count(*) FROM documents"))[0][0]


def put(key, kind="test"):
    sql = "INSERT INTO documents (kind, key, body, version, modified_at) VALUES (%s, %s, %s, 1, 0)"
    return lambda work: work.execute(sql, (kind, key, b"{}"))


def test_an_idle_connection_that_was_lost_is_replaced(database):
    database.write(put("one"))
    with database.connect(autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    assert count(database) == 1
    assert not database.is_away


def test_a_connection_lost_while_a_change_is_confirmed_is_told_as_unknown(database):
    def job(work):
        put("one")(work)
        work.execute("SET LOCAL synchronous_commit = on")
        pid = work.execute("SELECT pg_backend_pid()")[0][0]
        with database.connect(autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 1000)", (pid,))

    with pytest.raises(ChangeUnknownError):
        database.write(job)
    assert not database.is_away


@pytest.mark.long
def test_while_it_is_away_calls_fail_at_once_and_it_comes_back_by_itself(postgres, database):
    database.write(put("one"))
    postgres.stop()
    try:
        with pytest.raises(DatabaseAwayError):
            count(database)
        assert database.is_away
        for _ in range(1000):  # a time-out each would be 3,000 s
            with pytest.raises(DatabaseAwayError):
                count(database)
    finally:
        assert postgres.start_again()
    until(lambda: not database.is_away)
    assert count(database) == 1


def test_who_listens_is_called_each_second_too(database):
    told = []
    forget = database.on_change("things", told.append)
    until(lambda: len(told) >= 3)
    forget()


def test_nothing_is_connected_before_the_first_use(database_url):
    one = Postgres(database_url)
    assert "onetool-database" not in {thread.name for thread in threading.enumerate()}
    one.close()
    with pytest.raises(DatabaseAwayError):
        count(one)


def test_more_threads_than_connections_wait_for_one(database, database_url, monkeypatch):
    monkeypatch.setattr("onetool.database.postgres.MAX_CONNECTIONS", 2)
    database = Postgres(database_url)
    found = []
    threads = [threading.Thread(target=lambda: found.append(count(database))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [0] * 20
    database.close()


@pytest.mark.long
def test_calls_that_wait_for_a_connection_fail_when_it_goes_away(postgres, database):
    count(database)
    failed, until_away = [], threading.Event()

    def call(work):
        until_away.wait(60)
        work.execute("SELECT 1")

    def fails():
        with pytest.raises(DatabaseAwayError):
            database.write(call)
        failed.append(1)

    threads = [threading.Thread(target=fails) for _ in range(20)]  # more than there are connections
    for thread in threads:
        thread.start()
    postgres.stop()
    until_away.set()
    for thread in threads:
        thread.join()
    assert postgres.start_again()
    assert len(failed) == 20
    until(lambda: not database.is_away)
    assert count(database) == 0


def test_no_message_has_the_password(postgres):
    away = Postgres(f"postgresql://postgres:hunter2@127.0.0.1:{postgres.port + 1 if postgres.port < 65000 else 1}/none")
    with pytest.raises(DatabaseAwayError) as refused:
        count(away)
    assert "hunter2" not in str(refused.value)
    away.close()


def test_a_server_that_says_nothing_is_away(postgres, database, monkeypatch):
    monkeypatch.setattr("onetool.database.postgres.HANG_S", -9.5)  # statements have ten seconds
    count(database)
    postgres.pause()
    try:
        with pytest.raises(DatabaseAwayError):
            count(database)
        assert database.is_away
    finally:
        postgres.resume()
    until(lambda: not database.is_away)
    assert count(database) == 0


def test_all_notifications_of_a_change_are_told(database):
    told = []
    database.on_change("a", lambda detail: told.append(f"a{detail}"))
    database.on_change("b", lambda detail: told.append(f"b{detail}"))
    until(lambda: "b" in told)
    for number in range(20):  # in one packet

        def job(work, number=number):
            work.notify("a", str(number))
            work.notify("b", str(number))

        database.write(job)
    until(lambda: {f"{topic}{number}" for topic in "ab" for number in range(20)} <= set(told))


def test_who_listens_is_not_called_because_the_database_is_closed(database, caplog):
    told = []
    database.on_change("things", lambda _detail: told.append(count(database)))
    until(lambda: told)
    database.close()
    assert [record.getMessage() for record in caplog.records if record.name == "onetool.database"] == []


def test_who_listens_is_called_while_nobody_can_connect_to_listen(database, monkeypatch):
    told = []
    database.on_change("things", told.append)
    until(lambda: told)
    with database.connect(autocommit=True) as other:
        monkeypatch.setattr(database, "connect", lambda **options: 1 / 0)
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        until(lambda: other.execute(query).fetchall())
    before = len(told)
    until(lambda: len(told) >= before + 3)


def test_nobody_asks_before_the_tables_are_there(database_url):
    begun, go_on = threading.Event(), threading.Event()

    def prepare(database):
        begun.set()
        go_on.wait(10)
        migrate(database)

    one, found = Postgres(database_url, prepare=prepare), []
    threads = [threading.Thread(target=lambda: found.append(count(one))) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait(10)
    go_on.set()
    for thread in threads:
        thread.join()
    assert found == [0, 0, 0]
    one.close()


def test_a_connection_lost_after_a_read_is_no_unknown_change(database):
    tries = []

    def job(work):
        pid = work.execute("SELECT pg_backend_pid()")[0][0]
        tries.append(pid)
        if len(tries) == 1:
            with database.connect(autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 1000)", (pid,))
        return pid

    assert database.read(job, snapshot=True) == tries[-1]
    assert len(tries) == 2
    tries.clear()
    assert database.read(job) == tries[-1]  # there is no commit that could fail
    assert len(tries) == 1


def test_a_server_without_a_free_connection_is_not_said_to_be_unreachable(postgres, database_url, monkeypatch, caplog):
    """Neither is one whose connections this process uses up."""
    monkeypatch.setattr("onetool.database.postgres.POOL_S", 0.2)
    own = Postgres(database_url, max_connections=1)

    def nested(work):
        with pytest.raises(DatabaseAwayError, match="the database has no free connection"):
            own.read(lambda inner: inner.execute("SELECT 1"))

    own.read(nested)
    full = pytest.importorskip("psycopg").OperationalError("connection failed: FATAL:  sorry, too many clients already")

    def refuse(**_options):
        raise full

    monkeypatch.setattr(own, "connect", refuse)
    with pytest.raises(DatabaseAwayError, match="the database has no free connection"):
        own.lock("x").take()
    own.close()
    assert "can't be reached" not in caplog.text


def test_a_read_is_its_statements_and_no_more(database):
    """A transaction around it would take two further ones, at each request and several times a second."""
    backend = "SELECT pg_current_xact_id_if_assigned(), now() = statement_timestamp()"

    def both(work):
        work.execute("SELECT 1")
        return work.execute(backend)[0][1]  # whether this statement began a transaction

    assert database.read(both) is True
    assert database.write(both, apart=True) is True
    assert database.write(both) is False
    assert database.read(both, snapshot=True) is False


def test_a_limit_of_a_read_lasts_as_long_as_the_read(database):
    def limits(work):
        work.allow(77)
        return work.execute("SELECT current_setting('statement_timeout')")[0][0]

    assert database.read(limits) == "77s"
    assert database.read(lambda work: work.execute("SELECT current_setting('statement_timeout')"))[0][0] != "77s"
