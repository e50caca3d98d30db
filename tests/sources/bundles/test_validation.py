"""What somebody wrote wrongly is told with its place, and with what was meant."""

from copy import deepcopy

import pytest
from helpers import each

from onetool.core.mismatch import place_of
from onetool.http.definition import HttpImpl
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.validation import converted, read_bundle, read_tool

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
    assert message.startswith(f"{place_of(place)}: '")
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
    assert told(put(pointer, 1)) == (pointer, f"{place_of(pointer)}: there is no such key; did you mean {meant}?")


def test_where_no_key_is_near_those_that_there_are_are_listed():
    listed = "known: request, response, requests"
    assert told(put("/httpImpl/zzz", 1))[1] == f"httpImpl.zzz: there is no such key; {listed}"
    message = told(put("/httpImpl/request/auth/realm", 1))[1]
    assert message.endswith("known: type, value")  # of this kind of auth, not of all of them
    with pytest.raises(InvalidError, match="did you mean displayName"):
        read_bundle({"slug": "x", "displaName": "X"})


@each(
    ("pointer", "value", "message"),
    [
        ("/tags", "blue", "tags: expected a list of strings, got the string 'blue'"),
        ("/tags", ["a", 5], "tags[1]: expected a string, got the number 5"),
        ("/description", None, "description: expected a string, got null"),
        ("/argSchema", ["city"], "argSchema: expected an object, got a list of 1 item"),
        ("/isEnabled", 1, "isEnabled: expected true or false, got the number 1"),
        ("/httpImpl/request/timeoutMs", "5", "httpImpl.request.timeoutMs: expected a whole number, got the string '5'"),
        ("/httpImpl/request/timeoutMs", 0, "httpImpl.request.timeoutMs: must be from 1 to 600000, got the number 0"),
        ("/httpImpl/request/urlTemplate", "", "httpImpl.request.urlTemplate: must not be empty"),
        ("/httpImpl/request/headers", {"a": 1}, "httpImpl.request.headers.a: expected a string, got the number 1"),
        ("/httpImpl/request/auth", {"value": "x"}, "httpImpl.request.auth: `type` is missing: expected bearer, "),
        ("/httpImpl/request", {}, "httpImpl.request: `urlTemplate` is missing"),
        ("/httpImpl/requests", [], "httpImpl.requests: must not be empty"),
        ("/httpImpl/requests", [{"name": "a", "request": {"url": "x"}}], "httpImpl.requests[0].request.url: there is"),
        ("/limits/maxRetries", 11, "limits.maxRetries: must be from 0 to 10, got the number 11"),
        ("/examples", [{"name": "a", "args": 1}], "examples[0].args: expected an object, got the number 1"),
    ],
)
def test_other_mistakes_are_told_in_words(pointer, value, message):
    place, words = told(put(pointer, value))
    assert words.startswith(message)
    assert place.startswith(pointer)
    assert not any(validators in words for validators in ("`str`", "`int`", "`array`", "required field", "$."))


def test_a_body_that_is_no_object_is_told():
    with pytest.raises(InvalidError, match=r"^expected an object, got a list of 1 item$"):
        converted([1], HttpImpl)
