"""Messages that are none: each is answered with the right code and id, and the next one works."""

import json

import pytest
from helpers import each

PARSE, INVALID, PARAMS = -32700, -32600, -32602
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

NOT_JSON = [
    b"x",
    b"{",
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping"',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}}',
    b"{'jsonrpc': '2.0'}",
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping",}',
    b'{"jsonrpc": "2.0", "id": 01, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 1e999, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": "\xff", "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": "a\x01b", "method": "ping"}',
    b"\xef\xbb\xbf" + json.dumps(PING).encode(),
    json.dumps(PING).encode("utf-16"),
    b"\x00",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"/* ping */ {}",
    b"GET / HTTP/1.1",
]

# A message that is JSON, the id that comes back with the answer, and the code.
NO_MESSAGE = [
    (None, None, INVALID),
    (7, None, INVALID),
    ("ping", None, INVALID),
    (True, None, INVALID),
    ({}, None, INVALID),
    ({"id": 1, "method": "ping"}, 1, INVALID),
    ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, 1, INVALID),
    ({"jsonrpc": 2.0, "id": "a", "method": "ping"}, "a", INVALID),
    ({"jsonrpc": "2.0", "id": 1}, 1, INVALID),
    ({"jsonrpc": "2.0"}, None, INVALID),
    ({"jsonrpc": "2.0", "result": {}}, None, INVALID),
    ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None, INVALID),
    ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, None, INVALID),
    ({"jsonrpc": "2.0", "id": True, "method": "ping"}, None, INVALID),
    ({"jsonrpc": "2.0", "id": [1], "method": "ping"}, None, INVALID),
    ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, None, INVALID),
    ({"jsonrpc": "2.0", "id": None, "result": {}}, None, INVALID),
    ({"jsonrpc": "2.0", "id": 1, "method": 7}, 1, INVALID),
    ({"jsonrpc": "2.0", "id": 1, "method": None}, 1, INVALID),
    ({"jsonrpc": "2.0", "id": 1, "method": ["ping"]}, 1, INVALID),
    ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}, 1, PARAMS),
    ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x"}, 1, PARAMS),
    ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": None}, 1, PARAMS),
    ({"jsonrpc": "2.0", "method": 7}, None, INVALID),
]


def reply_to(peer, data, id=None):
    """What comes back for these bytes; over HTTP with its status."""
    if hasattr(peer, "send"):
        headers = peer.headers() if not peer.is_new else [*peer.headers(), ("Mcp-Method", "ping")]
        exchange = peer.send(data, headers)
        assert exchange.status == 400
        return exchange.message
    return peer.reply_to(data + b"\n", id)


def works(peer):
    assert peer.text("plus", {"a": 1}) == "1"


@each("data", NOT_JSON)
def test_what_is_not_json(peer, data):
    reply = reply_to(peer, data)
    assert (reply["id"], reply["error"]["code"]) == (None, PARSE)
    assert reply["error"]["message"].startswith("not JSON: ")
    assert len(reply["error"]["message"]) < 300
    works(peer)


@each(("message", "id", "code"), NO_MESSAGE)
def test_what_is_json_but_no_message(peer, message, id, code):
    reply = reply_to(peer, json.dumps(message).encode(), id)
    assert (reply["id"], reply["error"]["code"]) == (id, code)
    works(peer)


def test_a_notification_that_makes_no_sense_is_not_answered(shared_peers):
    """On a pipe. There is nobody who waits for an answer."""
    for way in ("stdio-old", "stdio-new"):
        peer = shared_peers(way)
        peer.tell({"jsonrpc": "2.0", "method": "no/such/thing", "params": {"a": [1]}})
        peer.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {"a": 1}}})
        works(peer)


def test_empty_lines_on_a_pipe_are_nothing(shared_peers):
    peer = shared_peers("stdio-old")
    peer.write(b"\n\r\n   \n\t\n")
    works(peer)


def test_lines_may_end_as_on_other_systems(shared_peers):
    line = json.dumps({**PING, "id": "crlf"}).encode() + b"\r\n"
    assert shared_peers("stdio-old").reply_to(line, "crlf")["result"] == {}


def test_lines_may_come_in_pieces_or_several_at_once(shared_peers):
    peer = shared_peers("stdio-old")
    data = json.dumps({**PING, "id": "é🦊"}, ensure_ascii=False).encode() + b"\n"
    *pieces, last = [data[place : place + 3] for place in range(0, len(data), 3)]
    for piece in pieces:
        peer.write(piece)
    assert peer.reply_to(last, "é🦊")["result"] == {}
    both = [json.dumps({**PING, "id": id}).encode() + b"\n" for id in ("one", "two")]
    assert peer.reply_to(b"".join(both), "two")["result"] == {}


def test_half_of_a_pair_of_surrogates_is_answered(peer):
    """As clients send that cut a text in the middle of a character."""
    half = "🦊".encode("utf-16-le")[:2].decode("utf-16-le", "surrogatepass")
    result = peer.call("tools__echo", {"message": f"a{half}"})
    assert result["content"][0]["text"].startswith("a")
    assert peer.ask("tools/list", id=half)["id"] == half
    works(peer)


@pytest.mark.parametrize("depth", [10, 200, 900])
def test_what_is_deeply_nested(peer, depth):
    deep = json.loads("[" * depth + "]" * depth)
    result = peer.call("plus", {"a": deep})
    assert result["isError"] is True
    works(peer)


def test_numbers_of_any_size(peer):
    for number in (2**53, 2**63, 2**64, 10**30, -(10**30)):
        assert json.loads(peer.text("plus", {"a": number})) == number
    works(peer)


def test_the_same_member_twice(shared_peers):
    peer = shared_peers("stdio-old")
    data = b'{"jsonrpc": "2.0", "id": "x", "id": "y", "method": "ping"}\n'
    assert peer.reply_to(data, "y")["result"] == {}
