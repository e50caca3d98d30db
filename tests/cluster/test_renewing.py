"""Renewing sessions: one row that can't be read keeps nobody from the others."""

import asyncio

import pytest
from cluster.conftest import shared_file

from onetool import App
from onetool.cluster import ClusterSettings
from onetool.cluster.cluster import Cluster
from onetool.cluster.mcp_rows import McpSessionRows, SessionState
from onetool.cluster.shared_sessions import SharedSessions
from onetool.core.principal import Principal
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.mcp.http_sessions import HttpSessions
from onetool.interfaces.mcp.service import Service

ADA = Principal(owner="ada")


@pytest.mark.parametrize("body", ["[]", "{bad", '{"revision":7}'])
def test_one_that_cannot_be_read_is_left_out(tmp_path, body):
    database = SqliteDatabase(shared_file(tmp_path))
    rows = McpSessionRows(database)

    async def main(app):
        sessions = HttpSessions(Service(app))
        settings = ClusterSettings("127.0.0.1:1", b"k", database)
        shared = SharedSessions(Cluster(settings)).attach(sessions)
        for id in ("a", "b", "c"):
            rows.add(id, "ada", SessionState(revision="2025-06-18"))
            await shared.load(id, ADA)
            assert sessions.get(id, ADA)
        rows.change("a", lambda state: SessionState(revision="2025-06-18", name="new"))
        rows.change("c", lambda state: SessionState(revision="2025-06-18", name="new"))
        broken = "UPDATE mcp_sessions SET body = %s, version = 7 WHERE id = 'b'"
        database.write(lambda work: work.execute(broken, (body,)))
        rows.add("old", "ada", SessionState(revision="2025-06-18"))
        database.write(lambda work: work.execute("UPDATE mcp_sessions SET used_at = 1 WHERE id = 'old'"))
        await shared.renew()
        found = [sessions.get(id, ADA).client.name for id in ("a", "b", "c")]
        assert found == ["new", "", "new"]
        assert rows.get("old") is None

    (tmp_path / "onetool.yaml").touch()
    with App.open(tmp_path / "onetool.yaml") as app:
        asyncio.run(main(app))
    database.close()
