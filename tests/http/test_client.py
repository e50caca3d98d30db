"""The HTTP client on real sockets: what it sends, what it takes, what it refuses, and which connections it keeps."""

import asyncio
import gzip
import shutil
import socket
import threading
import time
import zlib

import pytest
from helpers import forever, until, until_async
from http_harness import allowed, certificate, fetched, get, run
from upstream import CLOSE, Reply, Upstream

from onetool import __version__
from onetool.core.errors import ToolFailure
from onetool.http import pool
from onetool.http.allowed_hosts import AllowedHosts, HostRule
from onetool.http.client import HttpClient
from onetool.http.errors import (
    InvalidResponseError,
    RequestRefusedError,
    RequestTimeoutError,
    ResponseTooLargeError,
    UnreachableError,
)

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


def test_the_bytes_of_a_request(upstream):
    fetched(upstream, get(f"{upstream.url}/a%20b?c=d", headers=[("X-A", "1")]))
    assert (
        upstream.seen[0].raw
        == (
            f"GET /a%20b?c=d HTTP/1.1\r\nHost: {upstream.netloc}\r\nX-A: 1\r\n"
            f"User-Agent: onetool/{__version__}\r\nAccept-Encoding: gzip, deflate\r\nOneTool-Call: tool\r\n\r\n"
        ).encode()
    )


def test_bodies_have_a_length_also_when_there_is_none(upstream):
    fetched(
        upstream,
        get(f"{upstream.url}/", "POST", body=b"\x00\xffabc"),
        get(f"{upstream.url}/", "POST"),
        get(f"{upstream.url}/", "DELETE"),
    )
    assert [one.headers.get("content-length") for one in upstream.seen] == ["5", "0", None]
    assert upstream.seen[0].body == b"\x00\xffabc"


def test_what_a_template_says_itself_stands(upstream):
    fetched(upstream, get(f"{upstream.url}/", headers=[("user-agent", "mine"), ("Accept-Encoding", "identity")]))
    names = [name.lower() for name, _ in upstream.seen[0].header_list]
    assert names == ["host", "user-agent", "accept-encoding", "onetool-call"]


@pytest.mark.parametrize("value", ["a\r\nX-B: c", "a\nb", "a\rb", "a\0b"])
def test_a_header_never_begins_another_one(upstream, value):
    with pytest.raises(RequestRefusedError, match="line break"):
        fetched(upstream, get(f"{upstream.url}/", headers=[("X-A", value)]))
    assert not upstream.seen


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (Reply(body=b"abc"), b"abc"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
        ([OK + b"\r\nab", 0.02, b"cd", CLOSE], b"abcd"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n", b"abcde"),
        ([OK + b"Transfer-Enc", 0.02, b"oding: chunked\r\n\r\n1", 0.02, b"\r\na\r\n0\r\n", 0.02, b"\r\n"], b"a"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na", b"a"),
        (OK + b"Upgrade: h2\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
        (OK + b"Upgrade: h2\r\nConnection: Upgrade\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", b"hi"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
    ],
)  # fmt: skip
def test_the_shapes_of_answers(upstream, answer, body):
    upstream.say(answer)
    (got,) = fetched(upstream, "/")
    assert got.body == body
    assert "link" not in got.headers
    assert "x-trailer" not in got.headers


def test_status_reason_and_headers(upstream):
    upstream.say(b"HTTP/1.1 418 I'm a teapot\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 0\r\n\r\n")
    (got,) = fetched(upstream, "/")
    assert (got.status, got.reason, got.headers["x-a"]) == (418, "I'm a teapot", "1, 2")


def test_head_has_no_body_whatever_its_length(upstream):
    upstream.say(Reply(headers={"Content-Length": "99"}), Reply(body=b"abc"))
    head, after = fetched(upstream, get(f"{upstream.url}/", "HEAD"), "/")
    assert (head.body, head.headers["content-length"], after.body) == (b"", "99", b"abc")
    assert [one.connection for one in upstream.seen] == [0, 0]


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"a" * 5000)),
        ("x-gzip", gzip.compress(b"a" * 2500) + gzip.compress(b"a" * 2500)),
        ("deflate", zlib.compress(b"a" * 5000)),
        ("deflate", zlib.compress(b"a" * 5000, wbits=-15)),
        ("identity", b"a" * 5000),
    ],
    ids=["gzip", "two of them", "deflate", "deflate without a head", "identity"],
)
def test_compressed(upstream, coding, body):
    upstream.say(Reply(headers={"Content-Encoding": coding}, body=body))
    (got,) = fetched(upstream, "/")
    assert got.body == b"a" * 5000


