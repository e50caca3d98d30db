"""HTTP tools that send several requests: what a step may use, what it can't do with it, and how such a call ends."""

import asyncio

import msgspec
import pytest
from helpers import each
from http_harness import Harness, allowed, run
from upstream import Reply, Upstream

from onetool.core.call import ToolCall
from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.executor import Executor
from onetool.core.registry import ToolRegistry
from onetool.core.spec import ToolSpec
from onetool.http.placeholders import TemplateError

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "force": {"type": "boolean"}}}


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


def js(value):
    return Reply(body=msgspec.json.encode(value), headers={"Content-Type": "application/json"})


def steps(upstream, *given, schema=SCHEMA, hosts=None, **more):
    """A tool of these steps; `urlTemplate` may be a path of the upstream."""
    made = []
    for number, step in enumerate(given):
        url, *_ = [step.pop(key) for key in ("url",) if key in step] or [f"/{number}"]
        request = {"urlTemplate": url if "://" in url else f"{upstream.url}{url}", **step.pop("request", {})}
        made.append({"name": f"s{number}", **step, "request": request})
    return Harness({"requests": made}, schema=schema, hosts=hosts or allowed(upstream), **more)


def refused(upstream, *given, **more):
    with pytest.raises(TemplateError) as caught:
        steps(upstream, *given, **more)
    return caught.value.pointer, str(caught.value)


# What a step may use


def test_a_step_uses_what_earlier_ones_gave_and_the_last_value_is_the_result(upstream):
    upstream.say(js({"token": "t-123456", "users": [{"id": 7}]}), js({"n": 1}), js({"done": True}))
    tool = steps(
        upstream,
        {"name": "login", "request": {"method": "POST", "body": {"u": "${name}"}}},
        {"name": "get", "url": "/u/${steps.login.users.0.id}", "response": {"selector": "n"}},
        {
            "request": {
                "method": "POST",
                "query": {"n": "${steps.get}"},
                "auth": {"type": "bearer", "value": "${steps.login.token}"},
                "body": {"user": "${steps.login.users.0}", "text": "n is ${steps.get}", "none": "${steps.login.no.3}"},
            }
        },
    )
    assert tool(name="me") == {"done": True}
    assert [(one.method, one.target) for one in upstream.seen] == [("POST", "/0"), ("GET", "/u/7"), ("POST", "/2?n=1")]
    assert upstream.seen[2].headers["authorization"] == "Bearer t-123456"
    assert msgspec.json.decode(upstream.seen[2].body) == {"user": {"id": 7}, "text": "n is 1"}


def test_a_value_of_a_step_is_escaped_like_an_argument(upstream):
    upstream.say(js({"path": "../../x?y#z", "line": "a\r\nX-Evil: 1", "text": '"}${name}'}), js(1))
    first = {"name": "a"}
    tool = steps(upstream, first, {"url": "/p/${steps.a.path}/end", "request": {"query": {"q": "${steps.a.line}"}}})
    tool()
    assert upstream.seen[1].target == "/p/..%2F..%2Fx%3Fy%23z/end?q=a%0D%0AX-Evil%3A%201"
    assert "x-evil" not in upstream.seen[1].headers
    upstream.say(js({"text": '"}${name}'}), js(1))
    steps(upstream, {"name": "a"}, {"request": {"method": "POST", "body": {"t": "<${steps.a.text}>"}}})(name="no")
    assert msgspec.json.decode(upstream.seen[-1].body) == {"t": '<"}${name}>'}


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ({"request": {"headers": {"X-A": "${steps.a}"}}}, "line end"),
        ({"request": {"auth": {"type": "bearer", "value": "${steps.a}"}}}, "line end"),
        ({"request": {"headers": {"Cookie": "a=${steps.a}"}}}, "line end|`;`"),
    ],
)
def test_no_value_ends_a_header(upstream, where, why):
    upstream.say(js("x\r\nHost: evil"), js(1))
    with pytest.raises(ToolFailure, match=why) as caught:
        steps(upstream, {"name": "a"}, where)()
    assert not isinstance(caught.value, BadArguments)
    assert "done: `a`" in str(caught.value)
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("value", ["..", ".", ""])
def test_no_value_is_a_step_up_or_nothing_in_a_path(upstream, value):
    upstream.say(js(value), js(1))
    with pytest.raises(ToolFailure, match=r"step `s1` failed: the value steps\.a .*; done: `a`$"):
        steps(upstream, {"name": "a"}, {"url": "/x/${steps.a}/y"})()


