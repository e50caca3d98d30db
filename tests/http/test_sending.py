"""What is sent again, when, and what never is. Redirects, too: where they lead, and what goes there."""

import asyncio
import time
from email.utils import formatdate

import pytest
from helpers import each
from http_harness import allowed, harness, run
from upstream import CLOSE, Reply, Upstream

from onetool.core.errors import ToolFailure
from onetool.http.client import HttpClient
from onetool.http.connection import HttpResponse
from onetool.http.definition import Request, ToolLimits
from onetool.http.errors import InvalidResponseError, UnreachableError
from onetool.http.response import retry_after
from onetool.http.tool_request import Retries

OK = Reply(body=b'"done"')


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def slept(monkeypatch):
    """Pauses between tries, which take no time."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr("onetool.http.tool_request.sleep", sleep)
    return pauses


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_statuses_that_are_tried_again(upstream, slept, status):
    upstream.say(Reply(status), Reply(status), OK)
    assert harness(upstream, {"retries": 2})() == "done"
    assert len(upstream.seen) == 3
    assert len(slept) == 2
    assert 0 <= slept[0] <= 0.25
    assert 0 <= slept[1] <= 0.5


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 409, 422])
def test_statuses_that_are_not(upstream, slept, status):
    upstream.say(Reply(status), OK)
    with pytest.raises(ToolFailure, match=str(status)):
        harness(upstream, {"retries": 2})()
    assert len(upstream.seen) == 1


@pytest.mark.parametrize(
    ("request_", "limits", "tries"),
    [
        ({"method": "GET"}, {}, 1),
        ({"method": "GET", "retries": 3}, {}, 4),
        ({"method": "HEAD", "retries": 1}, {}, 2),
        ({"method": "PUT", "retries": 1}, {}, 2),
        ({"method": "DELETE", "retries": 1}, {}, 2),
        ({"method": "OPTIONS", "retries": 1}, {}, 2),
        ({"method": "POST", "retries": 3}, {}, 1),
        ({"method": "PATCH", "retries": 3}, {}, 1),
        ({"method": "POST", "retries": 3, "idempotent": True}, {}, 4),
        ({"method": "GET", "retries": 3, "idempotent": False}, {}, 1),
        ({"method": "GET", "retries": 3}, {"maxRetries": 1}, 2),
        ({"method": "GET", "retries": 3}, {"maxRetries": 0}, 1),
        ({"method": "GET", "retries": 1}, {"maxRetries": 9}, 2),
    ],
)
def test_how_often(upstream, slept, request_, limits, tries):
    upstream.say(Reply(503))
    with pytest.raises(ToolFailure, match="503"):
        harness(upstream, request_, limits=limits)()
    assert len(upstream.seen) == tries


def test_connections_that_break_off_and_time_outs(upstream, slept):
    upstream.say([CLOSE], [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", CLOSE], [1.0], OK)
    assert harness(upstream, {"retries": 3, "timeoutMs": 200})() == "done"
    upstream.say([CLOSE])
    with pytest.raises(ToolFailure, match=r"before it answered \(tried 3 times\)") as caught:
        harness(upstream, {"retries": 2})()
    assert caught.value.reason == "source_unavailable"


def test_what_would_not_be_better_the_next_time(upstream, slept):
    upstream.say(b"SSH-2.0\r\n")
    with pytest.raises(InvalidResponseError):
        harness(upstream, {"retries": 3})()
    upstream.say(Reply(body=b"a" * 99))
    with pytest.raises(ToolFailure, match="more than 50 bytes"):
        harness(upstream, {"retries": 3}, limits={"maxResponseBytes": 50})()
    assert len(upstream.seen) == 2


def test_the_server_says_how_long_to_wait(upstream, slept):
    later = formatdate(time.time() + 7, usegmt=True)
    upstream.say(Reply(429, {"Retry-After": "3"}), Reply(503, {"Retry-After": later}), OK)
    assert harness(upstream, {"retries": 2})() == "done"
    assert slept[0] == 3
    assert 5 < slept[1] <= 7


def test_nobody_waits_in_vain(upstream, slept):
    """Longer than there is time for: that is told at once."""
    upstream.say(Reply(429, {"Retry-After": "120"}), OK)
    tool = harness(upstream, {"retries": 2, "timeoutMs": 1000})
    with pytest.raises(ToolFailure, match="429 Too Many Requests") as caught:
        tool()
    assert not slept
    assert caught.value.hints == ("it asks for a retry in 120 s",)


def test_the_time_over_all_tries():
    def total(request):
        with Upstream() as upstream:
            return harness(upstream, request).tool.timeout

    assert total({"timeoutMs": 2000}) == 3
    assert total({"timeoutMs": 2000, "retries": 2}) == 6 + 0.75 + 1
    assert total({"timeoutMs": 600_000, "retries": 9}) == 901


def test_real_pauses_and_a_total_that_ends_it(upstream):
    upstream.say(Reply(503))
    tool = harness(upstream, {"retries": 10})
    tool.tool._total = 1.0
    with pytest.raises(ToolFailure):
        tool()
    assert 2 <= len(upstream.seen) <= 10


def answer(status, **headers):
    one = HttpResponse()
    one.status, one.headers = status, headers
    return one


def test_pauses_grow_and_are_left_to_chance():
    request = Request(url_template="https://x/", retries=10)
    longest = Retries(request, ToolLimits(), chance=lambda: 1.0)
    assert [longest.pause(number, answer(503), 99) for number in range(1, 12)] == [
        0.25, 0.5, 1, 2, 4, 8, 8, 8, 8, 8, None,
    ]  # fmt: skip
    assert Retries(request, ToolLimits(), chance=lambda: 0.0).pause(3, UnreachableError("x"), 99) == 0
    assert longest.pause(3, answer(503), 0.9) is None


@each(
    ("text", "seconds"),
    [
        ("5", 5),
        ("0", 0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Thu, 01 Jan 1970 00:16:50 GMT", 10),
        ("9" * 400, float("9" * 12)),
        ("soon", None),
        ("-5", None),
        ("1e9", None),
        ("٣", None),
        ("", None),
    ],
)
def test_how_it_may_be_said(text, seconds):
    assert retry_after(answer(503, **{"retry-after": text}), now=1000.0 if "1970" in text else time.time()) == seconds


# Redirects


def test_redirects_are_not_followed_by_themselves(upstream):
    upstream.say(Reply(302, {"Location": "/there"}))
    with pytest.raises(ToolFailure, match="302 Found") as caught:
        harness(upstream)()
    assert "it redirects to /there; with request.followRedirects" in caught.value.hints[0]
    assert len(upstream.seen) == 1


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "GET", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
    ],
)
def test_redirects_within_the_origin(upstream, status, method, then):
    upstream.say(Reply(status, {"Location": "../y?a=b#c"}), OK)
    request = {"method": method, "followRedirects": True, "auth": {"type": "bearer", "value": "t0ken"}}
    if method not in ("GET", "HEAD"):
        request["body"] = {"a": 1}
    harness(upstream, request, path="/p/x")()
    second = upstream.seen[1]
    assert (second.method, second.target) == (then, "/y?a=b")
    assert second.headers["authorization"] == "Bearer t0ken"
    assert second.body == (b'{"a":1}' if then in ("POST", "PUT") else b"")
    assert ("content-type" in second.headers) == (then in ("POST", "PUT"))


def test_another_origin_gets_nothing_that_could_be_secret(upstream):
    request = {
        "followRedirects": True,
        "headers": {"X-Key": "${KEY}", "Cookie": "a=b", "Accept-Language": "uk"},
        "auth": {"type": "bearer", "value": "${KEY}"},
    }
    with Upstream(OK) as other:
        upstream.say(Reply(302, {"Location": f"{other.url}/y"}))
        tool = harness(upstream, request, secrets={"KEY": "s3cret-key"}, hosts=allowed(upstream, other))
        assert tool() == "done"
        assert {name for name, _ in other.seen[0].header_list} == {
            "Host", "Accept-Language", "Accept", "User-Agent", "Accept-Encoding", "OneTool-Call",
        }  # fmt: skip
        assert b"s3cret" not in other.seen[0].raw


def test_what_is_lost_on_the_way_stays_lost(upstream):
    with Upstream() as other:
        upstream.say(Reply(302, {"Location": f"{other.url}/y"}), OK)
        other.say(Reply(302, {"Location": f"{upstream.url}/z"}))
        request = {"followRedirects": True, "auth": {"type": "apiKey", "name": "X-Key", "value": "k"}}
        assert harness(upstream, request, hosts=allowed(upstream, other))() == "done"
    assert ["x-key" in one.headers for one in upstream.seen] == [True, False]


def test_a_body_is_not_sent_to_another_origin(upstream):
    with Upstream() as other:
        upstream.say(Reply(307, {"Location": f"{other.url}/y"}))
        request = {"method": "POST", "body": {"password": "x"}, "followRedirects": True}
        with pytest.raises(ToolFailure, match="not sent to another origin"):
            harness(upstream, request, hosts=allowed(upstream, other))()
        assert not other.seen


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("http://169.254.169.254/latest/meta-data", "allowedHosts"),
        ("//evil.example/", "allowedHosts"),
        ("file:///etc/passwd", "can't be called"),
        ("http://user:pw@127.0.0.1/", "can't be called"),
        ("http://[::1", "can't be called"),
        ("http://inside.example/", "resolves to 127.0.0.1"),
    ],
)
def test_every_hop_is_checked(upstream, location, words):
    from onetool.http.allowed_hosts import AllowedHosts, HostRule

    async def resolve(host, port):
        return ["127.0.0.1"]

    upstream.say(Reply(302, {"Location": location}))
    hosts = AllowedHosts([HostRule(upstream.netloc, True), HostRule("inside.example", False)])
    with pytest.raises(ToolFailure, match=words) as caught:
        harness(upstream, {"followRedirects": True}, hosts=hosts, client=HttpClient(resolve))()
    assert caught.value.reason == "denied"
    assert len(upstream.seen) == 1


def test_so_many_hops_and_no_more(upstream):
    upstream.say(Reply(302, {"Location": "/again"}))
    with pytest.raises(ToolFailure, match="more than 5 times"):
        harness(upstream, {"followRedirects": True})()
    assert len(upstream.seen) == 6


def test_hops_share_the_time_of_a_try(upstream):
    upstream.say([0.15, b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"])
    with pytest.raises(ToolFailure) as caught:
        harness(upstream, {"followRedirects": True, "timeoutMs": 300})()
    assert caught.value.reason == "timeout"
    assert len(upstream.seen) < 6, "else it would have been too many hops"


def test_many_at_once(upstream):
    upstream.say(lambda seen: Reply(body=f'"{seen.target}"'.encode()))
    tool = harness(upstream, path="/${n}", schema={"properties": {"n": {"type": "integer"}}})

    async def main():
        return await asyncio.gather(*[tool.call(n=n) for n in range(200)])

    assert run(main()) == [f"/{n}" for n in range(200)]
    assert upstream.connections <= 64


def test_what_must_not_be_sent_twice_is_not_even_where_a_connection_was_stale(upstream):
    upstream.say(OK, [CLOSE], OK)
    tool = harness(upstream, {"method": "PUT", "idempotent": False})

    async def twice():
        await tool.call()
        await tool.call()

    with pytest.raises(ToolFailure):
        run(twice())
    assert len(upstream.seen) == 2
