"""While the database is away: clients that need no session are served, and others are told why they are not."""

import httpx
import pytest
from helpers import until

from replicas.test_clients import text, with_client
from replicas.test_cut_off import ACCEPT, rpc

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def test_stateless_clients_are_served_and_others_told_why_not(replicas, postgres):
    (one,) = replicas(1)
    postgres.stop()
    try:
        until(lambda: httpx.get(f"{one.url}/readyz").json()["database"] == "away", 30)

        async def work(client):
            assert "probe__pid" in {tool.name for tool in (await client.list_tools()).tools}
            assert text(await client.call_tool("probe__pid")) == str(one.pid)

        with_client(one.url, "new", work)
        assert rpc(one.url, "server/discover", {}).status_code == 200
        unknown = httpx.get(f"{one.url}/tokens", timeout=30)
        assert (unknown.status_code, unknown.headers["retry-after"]) == (503, "1")
        for headers in (ACCEPT, {**ACCEPT, "Mcp-Session-Id": "0" * 32, "MCP-Protocol-Version": "2025-11-25"}):
            body = INITIALIZE if "Mcp-Session-Id" not in headers else {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            refused = httpx.post(f"{one.url}/mcp", json=body, headers=headers, timeout=30)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert (refused.json()["id"], refused.json()["error"]["code"]) == (body["id"], -32603)
            assert "A session needs the database of the replicas" in refused.json()["error"]["message"]
    finally:
        assert postgres.start_again()
    until(lambda: httpx.post(f"{one.url}/mcp", json=INITIALIZE, headers=ACCEPT, timeout=30).status_code == 200, 30)
