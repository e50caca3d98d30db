"""One caller can't hold up the others: a token that may call only `time.*` tries to."""

import json
import socket
from contextlib import ExitStack, closing, suppress

import httpx
import pytest
from document_stores import stored_tokens
from helpers import until
from interfaces.rest.served import Api

pytestmark = pytest.mark.attack("other callers")
SLOTS = 8  # of the sandbox


class Callers:
    """A server, and two callers: `guest` may call `time.*`, `admin` may do everything."""

    def __init__(self, home, **config):
        self.home = home
        (home / "onetool.yaml").write_text(json.dumps(config))
        tokens = stored_tokens(home)
        made = {
            "guest": tokens.add("guest", role="call", tools=("time.*",)),
            "admin": tokens.add("admin", role="admin"),
        }
        self.api = Api(real=home, args=["--config", str(home / "onetool.yaml")])
        self.guest, self.admin = (
            httpx.Client(
                base_url=self.api.url,
                timeout=60,
                headers={"Authorization": f"Bearer {made[name]}"},
            )
            for name in ("guest", "admin")
        )

    def begin_run(self, code):
        """Start a run of the guest. Closing the socket stops it."""
        request = self.guest.build_request("POST", "/run", json={"code": code}, headers={"Accept": "text/event-stream"})
        headers = [name + b": " + value for name, value in request.headers.raw]
        lines = [b"POST /run HTTP/1.1", *headers, b"", request.content]
        client = socket.create_connection(("127.0.0.1", self.api.port))
        client.sendall(b"\r\n".join(lines))
        client.setblocking(False)
        return client

    def rpc(self, method, params):
        """Send an MCP request of the guest."""
        if "Mcp-Session-Id" not in self.guest.headers:
            self.guest.headers["Accept"] = "application/json, text/event-stream"
            about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
            began = self._post_message(id=0, method="initialize", params=about)
            self.guest.headers["Mcp-Session-Id"] = began.headers["mcp-session-id"]
            self._post_message(method="notifications/initialized")
        return self._post_message(id=1, method=method, params=params)

    def _post_message(self, **message):
        return self.guest.post("/mcp", json={"jsonrpc": "2.0", **message})

    def stop(self):
        self.guest.close()
        self.admin.close()
        self.api.stop()


@pytest.fixture(scope="module")
def callers(tmp_path_factory):
    running = Callers(tmp_path_factory.mktemp("home"), snippets=SNIPPETS, http={"max_body_mb": 20})
    yield running
    running.stop()


def run(client, code):
    return client.post("/run", json={"code": code}).json()


# Long names


LONG = "k" * 2_000_000
SNIPPETS = {"hi": {"description": "Greets.", "params": {"who": {"default": "you"}}, "body": "'hi {{ who }}'"}}
MANY = {f"k{number}": "value" for number in range(50_000)}
PAIRS = " ".join(f"k{number}=1" for number in range(50_000))


def code(text):
    return "/run", {"code": text}


