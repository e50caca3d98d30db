"""What belongs to one caller is not there for any other, through every door: two tokens, a JWT, and http.token."""

import json
import time
from hashlib import sha256
from http.client import HTTPConnection

import pytest
from helpers import until
from interfaces.http.issuer import AUDIENCE, Issuer
from interfaces.mcp.peers import ABLE, TASKS, HttpPeer
from interfaces.mcp.servers import CONFIG, PATIENCE, Server

KNOWS = {**ABLE, "extensions": {TASKS: {}}}
TOKENS = {"ada": "ot_ada-0123456789-0123456789", "bob": "ot_bob-0123456789-0123456789"}
OWN_TOKEN = "sesame-token-0123456789"
OTHERS = ("bob", "ann", "own")  # another token, a JWT, and http.token
ADAS_NAME = {"name": {"action": "accept", "content": {"name": "Ada"}}}
LONG = "'word ' * 2000"
UNKNOWN = "0" * 32
EXPIRED = "requestState has expired: send the request again without it"


@pytest.fixture(scope="module")
def issuer():
    with Issuer() as one:
        yield one


@pytest.fixture(scope="module")
def server(issuer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("owners")
    (folder / "packs").symlink_to(CONFIG.parent / "packs")
    http = {
        "token": OWN_TOKEN,
        "tokens": [
            {"name": name, "hash": f"sha256:{sha256(token.encode()).hexdigest()}", "role": "edit"}
            for name, token in TOKENS.items()
        ],
        "jwt": {
            "issuer": issuer.url,
            "jwks": issuer.jwks,
            "audience": AUDIENCE,
            "scopes": {"tools:call": {"role": "edit"}},
        },
    }
    config = {"packs": ["packs"], "results": {"inline_bytes": 2000}, "menu": "direct", "http": http}
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
    for one in secrets:
        text = text.replace(one, "…")
    return exchange.status, text


# Results


@pytest.fixture
def result(peer):
    """The handle of a result of Ada's."""
    told = json.dumps(peer("ada", query="?menu=run").result("tools/call", {"name": "run", "arguments": {"code": LONG}}))
    return told.partition("handle=")[2].strip("\\\"'").partition("\\")[0].partition('"')[0]


def test_results_over_rest(rest, result):
    assert [one["handle"] for one in said(rest("ada", "GET", "/results"))["results"]][:1] == [result]
    for who in OTHERS:
        assert result not in rest(who, "GET", "/results").body.decode()
        for method in ("GET", "DELETE"):
            theirs = rest(who, method, f"/results/{result}")
            nobodys = rest(who, method, f"/results/{UNKNOWN}")
            assert theirs.status == 404
            assert refusal(theirs, result) == refusal(nobodys, UNKNOWN)
    assert rest("ada", "GET", f"/results/{result}").status == 200


def test_results_through_tools_and_code(rest, result):
    code = {"code": f"ot.result(handle='{result}', limit=1)"}
    assert "word word" in rest("ada", "POST", "/run", code).body.decode()
    for who in OTHERS:
        for path, body in (("/run", code), ("/call/ot.result", {"handle": result})):
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
    slow = ada.begin("tools/call", {"name": "working__wait_for", "arguments": {"path": str(path)}})
    until((tmp_path / "it.began").exists)
    for who in OTHERS:
        peer(who, "old").cancel(slow)
    time.sleep(0.1)  # for a cancellation that would come late
    path.touch()
    assert slow.answer()["result"].get("isError") is not True


# Sessions of `ask`


def test_sessions_of_ask(rest):
    id = said(rest("ada", "POST", "/ask/calls", {"name": "time.now"}))["sessionId"]
    unknown = "20200101-000000-aaaa"
    assert [one["id"] for one in said(rest("ada", "GET", "/ask/sessions"))["sessions"]] == [id]
    for who in OTHERS:
        assert said(rest(who, "GET", "/ask/sessions"))["sessions"] == []
        for method, path, body in (
            ("GET", "/ask/sessions/{}", None),
            ("GET", "/ask/sessions/{}/export", None),
            ("PATCH", "/ask/sessions/{}", {"title": "mine"}),
            ("DELETE", "/ask/sessions/{}", None),
            ("POST", "/ask/sessions/{}/calls", {"name": "time.now"}),
        ):
            theirs = rest(who, method, path.format(id), body)
            nobodys = rest(who, method, path.format(unknown), body)
            assert theirs.status == 404, (who, method, path)
            assert refusal(theirs, id) == refusal(nobodys, unknown)
    assert rest("ada", "GET", f"/ask/sessions/{id}").status == 200


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


# Examples


def test_examples_are_of_who_saves_them(rest):
    rows = said(rest("own", "GET", "/tools/tools?recommendedPageSize=1000&fields=name,bundleID,slug,version"))["tools"]
    place = next(one for one in rows if one["name"] == "tools.echo")
    path = f"/tools/bundles/{place['bundleID']}/tools/{place['slug']}/version/{place['version']}/examples"
    common, mine, mine_too = ({"name": name, "args": {"message": name}} for name in ("common", "mine", "mine too"))

    def names(who):
        return [one["name"] for one in said(rest(who, "GET", path))["examples"]]

    assert rest("own", "PUT", path, {"examples": [common]}).status == 200
    listed = rest("ada", "GET", path)
    tag = listed.headers["etag"]
    saved = rest("ada", "PUT", path, {"examples": [*said(listed)["examples"], mine]}, **{"If-Match": tag})
    assert said(saved) == {"examples": [common, mine], "own": ["mine"]}
    assert saved.headers["etag"] != tag
    assert rest("ada", "PUT", path, {"examples": [mine_too]}, **{"If-Match": tag}).status == 412
    assert rest("ada", "GET", path, **{"If-None-Match": tag}).status == 200
    assert rest("bob", "PUT", path, {"examples": [mine_too]}).status == 200
    assert (names("ada"), names("bob")) == (["common", "mine"], ["common", "mine too"])
    assert (names("ann"), names("own")) == (["common"], ["common"])
    tool = said(rest("ada", "GET", path.removesuffix("/examples")))
    assert [one["name"] for one in tool["examples"]] == ["common"]
    assert said(rest("own", "PUT", path, {"examples": []})) == {"examples": []}
    assert (names("ada"), names("own")) == (["mine"], [])
    assert said(rest("ada", "PUT", path, {"examples": []})) == {"examples": [], "own": []}
