"""Clients that are slow, silent, endless or confused: the next valid call still works."""

import asyncio
import random
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from helpers import each, until
from uvicorn import Config
from uvicorn.server import ServerState

from onetool.interfaces.http.connection import ConnectionLimits, HttpConnection, IdleConnections
from onetool.interfaces.http.exchange import BodyMemory


def request(server, path="/mcp", *lines):
    usual = (f"Host: localhost:{server.port}", "Content-Type: application/json")
    return "\r\n".join([f"GET {path} HTTP/1.1", *usual, *lines, "", ""]).encode()


def rest_of(client, timeout=60):
    """What the other side says until it ends the connection."""
    client.settimeout(timeout)
    said = b""
    try:
        while piece := client.recv(65536):
            said += piece
    except ConnectionError:
        pass
    return said


def works(server):
    return server.ask("/mcp", "POST", body=b"abc").json["size"] == 3


# Silent and slow ones


def test_a_silent_connection_is_ended_without_a_word(hasty):
    with hasty.connect() as client:
        assert rest_of(client) == b""


def test_a_head_that_stops_in_the_middle(hasty):
    with hasty.connect() as client:
        client.sendall(b"G")
        said = rest_of(client)
    assert b"408 Request Timeout" in said


def test_a_head_that_comes_too_slowly(hasty):
    with hasty.connect() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        dripping = threading.Thread(target=drip, args=(client, b"x"))
        dripping.start()
        said = rest_of(client)
        dripping.join(10)
    assert b"408 Request Timeout" in said
    assert b'"too_slow"' in said


def drip(client, byte):
    """A byte now and then, until the other side has had enough."""
    try:
        for _ in range(100):
            client.sendall(byte)
            time.sleep(0.1)
    except OSError:
        return


def test_empty_lines_do_not_keep_a_connection(hasty):
    with hasty.connect() as client:
        client.sendall(request(hasty, "/healthz"))
        assert hasty.read(client).status == 200
        dripping = threading.Thread(target=drip, args=(client, b"\r\n"))
        dripping.start()
        rest_of(client)
        dripping.join(10)


def test_a_body_that_comes_too_slowly(hasty):
    with hasty.connect() as client:
        client.sendall(request(hasty, "/mcp", "Content-Length: 1000"))
        dripping = threading.Thread(target=drip, args=(client, b"x"))
        dripping.start()
        said = rest_of(client)
        dripping.join(10)
    assert b"408 Request Timeout" in said
    assert works(hasty)


def test_a_second_head_that_comes_too_slowly(hasty):
    with hasty.connect() as client:
        client.sendall(request(hasty, "/healthz"))
        assert hasty.read(client).status == 200
        client.sendall(b"GET /hea")
        said = rest_of(client)
    assert b"408" in said


def test_a_slow_second_head_does_not_cost_the_first_its_answer(hasty):
    with hasty.connect() as client:
        client.sendall(request(hasty, "/mcp?wait=0.5") + b"GET /hea")
        said = rest_of(client)
    assert said.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in said


def test_an_idle_connection_is_kept_for_a_while(hasty):
    with hasty.connect() as client:
        for _ in range(2):
            client.sendall(request(hasty, "/healthz"))
            assert hasty.read(client).status == 200
            time.sleep(0.3)  # longer than a head may take, shorter than a pause
        said = rest_of(client)
    assert said == b""


def test_a_long_answer_is_not_cut_by_any_of_it(hasty):
    with hasty.connect() as client:
        client.sendall(request(hasty, "/mcp?wait=1.7"))
        assert hasty.read(client).status == 200


@pytest.mark.attack("wire")
def test_a_client_that_never_reads_is_let_go(hasty):
    with hasty.connect() as client:
        client.sendall(request(hasty, "/mcp?flood"))
        hasty.log(wait_for='"flood"')
        said = rest_of(client)  # what was on its way, then the end
    assert said
    assert works(hasty)


# Many


@pytest.mark.long
def test_a_thousand_idle_connections(serve):
    server = serve()
    with ExitStack() as stack:
        for number in range(1000):
            client = stack.enter_context(server.connect())
            if number % 3 == 1:
                client.sendall(b"GET /mcp HTTP/1.1\r\nHost: lo")  # in the middle of a head
            if number % 3 == 2:
                client.sendall(request(server, "/mcp", "Content-Length: 10") + b"x")  # … and of a body
        assert works(server)


