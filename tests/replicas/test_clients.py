"""Clients of every kind behind a balancer that sends each request to the next replica."""

import asyncio
import re
from itertools import count

import httpx
import pytest
from helpers import until
from mcp.client import Client
from mcp_types import ElicitResult

from replicas.harness import BUNDLE

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

MODES = {"old": "legacy", "new": "auto"}
TOOL = {
    "type": "script",
    "displayName": "Double",
    "description": "Doubles a number.",
    "argSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    "scriptImpl": {"code": "2 * n"},
}


def with_client(url, era, work, **options):
    """Do something with an official client; what goes wrong is told outside of its groups."""
    wrong = []

    async def connected():
        async with Client(
            f"{url}/mcp?menu=direct", mode=MODES[era], read_timeout_seconds=60, cache=None, **options
        ) as one:
            try:
                await asyncio.wait_for(work(one), 120)
            except Exception as error:
                wrong.append(error)

    asyncio.run(connected())
    for error in wrong:
        raise error


def text(result):
    return "".join(block.text for block in result.content if block.type == "text")


@pytest.mark.parametrize("era", ["old", "new"])
def test_a_client_calls_and_all_replicas_answer(balanced, era):
    _, balancer = balanced
    pids = set()

    async def work(client):
        assert "probe__pid" in {tool.name for tool in (await client.list_tools()).tools}
        for _ in range(12):
            pids.add(text(await client.call_tool("probe__pid")))

    with_client(balancer.url, era, work)
    assert len(pids) >= 2


@pytest.mark.parametrize("era", ["old", "new"])
def test_a_person_is_asked_and_answers_through_another_replica(balanced, era):
    _, balancer = balanced
    asked = count()

    async def answer(context, params):
        next(asked)
        return ElicitResult(action="accept", content={"colour": "green"})

    async def work(client):
        for _ in range(6):
            result = await client.call_tool("probe__wish")
            assert text(result).startswith("green in "), text(result)

    with_client(balancer.url, era, work, elicitation_callback=answer)
    assert next(asked) == 6


@pytest.mark.parametrize("era", ["old", "new"])
def test_progress_arrives(balanced, era):
    _, balancer = balanced

    async def work(client):
        for _ in range(3):
            seen = []

            async def note(done, total, message, seen=seen):
                seen.append(done)

            await client.call_tool("probe__steps", {"count": 3, "seconds": 0.1}, progress_callback=note)
            assert seen == [1, 2, 3]

    with_client(balancer.url, era, work)


def test_what_is_put_is_there_everywhere_at_once(balanced):
    three, balancer = balanced
    with httpx.Client(base_url=balancer.url, timeout=30) as client:
        made = client.put(
            f"/tools/bundles/{BUNDLE}", json={"slug": "sums", "displayName": "Sums", "description": "Sums."}
        )
        assert made.status_code in (200, 201), made.text
        for version in range(1, 7):
            tool = client.put(f"/tools/bundles/{BUNDLE}/tools/double/version/v{version}", json=TOOL)
            assert tool.status_code in (200, 201), tool.text
            for one in three:
                got = httpx.get(f"{one.url}/tools/bundles/{BUNDLE}/tools/double/version/v{version}")
                assert got.status_code == 200, (version, one.url, got.text)
                invoked = httpx.post(
                    f"{one.url}/tools/bundles/{BUNDLE}/tools/double/version/v{version}/invoke", json={"args": {"n": 21}}
                )
                assert invoked.status_code == 200, invoked.text
                assert invoked.json()["value"] == 42, invoked.text
        for one in three:
            found = httpx.get(f"{one.url}/tools/tools/search", params={"q": "double"})
            assert "double" in found.text, found.text


def test_a_large_result_is_read_through_any_replica(balanced):
    _three, balancer = balanced

    async def work(client):
        result = await client.call_tool("run", {"code": "probe.long_text()"})
        handle = re.search(r'handle: "?(\w+)', text(result))[1]
        for _ in range(6):
            (content,) = (await client.read_resource(f"ot://results/{handle}")).contents
            assert content.text.endswith("line 5000")

    wrong = []

    async def connected():
        async with Client(f"{balancer.url}/mcp?menu=run", mode="auto", read_timeout_seconds=60, cache=None) as client:
            try:
                await work(client)
            except Exception as error:
                wrong.append(error)

    asyncio.run(connected())
    for error in wrong:
        raise error


def test_a_server_with_a_memory_and_an_address_is_one_for_all(replicas, balance, counter):
    three = replicas(3, counter)
    balancer = balance("haproxy", three)
    with httpx.Client(base_url=balancer.url, timeout=60) as client:
        until(lambda: client.post("/call/counter.add", json={"by": 0}).status_code == 200, 60)
        found = [client.post("/call/counter.add", json={"by": 1}).json() for _ in range(9)]
    assert len({one["pid"] for one in found}) == 1, found
    assert [one["count"] for one in found] == list(range(1, 10)), found
