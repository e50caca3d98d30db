"""Who may what: every route, every method of MCP and every tool of `ot`, for each role and for who has none.

The cases come from the routes and tables of the server. A route of the REST API has the rule of its method in DEFAULTS,
unless NEEDS says otherwise. A POST may call a tool or change something, so a new one fails here until NEEDS has a rule
for it, as a new method of MCP or a new tool does until it is in MCP_METHODS or OT_TOOLS.
"""

import asyncio
import json

import pytest
from helpers import each
from interfaces.http.matrix import OPEN, OWN_METHODS, address, exchange, served, status_of, token_entry, token_of
from interfaces.http.matrix import bearer as bearer_of
from interfaces.mcp.peers import META, NAMES, NEW, TASKS

from onetool import App
from onetool.interfaces.mcp.methods import SESSION_METHODS, STATELESS_METHODS
from onetool.interfaces.rest.ask_app import ASK_ROUTES
from onetool.interfaces.rest.routing import API_ROUTES

ROLES = ("call", "edit", "admin")
_TOOL = "/tools/bundles/{bundleID}/tools/{toolSlug}/version/{version}"

DEFAULTS = {"GET": "call", "PUT": "edit", "PATCH": "edit", "DELETE": "edit"}
NEEDS = {
    f"POST {_TOOL}/invoke": "call",
    f"POST {_TOOL}/validate": "call",
    f"POST {_TOOL}/preview": "call",
    f"POST {_TOOL}/copy": "edit",
    f"POST {_TOOL}/rename": "edit",
    "POST /tools/validate": "edit",
    "POST /tools/preview": "edit",
    "POST /tools/send": "edit",
    "POST /tools/imports/zip": "edit",
    "POST /tools/imports/curl": "edit",
    "POST /tools/imports/openapi": "edit",
    "POST /tools/imports/servers": "admin",
    "POST /tools/servers/{server}/approve": "admin",
    "POST /tools/trust": "admin",
    "POST /run": "call",
    "POST /run/check": "call",
    "POST /servers": "admin",
    "PUT /servers/{server}": "admin",
    "DELETE /servers/{server}": "admin",
    "GET /servers/{server}/definition": "admin",
    "GET /servers/{server}/offers": "edit",
    "POST /servers/{server}/rename": "admin",
    "POST /servers/{server}/test": "admin",
    "POST /servers/{server}/restore": "admin",
    "GET /servers/found": "admin",
    "POST /servers/import": "admin",
    "GET /servers/{server}/logs": "admin",
    "POST /servers/{server}/reconnect": "admin",
    "POST /servers/{server}/enable": "admin",
    "POST /servers/{server}/disable": "admin",
    "POST /servers/{server}/login": "admin",
    "DELETE /results/{handle}": "call",
    "GET /check": "edit",
    "GET /trust": "edit",
    "GET /audit": "admin",
    "GET /hosts": "admin",
    "PUT /hosts/{host}": "admin",
    "DELETE /hosts/{host}": "admin",
    "GET /secrets": "admin",
    "PUT /secrets/{secret}": "admin",
    "GET /tokens": "admin",
    "POST /tokens": "admin",
    "DELETE /tokens/{token}": "admin",
    "PATCH /ask/sessions/{session}": "call",
    "DELETE /ask/sessions/{session}": "call",
    "POST /ask": "call",
    "POST /ask/calls": "call",
    "POST /ask/sessions/{session}/calls": "call",
    "DELETE /ask/{question}": "call",
    "POST /ask/{question}/approvals/{call}": "call",
    # Beside the tables of REST
    "GET /mcp": "call",
    "POST /mcp": "call",
    "DELETE /mcp": "call",
    "OPTIONS /mcp": "call",
    "POST /call": "call",
    "OPTIONS /call": "call",
    "GET /status": "call",
    "GET /events": "call",
    "GET /openapi.json": "call",
    "GET /metrics": "admin",
}
TABLES = (*API_ROUTES.resources, *ASK_ROUTES.resources)
REST = {f"{method} {one.path}": (address(one.path), method) for one in TABLES for method in one.methods}
RULES = {name: DEFAULTS.get(method) for name, (_, method) in REST.items()} | NEEDS
_INFO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
MCP_METHODS = {
    "initialize": _INFO, "ping": {}, "tools/list": {}, "prompts/list": {}, "resources/list": {},
    "tools/call": {"name": "run", "arguments": {"code": "1"}}, "prompts/get": {"name": "none"},
    "resources/templates/list": {}, "resources/read": {"uri": "ot://tools"}, "logging/setLevel": {"level": "info"},
    "resources/subscribe": {"uri": "ot://tools"}, "resources/unsubscribe": {"uri": "ot://tools"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "none"}, "argument": {"name": "x", "value": ""}},
    "server/discover": {}, "subscriptions/listen": {"notifications": {}}, "tasks/get": {"taskId": "none"},
    "tasks/update": {"taskId": "none", "inputResponses": {}}, "tasks/cancel": {"taskId": "none"},
}  # fmt: skip
"""With params that they take. All of them are for everybody who may call: what they show and reach depends on the
caller's tools and owner."""
OF_WHAT_IS_NOT_THERE = {"prompts/get", "completion/complete", "tasks/get", "tasks/update", "tasks/cancel"}
OT_TOOLS = {
    "ot.tools": {}, "ot.packs": {}, "ot.aliases": {}, "ot.snippets": {}, "ot.help": {}, "ot.search": {"query": "time"},
    "ot.signature": {"name": "time.now"}, "ot.call": {"name": "time.now"}, "ot.config": {}, "ot.health": {},
    "ot.servers": {}, "ot.version": {}, "ot.result": {"handle": "none"}, "ot.stats": {},
    "ot.notify": {"topic": "none", "message": "x"}, "ot.reload": {}, "ot.load": {"handle": "none"},
    "ot.all": {"tool": "time.now"},
}  # fmt: skip
"""With arguments that they take. What each shows depends on the caller; `FOR_ADMINS` refuse all others."""
FOR_ADMINS = {"ot.reload"}
REFUSED = ("role_needed", "token_needed", "read_only")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    tokens = [
        *(token_entry(role, role=role) for role in ROLES),
        token_entry("expired", role="admin", expires="2020-01-01"),
    ]
    tokens += [token_entry("revoked", role="admin"), token_entry("narrow", role="call", tools=["time.*", "ot.*"])]
    app, site = served(tmp_path_factory.mktemp("roles") / "served", {"http": {"tokens": tokens}})
    app.config.home.mkdir(exist_ok=True)
    site.rules.credentials._tokens.store.revoke_hash(tokens[-2]["hash"], "revoked")
    with app:
        yield site


