"""The official SDK as a client of two replicas, in both eras: each of its requests goes to the next one."""

import asyncio

import httpx2
import pytest
from cluster.members import KEY, Replica
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from onetool.database.postgres import Postgres

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


class RoundRobin(httpx2.AsyncBaseTransport):
    """Sends each request to the next server."""

    def __init__(self, balancer):
        self._balancer = balancer
        self._real = httpx2.AsyncHTTPTransport()
        self.sent = []

    async def handle_async_request(self, request):
        request.url = request.url.copy_with(port=self._balancer.port)
        request.headers["host"] = f"127.0.0.1:{request.url.port}"
        self.sent.append(request.url.port)
        return await self._real.handle_async_request(request)

    async def aclose(self):
        await self._real.aclose()


async def answer(context, params):
    return ElicitResult(action="accept", content={"name": "Ada"})


def with_client(balancer, mode, work, headers=None):
    async def connected():
        transport = RoundRobin(balancer)
        async with httpx2.AsyncClient(transport=transport, timeout=20, headers=headers) as http:
            place = streamable_http_client("http://127.0.0.1/mcp", http_client=http)
            async with Client(place, mode=mode, elicitation_callback=answer, cache=None) as client:
                await asyncio.wait_for(work(client), 30)
        assert len(set(transport.sent)) == 2

    asyncio.run(connected())


def text(result):
    (block,) = result.content
    return block.text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_it_notices_nothing(pair, mode):
    async def work(client):
        for number in range(4):
            assert text(await client.call_tool("plus", {"a": number, "b": 1})) == str(number + 1)
            assert text(await client.call_tool("asking__name")) == "Hello, Ada!"
        found = await asyncio.gather(*(client.call_tool("plus", {"a": one, "b": 1}) for one in range(10)))
        assert [text(one) for one in found] == [str(one + 1) for one in range(10)]
        assert "A note" in (await client.read_resource("shelf://note")).contents[0].text

    with_client(pair, mode, work)


@pytest.fixture
def replicas(database_url, tmp_path):
    """Two of them over PostgreSQL, by their configs."""
    from cluster.members import Balancer

    made = [Replica(tmp_path / name, database_url, "--drain-s", "0", more=f"http: {{token: {KEY}}}\n") for name in "ab"]
    yield Balancer(*made)
    for one in made:
        assert one.stop() == 0, one.log()
        assert "Traceback" not in one.log()


def test_over_postgres(replicas, database_url):
    async def work(client):
        for _ in range(3):
            assert text(await client.call_tool("asking__name")) == "Hello, Ada!"
        await client.set_logging_level("debug")

    token = {"authorization": f"Bearer {KEY}"}
    with_client(replicas, "legacy", work, token)
    with_client(replicas, "auto", lambda client: client.call_tool("asking__name"), token)
    database = Postgres(database_url)
    try:
        rows = database.read(lambda work: work.execute("SELECT count(*) FROM replicas"))
        assert rows[0][0] == 2
        assert database.read(lambda work: work.execute("SELECT id FROM mcp_sessions")) == []  # the client has ended it
    finally:
        database.close()
