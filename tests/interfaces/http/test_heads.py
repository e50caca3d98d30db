"""Heads of requests that are slow, endless or confused, and what follows a body: the next valid call still works."""

import random
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from helpers import each


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
        assert rest_of(client) == b""


def test_a_head_that_comes_too_slowly(hasty):
    with hasty.connect() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        dripping = threading.Thread(target=drip, args=(client, b"x"))
        dripping.start()
        assert rest_of(client) == b""
        dripping.join(10)


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


def test_a_second_head_that_comes_too_slowly(hasty):
    with hasty.connect() as client:
        client.sendall(request(hasty, "/healthz"))
        assert hasty.read(client).status == 200
        client.sendall(b"GET /hea")
        assert rest_of(client) == b""


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


def with_files(soft, hard):
    """The command for a server that may have so many files open."""
    code = (
        f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return ("-c", code, str(Path(__file__).with_name("stand_in.py")))


def test_the_number_of_files_is_raised(serve):
    server = serve(command=with_files(256, 2048))
    limits = Path(f"/proc/{server.process.pid}/limits").read_text().splitlines()
    (line,) = [line for line in limits if line.startswith("Max open files")]
    assert line.split()[3:5] == ["2048", "2048"]


# Heads


def test_a_head_may_be_large_but_not_endless(server):
    assert server.send(request(server, "/healthz", "X: " + "x" * 60_000)).status == 200
    assert server.send(request(server, "/healthz", *(f"X-{n}: {n}" for n in range(2000)))).status == 200
    with server.connect() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        time.sleep(0.2)
        client.sendall(b"x" * 66_000)
        reply = server.read(client)
    assert (reply.status, reply.headers["connection"]) == (431, "close")
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
    assert (reply.status, reply.headers["connection"]) == (400, "close")
    assert works(server)


@pytest.mark.attack("wire")
def test_garbage_behind_a_valid_request_ends_the_connection(server):
    for garbage in (b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"x" * 100_000):
        with server.connect() as client:
            client.sendall(request(server, "/mcp?wait=0.2") + garbage + request(server, "/healthz"))
            assert rest_of(client).count(b"HTTP/1.1 ") <= 1
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
    token = "Authorization: Bearer sesame-token-sesame"
    assert server.send(in_chunks(server, headers=[host, token])).status == 200
    for trailer, headers in ((token, [host]), (host, [token]), ("X: y", [host, token])):
        reply = server.send(in_chunks(server, trailer, headers=headers))
        assert (reply.status, reply.headers["connection"]) == (400, "close")


@pytest.mark.attack("wire")
@pytest.mark.parametrize("path", ["/mcp", "/nowhere"])
def test_trailers_do_not_come_without_end(server, path):
    """Also behind a body that nobody reads."""
    head = request(server, path, "Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n"
    with server.connect() as client:
        sent = 0
        client.sendall(head)
        with suppress(OSError):  # however it is told that nobody reads any more
            while sent < 50_000_000:
                client.sendall(b"x: " + b"y" * 60_000 + b"\r\n")
                sent += 60_000
        assert sent < 5_000_000
    assert works(server)