def bearer(name):
    return bearer_of(None if name is None else token_of(name))


def all_operations(site):
    """`GET /path/{name}` -> a path and a method. HEAD is a GET, and OPTIONS of a table tells what there is."""
    found, tables = dict(REST), {f"/{one.segments[0]}" for one in TABLES}
    for route in site.routes:
        if (path := route.path) not in tables:
            methods = route.allowed or OWN_METHODS[path]
            found |= {f"{method} {path}": (path, method) for method in methods if method != "HEAD"}
    return {name: case for name, case in found.items() if case not in OPEN and not name.endswith(" /login")}


def refusal_of(site, case, who):
    """The status of a request, and the code of its refusal if it was refused for who it is."""
    path, method = case
    status, body = status_of(site, path, method, [*bearer(who), ("accept", "text/event-stream, application/json")])
    code = json.loads(body).get("code") if status == 403 else None
    return status, code


def test_every_route_has_a_rule(site):
    assert set(all_operations(site)) == set(RULES)
    assert {name for name, role in RULES.items() if role not in ROLES} == set(), "give it a rule in NEEDS"


@pytest.mark.parametrize("who", [None, "wrong", "expired", "revoked"])
def test_who_is_nobody_may_nothing(site, who):
    found = {name: refusal_of(site, case, who)[0] for name, case in all_operations(site).items()}
    assert {name: status for name, status in found.items() if status != 401} == {}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_what_its_rule_says_and_no_more(site, role):
    found = {name: refusal_of(site, case, role) for name, case in all_operations(site).items()}
    assert {name for name, (status, _) in found.items() if status == 401} == set()
    refused = {name for name, (_, code) in found.items() if code in REFUSED}
    assert refused == {name for name, needed in RULES.items() if ROLES.index(needed) > ROLES.index(role)}


def test_why_a_token_counts_no_more_is_told_to_who_holds_it(site):
    said = {who: status_of(site, "/status", "GET", bearer(who))[1].decode() for who in ("expired", "revoked", "wrong")}
    assert "This token expired on 2020-01-01" in said["expired"]
    assert "This token was revoked on" in said["revoked"]
    assert "Invalid token" in said["wrong"]


# MCP