TOO_LARGE, INVALID = ResponseTooLargeError, InvalidResponseError


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (Reply(body=b"a" * 1001), TOO_LARGE, "1,000 bytes"),
        ([OK + b"Content-Length: 9999999\r\n\r\n"], TOO_LARGE, "1,000 bytes"),  # before the body has come
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"3e9\r\n" + b"a" * 1001 + b"\r\n0\r\n\r\n", TOO_LARGE, "1,000"),
        ([OK + b"\r\n" + b"a" * 1001, CLOSE], TOO_LARGE, "1,000 bytes"),
        (Reply(headers={"Content-Encoding": "gzip"}, body=gzip.compress(b"\0" * 500_000)), TOO_LARGE, "1,000"),
        (Reply(headers={"Content-Encoding": "deflate"}, body=zlib.compress(b"\0" * 500_000)), TOO_LARGE, "1,000"),
        (Reply(headers={"Content-Encoding": "br"}, body=b"x"), INVALID, "'br'"),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", INVALID, "not requested"),
        (Reply(headers={"Content-Encoding": "gzip, gzip"}, body=b"x"), INVALID, "gzip, gzip"),
        (Reply(headers={"Content-Encoding": "gzip"}, body=gzip.compress(b"abc")[:-4]), INVALID, "truncated"),
        (Reply(headers={"Content-Encoding": "gzip"}, body=b"no gzip"), INVALID, "decompressed"),
        ([OK + b"Content-Length: 10\r\n\r\nabc", CLOSE], UnreachableError, "middle of its response"),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", CLOSE], UnreachableError, "middle of its response"),
        ([OK, CLOSE], UnreachableError, "middle of its response"),
        ([CLOSE], UnreachableError, "before it answered"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", INVALID, "does not speak HTTP"),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", INVALID, "does not speak HTTP"),
        (OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", INVALID, "does not speak HTTP"),
        (OK + b"X-A: 1\r\n" * 201 + b"Content-Length: 0\r\n\r\n", INVALID, "headers"),
        (OK + b"X-A: " + b"a" * 70_000 + b"\r\n\r\n", INVALID, "headers"),
        ([OK + b"X-A: " + b"a" * 600_000], INVALID, "endless headers or chunk extensions"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * 600_000, INVALID, "endless"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 30, INVALID, "interim responses only"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", INVALID, "another protocol"),
    ],
)  # fmt: skip
def test_what_is_refused(upstream, answer, error, words):
    upstream.say(answer)
    with pytest.raises(error, match=words):
        fetched(upstream, "/", max_bytes=1000)


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LONG_EXTENSIONS = {
    "one per byte": [CHUNKED, *[b"1;" + b"x" * 1000 + b"\r\na\r\n"] * 1000],
    "large ones": [CHUNKED, *[b"1;" + b"x" * 200_000 + b"\r\na\r\n"] * 5],
    "with a value": [CHUNKED, *[b'1;x="' + b"y" * 100_000 + b'"\r\na\r\n'] * 10],
    "many small ones": [CHUNKED, *[b"1" + b";x" * 5000 + b"\r\na\r\n"] * 100],
    "of the last chunk": [CHUNKED, b"1\r\na\r\n0;" + b"x" * 600_000],
    "zeros before the size": [CHUNKED, *[b"0" * 1000 + b"1\r\na\r\n"] * 1000],
}


@pytest.mark.attack("wire")
@pytest.mark.parametrize("answer", LONG_EXTENSIONS.values(), ids=LONG_EXTENSIONS)
def test_chunk_extensions_are_bounded(upstream, answer):
    upstream.say([*answer, b"0\r\n\r\n"])
    with pytest.raises(InvalidResponseError):
        fetched(upstream, "/", max_bytes=10_000)


