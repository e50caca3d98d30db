"""What somebody wrote wrongly is told with its place, and with what was meant."""

from copy import deepcopy

import pytest
from helpers import each

from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.validation import read_bundle, read_tool

TOOL = {
    "type": "http",
    "httpImpl": {"request": {"urlTemplate": "https://a.example/x", "auth": {"type": "bearer", "value": "x"}}},
}


def put(pointer, value):
    """The tool with something else at one place."""
    tool = deepcopy(TOOL)
    *steps, last = pointer.strip("/").split("/")
    inner = tool
    for step in steps:
        inner = inner.setdefault(step, {})
    inner[last] = value
    return tool


def told(tool):
    with pytest.raises(InvalidError) as refused:
        read_tool(tool, "x", "1")
    return refused.value.pointer, str(refused.value)


@each(
    ("pointer", "value", "meant"),
    [
        ("/type", "htp", "did you mean http?"),
        ("/httpImpl/request/method", "get", "did you mean GET?"),
        ("/httpImpl/request/method", "DELET", "did you mean DELETE?"),
        ("/httpImpl/request/auth/type", "apikey", "did you mean apiKey?"),
        ("/httpImpl/response/encoding", "jsn", "did you mean json?"),
        ("/httpImpl/request/auth", {"type": "hmac", "secret": "x", "encoding": "bas64"}, "did you mean base64?"),
    ],
)
def test_a_value_that_is_none_of_those_gets_the_nearest(pointer, value, meant):
    place, message = told(put(pointer, value))
    assert place.startswith(pointer)
    assert message.startswith(f"{place}: '")
    assert message.endswith(meant)


@pytest.mark.parametrize(
    ("pointer", "value", "all_of_them"),
    [
        ("/type", "zzz", {"go", "http", "python", "script"}),
        ("/httpImpl/request/auth/type", "digest", {"apiKey", "basic", "bearer", "hmac", "oauth2"}),
        ("/httpImpl/response/errorMode", "x" * 500, {"empty", "fail", "return"}),
    ],
)
def test_and_all_that_are_possible_are_listed(pointer, value, all_of_them):
    place, message = told(put(pointer, value))
    assert place == pointer
    assert set(message.partition(" is not one of ")[2].split(", ")) == all_of_them
    assert len(message) < 200


@each(
    ("pointer", "meant"),
    [
        ("/desciption", "description"),
        ("/httpImpl/reqest", "request or requests"),
        ("/httpImpl/responce", "response"),
        ("/httpImpl/request/urlTemplat", "urlTemplate"),
        ("/httpImpl/request/timeout_ms", "timeoutMs"),
        ("/httpImpl/request/auth/valu", "value"),
        ("/httpImpl/response/selecter", "selector"),
        ("/limits/maxRetry", "maxRetries"),
    ],
)
def test_a_key_that_nobody_knows_gets_the_nearest_of_its_object(pointer, meant):
    assert told(put(pointer, 1)) == (pointer, f"{pointer}: there is no such key; did you mean {meant}?")


def test_where_no_key_is_near_those_that_there_are_are_listed():
    listed = "known: request, response, requests"
    assert told(put("/httpImpl/zzz", 1))[1] == f"/httpImpl/zzz: there is no such key; {listed}"
    message = told(put("/httpImpl/request/auth/realm", 1))[1]
    assert message.endswith("known: type, value")  # of this kind of auth, not of all of them
    with pytest.raises(InvalidError, match="did you mean displayName"):
        read_bundle({"slug": "x", "displaName": "X"})


def test_other_mistakes_are_told_as_they_were():
    assert told(put("/httpImpl/request/timeoutMs", "5"))[1] == (
        "/httpImpl/request/timeoutMs: expected `int`, got `str`"
    )
    assert told(put("/httpImpl/request/headers", {"a": 1}))[0] == "/httpImpl/request/headers/-"
    assert told(put("/httpImpl/request", {}))[1] == ("/httpImpl/request: object missing required field `urlTemplate`")
    assert told(put("/httpImpl/request/auth", {"value": "x"}))[0] == "/httpImpl/request/auth"
