"""How much a request may carry: 413 beyond it, with a declared length or in chunks, whatever the route does."""

import socket

import pytest
from helpers import each

MIB = 1024**2
JSON = "Content-Type: application/json"


def head(server, path="/mcp", *lines):
    first = [f"POST {path} HTTP/1.1", f"Host: localhost:{server.port}", JSON, *lines]
    return "\r\n".join([*first, "", ""]).encode()


def chunked(server, size, path="/mcp", piece=65536, end=True):
    data = [head(server, path, "Transfer-Encoding: chunked")]
    data += [b"%x\r\n%s\r\n" % (piece, b"x" * piece)] * (size // piece)
    if rest := size % piece:
        data.append(b"%x\r\n%s\r\n" % (rest, b"x" * rest))
    return b"".join(data) + (b"0\r\n\r\n" if end else b"")


def test_just_what_may_be_and_one_more(server):
    assert server.ask("/mcp", "POST", body=b"x" * 4 * MIB).json["size"] == 4 * MIB
    reply = server.ask("/mcp", "POST", body=b"x" * (4 * MIB + 1))
    assert (reply.status, reply.code, reply.headers["connection"]) == (413, "too_large", "close")
    assert "at most 4 MiB" in reply.json["error"]["message"]
    assert "http.max_body_mb" in reply.json["error"]["message"]


def test_the_same_in_chunks(server):
    assert server.send(chunked(server, 4 * MIB)).json["size"] == 4 * MIB
    for end in (True, False):
        reply = server.send(chunked(server, 4 * MIB + 1, end=end))
        assert (reply.status, reply.code, reply.headers["connection"]) == (413, "too_large", "close")


def test_the_config_sets_it(guarded):
    bearer = ("Authorization", f"Bearer {guarded.token}")
    assert guarded.ask("/mcp", "POST", [bearer], b"x" * MIB).status == 200
    assert guarded.ask("/mcp", "POST", [bearer], b"x" * (MIB + 1)).status == 413


def test_for_every_route_alike(server):
    for path in ("/mcp", "/", "/healthz", "/nothing"):
        assert server.ask(path, "POST", body=b"x" * (4 * MIB + 1)).status == 413, path


def test_a_declared_length_is_refused_before_anything_is_sent(server):
    reply = server.send(head(server, "/mcp", f"Content-Length: {10**15}"))
    assert reply.status == 413
    waits = head(server, "/mcp", f"Content-Length: {5 * MIB}", "Expect: 100-continue")
    assert server.send(waits).status == 413  # and not 100: nothing need be sent


def test_who_waits_for_leave_to_send_gets_it(server):
    with server.connect() as client:
        client.sendall(head(server, "/mcp", "Content-Length: 3", "Expect: 100-continue"))
        assert client.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc")
        assert server.read(client).json["size"] == 3


def test_a_client_that_sends_all_before_it_reads_gets_the_answer(server):
    """Some reset the connection here, and the client never learns why."""
    for size in (6 * MIB, 16 * MIB):
        assert server.ask("/mcp", "POST", body=b"x" * size).status == 413
        assert server.send(chunked(server, size)).status == 413


def test_what_never_ends_is_cut_off(server):
    with server.connect() as client:
        client.sendall(head(server, "/mcp", "Transfer-Encoding: chunked"))
        with pytest.raises(ConnectionError):
            client.sendall(b"%x\r\n%s\r\n" % (65536, b"x" * 65536) * 1600)
    assert server.ask("/healthz").status == 200


def test_a_route_that_catches_everything_can_not_keep_it_going(server):
    assert server.send(chunked(server, 5 * MIB, "/mcp?swallow")).status == 413


def test_a_route_that_answers_before_it_reads_is_done(server):
    with server.connect() as client:
        client.sendall(head(server, "/mcp?early", f"Content-Length: {MIB}"))
        assert server.read(client).json == {"early": True}
        client.sendall(b"x" * MIB)  # is thrown away, and the connection goes on
        client.sendall(head(server, "/mcp", "Content-Length: 2") + b"ab")
        assert server.read(client).json["size"] == 2


def test_each_has_one_line_in_the_log(serve):
    server = serve()
    server.ask("/mcp", "POST", body=b"x" * (4 * MIB + 1))
    server.send(chunked(server, 4 * MIB + 1))
    server.ask("/mcp?log=last", "POST", body=b"x")
    lines = server.requests(wait_for='"last"')
    assert sorted(line["status"] for line in lines) == [200, 413, 413]


@each(
    "lines",
    [
        ["Content-Length: 2", "Content-Length: 3"],
        ["Content-Length: 2", "Transfer-Encoding: chunked"],
        ["Content-Length: -1"],
        ["Content-Length: 2x"],
        ["Transfer-Encoding: gzip"],
        ["Transfer-Encoding: chunked, identity"],
    ],
)
def test_lengths_that_two_servers_could_read_differently(server, lines):
    """Smuggling: what one server takes for a body, the next takes for a request."""
    reply = server.send(head(server, "/mcp", *lines) + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (reply.status, reply.headers.get("connection")) == (400, "close")


def test_a_client_that_leaves_in_the_middle_of_its_body(server):
    for _ in range(20):
        with server.connect() as client:
            client.sendall(head(server, "/mcp", "Content-Length: 1000") + b"x" * 10)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not a goodbye
    assert server.ask("/mcp", "POST", body=b"abc").json["size"] == 3