def test_small_chunks_and_extensions_are_read(upstream):
    upstream.say([CHUNKED + b"1;x=y\r\na\r\n" * 100_000 + b"0\r\n\r\n"])
    assert len(fetched(upstream, "/")[0].body) == 100_000


def test_gzip_in_very_many_parts(upstream):
    upstream.say(Reply(headers={"Content-Encoding": "gzip"}, body=gzip.compress(b"") * 20_000))
    with pytest.raises(InvalidResponseError, match="more than 256 parts"):
        fetched(upstream, "/")


def test_a_large_upload(upstream):
    """More than a socket takes at once."""
    body = b"a" * 3_000_000
    answers = fetched(upstream, get(f"{upstream.url}/", "PUT", body=body), "/")
    assert [one.status for one in answers] == [200, 200]
    assert len(upstream.seen[0].body) == len(body)


def test_a_connection_that_ends_before_it_is_used(upstream):
    """Made, and closed at once: nothing has been sent, so that even a POST is sent again."""
    made = []

    async def connect(factory, address, port, **more):
        transport, connection = await asyncio.get_running_loop().create_connection(factory, address, port, **more)
        made.append(transport)
        if len(made) == 1:
            transport.abort()
            await asyncio.sleep(0.05)
        return transport, connection

    (got,) = fetched(upstream, get(f"{upstream.url}/", "POST"), client=HttpClient(connect=connect))
    assert (got.status, len(made), len(upstream.seen)) == (200, 2, 1)


def test_one_connection_is_used_again_and_again(upstream):
    fetched(upstream, *["/"] * 5)
    assert upstream.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        Reply(body=b"a", close=True),
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
        OK + b"Content-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen",
        OK + b"Content-Length: 1\r\n\r\nagarbage",
    ],
)
def test_a_connection_that_can_not_be_trusted_is_not_used_again(upstream, answer):
    upstream.say(answer, Reply(body=b"b"))
    assert [one.body for one in fetched(upstream, "/1", "/2")] == [b"a", b"b"]
    assert upstream.connections == 2


@pytest.mark.parametrize(("is_read", "connections"), [(True, 1), (False, 2)])
def test_a_streamed_answer_keeps_its_connection_if_it_is_read_to_the_end(upstream, is_read, connections):
    rest = threading.Event()
    upstream.say([OK + b"Content-Length: 2\r\n\r\na", rest, b"b"], Reply(body=b"c"))

    async def main():
        client, hosts = HttpClient(), allowed(upstream)
        first = await client.send(get(f"{upstream.url}/"), hosts, timeout=5, max_bytes=99, stream=True)
        if is_read:
            rest.set()
            assert await first.stream.read() == b"ab"
        else:
            first.stream.close()
        return (await client.send(get(f"{upstream.url}/"), hosts, timeout=5, max_bytes=99)).body

    assert run(main()) == b"c"
    rest.set()
    assert upstream.connections == connections


def test_an_answer_nobody_asked_for_ends_an_idle_connection(upstream):
    upstream.say([OK + b"Content-Length: 1\r\n\r\na", 0.05, OK + b"Content-Length: 6\r\n\r\nstolen"], Reply(body=b"b"))

    async def main():
        client, hosts = HttpClient(), allowed(upstream)
        first = await client.send(get(f"{upstream.url}/"), hosts, timeout=5, max_bytes=99)
        await until_async(lambda: upstream.open == 0)
        return first.body, (await client.send(get(f"{upstream.url}/"), hosts, timeout=5, max_bytes=99)).body

    assert run(main()) == (b"a", b"b")


