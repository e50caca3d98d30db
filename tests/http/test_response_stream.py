"""The end of a response: what a client that leaves cancels, and what it doesn't."""

import asyncio
from contextlib import suppress

import pytest

from onetool.http.response_stream import CHECK_AFTER_S, DisconnectWatch, ResponseStream


class Client:
    """A client, which can leave, and is told what comes. Like uvicorn, it counts as gone once all is sent."""

    def __init__(self):
        self.sent = []
        self.gone = asyncio.Event()

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message.get("body"))
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.gone.set()


def ended(work):
    """Run the work as a task of its own. Return whether it was cancelled, and its open requests to cancel it."""

    async def run():
        client = Client()
        task = asyncio.create_task(work(client))
        await asyncio.wait([task])
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return task.cancelled(), task.cancelling(), client

    return asyncio.run(run())


def test_a_client_that_leaves_ends_the_block_alone():
    seen = []

    async def work(client):
        asyncio.get_running_loop().call_later(2 * CHECK_AFTER_S, client.gone.set)
        with DisconnectWatch(client.receive, ResponseStream(client.send)):
            try:
                await asyncio.sleep(20)
            finally:
                await asyncio.sleep(0)
        seen.append("went on")

    assert ended(work)[:2] == (False, 0)
    assert seen == ["went on"]


def test_the_end_of_a_stream_is_no_client_that_leaves():
    seen = []

    async def work(client):
        response = ResponseStream(client.send)
        with DisconnectWatch(client.receive, response):
            response.push({"method": "progress"})
            await asyncio.sleep(2 * CHECK_AFTER_S)
            await response.finish({"id": 1})
            await asyncio.sleep(0.01)
            seen.append("after the last event")

    cancelled, open_requests, client = ended(work)
    assert (cancelled, open_requests, seen) == (False, 0, ["after the last event"])
    assert client.sent[-1] == b""


@pytest.mark.parametrize("order", [("client", "server"), ("server", "client")])
def test_whoever_else_cancels_the_task_does_so_beside_a_client_that_leaves(order):
    seen = []

    async def work(client):
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        ways = {"client": client.gone.set, "server": task.cancel}
        for number, who in enumerate(order, 2):
            loop.call_later(number * CHECK_AFTER_S, ways[who])
        with DisconnectWatch(client.receive):
            try:
                await asyncio.sleep(20)
            finally:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(3 * CHECK_AFTER_S)  # until both have happened
        seen.append("went on")

    assert ended(work)[:2] == (True, 1)
    assert not seen


def test_a_cancellation_that_is_caught_leaves_no_request_to_cancel():
    async def work(client):
        client.gone.set()
        with DisconnectWatch(client.receive), suppress(asyncio.CancelledError):
            await asyncio.sleep(20)

    assert ended(work)[:2] == (False, 0)
