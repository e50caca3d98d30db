"""`POST /call/{name}`: any tool by its name, for people with curl."""

import json
import subprocess

import pytest
from interfaces.rest.served import Api, problem, read_events

PACK = '''
import time

from onetool.sdk import report_progress, tool

def add_two(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b

def nothing() -> None:
    """Give nothing."""

def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)

@tool(timeout=0.2)
def slow() -> str:
    """Take long."""
    time.sleep(5)

def steps() -> str:
    """Tell how far it is."""
    report_progress(1, 2, "half")
    return "done"
'''
MOCK = {
    "name": "weather",
    "description": "The weather",
    "type": "function",
    "handler": "weather",
    "parameters": {"type": "object", "properties": {}},
    "implementation": {"type": "mock", "mock_response": {"c": 21}},
}
SECRET = "s3cret-that-nobody-may-read"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "packs").mkdir()
    (folder / "packs" / "sums.py").write_text(PACK)
    config = {"packs": ["packs"], "tools": [MOCK], "aliases": {"w": "weather"}, "secrets": {"KEY": SECRET}}
    (folder / "onetool.yaml").write_text(json.dumps(config | {"http": {"max_body_mb": 1}}))
    running = Api(real=folder, args=["--config", str(folder / "onetool.yaml")])
    yield running
    assert running.stop() == 0


def call(api, name, args=None, **options):
    return api.ask("POST", f"/call/{name}", {} if args is None else args, **options)


def test_the_answer_is_the_bare_value(api):
    reply = call(api, "sums.add_two", {"a": 3})
    assert (reply.status_code, reply.headers["content-type"], reply.json()) == (200, "application/json", 4)
    assert call(api, "sums.nothing").text == "null"
    assert call(api, "tools.echo", {"message": "hi"}).json() == "hi"


def test_declared_tools_and_aliases_are_names_too(api):
    assert call(api, "weather").json() == call(api, "w").json() == {"c": 21}


def test_a_tool_of_a_bundle_with_and_without_its_version(api):
    schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    bundle = api.bundle(slug="my-own")
    for version in ("1", "2"):
        api.tool(bundle, "say-it", version, argSchema=schema, pythonImpl={"func": "tools.echo"})
    for name in ("my_own.say_it", "my_own.say_it@1", "my_own.say_it%401"):
        assert call(api, name, {"message": "hi"}).json() == "hi"


def test_without_arguments_curl_needs_no_header_at_all(api):
    for more in ([], ["-H", "Content-Length: 0"]):
        done = subprocess.run(
            ["curl", "-sS", "-X", "POST", f"{api.url}/call/weather", *more], capture_output=True, check=False
        )
        assert json.loads(done.stdout) == {"c": 21}, done


@pytest.mark.parametrize("header", ["Origin: {}", "Sec-Fetch-Site: same-origin"])
def test_a_browser_has_to_say_json_also_without_a_body(api, header):
    name, _, value = header.format(api.url).partition(": ")
    problem(api.raw("POST", "/call/weather", headers=[(name, value)]), 415, "unsupported_media_type")
    reply = api.raw("POST", "/call/weather", headers=[(name, value), ("Content-Type", "application/json")])
    assert reply.status_code == 200


def test_pages_of_other_origins_get_nothing(api):
    problem(api.raw("POST", "/call/weather", headers=[("Origin", "http://evil.example")]), 403, "bad_origin")
    problem(api.raw("POST", "/call/weather", headers=[("Sec-Fetch-Site", "cross-site")]), 403, "bad_origin")


def test_a_body_has_to_say_json(api):
    for kind in ([], [("Content-Type", "text/plain")], [("Content-Type", "application/x-www-form-urlencoded")]):
        problem(api.raw("POST", "/call/weather", b"{}", kind), 415, "unsupported_media_type")
    problem(api.raw("POST", "/call/weather", headers=[("Content-Type", "text/plain")]), 415, "unsupported_media_type")


def test_what_failed_is_424_with_code_and_reason(api):
    told = problem(call(api, "sums.fail", {"why": "so"}), 424, "execution_error")
    assert told["detail"] == "ValueError: so"
    assert told["reason"] is None
    assert problem(call(api, "sums.slow"), 424, "execution_error")["reason"] == "timeout"


def test_secrets_are_masked_in_what_failed(api):
    told = problem(call(api, "fs.read_file", {"path": f"/{'x'}"}), 424, "execution_error")
    assert told["reason"]
    assert SECRET not in json.dumps(told)