@pytest.mark.parametrize(("method", "works"), [("GET", True), ("PUT", True), ("POST", False)])
def test_a_reused_connection_that_was_just_closed(upstream, method, works):
    """The server closes when the second request comes, unanswered: only what does no harm twice is sent again."""
    upstream.say(Reply(body=b"1"), [CLOSE], Reply(body=b"2"))
    requests = [get(f"{upstream.url}/", method)] * 2
    if works:
        assert [one.body for one in fetched(upstream, *requests)] == [b"1", b"2"]
        assert [one.connection for one in upstream.seen] == [0, 0, 1]
    else:
        with pytest.raises(UnreachableError, match="before it answered"):
            fetched(upstream, *requests)
        assert len(upstream.seen) == 2


def test_idle_connections_end(upstream, monkeypatch):
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(pool.ConnectionPool.__init__, "__defaults__", (pool.MAX_PER_ORIGIN, 0.1))

    async def main():
        client = HttpClient()
        await client.send(get(f"{upstream.url}/"), allowed(upstream), timeout=5, max_bytes=99)
        assert upstream.open == 1
        await until_async(lambda: upstream.open == 0)

    run(main())


def test_a_connection_that_the_peer_closes_while_idle_is_forgotten(upstream):
    async def main():
        client = HttpClient()
        await client.send(get(f"{upstream.url}/"), allowed(upstream), timeout=5, max_bytes=99)
        upstream.hang_up()
        await asyncio.sleep(0.1)
        answer = await client.send(get(f"{upstream.url}/", "POST"), allowed(upstream), timeout=5, max_bytes=99)
        return answer.status

    assert run(main()) == 200
    assert upstream.connections == 2


def test_so_many_connections_and_no_more(upstream):
    upstream.say([0.05, OK + b"Content-Length: 1\r\n\r\na"])

    async def main():
        client = HttpClient(max_per_origin=3)
        sends = [client.send(get(f"{upstream.url}/"), allowed(upstream), timeout=5, max_bytes=99) for _ in range(9)]
        return [one.body for one in await asyncio.gather(*sends)]

    assert run(main()) == [b"a"] * 9
    assert upstream.connections == 3


def test_whoever_waits_for_a_connection_gets_one_when_others_fail_or_are_cancelled(upstream):
    upstream.say([5.0], [CLOSE], Reply(body=b"a"))

    async def main():
        client = HttpClient(max_per_origin=1)

        def send(timeout=4.0):
            return asyncio.ensure_future(
                client.send(get(f"{upstream.url}/"), allowed(upstream), timeout=timeout, max_bytes=99)
            )

        first = send()
        await until_async(lambda: upstream.connections)
        impatient, second, third = send(0.05), send(), send()
        waits = send()
        await asyncio.sleep(0.1)
        waits.cancel()
        first.cancel()
        with pytest.raises(RequestTimeoutError, match="no connection"):
            await impatient
        with pytest.raises(UnreachableError):
            await second
        return (await third).body

    assert run(main()) == b"a"


def test_time_is_for_all_of_a_try(upstream):
    for answer, words in (
        ([2.0], r"did not answer within 0\.3 s"),
        (
            [OK + b"Content-Length: 9\r\n\r\n", 0.1, b"a", 0.1, b"b", 2.0],
            r"did not complete its response within 0\.3 s",
        ),
    ):
        upstream.say(answer)
        with pytest.raises(RequestTimeoutError, match=words) as caught:
            fetched(upstream, "/", timeout=0.3)
        assert caught.value.reason == "timeout"


def test_a_late_answer_is_nobody_elses(upstream):
    late = [0.3, OK + b"Content-Length: 3\r\n\r\nold"]
    upstream.say(lambda seen: late if seen.target == "/1" else Reply(body=b"new"))

    async def main():
        client, hosts = HttpClient(), allowed(upstream)
        with pytest.raises(RequestTimeoutError):
            await client.send(get(f"{upstream.url}/1"), hosts, timeout=0.1, max_bytes=99)
        return (await client.send(get(f"{upstream.url}/2"), hosts, timeout=5, max_bytes=99)).body

    assert run(main()) == b"new"


def test_one_client_for_loops_that_come_and_go(upstream):
    client = HttpClient()
    for _ in range(3):
        fetched(upstream, "/", "/", client=client)
    assert upstream.connections == 3
    until(lambda: upstream.open == 0)