def test_a_value_that_is_not_there_in_a_path_is_a_failure_that_says_so(upstream):
    upstream.say(js({"id": None}), js(1))
    for path in ("${steps.a.id}", "${steps.a.no}", "${steps.a.id.deeper}"):
        with pytest.raises(ToolFailure, match=r"step `s1` failed: the value steps\.a\S+ is required: .*; done: `a`"):
            steps(upstream, {"name": "a"}, {"url": f"/x/{path}"})()


def test_a_huge_value_is_not_sent(upstream):
    upstream.say(js("x" * 3_000_000), js(1))
    with pytest.raises(ToolFailure, match=r"step `s1` failed: .*maxRequestBytes") as caught:
        steps(upstream, {"name": "a"}, {"request": {"method": "POST", "body": {"v": ["${steps.a}"] * 3}}})()
    assert caught.value.reason == "too_large"
    assert len(upstream.seen) == 1


def test_each_step_has_the_limits_of_the_tool(upstream):
    upstream.say(js(1), js("x" * 2000))
    with pytest.raises(ToolFailure, match=r"step `s1` failed: .*maxResponseBytes.*; done: `s0`"):
        steps(upstream, {}, {}, {}, limits={"maxResponseBytes": 1000})()
    assert len(upstream.seen) == 2


def test_only_what_may_be_repeated_is_retried(upstream):
    upstream.say(Reply(503), js(1), Reply(503), js(2))
    with pytest.raises(ToolFailure, match=r"step `s1` failed: .*503"):
        steps(upstream, {"request": {"retries": 2}}, {"request": {"method": "POST", "retries": 2}})()
    assert [one.method for one in upstream.seen] == ["GET", "GET", "POST"]


# Hosts


@pytest.mark.parametrize(
    "url", ["https://${steps.a}/x", "https://${steps.a.b}.example.com/", "https://x.${steps.a}:1/"]
)
def test_no_step_is_part_of_a_host(upstream, url):
    pointer, why = refused(upstream, {"name": "a"}, {"url": url})
    assert (pointer, "host" in why) == ("/requests/1/request/urlTemplate", True)
    auth = {"type": "oauth2", "tokenUrl": url, "clientId": "x"}
    pointer, why = refused(upstream, {"name": "a"}, {"request": {"auth": auth}})
    assert (pointer, "host" in why) == ("/requests/1/request/auth/tokenUrl", True)


def test_the_host_of_each_step_is_checked(upstream):
    with Upstream() as other:
        tool = steps(upstream, {"name": "a"}, {"url": f"{other.url}/x"})
        with pytest.raises(ToolFailure, match=r"step `s1` failed: .*; done: `a`") as caught:
            tool()
        assert caught.value.reason == "denied"
        assert (len(upstream.seen), other.seen) == (1, [])
        steps(upstream, {"name": "a"}, {"url": f"{other.url}/x"}, hosts=allowed(upstream, other))()
        assert len(other.seen) == 1


def test_what_a_step_lacks_is_told_with_what_was_done(upstream):
    with pytest.raises(BadArguments) as caught:
        steps(upstream, {"name": "a", "url": "/x/${name}"}, {})()
    assert caught.value.argument == "name"
    upstream.say(js({"id": 1}))
    with pytest.raises(ToolFailure, match=r"step `s1` failed: the argument `name` is required.*done: `a`") as caught:
        steps(upstream, {"name": "a"}, {"url": "/x/${name}"})()
    assert not isinstance(caught.value, BadArguments)  # something has been done
    with pytest.raises(ToolFailure, match=r"step `s1` failed: the secret KEY is not set"):
        steps(upstream, {"name": "a"}, {"request": {"query": {"k": "${KEY}"}}})()
    assert len(upstream.seen) == 2  # no step is sent twice