def test_what_is_refused_has_the_status_that_invoke_gives_it(api):
    told = problem(call(api, "sums.add_two", {"a": "x"}), 400, "invalid_args")
    assert (told["in"], told["pointer"]) == ("body", "/a")
    problem(call(api, "sums.add_two", [1]), 400, "invalid")
    problem(call(api, "ot.search", {"query": "sum", "limit": 0}), 400, "invalid_args")
    told = problem(call(api, "ot.result", {"handle": "x", "offset": 0}), 400, "invalid_args")
    assert told["detail"].endswith(": offset must be >= 1 (1-indexed), got 0")
    problem(call(api, "ot.result", {"handle": "x", "limit": 0}), 400, "invalid_args")
    problem(call(api, "ot.search", {"query": "sum", "pack": "sumz"}), 400, "invalid_args")
    problem(api.raw("POST", "/call/weather", b"{", [("Content-Type", "application/json")]), 400, "bad_json")
    problem(call(api, "weather?x=1"), 400, "unknown_parameter")
    assert "sums.add_two" in problem(call(api, "sums.ad_two"), 404, "tool_not_found")["detail"]
    problem(api.ask("POST", "/call", {}), 404, "not_found")
    problem(api.raw("POST", "/call/%zz"), 400, "bad_path")
    problem(api.get("/call/weather"), 405, "method_not_allowed")
    assert api.ask("OPTIONS", "/call/weather").headers["allow"] == "POST, OPTIONS"
    problem(call(api, "tools.echo", {"message": "x" * 1024**2}), 413, "too_large")


def test_a_limit_of_calls_is_429_with_the_time_to_wait(api):
    tool = {"argSchema": {"type": "object"}, "pythonImpl": {"func": "weather"}, "limits": {"maxCallsPerMinute": 1}}
    api.tool(api.bundle(slug="rare"), "one", "1", **tool)
    assert call(api, "rare.one").json() == {"c": 21}
    for name in ("rare.one", "rare.one@1"):
        reply = call(api, name)
        problem(reply, 429, "rate_limited")
        assert 1 <= int(reply.headers["retry-after"]) <= 60


def test_a_tool_that_failed_says_what_is_left_of_its_limit_as_a_429_does(api):
    schema = {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"]}
    tool = {"argSchema": schema, "pythonImpl": {"func": "sums.fail"}, "limits": {"maxCallsPerMinute": 2}}
    api.tool(api.bundle(slug="failing"), "it", "1", **tool)
    for is_last in (False, True):
        reply = call(api, "failing.it", {"why": "x"})
        problem(reply, 424, "execution_error")
        assert ("retry-after" in reply.headers) == is_last
    refused = call(api, "failing.it", {"why": "x"})
    problem(refused, 429, "rate_limited")
    assert "retry-after" in refused.headers


def test_events_are_those_of_invoke(api):
    reply = call(api, "sums.steps", headers={"Accept": "text/event-stream"})
    events = list(read_events(reply.text))
    assert [one[0] for one in events] == ["progress", "result"]
    assert events[0][1] == {"progress": 1, "total": 2, "message": "half"}
    assert events[1][1] == {"ok": True, "value": "done"}
    for accept in ("application/json", "text/event-stream"):
        told = problem(call(api, "sums.add_two", {"a": "x"}, headers={"Accept": accept}), 400, "invalid_args")
        assert [told["pointer"], *(one["pointer"] for one in told["errors"])] == ["/a", "/a"]


def test_what_is_not_allowed_is_403(tmp_path):
    api = Api(real=tmp_path, args=["--tool-allow", "time.now"])
    try:
        assert "iso" in call(api, "time.now").json()
        problem(call(api, "tools.echo", {"message": "hi"}), 403, "tool_not_found")
        assert "tools.echo" not in problem(call(api, "tools.ech"), 404, "tool_not_found")["detail"]
    finally:
        api.stop()


def test_a_call_needs_the_token_where_there_is_one(tmp_path):
    (tmp_path / "onetool.yaml").write_text(json.dumps({"http": {"token": "a-token-that-is-long"}}))
    api = Api(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    try:
        problem(api.raw("POST", "/call/time.now"), 401, "unauthorized")
        reply = api.raw("POST", "/call/time.now", headers=[("Authorization", "Bearer a-token-that-is-long")])
        assert reply.status_code == 200
    finally:
        api.stop()


def test_run_is_no_tool_and_says_where_it_is(api):
    assert "POST /run" in problem(call(api, "run", {"code": "1"}), 404, "tool_not_found")["detail"]