def test_closing_ends_what_is_under_way(upstream):
    upstream.say([2.0])

    async def main():
        client = HttpClient()
        sent = asyncio.ensure_future(client.send(get(f"{upstream.url}/"), allowed(upstream), timeout=5, max_bytes=99))
        await until_async(lambda: upstream.seen)
        client.close()
        with pytest.raises(UnreachableError, match="was closed"):
            await sent

    run(main())


# Where it goes


def resolver(*addresses):
    async def resolve(host, port):
        asked.append(host)
        return list(addresses)

    asked = []
    resolve.asked = asked
    return resolve


def test_the_checked_address_is_the_one_that_is_dialled(upstream):
    resolve = resolver("127.0.0.1")
    hosts = allowed(f"api.example.com:{upstream.port}")
    url = f"http://api.example.com:{upstream.port}/"
    fetched(upstream, get(url), get(url), client=HttpClient(resolve), hosts=hosts)
    assert upstream.seen[0].headers["host"] == f"api.example.com:{upstream.port}"
    assert resolve.asked == ["api.example.com"]  # the second request goes over the first one's connection


def test_every_address_has_to_pass(upstream):
    hosts = allowed(f"api.example.com:{upstream.port}", private=False)
    for addresses in (["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"]):
        dialled = []

        async def connect(*args, dialled=dialled, **more):
            dialled.append(args)
            raise OSError

        with pytest.raises(RequestRefusedError, match=r"api\.example\.com resolves to"):
            fetched(
                upstream,
                get(f"http://api.example.com:{upstream.port}/"),
                client=HttpClient(resolver(*addresses), connect),
                hosts=hosts,
            )
        assert not dialled
    assert not upstream.seen


def test_a_new_connection_is_checked_anew(upstream):
    """A name that leads elsewhere by now: the kept connection stays where it is, a new one is checked."""
    answers = [["127.0.0.1"], ["224.0.0.1"]]

    async def resolve(host, port):
        return answers.pop(0)

    upstream.say(Reply(), Reply(close=True), Reply())
    hosts = allowed(f"api.example.com:{upstream.port}")
    url = f"http://api.example.com:{upstream.port}/"
    with pytest.raises(RequestRefusedError):
        fetched(upstream, get(url), get(url), get(url), client=HttpClient(resolve), hosts=hosts)
    assert len(upstream.seen) == 2


def test_connections_of_another_rule_are_not_used(upstream):
    url = f"http://api.example.com:{upstream.port}/"
    name = f"api.example.com:{upstream.port}"

    async def main():
        client = HttpClient(resolver("127.0.0.1"))
        await client.send(get(url), allowed(name), timeout=5, max_bytes=99)
        with pytest.raises(RequestRefusedError):
            await client.send(get(url), allowed(name, private=False), timeout=5, max_bytes=99)

    run(main())


def test_the_next_address_is_tried(upstream):
    dialled = []

    async def connect(factory, address, port, **more):
        dialled.append(address)
        if address == "127.0.0.9":
            raise ConnectionRefusedError(111, "Connection refused")
        if address == "127.0.0.8":
            await forever()
        return await asyncio.get_running_loop().create_connection(factory, address, port, **more)

    client = HttpClient(resolver("127.0.0.9", "127.0.0.8", "127.0.0.1"), connect)
    hosts = allowed(f"api.example.com:{upstream.port}")
    (got,) = fetched(upstream, get(f"http://api.example.com:{upstream.port}/"), client=client, hosts=hosts, timeout=1)
    assert (got.status, dialled) == (200, ["127.0.0.9", "127.0.0.8", "127.0.0.1"])


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(UnreachableError, match=rf"no connection to 127.0.0.1:{port}: .*refused") as caught:
        fetched(None, get(f"http://127.0.0.1:{port}/"), hosts=allowed(f"127.0.0.1:{port}"))
    assert caught.value.reason == "source_unavailable"

    async def unknown(host, port):
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(UnreachableError, match=r"nowhere\.example can't be resolved: Name or service not known"):
        fetched(None, get("http://nowhere.example/"), client=HttpClient(unknown), hosts=allowed("nowhere.example"))
    with pytest.raises(UnreachableError, match="no address"):
        fetched(None, get("http://nowhere.example/"), client=HttpClient(resolver()), hosts=allowed("nowhere.example"))