def test_where_there_are_too_many_the_longest_silent_one_makes_room(serve):
    server = serve(limits={"connections": 20})
    with ExitStack() as stack:
        busy = stack.enter_context(server.connect())
        busy.sendall(request(server, "/mcp?file=gate"))
        server.wait_begun()
        silent = [stack.enter_context(server.connect()) for _ in range(60)]
        assert works(server)
        (server.folder / "gate").touch()
        assert server.read(busy).status == 200
        assert rest_of(silent[0]) == b""
        with pytest.raises(TimeoutError):
            rest_of(silent[-1], 0.2)


def test_where_all_are_busy_a_new_one_is_told_so(serve):
    server = serve(limits={"connections": 5})
    with ExitStack() as stack:
        for _ in range(5):
            client = stack.enter_context(server.connect())
            client.sendall(request(server, "/mcp?file=gate"))
        server.wait_begun(5)
        reply = server.send(b"")
        assert (reply.status, reply.code) == (503, "too_many")
    (server.folder / "gate").touch()
    until(lambda: server.ask("/mcp", "POST", body=b"abc").status == 200)


def with_files(soft, hard):
    """The command for a server that may have so many files open."""
    code = (
        f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return ("-c", code, str(Path(__file__).with_name("stand_in.py")))


@pytest.mark.long
def test_a_server_with_few_files_goes_on(serve):
    """The system's limit is lower than ours would be: ours follows."""
    server = serve(command=with_files(128, 128))
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(server.connect())
        assert works(server)
        assert works(server)


def test_the_number_of_files_is_raised(serve):
    server = serve(command=with_files(256, 2048))
    limits = Path(f"/proc/{server.process.pid}/limits").read_text().splitlines()
    (line,) = [line for line in limits if line.startswith("Max open files")]
    assert line.split()[3:5] == ["2048", "2048"]


# Heads


def test_a_head_may_be_large_but_not_endless(server):
    assert server.send(request(server, "/healthz", "X: " + "x" * 60_000)).status == 200
    assert server.send(request(server, "/healthz", *(f"X-{n}: {n}" for n in range(2000)))).status == 200
    reply = server.send(request(server, "/healthz", "X: " + "x" * 66_000))
    assert (reply.status, reply.code) == (431, "head_too_large")
    assert server.send(b"GET /" + b"x" * 66_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 431
    assert server.send(request(server, "/healthz", "X: " + "x" * 10**6)).status in (431, 0)  # cut off while it sends
    assert works(server)


@pytest.mark.attack("wire")
def test_a_head_that_never_ends(server):
    with server.connect() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        sent = 0
        with suppress(ConnectionError):
            for _ in range(100_000):
                sent += client.send(b"X: " + b"x" * 1000 + b"\r\n")
    assert sent < 50_000_000
    assert works(server)


# Confused ones


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50,  # a browser that wants TLS
    b"\x00" * 100,
    b"\xff\xfe",
    b"HELLO\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
    b"GET / HTTP/1.1\r\n Host: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHo\x00st: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n",
    b"GET /\x1b[2J HTTP/1.1\r\n\r\n",
    b"GET /\xc3\xa4 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\nx\r\n",
]


@pytest.mark.attack("wire")
@each("data", GARBAGE)
def test_what_is_no_http_is_told_so(server, data):
    reply = server.send(data)
    assert (reply.status, reply.headers["connection"], reply.headers["content-type"]) == (
        400,
        "close",
        "application/json",
    )
    assert reply.code == "bad_request"
    assert works(server)


def test_each_of_them_has_its_line_in_the_log(serve):
    server = serve()
    for data in GARBAGE:
        server.send(data)
    server.ask("/mcp?log=last")
    lines = server.requests(wait_for='"last"')
    bad = [line for line in lines if line["path"] == "-"]
    assert len(bad) >= len(GARBAGE) - 3  # what has a head of its own is logged with it
    assert {line["status"] for line in bad} == {400}
    assert server.log_file.read_text().count("\n") == len(server.log())


@pytest.mark.attack("wire")
def test_garbage_behind_a_valid_request_does_not_cost_it_its_answer(server):
    for garbage in (b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"x" * 100_000):
        with server.connect() as client:
            client.sendall(request(server, "/mcp?wait=0.2") + garbage)
            first = server.read(client)
            assert (first.status, first.headers["connection"]) == (200, "close")
            assert rest_of(client) == b""
    assert works(server)


def test_several_requests_at_once_are_answered_in_their_order(server):
    with server.connect() as client:
        sizes = (3, 70_000, 0, 5)
        waits = (0.2, 0, 0.1, 0)
        for size, wait in zip(sizes, waits, strict=True):
            client.sendall(request(server, f"/mcp?wait={wait}", f"Content-Length: {size}") + b"x" * size)
        received = b""
        while received.count(b'"size"') < 4:
            received += client.recv(65536)
    assert [received.index(b'"size": %d,' % size) for size in sizes] == sorted(
        received.index(b'"size": %d,' % size) for size in sizes
    )


def test_clients_that_leave_with_requests_in_the_queue(server):
    for _ in range(20):
        with server.connect() as client:
            client.sendall(request(server, "/mcp?wait=0.1") * 20)
    assert works(server)


def test_a_client_that_leaves_is_noticed_by_all_that_it_asked(serve):
    """Also by those that it asked before the last one, which uvicorn does not tell."""
    server = serve()
    with server.connect() as client:
        client.sendall(request(server, "/mcp?gone&log=first") + request(server, "/mcp?gone&log=second"))
        server.wait_begun()
    assert [line["status"] for line in server.requests(wait_for='"first"')] == [499]


def test_an_upgrade_is_not_taken_up(server):
    for wish in (("Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"), ("Upgrade: h2c",)):
        with server.connect() as client:
            client.sendall(request(server, "/healthz", "Connection: Upgrade", *wish))
            reply = server.read(client)
            assert (reply.status, reply.headers["connection"]) == (200, "close")
            assert rest_of(client) == b""


def test_random_bytes_for_a_while(server):
    chosen = random.Random(7)
    valid = request(server, "/mcp", "Content-Length: 5") + b"hello"
    for _ in range(200):
        data = bytearray(valid)
        for _ in range(chosen.randint(1, 8)):
            data[chosen.randrange(len(data))] = chosen.randrange(256)
        with server.connect() as client:
            client.sendall(bytes(data))
            client.shutdown(socket.SHUT_WR)
            rest_of(client)
    assert works(server)


def test_clients_at_once_with_one_connection_each(server):
    answers = []

    def ask(number):
        answers.append(server.ask("/mcp", "POST", body=b"x" * number).json["size"] == number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 51)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [True] * 50


# What comes behind the body


def in_chunks(server, *trailers, headers=()):
    kind = "Content-Type: application/json"
    lines = ["POST /mcp HTTP/1.1", *headers, kind, "Transfer-Encoding: chunked", "", "3", "abc", "0", *trailers, "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.attack("wire")
def test_trailers_are_no_headers(serve):
    server = serve(config={"http": {"token": "sesame-token-sesame"}})
    host = f"Host: 127.0.0.1:{server.port}"
    late = server.send(in_chunks(server, "Authorization: Bearer sesame-token-sesame", headers=[host]))
    assert late.status == 401
    assert server.send(in_chunks(server, host)).status == 421
    token = "Authorization: Bearer sesame-token-sesame"
    assert server.send(in_chunks(server, "X: y", headers=[host, token])).status == 200


@pytest.mark.attack("wire")
def test_trailers_do_not_come_without_end(server):
    head = request(server, "/mcp", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n"
    with server.connect() as client:
        sent = 0
        client.sendall(head)
        with suppress(OSError):  # however it is told that nobody reads any more
            while sent < 50_000_000:
                client.sendall(b"x: " + b"y" * 60_000 + b"\r\n")
                sent += 60_000
        assert sent < 5_000_000
    assert works(server)


@pytest.mark.attack("wire")
def test_trailers_behind_a_body_that_nobody_reads_take_no_memory():
    """A refusal doesn't wait for the body, and bytes of a body that is thrown away allow for more trailers."""

    async def refuse(scope, receive, send):
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    config = Config(refuse, lifespan="off", log_level="critical")
    config.load()
    made = []

    def connection():
        shared = {"config": config, "server_state": ServerState(), "app_state": {}}
        limits = {"limits": ConnectionLimits(), "waiting": IdleConnections(), "bodies": BodyMemory()}
        made.append(HttpConnection(**shared, **limits))
        return made[0]

    async def ask():
        server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            first = await reader.readuntil(b"\r\n\r\n")
            kept = made[0].headers
            trailers = b"".join(b"x-%d: y\r\n" % number for number in range(20_000))
            writer.write(b"%x\r\n%b\r\n0\r\n%b\r\n" % (200_000, bytes(200_000), trailers))
            writer.write(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
            second = await reader.readuntil(b"\r\n\r\n")
            writer.close()
            return first[:12], second[:12], [name for name, _ in kept]

    assert asyncio.run(ask()) == (b"HTTP/1.1 401", b"HTTP/1.1 401", [b"host", b"transfer-encoding"])


def test_a_connection_that_only_asks_is_not_read_without_end(server):
    one = request(server, "/healthz")
    with server.connect() as client, suppress(OSError):
        client.settimeout(5)
        client.sendall(one * 5000)
        received = b""
        while piece := client.recv(65536):
            received += piece
    assert 0 < received.count(b"HTTP/1.1 200") < 2500
    assert works(server)
