"""A body whose end two servers could see in different places is refused, with the connection that it came on."""

import pytest

pytestmark = pytest.mark.attack("wire")

CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"
SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

ODD = {
    "two lines": ("1.1", ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"]),
    "two lines, the first unknown": ("1.1", ["Transfer-Encoding: x", "Transfer-Encoding: chunked"]),
    "two lines, the last unknown": ("1.1", ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"]),
    "two lines in other letters": ("1.1", ["transfer-encoding: chunked", "TRANSFER-ENCODING: chunked"]),
    "two lines, one empty": ("1.1", ["Transfer-Encoding:", "Transfer-Encoding: chunked"]),
    "a list": ("1.1", ["Transfer-Encoding: gzip, chunked"]),
    "chunked twice": ("1.1", ["Transfer-Encoding: chunked, chunked"]),
    "after a comma": ("1.1", ["Transfer-Encoding: , chunked"]),
    "with a parameter": ("1.1", ["Transfer-Encoding: chunked;x=1"]),
    "in quotes": ("1.1", ['Transfer-Encoding: "chunked"']),
    "unknown": ("1.1", ["Transfer-Encoding: xchunked"]),
    "identity": ("1.1", ["Transfer-Encoding: identity"]),
    "empty": ("1.1", ["Transfer-Encoding:"]),
    "with a length": ("1.1", ["Content-Length: 3", "Transfer-Encoding: chunked"]),
    "before a length": ("1.1", ["Transfer-Encoding: chunked", "Content-Length: 3"]),
    "in HTTP/1.0": ("1.0", ["Transfer-Encoding: chunked"]),
    "in HTTP/1.0 with keep-alive": ("1.0", ["Connection: keep-alive", "Transfer-Encoding: chunked"]),
    "in HTTP/0.9": ("0.9", ["Transfer-Encoding: chunked"]),
    "in HTTP/2.0": ("2.0", ["Transfer-Encoding: chunked"]),
}


def request(server, version, lines):
    usual = (f"Host: localhost:{server.port}", "Content-Type: application/json")
    return "\r\n".join([f"POST /mcp HTTP/{version}", *usual, *lines, "", ""]).encode() + CHUNKS


@pytest.mark.parametrize(("version", "lines"), ODD.values(), ids=ODD)
def test_an_ambiguous_body_ends_the_connection(server, version, lines):
    with server.connect() as client:
        client.settimeout(10)
        client.sendall(request(server, version, lines) + SMUGGLED)
        said = b""
        while piece := client.recv(65536):
            said += piece
    assert said.startswith(b"HTTP/1.1 400 "), said
    assert said.count(b"content-length:") == 1
    assert b"connection: close" in said


@pytest.mark.parametrize("name", ["chunked", "Chunked", "  chunked"])
def test_one_chunked_body_is_read(server, name):
    assert server.send(request(server, "1.1", [f"Transfer-Encoding: {name}"])).json["size"] == 3