def test_name_servers_that_are_silent_hold_up_nobody_else(upstream, monkeypatch):
    over, asked = threading.Event(), []

    def silent(host, *_, **__):
        asked.append(host)
        over.wait(60)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", silent)

    async def main():
        client = HttpClient()
        hosts = allowed(f"localhost:{upstream.port}", "*.example.com")

        def send(url):
            return client.send(get(url), hosts, timeout=5, max_bytes=1000)

        slow = [asyncio.ensure_future(send(f"http://h{number}.example.com/")) for number in range(40)]
        slow += [asyncio.ensure_future(send("http://h0.example.com/")) for _ in range(40)]
        await until_async(lambda: len(asked) == 32)
        here = await send(f"http://localhost:{upstream.port}/")
        await asyncio.to_thread(time.sleep, 0)  # nor does anybody who needs a thread
        assert len(asked) == 32
        over.set()
        return here.status, await asyncio.gather(*slow, return_exceptions=True)

    status, others = run(main())
    assert status == 200
    assert all("can't be resolved: Temporary failure" in str(one) for one in others)
    assert len(asked) == 40  # those who asked for the same name shared one lookup


def test_localhost_is_checked_like_any_other_name(upstream):
    with pytest.raises(RequestRefusedError, match=r"own machine or network|this machine|private"):
        fetched(
            upstream,
            get(f"http://localhost:{upstream.port}/"),
            hosts=AllowedHosts([HostRule(f"localhost:{upstream.port}", allow_private=False)]),
        )
    assert not upstream.seen


def test_nobody_answers_at_all():
    async def silent(*_, **__):
        await forever()

    with pytest.raises(RequestTimeoutError, match=r"no connection to 127\.0\.0\.1:9 within 0\.1 s"):
        fetched(
            None,
            get("http://127.0.0.1:9/"),
            client=HttpClient(connect=silent),
            hosts=allowed("127.0.0.1:9"),
            timeout=0.1,
        )


def test_a_host_that_is_not_allowed_is_not_even_looked_up(upstream):
    resolve = resolver("127.0.0.1")
    with pytest.raises(ToolFailure, match="allowedHosts"):
        fetched(upstream, get("http://evil.example/"), client=HttpClient(resolve), hosts=allowed(upstream))
    assert not resolve.asked


# TLS


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    return certificate(tmp_path_factory.mktemp("tls"))


def test_tls_with_a_certificate_that_is_trusted(tls):
    server, trusts = tls
    with Upstream(Reply(body=b"a" * 300_000), tls=server) as upstream:
        hosts = allowed(f"localhost:{upstream.port}")
        url = f"https://localhost:{upstream.port}/"
        client = HttpClient(resolver("127.0.0.1"), tls=trusts)
        answers = fetched(upstream, get(url), get(url), client=client, hosts=hosts)
        assert [len(one.body) for one in answers] == [300_000] * 2
        assert upstream.connections == 1


def test_tls_with_one_that_is_not(tls):
    server, trusts = tls
    with Upstream(tls=server) as upstream:
        for name, make in (("localhost", None), ("other.example", trusts)):
            hosts = allowed(f"{name}:{upstream.port}")
            client = HttpClient(resolver("127.0.0.1"), tls=make)
            with pytest.raises(
                UnreachableError, match=f"certificate of {name}:{upstream.port} is not accepted"
            ) as caught:
                fetched(upstream, get(f"https://{name}:{upstream.port}/"), client=client, hosts=hosts)
            assert caught.value.again is False
        assert not upstream.seen


def test_plain_http_where_tls_is_expected(upstream):
    client = HttpClient(resolver("127.0.0.1"))
    hosts = allowed(f"localhost:{upstream.port}")
    upstream.say(Reply())
    with pytest.raises((UnreachableError, RequestTimeoutError), match="localhost"):
        fetched(upstream, get(f"https://localhost:{upstream.port}/"), client=client, hosts=hosts, timeout=0.5)
