"""JSON-RPC on the wire: what goes in and comes out at the edges of JSON."""

import json

import pytest
from helpers import each
from hypothesis import given
from hypothesis import strategies as st

from onetool.core.mcp_protocol import (
    JsonRpcError,
    check_message,
    decode,
    decode_message,
    error_response,
    id_of,
    is_id,
    notification,
)
from onetool.http.asgi import encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
SURROGATES = st.text(st.characters(exclude_categories=()))  # halves of pairs, too


def loads(data):
    """As strict as JSON is: no NaN, no Infinity."""

    def no(word):
        raise AssertionError(word)

    return json.loads(data, parse_constant=no)


def code_of(work, given):
    """The code of the fault that it raises, if it does."""
    try:
        work(given)
    except JsonRpcError as fault:
        return fault.code
    return None


# Out


@given(JSON)
def test_data_survives(value):
    assert loads(encode(value)) == value
    assert decode(encode(value)) == value
    assert b"\n" not in encode(value)


@given(SURROGATES)
def test_every_text_survives_in_some_spelling(text):
    assert loads(encode({text: [text]})) == {text: [text]}
    assert decode(encode([text])) == [text]


@each("number", [2**63, 2**64, -(2**63) - 1, 10**100, 0, 2**53 + 1])
def test_numbers_of_any_size(number):
    assert loads(encode({"n": number})) == {"n": number}


def test_what_is_no_number_is_nothing():
    nan, inf = float("nan"), float("inf")
    assert loads(encode([nan, inf, -inf])) == [None, None, None]


@pytest.mark.parametrize("odd", ["\ud800", 2**70])
def test_what_is_no_number_is_nothing_also_beside_what_is_rare(odd):
    nan, inf = float("nan"), float("inf")
    assert loads(encode([odd, nan, {"a": (inf, [-inf])}])) == [odd, None, {"a": [None, [None]]}]


def test_keys_that_are_no_texts():
    assert loads(encode({1: "a"})) == {"1": "a"}
    assert loads(encode({(1, 2): "a", "b": 1})) == {"b": 1}


def test_what_json_does_not_know_is_told_in_words():
    assert loads(encode([object])) == [str(object)]


# In


@each("data", [b"", b" ", b"nul", b'"\xc3"', b"\xff\xfe1\x00", b"1 2", b"[1,]", b"+1", b"0x1", b"\x0c1"])
def test_what_is_not_json(data):
    with pytest.raises(JsonRpcError, match="not JSON") as caught:
        decode(data)
    assert caught.value.code == -32700


@each("rest", ["NaN", "1e999", "-Infinity", "01", "]"])
def test_half_a_pair_excuses_nothing_else(rest):
    assert decode(rb'["\ud800", 1]') == ["\ud800", 1]
    with pytest.raises(JsonRpcError, match="not JSON"):
        decode(rb'["\ud800", %s]' % rest.encode())


@given(st.binary(max_size=60))
def test_whatever_comes_in_is_data_or_a_fault(data):
    assert code_of(decode, data) in (None, -32700)


@pytest.mark.parametrize(
    ("value", "words"), [(b"[]," * 500_000 + b"[]", "500,000 parts"), (b"9" * 1001, "1,000 digits")]
)
def test_what_would_take_too_long_to_read_is_refused(value, words):
    with pytest.raises(JsonRpcError, match=f"the message has .*more than {words}") as caught:
        decode(b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"a": [%s]}}' % value)
    assert caught.value.code == -32600


# Messages


def in_one_go(message):
    """What is wrong with a message, as `decode_message` says it."""
    found, problem = decode_message(json.dumps(message).encode())
    assert found == message
    return None if problem is None else (problem.code, str(problem))


@given(JSON)
def test_decoding_in_one_go_finds_what_checking_finds(value):
    request = {"jsonrpc": "2.0", "id": 1, "method": "x"}
    for message in ({**request, "method": value}, {**request, "id": value}, {**request, "params": value}, value):
        try:
            check_message(message)
            words = None
        except JsonRpcError as error:
            words = (error.code, str(error))
        assert in_one_go(message) == words


def test_what_is_nested_too_deep_is_refused_wherever_it_is():
    deep = b"[" * 100_000 + b"]" * 100_000
    for member in (b"params", b"more"):
        _, problem = decode_message(b'{"jsonrpc": "2.0", "id": 1, "method": "x", "%s": %s}' % (member, deep))
        assert problem is not None
        assert problem.code == -32700


@given(JSON)
def test_whatever_it_is_it_is_a_message_or_a_fault(value):
    request = {"jsonrpc": "2.0", "id": 1, "method": "x"}
    for message in (value, {**request, "method": value}, {**request, "id": value}, {**request, "params": value}):
        assert code_of(check_message, message) in (None, -32600, -32602)
        assert id_of(message) is None or is_id(id_of(message))


@each(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "x"},
        {"jsonrpc": "2.0", "id": "", "method": "", "params": {}},
        {"jsonrpc": "2.0", "method": "x", "params": {"a": 1}, "more": True},
        {"jsonrpc": "2.0", "id": 0, "result": None},
        {"jsonrpc": "2.0", "id": "a", "error": {"code": 1, "message": "m"}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "m"}},
    ],
)
def test_requests_notifications_and_responses(message):
    assert check_message(message) is message


@each(
    ("message", "words"),
    [
        ([], "JSON-RPC batches are not supported: send one message at a time"),
        (None, "expected one JSON-RPC message, an object, got null"),
        (1.5, "expected one JSON-RPC message, an object, got the number 1.5"),
        (True, "expected one JSON-RPC message, an object, got true"),
        ("x", "expected one JSON-RPC message, an object, got the string 'x'"),
        ({"jsonrpc": "2.0", "id": False, "method": "x"}, "id: expected a string or an integer, got false"),
        ({"jsonrpc": "2.0", "id": 1.0, "method": "x"}, "id: expected a string or an integer, got the number 1.0"),
        ({"jsonrpc": "2.0", "method": {}}, "method: expected a string, got an object without keys"),
        ({"jsonrpc": "2.0", "method": "x", "params": None}, "params: expected an object, got null"),
        ({"jsonrpc": "2.0", "id": 1}, "expected a request, a notification or a response: `method` is missing"),
    ],
)
def test_what_is_wrong_is_said(message, words):
    with pytest.raises(JsonRpcError) as caught:
        check_message(message)
    assert str(caught.value) == words


def test_what_is_sent():
    assert notification("x") == {"jsonrpc": "2.0", "method": "x"}
    assert notification("x", {}) == {"jsonrpc": "2.0", "method": "x", "params": {}}
    assert error_response(None, JsonRpcError(-1, "m"))["error"] == {"code": -1, "message": "m"}
    assert error_response("a", JsonRpcError(-1, "m", {"d": 1}))["error"] == {
        "code": -1,
        "message": "m",
        "data": {"d": 1},
    }


def test_numbers_of_any_length_are_told():
    assert encode({"n": 10**5000}) == b'{"n": "' + hex(10**5000).encode() + b'"}'
