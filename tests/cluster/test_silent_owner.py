"""A replica that accepts a request and never answers: whoever waits for it hears that it is gone, as its beats stop."""

import asyncio
import time

import pytest

from onetool.cluster import Replica
from onetool.cluster.forwarding import Forwarder, ForwardSeal, ReplicaGoneError
from onetool.core.principal import LOCAL


class Beats:
    """Members whose beats the test makes."""

    id = "00000000"

    def __init__(self):
        self.there = {"11111111"}

    def on_beat(self, call):
        self.beat = call

    def is_alive(self, id):
        return id in self.there

    def now(self):
        return time.time()


def test_who_falls_silent_is_waited_for_no_more(tmp_path):
    async def asked():
        came, ended, beats = asyncio.Event(), asyncio.Event(), Beats()
        seal = ForwardSeal(b"k" * 32, beats)

        async def silent(reader, writer):
            if b"/cluster/answered" in await reader.readline():
                head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
                (header,) = [one.partition(b" ")[2] for one in head if one.startswith(b"onetool-forwarded:")]
                proof = seal.proof(header, 200)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n")
                writer.write(b"onetool-answered: " + proof + b"\r\n\r\n")
                writer.close()
                return
            came.set()
            await reader.read()  # until the other side hangs up
            writer.close()
            ended.set()

        server = await asyncio.start_unix_server(silent, f"{tmp_path}/s.sock")
        forwarder = Forwarder(beats, seal)
        replica = Replica("11111111", f"unix:{tmp_path}/s.sock", "0", 0.0, False)

        waiting = asyncio.create_task(forwarder.post(replica, "/cluster/x", b"{}", LOCAL))
        await came.wait()
        beats.beat()
        # It begins and ends after what the beat has begun.
        await forwarder.post(replica, "/cluster/answered", b"{}", LOCAL)
        assert not waiting.done()
        beats.there.clear()
        beats.beat()
        with pytest.raises(ReplicaGoneError):
            await asyncio.wait_for(waiting, 10)
        await ended.wait()
        server.close()
        await server.wait_closed()

    asyncio.run(asked())
