"""Calls of tools: what they give, how they fail, and what is refused before anything runs."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from helpers import each, until
from interfaces.rest.served import BUILT_IN, TOKEN, problem, read_events


def path(slug):
    return f"/tools/bundles/{BUILT_IN}/tools/{slug}/version/1/invoke"


def happened(api, text):
    """Wait until it has."""
    return until(lambda: text in api.call("what-happened").json()["value"])


def test_a_value(api):
    reply = api.call("echo", {"a": [1, None, "x"]})
    assert (reply.status_code, reply.json()) == (200, {"ok": True, "value": {"a": [1, None, "x"]}})
    assert reply.headers["content-type"] == "application/json"


def test_a_value_that_json_has_no_words_for(api):
    value = api.call("odd").json()["value"]
    assert (value["big"], value["bytes"], value["set"]) == (10**30, "eA==", [1])


def test_a_large_value_comes_whole(api):
    assert len(api.call("large", {"size": 5_000_000}).json()["value"]) == 5_000_000


def test_a_tool_that_ran_and_failed_is_200_without_secrets(api):
    reply = api.call("broken")
    assert reply.status_code == 200
    assert reply.json()["ok"] is False
    assert reply.json()["error"]["code"] == "execution_error"
    assert "it broke, ***" in reply.text


def test_bad_arguments_are_400_before_anything_runs(api):
    found = problem(api.call("large", {"size": "x", "more": 1}), 400, "invalid_args")
    assert {one["pointer"] for one in found["errors"]} == {"/args/size", "/args/more"}
    assert (found["in"], found["pointer"]) == ("body", found["errors"][0]["pointer"])
    assert all(one["message"] for one in found["errors"])


def test_what_is_not_there_or_switched_off(api):
    problem(api.call("nothing"), 404, "not_found")
    tool = api.tool()
    assert api.ask("POST", f"{tool}/invoke", {"args": {"n": 1}}).json() == {"ok": True, "value": {"n": 1}}
    api.ask("PATCH", tool, {"isEnabled": False})
    problem(api.ask("POST", f"{tool}/invoke", {"args": {"n": 1}}), 403, "disabled")


def test_too_often_is_429_and_says_when(api):
    tool = api.tool(limits={"maxCallsPerMinute": 1})
    reply = api.ask("POST", f"{tool}/invoke", {"args": {"n": 1}})
    problem(reply, 429, "rate_limited")
    assert reply.headers["retry-after"] == "3"


def test_a_store_that_cannot_write_is_503_and_a_bug_500(api):
    where = f"/tools/bundles/{api.new_id()}"
    reply = api.ask("PUT", where, {"slug": "mine", "description": "unavailable"})
    assert problem(reply, 503, "unavailable")["detail"] == "the disk is full: ***"
    assert reply.headers["retry-after"] == "1"
    problem(api.ask("PUT", where, {"slug": "mine", "description": "bug"}), 500, "internal")
    assert api.get("/tools/bundles").status_code == 200


def test_an_allow_list_holds_here_too(start):
    api = start(allowed=["tests.echo"])
    assert api.call("echo", {}).json()["ok"] is True
    problem(api.call("odd"), 403, "tool_not_found")


def test_equal_calls_never_cross(api):
    def one(number):
        with httpx.Client(timeout=20) as client:
            return [
                client.post(api.url + path("echo"), json={"args": {"n": number, "m": turn}}).json()["value"]
                for turn in range(20)
            ]

    with ThreadPoolExecutor(8) as pool:
        for number, values in enumerate(pool.map(one, range(8))):
            assert values == [{"n": number, "m": turn} for turn in range(20)]


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_a_client_that_leaves_cancels_the_call(api, accept):
    name = f"left {accept}"
    body = json.dumps({"args": {"name": name}}).encode()
    with socket.create_connection(("127.0.0.1", api.port), 10) as one:
        head = f"POST {path('slow')} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        one.sendall(head.encode() + body)
        assert happened(api, f"{name} began")
    assert happened(api, f"{name} cancelled")


def test_events_tell_of_progress_and_pieces_and_end_with_the_result(api):
    events = api.events("steps", {"count": 2})
    assert [event.name for event in events] == ["progress", "chunk", "progress", "chunk", "result"]
    assert events[0].data == {"progress": 0, "total": 2, "message": "step 0"}
    assert [event.data for event in events if event.name == "chunk"] == [{"data": "piece\n0"}, {"data": "piece\n1"}]
    assert events[-1].data == {"ok": True, "value": 2}


def test_events_from_a_thread_keep_their_order(api):
    events = api.events("in-thread", {"count": 50})
    assert [event.data["progress"] for event in events[:-1]] == list(range(50))
    assert events[-1].data == {"ok": True, "value": True}


def test_events_come_as_they_happen(api):
    asked = {"args": {"count": 2, "pause": 600}}
    with httpx.stream("POST", api.url + path("steps"), json=asked, headers={"Accept": "text/event-stream"}) as reply:
        assert next(read_events(next(reply.iter_text()))).name == "progress"


def test_a_quiet_call_is_a_stream_all_the_same(api):
    events = api.events("slow", {"seconds": 0.4})
    assert [event.name for event in events] == ["result"]
    failed = api.events("broken")
    assert (failed[0].name, failed[0].data["ok"]) == ("result", False)


def test_what_is_refused_before_anything_runs_is_no_stream(api):
    asked = {"headers": {"Accept": "text/event-stream"}}
    problem(api.call("large", {"size": "x"}, **asked), 400, "invalid_args")
    problem(api.call("nothing", **asked), 404, "not_found")


@each(
    ("accept", "events"),
    [
        ("text/event-stream", True),
        ("TEXT/event-stream; q=0.5", True),
        ("text/event-stream, application/json;q=0.9", True),
        ("text/event-stream, */*", True),
        ("application/json, text/event-stream", False),
        ("application/json, text/event-stream;q=0.1", False),
        ("text/event-stream;q=0", False),
        ("text/event-stream;q=x", False),
        ("*/*", False),
        ("text/html", False),
        ("", False),
    ],
)
def test_who_gets_events(api, accept, events):
    reply = api.call("echo", {}, headers={"Accept": accept})
    assert reply.headers["content-type"] == ("text/event-stream" if events else "application/json")


def test_the_token_is_asked_for_everywhere(start):
    api = start(token=TOKEN)
    for method, where in (
        ("GET", "/tools/bundles"),
        ("POST", path("echo")),
        ("GET", "/tools"),
        ("GET", "/openapi.json"),
    ):
        assert api.ask(method, where).status_code == 401
    assert api.get("/tools/bundles", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    document = api.get("/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    assert document["security"] == [{"token": []}]
    problem(api.get("/tools/bundles"), 401, "unauthorized")
    hosts = {"Host": "evil.example", "Authorization": f"Bearer {TOKEN}"}
    problem(api.get("/tools/bundles", headers=hosts), 421, "bad_host")
    pages = {"Origin": "https://evil.example", "Authorization": f"Bearer {TOKEN}"}
    problem(api.get("/tools/bundles", headers=pages), 403, "bad_origin")
