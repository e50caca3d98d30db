"""HTTP tools as the executor runs them: arguments in, a result out, and nothing secret anywhere."""

import asyncio
import re

import msgspec
import pytest
from http_harness import Environment, allowed, harness
from upstream import Reply, Upstream

from onetool.core.call import ToolCall
from onetool.core.errors import ToolFailure
from onetool.core.executor import Executor
from onetool.core.registry import ToolRegistry
from onetool.core.spec import ToolSpec
from onetool.http.client import HttpClient, HttpContext
from onetool.http.definition import HttpImpl, ToolLimits
from onetool.http.tool import HttpTool

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


def test_the_example_of_the_documents(upstream):
    upstream.say(Reply(body=b'{"daily": [{"c": 21}]}'))
    impl = {
        "request": {
            "method": "GET",
            "urlTemplate": f"{upstream.url}/v1/${{city}}",
            "query": {"k": "${API_KEY}", "days": "${days}"},
            "headers": {},
            "body": None,
            "auth": {"type": "bearer", "value": "${TOKEN}"},
            "timeoutMs": 10000,
            "retries": 2,
        },
        "response": {"successCodes": [200], "encoding": "json", "selector": "daily[0]", "errorMode": "fail"},
    }
    tool = harness(upstream, impl["request"], impl["response"], schema=SCHEMA, secrets={"API_KEY": "k1", "TOKEN": "t1"})
    assert tool(city="São Paulo/..") == {"c": 21}
    (seen,) = upstream.seen
    assert seen.target == "/v1/S%C3%A3o%20Paulo%2F..?k=k1"
    assert seen.headers["authorization"] == "Bearer t1"
    assert seen.headers["accept"] == "application/json, */*;q=0.5"


def test_too_large_to_send(upstream):
    request = {"method": "POST", "body": {"city": "${city}"}}
    tool = harness(upstream, request, schema=SCHEMA, limits={"maxRequestBytes": 1000})
    tool(city="x" * 500)
    with pytest.raises(ToolFailure, match=r"may send 1,000 \(limits.maxRequestBytes\)") as caught:
        tool(city="x" * 1000)
    assert caught.value.reason == "too_large"
    assert len(upstream.seen) == 1


def test_too_large_to_take(upstream):
    upstream.say(Reply(body=b"[" + b"1," * 1000 + b"1]"))
    with pytest.raises(ToolFailure, match=r"limits\.maxResponseBytes") as caught:
        harness(upstream, limits={"maxResponseBytes": 1000})()
    assert caught.value.reason == "too_large"


def test_an_accept_of_its_own(upstream):
    harness(upstream, {"headers": {"accept": "application/vnd.x+json"}})()
    assert [value for name, value in upstream.seen[0].header_list if name.lower() == "accept"] == [
        "application/vnd.x+json"
    ]


def test_head_options_and_delete(upstream):
    upstream.say(Reply(204))
    for method in ("HEAD", "OPTIONS", "DELETE"):
        assert harness(upstream, {"method": method})() is None


def test_no_content_is_null_whatever_the_encoding(upstream):
    for status in (204, 205):
        upstream.say(Reply(status))
        for encoding in ("text", "binary", "json"):
            assert harness(upstream, response={"encoding": encoding})() is None
    upstream.say(Reply(200))
    assert harness(upstream, response={"encoding": "text"})() == ""


def executed(upstream, request=None, response=None, limits=None, secrets=None, args=None, timeout=None, output=None):
    """Through the executor, as every interface does it."""
    environment = Environment(secrets)
    impl = {"request": {"urlTemplate": f"{upstream.url}/${{city}}", **(request or {})}, "response": response or {}}

    async def main():
        outside = HttpContext(HttpClient(), allowed(upstream), lambda text: None, environment.secrets.mask_also)
        tool = HttpTool(
            msgspec.convert(impl, HttpImpl), SCHEMA, msgspec.convert(limits or {}, ToolLimits), lambda: outside
        )
        spec = ToolSpec(
            name="weather.now",
            description="",
            input_schema=SCHEMA,
            output_schema=output,
            handler=tool,
            timeout=tool.timeout,
        )
        registry = ToolRegistry()
        registry.add(spec)
        executor = Executor(registry, environment=environment, redact=environment.redact)
        call = ToolCall("1", "weather.now", args or {"city": "Kyiv"}, timeout=timeout)
        return await executor.execute(call)

    return asyncio.run(main())


