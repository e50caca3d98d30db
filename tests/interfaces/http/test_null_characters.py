"""A null character in any part of a request is the client's mistake, also where PostgreSQL can't keep one."""

import json
from urllib.parse import quote

import pytest
from cluster.members import Replica
from cluster.test_tasks import KNOWS
from interfaces.mcp.peers import HttpPeer
from postgres import database_url, postgres

__all__ = ["database_url", "postgres"]

pytestmark = pytest.mark.attack("wire")

ID = "01890a5d-0000-7000-8000-000000000001"
NUL = "a\0b"


@pytest.fixture(scope="module")
def server(postgres, tmp_path_factory):
    folder, more = tmp_path_factory.mktemp("null") / "a", "http: {token: 0123456789abcdef}\n"
    started = Replica(folder, postgres.new_schema(), "--drain-s", "0", more=more)
    yield started
    log = started.log()
    assert started.stop() == 0
    assert "Traceback" not in log
    assert "NUL" not in log


def send(server, method, path, body=None):
    headers = [("Authorization", "Bearer 0123456789abcdef"), ("Content-Type", "application/json")]
    return server.send(body, headers, path=path, method=method)


ADDRESSES = [
    "/stats?client=%00",
    "/stats?tool=a%00b",
    "/stats?source=%00",
    "/stats?caller=%00",
    "/stats?%00=1",
    "/audit?who=%00",
    "/audit?tool=%00",
    "/audit?outcome=%00",
    "/audit?pageToken=%00",
    "/results?q=%00",
    "/results/a%00b",
    f"/tools/bundles/{ID}%00",
    f"/tools/bundles/{ID}/tools/a%00b/version/1",
    "/tools/search?q=%00",
    "/servers/a%00b",
    "/ask/sessions/a%00b",
    "/ask/sessions?q=%00",
    "/call/a%00b",
    "/mcp?menu=%00",
    "/nothing%00",
    "/%00",
]


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_in_an_address_it_is_a_bad_request(server, method, path):
    answer = send(server, method, path, b"{}" if method == "POST" else None)
    assert answer.status == 400, answer.body
    assert b"null character" in answer.body


BODIES = {
    "a call's argument": ("POST", "/call/ot.help", {"query": NUL}),
    "a filter of the stats": ("POST", "/call/ot.stats", {"tool": NUL}),
    "a result's handle": ("POST", "/call/ot.result", {"handle": NUL}),
    "an unknown argument": ("POST", "/call/ot.help", {NUL: NUL}),
    "a bundle's slug": ("PUT", f"/tools/bundles/{ID}", {"slug": NUL, "displayName": "x"}),
    "a bundle's name": ("PUT", f"/tools/bundles/{ID}", {"slug": "weather", "displayName": NUL}),
    "a draft": ("POST", "/tools/validate", {"tool": {"slug": NUL}}),
    "code": ("POST", "/run", {"code": "print('" + NUL + "')"}),
    "a tool that code calls": ("POST", "/run", {"code": "ot.call(name='a\\0b', args={})"}),
    "stats that code asks for": ("POST", "/run", {"code": "ot.stats(tool='a\\0b')"}),
    "a question's session": ("POST", "/ask", {"prompt": "hi", "session": NUL}),
    "a server": ("POST", "/tools/imports/servers", {"mcpServers": {NUL: {"command": "true"}}}),
    "a command of curl": ("POST", "/tools/imports/curl", {"bundle": ID, "command": f"curl https://example.com/{NUL}"}),
    "a folder": ("POST", "/tools/trust", {"folder": NUL}),
    "a token": ("POST", "/login", {"token": NUL}),
}


@pytest.mark.parametrize(("method", "path", "body"), BODIES.values(), ids=BODIES)
def test_in_a_body_it_is_no_failure_of_ours(server, method, path, body):
    answer = send(server, method, path, json.dumps(body).encode())
    assert answer.status < 500, answer.body
    assert b"PostgreSQL" not in answer.body
    assert b"database" not in answer.body


CALLS = {
    "an argument": ("tools/call", {"name": "ot__help", "arguments": {"query": NUL}}),
    "a filter": ("tools/call", {"name": "ot__stats", "arguments": {"tool": NUL}}),
    "a tool": ("tools/call", {"name": NUL, "arguments": {}}),
    "a resource": ("resources/read", {"uri": f"onetool://{NUL}"}),
    "an escaped resource": ("resources/read", {"uri": f"onetool://tools/{quote(NUL)}"}),
    "a subscription": ("resources/subscribe", {"uri": f"onetool://{NUL}"}),
    "a prompt": ("prompts/get", {"name": NUL}),
    "a completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": NUL}, "argument": {"name": "x", "value": NUL}},
    ),
    "a task": ("tasks/get", {"taskId": NUL}),
    "a task's answer": ("tasks/update", {"taskId": NUL, "inputResponses": {NUL: {}}}),
    "a task's end": ("tasks/cancel", {"taskId": NUL}),
    "a state": ("tools/call", {"name": "ot__help", "arguments": {}, "requestState": NUL}),
    "a level": ("logging/setLevel", {"level": NUL}),
}


@pytest.mark.parametrize(("method", "params"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("era", ["old", "new"])
def test_in_a_message_it_is_no_failure_of_ours(server, era, method, params):
    peer = HttpPeer(server, era, token="0123456789abcdef", capabilities=KNOWS)
    told = json.dumps(peer.ask(method, params))
    peer.close()
    assert "PostgreSQL" not in told
    assert "the database" not in told


def test_nothing_that_is_counted_was_lost(server):
    send(server, "POST", "/call/working.add", b'{"a": 1}')
    found = json.loads(send(server, "GET", "/stats?days=1").body)
    assert "working.add" in json.dumps(found)
    health = json.loads(send(server, "POST", "/call/ot.health", b"{}").body)
    assert "problem" not in json.dumps(health)
