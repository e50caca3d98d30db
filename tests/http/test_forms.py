"""Fields that callers add to queries and forms: how many, how large, and with which names."""

import tracemalloc

import msgspec
import pytest
from helpers import calls
from http_harness import harness
from upstream import Upstream

from onetool.core.errors import BadArguments, ToolFailure
from onetool.http.placeholders import TemplateError

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SPREAD = {"more": {"style": "form"}}


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


def tool(upstream, request, *arguments, **more):
    """An HTTP tool whose arguments can be anything."""
    return harness(upstream, request, schema={"properties": {name: {} for name in arguments}}, **more)


PLACES = {
    "query": {"query": {"a": "${a}"}},
    "form": {"method": "POST", "headers": FORM, "body": {"a": "${a}"}},
    "object": {"query": {"a": "${a}"}, "queryEncoding": {"a": {"style": "form"}}},
    "brackets": {"method": "POST", "multipart": {"a": "${a}"}, "bodyEncoding": {"a": {"style": "deepObject"}}},
    "token": {"auth": {"type": "oauth2", "tokenUrl": "https://b.example/?a=${a}", "clientId": "c"}},
}


def nested(value, depth):
    for _ in range(depth):
        value = {"a": value}
    return value


LARGE = {
    "escaped name": lambda: {"[" * 20_000: [1] * 3_000},
    "long characters": lambda: {"😀" * 50_000: [1] * 100},
    "numbers": lambda: [1] * 400_000,
    "objects": lambda: [{"b": 1}] * 300_000,
    "deep": lambda: nested([1] * 100_000, 200),
}


@pytest.mark.long
@pytest.mark.attack("limits")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", LARGE)
def test_what_is_too_large_as_a_form_is_refused_early(upstream, place, kind):
    """A name is sent once for each value below it: a few kilobytes of JSON can be gigabytes of a form."""
    call = tool(upstream, PLACES[place], "a")
    value = LARGE[kind]()
    with calls(1_000_000), pytest.raises(BadArguments) as refused:
        call(a=value)
    assert refused.value.argument == "a"
    assert upstream.seen == []


@pytest.mark.attack("limits")
@pytest.mark.parametrize("value", [[1] * 400_000, [{}] * 300_000], ids=["numbers", "objects"])
def test_many_parts_are_refused_early(upstream, value):
    call = tool(upstream, {"method": "POST", "multipart": {"a": "${a}"}}, "a")
    with calls(500_000), pytest.raises(BadArguments):
        call(a=value)


@pytest.mark.long
@pytest.mark.attack("limits")
@pytest.mark.parametrize("empty", [None, [], [None]])
def test_values_that_are_left_out_cost_no_memory_for_their_names(upstream, empty):
    call = tool(upstream, PLACES["query"], "a")
    value = nested({"n" * 10_000: [empty] * 100_000}, 200)
    tracemalloc.start()
    try:
        call(a=value)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert upstream.seen[0].target == "/x"


def test_a_form_up_to_the_limit_of_the_tool_is_sent(upstream):
    call = tool(upstream, PLACES["form"], "a", limits={"maxRequestBytes": 2_000})
    call(a=["x" * 10] * 100)
    assert len(upstream.seen[0].body) == 100 * 13 - 1
    with pytest.raises(ToolFailure, match=r"2,000 bytes \(limits.maxRequestBytes\)"):
        call(a=["x" * 10] * 200)


TAKEN = {
    "list": ({"headers": FORM, "body": {"items[0][price]": "100", "more": "0", "items": "${more}"}}, [{"price": 1}]),
    "escaped": ({"headers": FORM, "body": "items%5b0%5d[price]=100&items=${more}"}, [{"price": 1}]),
    "multipart": (
        {
            "multipart": {"items[0][price]": "100", "items": "${more}"},
            "bodyEncoding": {"items": {"style": "deepObject"}},
        },
        [{"price": 1}],
    ),
    "file": (
        {"multipart": {"photo": {"file": "${photo}"}, "more": "${more}"}, "bodyEncoding": SPREAD},
        {"photo": "x"},
    ),
    "key of auth": (
        {
            "query": {"more": "${more}"},
            "queryEncoding": SPREAD,
            "auth": {"type": "apiKey", "name": "api key", "value": "${KEY}", "in": "query"},
        },
        {"api key": "mine"},
    ),
    "absent in a form": (
        {"headers": FORM, "body": {"amount": "${amount}", "more": "${more}"}, "bodyEncoding": SPREAD},
        {"amount": 1000},
    ),
    "absent in a query": (
        {"query": {"amount": "${amount}", "more": "${more}"}, "queryEncoding": SPREAD},
        {"amount": 1000},
    ),
    "absent in multipart": (
        {"multipart": {"amount": "${amount}", "more": "${more}"}, "bodyEncoding": SPREAD},
        {"amount": 1000},
    ),
    "name": ({"headers": FORM, "body": "admin=0&${more}=1"}, "admin"),
    "name of a member": ({"headers": FORM, "body": "items=${amount}&${more}=1"}, "items[0]"),
    "two spellings": ({"query": {"f": "${more}"}}, {"a": {"b": 1}, "a][b": 2}),
    "member of another": (
        {"headers": FORM, "body": {"items": "${amount}", "more": "${more}"}, "bodyEncoding": SPREAD},
        {"items": [{"price": 1000}]},
    ),
    "member in brackets": (
        {"query": {"a[b]": "${amount}", "a": "${more}"}},
        {"b": ["x"]},
    ),
    "member in a part": (
        {"multipart": {"items": "${amount}", "more": "${more}"}, "bodyEncoding": SPREAD},
        {"items[0][price]": 1000},
    ),
}


@pytest.mark.attack("templates")
@pytest.mark.parametrize("kind", TAKEN)
def test_no_value_adds_a_field_that_the_template_has(upstream, kind):
    request, value = TAKEN[kind]
    call = tool(upstream, {"method": "POST", **request}, "more", "amount", "photo", secrets={"KEY": "k" * 20})
    with pytest.raises(BadArguments, match="already has") as refused:
        call(more=value)
    assert refused.value.argument == "more"
    assert upstream.seen == []


def test_an_object_may_have_a_member_with_its_own_name(upstream):
    call = tool(upstream, {"query": {"more": "${more}", "b": "1"}, "queryEncoding": SPREAD}, "more")
    call(more={"more": "x", "c": [1, 2]})
    assert upstream.seen[0].target == "/x?more=x&c%5B0%5D=1&c%5B1%5D=2&b=1"


def test_a_multipart_body_without_a_part_is_not_sent(upstream):
    call = tool(upstream, {"method": "POST", "multipart": {"a": "${a}"}}, "a")
    call()
    assert (upstream.seen[0].body, upstream.seen[0].headers.get("content-type")) == (b"", None)
    call(a=[])
    assert upstream.seen[1].body == b""


def test_bodies_of_a_request_that_can_never_work(upstream):
    fields, body = {"multipart": {"a": "${a}"}}, {"body": {"a": "${a}"}}
    with pytest.raises(TemplateError, match="without a file"):
        tool(upstream, {"method": "POST", **fields, **body}, "a")
    for other in (fields, body):
        with pytest.raises(msgspec.ValidationError, match="use `bodyFile` without"):
            tool(upstream, {"method": "POST", "bodyFile": "${a}", **other}, "a")