def check(text):
    return "/run/check", {"code": text}


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        pytest.param("/call/time.now", {LONG: 1}, "more than 256 characters", id="argument"),
        pytest.param("/call/time.now", {LONG: "text"}, "more than 256 characters", id="argument with a text"),
        pytest.param("/call/time.now", {"a": 1, LONG: LONG}, "more than 256 characters", id="one of several"),
        pytest.param("/call/time.now", {"x": {LONG: "text"}}, "x: unknown argument", id="inside of an argument"),
        pytest.param("/call/time.now", MANY, "k9: unknown argument (it takes no arguments); 49,990 more", id="many"),
        pytest.param("/call/time.now", {"x": MANY}, "x: unknown argument", id="many inside of an argument"),
        pytest.param("/call/" + LONG[:30_000], {}, "Tool not found: kkk", id="tool"),
        pytest.param(*code(f"time.now(**{{'k' * {len(LONG)}: 1}})"), "more than 256 characters", id="run: argument"),
        pytest.param(
            *code(f"time.now({LONG[:500_000]}=1)"), "more than 256 characters", id="run: argument in the code"
        ),
        pytest.param(*code(f"ot.call('k' * {len(LONG)})"), "Tool not found: kkk", id="run: tool"),
        pytest.param(*code(f"ot.call('time.now', {{'k' * {len(LONG)}: 1}})"), "more than 256", id="run: ot.call"),
        pytest.param(*code(f"getattr(time, 'k' * {len(LONG)})()"), "no attribute", id="run: attribute"),
        pytest.param(*code(f"time.{LONG[:500_000]}()"), "no attribute", id="run: tool in the code"),
        pytest.param(*code("time.now(**{f'k{i}': 1 for i in range(50_000)})"), "got 50,000", id="run: many"),
        pytest.param(*code(f"$hi {PAIRS}"), "'k9'", id="run: many parameters of a snippet"),
        pytest.param(*code(f"$hi {LONG[:500_000]}=1"), "there is no parameter 'kkk", id="run: parameter of a snippet"),
        pytest.param(*code("$hi " + "who=1 " * 50_000), "the rest was not read", id="run: one parameter many times"),
        pytest.param(*code(f"${LONG[:500_000]}"), "there is no snippet $kkk", id="run: snippet"),
        pytest.param(*code(f"+time.now {PAIRS}"), "more than 10 arguments", id="call line: many"),
        pytest.param(*code(f"+time.now {LONG[:500_000]}=1"), "more than 256 characters", id="call line: argument"),
        pytest.param(*code(f"+{LONG[:500_000]} a=1"), "there is no tool 'kkk", id="call line: tool"),
        pytest.param("/run", {LONG: 1}, "there is no such key", id="run: key"),
        pytest.param("/run/check", {"code": "1", LONG: 1}, "there is no such key", id="check: key"),
        pytest.param("/ask", {LONG: 1}, "there is no such key", id="ask: key"),
        pytest.param("/ask", {"prompt": "x", "files": [{LONG: 1}]}, "/files/0/kkk", id="ask: key of a file"),
        pytest.param(*check(f"{LONG[:500_000]}()"), "kkk", id="check: function"),
        pytest.param(*check(f"{LONG[:500_000]}.x()"), "there is no pack kkk", id="check: pack"),
        pytest.param(*check(f"ot.{LONG[:500_000]}()"), "ot.kkk", id="check: tool"),
        pytest.param(*check(f"ot.call('{LONG[:500_000]}')"), "there is no tool 'kkk", id="check: ot.call"),
        pytest.param(*check(f"import {LONG[:500_000]}"), "there is no module kkk", id="check: module"),
        pytest.param(*check(f"import asyncio\nasyncio.{LONG[:500_000]}()"), "asyncio.kkk", id="check: attribute"),
    ],
)
def test_names_are_refused_with_few_words(callers, path, body, words):
    reply = callers.guest.post(path, json=body)
    assert words in reply.text
    assert len(reply.content) < 3000


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("tools/call", {"name": LONG, "arguments": {}}, "Unknown tool: kkk"),
        ("tools/call", {"name": "run", "arguments": {LONG: 1, "code": "1"}}, "more than 256 characters"),
        ("tools/call", {"name": "run", "arguments": MANY}, "49,990 more unknown arguments"),
        ("prompts/get", {"name": LONG}, "Unknown prompt: kkk"),
        ("prompts/get", {"name": "hi", "arguments": {LONG: "1"}}, "there is no parameter 'kkk"),
        ("prompts/get", {"name": "hi", "arguments": MANY}, "49,990 others"),
    ],
    ids=["tool", "argument", "many arguments", "prompt", "parameter", "many parameters"],
)
def test_mcp_refuses_names_with_few_words(callers, method, params, words):
    reply = callers.rpc(method, params)
    assert words in reply.text
    assert len(reply.content) < 1000


@pytest.mark.parametrize(
    "call",
    [
        "time.now(**{'k' * 1_000_000: 1})",
        "ot.call('k' * 1_000_000)",
        "ot.call('time.now', {'k' * 1_000_000: 1})",
        "ot.call('time.now', {f'k{i}': 1 for i in range(10_000)})",
        "ot.call('time.now', {f'k{i}' * 50: 1 for i in range(1000)})",
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_a_short_run_has_no_huge_answer(callers, call, kind):
    """Each call was listed with the whole of its names."""
    loop = f"for _ in range(20):\n    try:\n        {call}\n    except Exception:\n        pass"
    reply = callers.guest.post("/run", json={"code": loop}, headers={"Accept": kind})
    assert reply.status_code == 200
    assert len(reply.content) < 20 * 6000


def test_no_file_of_the_server_has_a_long_name(tmp_path):
    """The audit log, the stats and all else that calls leave behind."""
    callers = Callers(tmp_path)
    run(callers.guest, f"time.now(**{{'k' * {len(LONG)}: 1}})")
    callers.guest.post("/call/time.now", json={LONG: 1})
    callers.guest.post(f"/call/{LONG[:30_000]}", json={LONG: 1})
    callers.rpc("tools/call", {"name": LONG, "arguments": {LONG: 1}})
    callers.stop()
    found = [path for path in callers.home.rglob("*") if path.is_file() and b"k" * 300 in path.read_bytes()]
    assert found == []


# Slots of the sandbox


def received(client, text):
    """Return whether the client has received a text, without waiting for it."""
    with suppress(BlockingIOError):
        return text in client.recv(65536, socket.MSG_PEEK)
    return False


def test_endless_runs_of_one_caller_keep_no_other_waiting(callers):
    """Eight of them take all eight slots, and there are more for others."""
    with ExitStack() as stack:
        code = "print('begun')\nwhile True: pass"
        endless = [stack.enter_context(closing(callers.begin_run(code))) for _ in range(SLOTS)]
        until(lambda: all(received(one, b"begun") for one in endless))
        assert [run(callers.admin, "1+1")["value"] for _ in range(5)] == [2] * 5
        assert not any(received(one, b"event: error") for one in endless)