def test_a_condition_is_refused_with_what_to_write(upstream):
    with pytest.raises(msgspec.ValidationError, match="`when` is no longer supported: write a script"):
        steps(upstream, {"name": "a"}, {"when": "steps.a.id"})


# What is refused when the tool is defined


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("${steps.lgin.id}", "did you mean login"),
        ("${steps.later.id}", "has no value yet"),
        ("${steps.s1.id}", "has no value yet"),
        ("${steps}", "does not refer to a value"),
        ("${steps.}", "does not refer to a value"),
        ("${steps.login..id}", "does not refer to a value"),
        ("${steps.login[0].id}", "between dots"),
    ],
)
def test_a_step_that_is_not_there_or_comes_later_is_refused(upstream, name, why):
    pointer, told = refused(upstream, {"name": "login"}, {"request": {"query": {"q": name}}}, {"name": "later"})
    assert pointer == "/requests/1/request/query/q"
    assert why in told


def test_names_are_unique_and_steps_is_reserved(upstream):
    pointer, why = refused(upstream, {"name": "a"}, {"name": "a"})
    assert (pointer, "two steps are called `a`" in why) == ("/requests/1/name", True)
    assert refused(upstream, {"name": "a\n"})[0] == "/requests/0/name"
    for name in ("steps", "steps.a"):
        pointer, why = refused(upstream, {"name": "a"}, schema={"properties": {name: {}}})
        assert (pointer, "another name" in why) == ("/requests", True)
    for name in ("1a", "a-b", "a.b", "", "ä"):
        with pytest.raises(msgspec.ValidationError):
            steps(upstream, {"name": name})


@each(
    "impl",
    [
        {},
        {"requests": []},
        {
            "request": {"urlTemplate": "https://a/"},
            "requests": [{"name": "a", "request": {"urlTemplate": "https://a/"}}],
        },
        {"response": {}, "requests": [{"name": "a", "request": {"urlTemplate": "https://a/"}}]},
        {"requests": [{"name": f"a{n}", "request": {"urlTemplate": "https://a/"}} for n in range(21)]},
    ],
)
def test_it_is_one_request_or_some(impl):
    with pytest.raises(msgspec.ValidationError):
        Harness(impl)


def test_without_steps_the_word_means_what_it_meant(upstream):
    schema = {"type": "object", "properties": {"steps": {"type": "integer"}}}
    impl = {"request": {"urlTemplate": f"{upstream.url}/${{steps}}"}}
    Harness(impl, schema=schema, hosts=allowed(upstream))(steps=3)
    assert upstream.seen[0].target == "/3"


# Secrets


def test_a_secret_that_a_server_sends_back_goes_no_further(upstream):
    with Upstream(js("ok")) as other:
        upstream.say(lambda seen: js({"echo": seen.headers["x-key"]}))
        tool = steps(
            upstream,
            {"name": "a", "request": {"headers": {"X-Key": "${KEY}"}}},
            {"url": f"{other.url}/x", "request": {"query": {"q": "${steps.a.echo}"}}},
            secrets={"KEY": "S3cret-number-one"},
            hosts=allowed(upstream, other),
        )
        assert tool() == "ok"
        assert b"S3cret" not in other.seen[0].raw
        upstream.say(lambda seen: js(seen.headers["x-key"]))
        turned = steps(
            upstream,
            {"name": "a", "request": {"headers": {"X-Key": "${KEY}"}}, "response": {"selector": "reverse(@)"}},
            {"request": {"headers": {"X-Key": "${steps.a}"}}},
            secrets={"KEY": "S3cret-number-one"},
        )
        assert "eno-rebmun" not in str(turned())


