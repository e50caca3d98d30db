"""What one replica sends to another: nobody takes all connections, and an answer is believed only so far."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from secrets import token_hex

import pytest

from onetool.cluster import Replica, forwarding
from onetool.cluster.forwarding import (
    Forwarder,
    ForwardSeal,
    ReplicaGoneError,
    ReplicaRefusedError,
)
from onetool.core.principal import Principal

ADA, BOB = Principal(owner="ada"), Principal(owner="bob")
BEGUN = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked%b\r\n\r\n"
DONE = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nset-cookie: a=1\r\nx-other: 1\r\ncontent-length: 2%b\r\n\r\nok"


class Others:
    """Members of whom the other one is always there."""

    id = "00000000"

    def on_beat(self, call):
        pass

    def is_alive(self, id):
        return True

    def now(self):
        return time.time()


def proven(header, status=200, key=b"k" * 32):
    """The line that shows that a holder of the key has answered."""
    return b"\r\nonetool-answered: " + ForwardSeal(key, Others()).proof(header, status)


@asynccontextmanager
async def other_replica(folder, proof=proven):
    """A replica that begins streams for GET, and answers the rest; and who forwards to it."""

    answering = []

    async def answer(reader, writer):
        answering.append((writer, end := asyncio.Event()))
        while line := await reader.readline():
            header = b""
            while (one := await reader.readline()) not in (b"\r\n", b""):
                header = one.partition(b" ")[2].strip() if one.startswith(b"onetool-forwarded:") else header
            writer.write((BEGUN if line.startswith(b"GET") else DONE) % proof(header))
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        end.set()

    server = await asyncio.start_unix_server(answer, f"{folder}/s.sock")
    others = Others()
    forwarder = Forwarder(others, ForwardSeal(b"k" * 32, others))
    try:
        yield forwarder, Replica("11111111", f"unix:{folder}/s.sock", "0", 0.0, False)
    finally:
        server.close()
        for writer, end in answering:
            writer.close()  # the forwarder would keep the connection for its next request
            await end.wait()


async def forwarded(forwarder, replica, method, principal, path=b"/mcp"):
    """What comes back. A stream is left open: then it is what has come until now, and its task."""
    sent, came = [], asyncio.Event()
    inbox = [{"type": "http.request", "body": b""}]

    async def receive():
        return inbox.pop() if inbox else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)
        came.set()

    scope = {"method": method, "raw_path": path, "headers": [], "principal": principal}
    work = asyncio.create_task(forwarder.forward(replica, scope, receive, send))
    waiting = asyncio.create_task(came.wait())
    await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if method != "GET" or work.done():
        await work
    return sent, work


def test_streams_of_one_leave_room_for_others(tmp_path, monkeypatch):
    monkeypatch.setitem(forwarding.SHARES, "stream", 2)

    async def main():
        async with other_replica(tmp_path) as (forwarder, replica):
            streams = [(await forwarded(forwarder, replica, "GET", ADA))[1] for _ in range(2)]
            with pytest.raises(ReplicaRefusedError, match="You have 2 open streams") as refused:
                await forwarded(forwarder, replica, "GET", ADA)
            assert refused.value.status == 429
            streams.append((await forwarded(forwarder, replica, "GET", BOB))[1])
            streams[0].cancel()
            await asyncio.wait([streams[0]])
            streams.append((await forwarded(forwarder, replica, "GET", ADA))[1])
            for one in streams:
                one.cancel()
            await asyncio.wait(streams)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_streams_take_no_connection_of_a_request_and_nobody_waits_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(forwarding, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(forwarding, "ACQUIRE_S", 0.05)

    async def main():
        async with other_replica(tmp_path) as (forwarder, replica), AsyncExitStack() as ends:
            for _ in range(2):
                _, stream = await forwarded(forwarder, replica, "GET", ADA)
                ends.callback(stream.cancel)
            with pytest.raises(ReplicaRefusedError, match="All connections") as refused:
                await forwarded(forwarder, replica, "GET", BOB)
            assert refused.value.status == 503
            sent, _ = await forwarded(forwarder, replica, "DELETE", BOB)
            assert sent[0]["status"] == 200

    asyncio.run(asyncio.wait_for(main(), 20))


def test_an_answer_sets_no_cookies(tmp_path):
    async def main():
        async with other_replica(tmp_path) as (forwarder, replica):
            sent, _ = await forwarded(forwarder, replica, "DELETE", ADA)
            return sent[0]["headers"]

    assert asyncio.run(main()) == [(b"content-type", b"text/plain"), (b"content-length", b"2")]


NO_PROOFS = {
    "none": lambda header: b"",
    "empty": lambda header: b"\r\nonetool-answered:",
    "of another key": lambda header: proven(header, key=b"x" * 32),
    "of another status": lambda header: proven(header, 202),
    "of another request": lambda header: proven(header[:-1]),
    "no ASCII": lambda header: b"\r\nonetool-answered: " + "é".encode(),
}


@pytest.mark.parametrize("proof", NO_PROOFS.values(), ids=NO_PROOFS)
@pytest.mark.parametrize("method", ["GET", "DELETE", "post"])
def test_an_answer_of_who_lacks_the_key_is_not_passed_on(tmp_path, caplog, proof, method):
    got = []

    async def main():
        async with other_replica(tmp_path, proof) as (forwarder, replica):
            if method == "post":
                got.append(await forwarder.post(replica, "/cluster/x", b"", ADA))
            else:
                got.append(await forwarded(forwarder, replica, method, ADA))

    with pytest.raises(ReplicaRefusedError, match=r"sender has cluster\.key") as refused:
        asyncio.run(asyncio.wait_for(main(), 20))
    assert (refused.value.status, got) == (502, [])
    (told,) = [one.getMessage() for one in caplog.records]
    assert f"replica 11111111 at unix:{tmp_path}/s.sock (status 200)" in told
    assert "give all replicas the same key" in told


def test_what_does_not_fit_into_a_head_is_refused_before_it_is_sent(tmp_path):
    many = Principal(owner="ada", tools=tuple(token_hex(16) for _ in range(5000)))

    async def main():
        async with other_replica(tmp_path) as (forwarder, replica):
            await forwarded(forwarder, replica, "DELETE", many)

    with pytest.raises(ReplicaRefusedError, match=r"64 KiB\. Give your token patterns") as refused:
        asyncio.run(asyncio.wait_for(main(), 20))
    assert refused.value.status == 431


@pytest.mark.parametrize("address", ["nonsense", "host:notaport", "a..b:80", "127.0.0.1:99999", "unix:\0"])
def test_nobody_is_where_no_address_is(tmp_path, address):
    async def main():
        async with other_replica(tmp_path) as (forwarder, _):
            await forwarded(forwarder, Replica("11111111", address, "0", 0.0, False), "DELETE", ADA)

    with pytest.raises(ReplicaGoneError):
        asyncio.run(main())
