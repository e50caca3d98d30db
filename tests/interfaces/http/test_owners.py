"""What belongs to one caller is not there for any other, through every interface: two tokens, a JWT, and http.token.

Every route, every method of MCP and every tool of `ot` is marked: whether what it shows or changes belongs to one
caller, or to all. A new one fails here until it is given a place in OWNED or SHARED.
"""

import asyncio
import json
import os
import re
import time
from http.client import HTTPConnection
from unittest.mock import patch

import pytest
from ask.stand_in import Says, StandIn, Wants
from helpers import cli, until
from interfaces.http.conftest import Served
from interfaces.http.issuer import AUDIENCE, Issuer
from interfaces.http.lasting import LastingRequest
from interfaces.http.matrix import token_entry
from interfaces.http.test_page_links import bearer, session_of
from interfaces.http.test_roles import MCP_METHODS, OT_TOOLS, RULES
from interfaces.mcp.peers import ABLE, TASKS, HttpPeer
from interfaces.mcp.servers import CONFIG, PATIENCE, Server
from interfaces.rest import test_server_edit

from onetool import App

KNOWS = {**ABLE, "extensions": {TASKS: {}}}
TOKENS = {"ada": "ot_ada-0123456789-0123456789", "bob": "ot_bob-0123456789-0123456789"}
OWN_TOKEN = "sesame-token-0123456789"
OTHERS = ("bob", "ann", "own")  # another token, a JWT, and http.token
ADAS_NAME = {"name": {"action": "accept", "content": {"name": "Ada"}}}
LONG = "'word ' * 2000"
UNKNOWN = "0" * 32
ANSWERS = "def keyed(keys: list[str]) -> list:\n    'Answer with these keys.'\n    return [dict.fromkeys(keys, 1)]\n"
EXPIRED = "requestState has expired: send the request again without it"


@pytest.fixture(scope="module")
def issuer():
    with Issuer() as one:
        yield one


@pytest.fixture(scope="module")
def model():
    with StandIn() as running:
        yield running