@pytest.mark.parametrize(
    "login",
    [
        {"auth": {"type": "bearer", "value": "${steps.a.t}"}},
        {"auth": {"type": "basic", "username": "me", "password": "${steps.a.t}"}},
        {"headers": {"Authorization": "Bearer ${steps.a.t}"}},
        {"headers": {"X-Session-Token": "${steps.a.t}"}},
        {"query": {"t": "${steps.a.token}"}},
    ],
)
@pytest.mark.parametrize("status", [200, 400])
def test_what_a_step_logs_in_with_is_shown_to_nobody(upstream, login, status):
    value = "t0ken-of-this-session"

    def answer(seen):
        if seen.target == "/0":
            return js({"t": value, "token": value})
        return Reply(status, body=msgspec.json.encode({"x": "y" * 280, "raw": seen.raw.decode()}))

    upstream.say(answer)
    tool = steps(upstream, {"name": "a"}, {"request": login})
    for _ in range(2):  # what is masked must still be usable in the next call
        try:
            shown = str(tool())
        except ToolFailure as failure:
            shown = str(failure)
        assert "t0ken" not in shown
        assert "dDBrZW4tb2Yt" not in shown.replace("\\", "")
        assert upstream.seen[-1].raw.count(b"***") == 0


# One call


def call(tool, timeout=None, **args):
    spec = ToolSpec(name="t", description="", input_schema=SCHEMA, handler=tool.tool, timeout=tool.tool.timeout)
    registry = ToolRegistry()
    registry.add(spec)
    return run(Executor(registry, environment=tool.environment).execute(ToolCall("1", "t", args, timeout=timeout)))


def test_a_failed_step_ends_it_and_names_those_that_were_done(upstream):
    upstream.say(js(1), js(2), Reply(404, body=b"gone"), js(4))
    result = call(steps(upstream, {"name": "login"}, {"name": "find"}, {"name": "create"}, {"name": "log"}))
    assert result.error.code == "execution_error"
    assert result.error.reason == "upstream_error"
    assert result.error.message.startswith("step `create` failed: ")
    assert "404" in result.error.message
    assert result.error.message.endswith("; done: `login`, `find`")
    assert len(upstream.seen) == 3


def test_one_deadline_for_all_of_it(upstream):
    upstream.say(js(1), js(2), [5.0, b""])
    tool = steps(upstream, {"name": "login"}, {"name": "find"}, {"name": "create"})
    assert tool.tool.timeout == pytest.approx(31.0)
    result = call(tool, timeout=1.0)
    assert (result.error.code, result.error.reason) == ("execution_error", "timeout")
    assert result.error.message.startswith("step `create` failed: ")
    assert result.error.message.endswith("; done: `login`, `find`")


def test_the_time_of_one_step_is_not_the_time_of_all(upstream):
    upstream.say([0.4, js(1).encoded("GET")], [0.4, js(2).encoded("GET")])
    assert steps(upstream, {"request": {"timeoutMs": 800}}, {"request": {"timeoutMs": 800}})() == 2
    upstream.say(js(1), [2.0, b""])
    result = call(steps(upstream, {}, {"request": {"timeoutMs": 300}}))
    assert result.error.reason == "timeout"
    assert "step `s1`" in result.error.message


def test_only_the_last_is_streamed(upstream):
    events = Reply(headers={"Content-Type": "text/event-stream"}, body=b'data: {"n": 1}\n\ndata: {"n": 2}\n\n')
    upstream.say(events, events)
    sse = {"response": {"encoding": "sse"}}
    tool = steps(upstream, {"name": "a", **sse}, {"url": "/${steps.a.1.n}", **sse})
    assert tool() == [{"n": 1}, {"n": 2}]
    assert upstream.seen[1].target == "/2"
    assert len(tool.told) == 2


def test_calls_at_once_do_not_mix(upstream):
    upstream.say(lambda seen: js({"id": seen.target.rpartition("=")[2]}))
    tool = steps(upstream, {"name": "a", "url": "/a?n=${name}"}, {"url": "/b?m=${steps.a.id}"})

    async def many():
        return await asyncio.gather(*(tool.call(name=f"n{number}") for number in range(50)))

    assert run(many()) == [{"id": f"n{number}"} for number in range(50)]