def test_through_the_executor(upstream):
    upstream.say(Reply(body=b'{"c": 21}'))
    assert executed(upstream).data == {"c": 21}
    result = executed(upstream, args={"city": 5})
    assert (result.error.code, len(upstream.seen)) == ("invalid_args", 1)
    result = executed(upstream, output={"type": "object", "required": ["f"]})
    assert result.error.reason == "output_invalid"


def test_failures_through_the_executor(upstream):
    upstream.say(Reply(500, body=b"your key s3cret-key-1 is wrong"))
    result = executed(upstream, {"auth": {"type": "bearer", "value": "${KEY}"}}, secrets={"KEY": "s3cret-key-1"})
    assert result.error.code == "execution_error"
    assert result.error.reason == "upstream_error"
    assert result.error.message == f"{upstream.netloc} answered 500 Internal Server Error: your key *** is wrong"


def test_a_secret_that_comes_back_is_masked(upstream):
    upstream.say(lambda seen: Reply(body=msgspec.json.encode(dict(seen.header_list))))
    auth = {"type": "basic", "username": "ann", "password": "${KEY}"}
    result = executed(upstream, {"auth": auth}, secrets={"KEY": "s3cret-key-1"})
    assert result.data["Authorization"] == "Basic ***"


def test_its_own_deadline_says_what_was_late(upstream):
    upstream.say([3.0])
    result = executed(upstream, {"timeoutMs": 200})
    assert result.error.reason == "timeout"
    assert result.error.message == f"{upstream.netloc} did not answer within 0.2 s"
    assert "timeoutMs" in result.error.hints[0]
    upstream.say([3.0])
    result = executed(upstream, {"timeoutMs": 100, "retries": 1})
    late = rf"{re.escape(upstream.netloc)} did not answer within 0\.(1|0\d+) s \(tried 2 times\)"  # what was left of it
    assert re.fullmatch(late, result.error.message)
    assert "timeoutMs" in result.error.hints[0]


@pytest.mark.parametrize(
    "auth",
    [
        {"type": "bearer", "value": "${v}"},
        {"type": "basic", "username": "me", "password": "${v}"},
        {"type": "apiKey", "name": "key", "value": "${v}", "in": "query"},
    ],
)
def test_what_auth_adds_counts_as_part_of_the_request(upstream, auth):
    tool = harness(
        upstream, {"auth": auth}, schema={"properties": {"v": {"type": "string"}}}, limits={"maxRequestBytes": 500}
    )
    tool(v="a" * 100)
    with pytest.raises(ToolFailure, match="maxRequestBytes") as caught:
        tool(v="a" * 600)
    assert caught.value.reason == "too_large"
    assert len(upstream.seen) == 1


def test_where_a_redirect_leads_to_counts_too(upstream):
    upstream.say(Reply(302, {"Location": f"/{'a' * 600}"}), Reply())
    with pytest.raises(ToolFailure, match="maxRequestBytes"):
        harness(upstream, {"followRedirects": True}, limits={"maxRequestBytes": 500})()
    assert len(upstream.seen) == 1


def test_a_deadline_of_the_caller_ends_the_request(upstream):
    upstream.say([3.0])
    assert executed(upstream, timeout=0.2).error.reason == "timeout"


def test_importing_the_shapes_costs_nothing():
    """What lists tools must not load sockets, TLS or the selectors' library."""
    import subprocess
    import sys

    code = "import sys, onetool.http.definition; print([m for m in ('ssl', 'asyncio', 'jmespath') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.strip() == "[]"
    code = "import sys, onetool.http.tool; print('jmespath' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.strip() == "False"