@pytest.fixture(scope="module")
def server(issuer, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("owners")
    (folder / "packs").symlink_to(CONFIG.parent / "packs")
    http = {
        "token": OWN_TOKEN,
        "tokens": [token_entry(name, token, role="edit") for name, token in TOKENS.items()],
        "jwt": {
            "issuer": issuer.url,
            "jwks": issuer.jwks,
            "audience": AUDIENCE,
            "scopes": {"tools:call": {"role": "edit"}},
        },
    }
    ask = {"provider": "openai", "base_url": model.urls["openai"], "model": "stand-in"}
    (folder / "answers.py").write_text(ANSWERS)
    own = {
        "packs": ["packs", "answers.py"],
        "results": {"inline_bytes": 2000},
        "menu": "direct",
        "secrets": {"OPENAI_API_KEY": "sk"},
    }
    config = {**own, "ask": ask, "http": http}
    (folder / "onetool.yaml").write_text(json.dumps(config))
    running = Server(folder, config=folder / "onetool.yaml")
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def tokens(issuer):
    return {**TOKENS, "own": OWN_TOKEN, "ann": issuer.token(sub="ann")}


@pytest.fixture
def peer(server, tokens):
    """A client of MCP, of one of them."""
    return lambda who, era="new", **options: HttpPeer(server, era, token=_text(tokens[who]), **options)


@pytest.fixture
def rest(server, tokens):
    """A request to the REST API, by one of them."""

    def send(who, method, path, body=None, **headers):
        head = [("Authorization", f"Bearer {_text(tokens[who])}")]
        head += [("Content-Type", "application/json")] if body is not None else []
        return server.send(body, [*head, *headers.items()], path=path, method=method)

    return send


def _text(token):
    return token if isinstance(token, str) else token.decode()


def said(exchange):
    return json.loads(exchange.body)


def refusal(exchange, *secrets):
    """Status and body, without the ids that were asked for, and what differs in each answer."""
    text = exchange.body.decode()
    for one in (*secrets, exchange.headers["x-request-id"]):
        text = text.replace(one, "…")
    return exchange.status, text


# Results


@pytest.fixture
def result(peer):
    """The handle of a result of Ada's."""
    told = json.dumps(peer("ada", query="?menu=run").result("tools/call", {"name": "run", "arguments": {"code": LONG}}))
    return told.partition("handle=")[2].strip("\\\"'").partition("\\")[0].partition('"')[0]


def test_results_through_tools_and_code(rest, result):
    code = {"code": f"ot.result(handle='{result}', limit=1)"}
    assert "word word" in rest("ada", "POST", "/run", code).body.decode()
    for who in OTHERS:
        loaded = {"code": f"ot.load(handle='{result}')"}
        ways = ("/run", code), ("/run", loaded), ("/call/ot.result", {"handle": result})
        for path, body in ways:
            told = rest(who, "POST", path, body).body.decode()
            assert f"Handle not found: {result}" in told
            assert "word word" not in told


@pytest.mark.parametrize("era", ["new", "old"])
def test_results_as_resources(peer, result, era):
    uri = f"ot://results/{result}"
    assert "word word" in peer("ada", era).result("resources/read", {"uri": uri})["contents"][0]["text"]
    for who in OTHERS:
        theirs = peer(who, era).error("resources/read", {"uri": uri})
        nobodys = peer(who, era).error("resources/read", {"uri": f"ot://results/{UNKNOWN}"})
        assert json.dumps(theirs).replace(result, UNKNOWN) == json.dumps(nobodys)


# Names that were learned from results


def test_names_in_results(rest):
    """A name that results of two tokens have is the tool's; that of one may be data, such as the name of a customer."""

    def told(who):
        ways = (
            rest(who, "POST", "/run", {"code": "[ot.help('answers'), ot.help('answers.keyed'), ot.tools('answers')]"}),
            rest(who, "GET", "/run/names"),
        )
        return "".join(one.body.decode() for one in ways)

    def call(who, *keys):
        assert rest(who, "POST", "/call/answers.keyed", {"keys": keys}).status == 200

    call("ada", "both", "only_of_ada")
    until(lambda: "only_of_ada" in told("ada"))
    assert all("only_of_ada" not in told(who) for who in OTHERS)
    call("bob", "both", "only_of_bob")
    until(lambda: "both" in told("ann"))
    assert all("only_of" not in told(who) for who in ("ann", "own"))


# Tasks, questions, and sessions of MCP


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/update"])
def test_tasks(peer, tmp_path, method):
    ada = peer("ada", capabilities=KNOWS)
    task = ada.result("tools/call", {"name": "jobs__job", "arguments": {"path": str(tmp_path / "it")}})["taskId"]
    more = {"inputResponses": ADAS_NAME} if method == "tasks/update" else {}
    for who in OTHERS:
        other = peer(who, capabilities=KNOWS)
        theirs = other.error(method, {"taskId": task, **more})
        assert theirs == other.error(method, {"taskId": UNKNOWN, **more})
    (tmp_path / "it").touch()
    until(lambda: ada.result("tasks/get", {"taskId": task})["status"] == "completed")


def test_the_state_of_a_request(peer):
    ada = peer("ada")
    call = {"name": "asking__name", "arguments": {}}
    state = ada.result("tools/call", call)["requestState"]
    for who in OTHERS:
        theirs = peer(who).error("tools/call", {**call, "inputResponses": ADAS_NAME, "requestState": state})
        assert theirs["message"] == EXPIRED  # as for one that was forgotten
    done = ada.result("tools/call", {**call, "inputResponses": ADAS_NAME, "requestState": state})
    assert done["content"][0]["text"] == "Hello, Ada!"


def test_a_session_of_mcp(peer, server):
    ada = peer("ada", "old")
    for who in OTHERS:
        other = peer(who, "old")
        own, message = other.session, other.message("ping")
        for method, body, more in (
            ("POST", message, []),
            ("GET", None, []),
            ("GET", None, [("Last-Event-ID", "1-1")]),
            ("DELETE", None, []),
        ):
            answers = []
            for id in (ada.session, UNKNOWN):
                other.session = id
                headers = [*other.headers(), *more]
                answers.append(refusal(server.send(body, headers, path=other.path, method=method), id))
            assert answers[0] == answers[1]
            assert answers[0][0] == 404, (method, more)
        other.session = own
    assert ada.result("ping") == {}


def test_nobody_else_cancels_a_call(peer, tmp_path):
    ada, path = peer("ada", "old"), tmp_path / "it"
    slow = ada.begin("tools/call", {"name": "working__hang", "arguments": {"path": str(path)}})
    until((tmp_path / "it.began").exists)
    for who in OTHERS:
        other = peer(who, "old")
        other.cancel(slow)
        assert (other.result("ping"), ada.result("ping")) == ({}, {})  # the server has read what was sent before
    assert not (tmp_path / "it.cancelled").exists()
    ada.cancel(slow)
    until((tmp_path / "it.cancelled").exists)


# Sessions of `ask`, and questions under way


@pytest.fixture
def session(rest):
    """The id of a session of Ada's."""
    return said(rest("ada", "POST", "/ask/calls", {"name": "time.now"}))["sessionId"]


@pytest.fixture
def question(server, model, rest):
    """The ids of a question of Ada's, and of its call, which waits for her answer."""
    model.will(Says(calls=[Wants("working__add", {"a": 1})]), "Done.")
    body = {"prompt": "Add.", "approve": "ask"}
    asking = LastingRequest(server, TOKENS["ada"], "POST", "/ask", body)
    waits = until(lambda: next((one for one in asking.exchange.messages if one["type"] == "approval"), None))
    yield waits
    assert not asking.is_over
    decided = rest("ada", "POST", f"/ask/{waits['question']}/approvals/{waits['call']}", {"approve": True})
    assert decided.status == 204
    until(lambda: asking.is_over)
    assert asking.exchange.messages[-1]["answer"]["denied"] == []


# Stats


def test_stats_are_of_ones_own_calls(rest, issuer):
    for who, times in (("ada", 3), ("bob", 2), ("ann", 1)):
        for _ in range(times):
            assert rest(who, "POST", "/call/tools.echo", {"message": "hello"}).status == 200

    def calls(who, query=""):
        found = said(rest(who, "GET", f"/stats?tool=tools.echo{query}"))
        return found["calls"], {one["name"]: one["calls"] for one in found["callers"]}

    ann = f"{issuer.url}|ann"
    assert calls("ada") == calls("ada", "&caller=ada") == (3, {"ada": 3})
    assert calls("bob") == (2, {"bob": 2})
    assert calls("ann") == (1, {ann: 1})
    assert calls("own") == (6, {"ada": 3, "bob": 2, ann: 1})
    assert calls("own", "&caller=bob") == (2, {"bob": 2})
    refused = rest("ada", "GET", "/stats?caller=bob")
    assert (refused.status, said(refused)["code"]) == (403, "role_needed")
    for query in ("", "&caller="):
        assert rest("ada", "GET", f"/stats?days=1{query}").status == (200 if not query else 403)


def test_stats_through_tools_and_of_one_tool(rest):
    for who, times in (("ada", 2), ("bob", 1)):
        for _ in range(times):
            rest(who, "POST", "/call/shell.pwd", {})

    def told(who):
        return said(rest(who, "POST", "/call/ot.stats", {"tool": "shell.pwd"}))

    assert (told("ada")["total_calls"], told("bob")["total_calls"], told("own")["total_calls"]) == (2, 1, 3)
    rows = said(rest("own", "GET", "/tools/tools?recommendedPageSize=1000&fields=name,bundleID,slug,version"))["tools"]
    place = next(one for one in rows if one["name"] == "shell.pwd")
    path = f"/tools/bundles/{place['bundleID']}/tools/{place['slug']}/version/{place['version']}/usage"
    assert [said(rest(who, "GET", path))["calls"] for who in ("ada", "bob", "ann", "own")] == [2, 1, 0, 3]
    assert {one["caller"] for one in said(rest("own", "GET", path))["recent"]} == {"ada", "bob"}


# Events


class Reading:
    """A client of /events."""

    def __init__(self, server, token):
        self._connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {_text(token)}", "Accept": "text/event-stream"}
        self._connection.request("GET", "/events", headers=headers)
        self._lines = self._connection.getresponse()
        self.next("hello")

    def next(self, kind):
        """The data of the next event of this kind."""
        found, deadline = None, time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < deadline, f"no event {kind} comes"
            line = self._lines.readline().decode()
            assert line, "the stream has ended"
            line = line.rstrip()
            if line.startswith("event: "):
                found = line.removeprefix("event: ")
            elif line.startswith("data: ") and found == kind:
                return json.loads(line.removeprefix("data: "))

    def close(self):
        self._connection.close()


def test_events_tell_of_ones_own_calls(server, tokens, rest):
    readers = {who: Reading(server, tokens[who]) for who in ("ada", "bob", "own")}
    rest("ada", "POST", "/call/time.now", {})
    assert readers["own"].next("call")["name"] == "time.now"
    rest("bob", "POST", "/call/tools.echo", {"message": "x"})
    rest("ada", "POST", "/call/shell.pwd", {})
    assert [readers["own"].next("call")["name"] for _ in range(2)] == ["tools.echo", "shell.pwd"]
    assert readers["bob"].next("call")["name"] == "tools.echo"
    assert [readers["ada"].next("call")["name"] for _ in range(2)] == ["time.now", "shell.pwd"]
    for reader in readers.values():
        reader.close()


# Each route, method and tool is one's own, or everybody's


UNKNOWN_SESSION = "20200101-000000-aaaa"
_TOOL = "/tools/bundles/{bundleID}/tools/{toolSlug}/version/{version}"
ONE = {
    "GET /results/{handle}": None,
    "DELETE /results/{handle}": None,
    "GET /ask/sessions/{session}": None,
    "PATCH /ask/sessions/{session}": {"title": "mine"},
    "DELETE /ask/sessions/{session}": None,
    "GET /ask/sessions/{session}/export": None,
    "POST /ask/sessions/{session}/calls": {"name": "time.now"},
    "POST /ask": {"prompt": "Go on.", "session": "{session}"},
    "DELETE /ask/{question}": None,
    "POST /ask/{question}/approvals/{call}": {"approve": True},
}
"""Routes that have one thing by its id, and what is sent to them. To others it is as if there were none."""
LISTS = {"GET /results": "handle", "GET /ask/sessions": "session"}
"""Routes that list one's own, and whose id stands there."""
OTHER_ROUTES = {
    "POST /run": test_results_through_tools_and_code,
    "POST /call": test_results_through_tools_and_code,
    "GET /mcp": test_a_session_of_mcp,
    "POST /mcp": test_a_session_of_mcp,
    "DELETE /mcp": test_a_session_of_mcp,
    "GET /stats": test_stats_are_of_ones_own_calls,
    f"GET {_TOOL}/usage": test_stats_through_tools_and_of_one_tool,
    "GET /events": test_events_tell_of_ones_own_calls,
    "POST /servers/{server}/restore": test_server_edit.test_a_removed_server_comes_back_byte_for_byte_and_only_once,
}
"""Routes with own things that have a test of their own above."""
OWNED_METHODS = {
    "tasks/get": test_tasks,
    "tasks/update": test_tasks,
    "tasks/cancel": test_tasks,
    "resources/read": test_results_as_resources,
    "tools/call": test_the_state_of_a_request,
    "initialize": test_a_session_of_mcp,
    "ping": test_a_session_of_mcp,
}
OWNED_TOOLS = {
    "ot.result": test_results_through_tools_and_code,
    "ot.load": test_results_through_tools_and_code,
    "ot.stats": test_stats_through_tools_and_of_one_tool,
}
SHARED = {
    *(f"{method} /tools/bundles/{{bundleID}}" for method in ("GET", "PUT", "PATCH", "DELETE")),
    *(f"{method} {_TOOL}" for method in ("GET", "PUT", "PATCH", "DELETE")),
    *(f"POST {_TOOL}/{verb}" for verb in ("invoke", "validate", "preview", "copy", "rename")),
    f"GET {_TOOL}/examples", f"PUT {_TOOL}/examples",
    *(f"POST /tools/imports/{kind}" for kind in ("zip", "curl", "openapi", "servers")),
    *(f"POST /servers/{{server}}/{verb}" for verb in ("reconnect", "enable", "disable", "login", "rename", "test")),
    "GET /tools/bundles", "GET /tools/bundles/{bundleID}/export", "GET /tools/tools", "GET /tools/tools/search",
    *(f"{method} /tools/bundles/{{bundleID}}/tools/{{toolSlug}}/versions" for method in ("GET", "PATCH")),
    "POST /tools/validate", "POST /tools/preview", "POST /tools/send",
    "POST /tools/servers/{server}/approve", "POST /tools/trust", "POST /run/check", "GET /run/names", "GET /servers",
    "GET /servers/{server}", "PUT /servers/{server}", "DELETE /servers/{server}", "GET /servers/{server}/definition",
    "GET /servers/{server}/offers", "POST /servers", "GET /servers/found", "POST /servers/import",
    "GET /servers/{server}/logs", "GET /check", "GET /trust", "GET /audit", "GET /ask/models",
    "GET /hosts", "DELETE /hosts/{host}",
    "GET /ask/models/{provider}", "GET /secrets", "GET /tools/clients",
    "PUT /hosts/{host}", "PUT /secrets/{secret}", "GET /tokens", "POST /tokens", "DELETE /tokens/{token}",
    "POST /ask/calls", "OPTIONS /mcp", "OPTIONS /call", "GET /status", "GET /openapi.json", "GET /metrics",
}  # fmt: skip
"""Routes whose things are everybody's who may, or that make something new."""
SHARED_METHODS = {
    "tools/list", "prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/subscribe",
    "resources/unsubscribe", "completion/complete", "logging/setLevel", "server/discover", "subscriptions/listen",
}  # fmt: skip
SHARED_TOOLS = {
    "ot.tools", "ot.packs", "ot.aliases", "ot.snippets", "ot.help", "ot.search", "ot.signature", "ot.call", "ot.config",
    "ot.health", "ot.servers", "ot.version", "ot.notify", "ot.reload", "ot.all",
}  # fmt: skip
OF_ONE = ("{handle}", "{session}", "{question}", "{call}")


@pytest.mark.parametrize(
    ("all_of_them", "owned", "shared"),
    [
        (RULES, [*ONE, *LISTS, *OTHER_ROUTES], SHARED),
        (MCP_METHODS, OWNED_METHODS, SHARED_METHODS),
        (OT_TOOLS, OWNED_TOOLS, SHARED_TOOLS),
    ],
)
def test_all_are_marked_as_ones_own_or_everybodys(all_of_them, owned, shared):
    hint = "say here whether it belongs to one caller (ONE, LISTS, OWNED…, with a test) or to all (SHARED…)"
    assert {*owned, *shared} == set(all_of_them), hint
    assert not set(owned) & set(shared)
    assert {name for name in all_of_them if any(one in name for one in OF_ONE)} <= set(owned)


@pytest.mark.parametrize("route", ONE)
def test_what_is_one_callers_is_not_there_for_others(request, rest, model, route):
    method, _, path = route.partition(" ")
    body, ids = ONE[route], {}
    sent = f"{path} {json.dumps(body)}"
    if "{handle}" in sent:
        ids = {"handle": (request.getfixturevalue("result"), UNKNOWN)}
    elif "{session}" in sent:
        ids = {"session": (request.getfixturevalue("session"), UNKNOWN_SESSION)}
        model.will("Done.")
    elif "{question}" in sent:
        waits = request.getfixturevalue("question")
        ids = {"question": (waits["question"], UNKNOWN), "call": (waits["call"], waits["call"])}

    def asked(who, which):
        text = sent
        for name, known in ids.items():
            text = text.replace(f"{{{name}}}", known[which])
        place, _, data = text.partition(" ")
        place += "?format=json" if place.endswith("/export") else ""
        answer = rest(who, method, place, json.loads(data))
        return refusal(answer, *(known[which] for known in ids.values()))

    for who in OTHERS:
        theirs = asked(who, 0)
        assert theirs == asked(who, 1), who
        assert theirs[0] == 404, theirs
    if "question" not in ids:  # whose fixture answers it
        assert asked("ada", 0)[0] in (200, 204)


@pytest.mark.parametrize("route", LISTS)
def test_lists_are_of_ones_own(request, rest, route):
    made = request.getfixturevalue({"handle": "result"}.get(LISTS[route], LISTS[route]))
    path = route.removeprefix("GET ")
    assert made in rest("ada", "GET", path).body.decode()
    for who in OTHERS:
        assert made not in rest(who, "GET", path).body.decode()


# Callers without a credential, and the owner of the machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A server with the link of its owner and `http.token`, where local requests need no credential."""
    http = {"token": OWN_TOKEN, "local": "edit"}
    config = {"http": http, "results": {"inline_bytes": 2000}, "secrets": {"OPENAI_API_KEY": "sk"}}
    running = Served(tmp_path_factory.mktemp("machine"), "--port", "0", config=config, real=True)
    running.callers = {"link": bearer(session_of(running)), "token": bearer(OWN_TOKEN), "nobody": []}
    yield running
    assert running.stop() == 0


class Stored:
    """A result and a conversation, stored by a caller or from the command line."""

    def __init__(self, machine, who):
        self.machine = machine
        if who == "command line":
            ids, home = [], {"ONETOOL_HOME": str(machine.folder / "home")}
            with patch.dict(os.environ, home), App.open(machine.folder / "onetool.yaml") as app:
                self.handle = app.runtime.store_result("word " * 2000).handle
                asyncio.run(app.user_call("time.now", {}, ids.append))
            self.session = ids[0]
            return
        told = self.ask(who, "POST", "/run", {"code": LONG}).body.decode()
        self.handle = re.search(r"[0-9a-f]{32}", told)[0]
        self.session = self.ask(who, "POST", "/ask/calls", {"name": "time.now"}).json["sessionId"]

    def ask(self, who, method, path, body=None):
        sent = b"" if body is None else json.dumps(body).encode()
        return self.machine.ask(path, method, self.machine.callers[who], sent)

    def lists(self, who):
        listed = self.ask(who, "GET", "/results").body, self.ask(who, "GET", "/ask/sessions").body
        return [self.handle in listed[0].decode(), self.session in listed[1].decode()]

    def uses(self, who):
        """The status of every way to read, to go on with, and to delete the two."""
        result, session = f"/results/{self.handle}", f"/ask/sessions/{self.session}"
        ways = [
            ("GET", result, None),
            ("POST", "/call/ot.result", {"handle": self.handle}),
            ("POST", "/run", {"code": f"len(ot.load(handle='{self.handle}'))"}),
            ("GET", session, None),
            ("GET", f"{session}/export", None),
            ("POST", f"{session}/calls", {"name": "time.now"}),
            ("PATCH", session, {"title": "Mine"}),
            ("DELETE", result, None),
            ("DELETE", session, None),
        ]
        return [self._status(self.ask(who, *way)) for way in ways]

    def _status(self, reply):
        return 404 if b"Handle not found" in reply.body else reply.status


@pytest.mark.attack("other callers")
@pytest.mark.parametrize("who", ["link", "token", "command line"])
def test_nobody_uses_what_the_owner_stored(machine, who):
    stored = Stored(machine, who)
    assert stored.lists("nobody") == [False, False]
    assert set(stored.uses("nobody")) == {404}
    if who != "command line":
        assert stored.lists(who) == [True, True]
        assert set(stored.uses(who)) == {200, 204}


@pytest.mark.parametrize("who", ["link", "token", "nobody"])
def test_the_owner_uses_what_nobody_stored(machine, who):
    stored = Stored(machine, "nobody")
    assert stored.lists(who) == [True, True]
    assert set(stored.uses(who)) == {200, 204}
    assert stored.lists(who) == [False, False]


def test_the_command_line_uses_what_nobody_stored(machine):
    stored = Stored(machine, "nobody")
    place = {"env": {"ONETOOL_HOME": str(machine.folder / "home")}, "cwd": machine.folder}
    code = f"len(ot.load(handle='{stored.handle}'))"
    assert cli("run", code, "--config", "onetool.yaml", **place).stdout.strip() == "10000"
    assert stored.session in cli("sessions", "list", "--json", "--config", "onetool.yaml", **place).stdout