def mcp(site, who, method, params=None):
    able = {"extensions": {TASKS: {}}}
    meta = {f"{META}protocolVersion": NEW, f"{META}clientCapabilities": able}
    params = {**(params or {}), "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = [*bearer(who), ("accept", "application/json, text/event-stream"), ("mcp-method", method)]
    headers += [("mcp-protocol-version", NEW)]
    headers += [("mcp-name", params[NAMES[method]])] if NAMES.get(method) in params else []
    status, body = status_of(site, "/mcp", "POST", headers, json.dumps(message).encode())
    return status, body.decode()


def test_every_method_has_a_rule():
    assert {*SESSION_METHODS, *STATELESS_METHODS} == set(MCP_METHODS)


@pytest.mark.parametrize("who", [None, "wrong", "expired", "revoked"])
def test_who_is_nobody_has_no_method(site, who):
    assert {method: mcp(site, who, method)[0] for method in MCP_METHODS} == dict.fromkeys(MCP_METHODS, 401)


@each("role", ROLES)
@each("method", STATELESS_METHODS)
def test_every_role_has_every_method(site, role, method):
    assert_answered(method, *mcp(site, role, method, MCP_METHODS[method]))


def assert_answered(method, status, text):
    """With a result, or, of what is not there, as of that."""
    if method == "subscriptions/listen":  # a stream, which is left when it has begun
        assert (status, "subscriptions/acknowledged" in text) == (200, True), text
    elif method in OF_WHAT_IS_NOT_THERE and '"error"' in text:
        assert '"code":-32602' in text.replace(" ", ""), text
    else:
        assert (status, '"error"' in text) == (200, False), text


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_every_method_of_a_session(site, role):
    async def session():
        headers = [*bearer(role), ("accept", "application/json, text/event-stream")]
        for method in ("initialize", *(one for one in SESSION_METHODS if one != "initialize")):
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": MCP_METHODS[method]}
            status, head, body = await exchange(site, "/mcp", "POST", headers, json.dumps(message).encode())
            assert_answered(method, status, body.decode())
            if method == "initialize":
                headers += [("mcp-session-id", head[b"mcp-session-id"].decode())]

    asyncio.run(session())


# Tools of `ot`


def called(site, who, name, args):
    status, body = status_of(site, f"/call/{name}", "POST", bearer(who), json.dumps(args).encode())
    return status, body.decode()


def test_every_tool_of_ot_has_a_rule(tmp_path):
    (tmp_path / "onetool.yaml").touch()
    with App.open(tmp_path / "onetool.yaml") as app:
        found = {name for name in app.catalog.registry.names() if name.startswith("ot.")}
    assert found == set(OT_TOOLS), "add it to OT_TOOLS, with arguments that it takes"


@pytest.mark.parametrize("role", ["call", "edit"])
def test_tools_of_ot_that_are_for_admins_refuse_others(site, role):
    said = {name: called(site, role, name, args) for name, args in OT_TOOLS.items()}
    assert {name for name, (status, text) in said.items() if status == 403 and "role_needed" in text} == FOR_ADMINS
    assert {name for name, (status, _) in said.items() if status not in (200, 424)} == FOR_ADMINS


def test_an_admin_has_all_tools_of_ot(site):
    said = {name: called(site, "admin", name, args) for name, args in OT_TOOLS.items()}
    assert {name: text for name, (status, text) in said.items() if status != 200 and "role_needed" in text} == {}


# The tools of a token


def test_a_token_reaches_its_own_tools_and_no_others_through_any_door(site):
    assert called(site, "narrow", "time.now", {})[0] == 200
    for name in ("fs.read", "fs.read_file", "shell.run"):
        assert called(site, "narrow", name, {})[0] in (403, 404)
    run = json.dumps({"code": "fs.read_file(path='x')"}).encode()
    _, said = status_of(site, "/run", "POST", bearer("narrow"), run)
    assert b"not allowed" in said or b"not_found" in said
    through = called(site, "narrow", "ot.call", {"name": "fs.read_file", "args": {"path": "x"}})
    assert "not found" in through[1].lower() or "not allowed" in through[1].lower()
    assert "fs." not in called(site, "narrow", "ot.tools", {})[1]
    assert "fs." not in status_of(site, "/tools/tools", "GET", bearer("narrow"))[1].decode()
    _, menu = mcp(site, "narrow", "tools/list")
    assert "fs" not in menu.split("Packs")[-1]
    assert "time" in menu


def test_a_server_for_calls_caps_every_role(tmp_path):
    tokens = [token_entry("admin", role="admin")]
    app, site = served(tmp_path, {"http": {"tokens": tokens, "admin": False}})
    with app:
        for name, needed in RULES.items():
            case = all_operations(site)[name]
            assert (refusal_of(site, case, "admin")[1] in REFUSED) == (needed != "call"), name
