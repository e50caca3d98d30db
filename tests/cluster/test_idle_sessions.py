"""A session that was not used for a while may be another one meanwhile: its row says so, when it is used again."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from cluster.conftest import shared_file

from onetool.cluster.mcp_rows import McpSessionRows, SessionState
from onetool.cluster.shared_sessions import RENEW_S, SharedSessions
from onetool.core.principal import LOCAL
from onetool.database import DatabaseAwayError
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.mcp.http_sessions import HttpSessions


@pytest.fixture
def shared(tmp_path):
    made = SqliteDatabase(shared_file(tmp_path))
    yield made
    made.close()


class Replica:
    """One that has a session in memory, and is told of nothing."""

    def __init__(self, database):
        self.rows = McpSessionRows(database)
        self.rows.add("s", LOCAL.owner, SessionState(revision="2025-11-25"))
        service = SimpleNamespace(replica="", changes=SimpleNamespace(add=lambda _: lambda: None))
        cluster = SimpleNamespace(settings=SimpleNamespace(database=database), mailbox=SimpleNamespace(handlers={}))
        self._sessions = HttpSessions(service)
        self._shared = SharedSessions(cluster).attach(self._sessions)
        assert self.get()

    def get(self, idle_s=0.0):
        """The session, which was not used for that long."""

        async def get():
            if idle_s:
                self._sessions.get("s", LOCAL).used -= idle_s
            await self._shared.load("s", LOCAL)
            return self._sessions.get("s", LOCAL)

        return asyncio.run(get())


def debug(state):
    return msgspec.structs.replace(state, log_level="debug")


def test_what_has_changed_is_seen(shared):
    replica = Replica(shared)
    replica.rows.change("s", debug)
    assert replica.get().client.log_level == "info"  # the next renewal sees it
    assert replica.get(RENEW_S).client.log_level == "debug"


def test_a_row_that_was_read_before_a_later_change_counts_no_more(shared, monkeypatch):
    replica = Replica(shared)
    before = replica.rows.get("s")
    replica.rows.change("s", debug)
    assert replica.get(RENEW_S).client.log_level == "debug"
    monkeypatch.setattr(McpSessionRows, "get", lambda *_: before)
    assert replica.get(RENEW_S).client.log_level == "debug"


def test_one_that_has_ended_is_gone(shared):
    replica = Replica(shared)
    replica.rows.delete("s")
    assert replica.get(RENEW_S) is None
    assert replica.get() is None


def test_while_the_database_is_away_it_goes_on(shared, monkeypatch):
    replica = Replica(shared)

    def away(_):
        raise DatabaseAwayError("it is away")

    monkeypatch.setattr(shared, "read", away)
    assert replica.get(RENEW_S).client.log_level == "info"
