"""Send: a draft of an HTTP tool is tried as a call would be, and nothing is stored."""

import json
from hashlib import sha256

import pytest
from interfaces.rest.served import Api, problem
from interfaces.rest.test_openapi import checker
from upstream import Reply, Upstream

JSON = {"Content-Type": "application/json"}
SECRET = 'sec"ret/0123456789'
TOKENS = {role: f"ot_{role}_0123456789abcdef" for role in ("call", "edit", "admin")}


class Site:
    """A server with named callers, and the server that its tools may call."""

    def __init__(self, folder):
        self.upstream = Upstream(self.answer)
        self.upstream.__enter__()
        self.url = self.upstream.url
        home = folder / ".onetool"
        home.mkdir()
        bound = {"value": SECRET, "hosts": [self.url]}
        (home / "secrets.yaml").write_text(f"KEY: {json.dumps(bound)}\nFREE: free-0123456789\n")
        (home / "secrets.yaml").chmod(0o600)
        tokens = [
            {"name": role, "role": role, "hash": f"sha256:{sha256(text.encode()).hexdigest()}"}
            for role, text in TOKENS.items()
        ]
        config = {
            "secrets": "secrets.yaml",
            "allowedHosts": [{"host": self.upstream.netloc, "allowPrivate": True}],
            "http": {
                "tokens": [
                    *tokens,
                    {
                        **tokens[1],
                        "name": "narrow",
                        "tools": ["time.*"],
                        "hash": f"sha256:{sha256(b'ot_narrow_0123456789abcdef').hexdigest()}",
                    },
                ]
            },
        }
        (home / "onetool.yaml").write_text(json.dumps(config))
        self.api = Api(real=folder, args=("--config", str(home / "onetool.yaml")))
        path = f"/tools/bundles/{self.api.new_id()}"
        assert self.ask("PUT", path, {"slug": "mine"}).status_code == 201
        self.bundle = path.rpartition("/")[2]

    def answer(self, seen):
        if seen.target == "/picture":
            return Reply(headers={"Content-Type": "image/png"}, body=bytes(range(256)) * 2000)
        if seen.target == "/token":
            return Reply(200, JSON, b'{"token": "session/4711-0815"}'.replace(b"/", b"\\/"))
        if seen.target == "/long":
            return Reply(headers={"Content-Type": "text/plain"}, body=b"x" * 200_000)
        if seen.target == "/broken":
            return Reply(503, JSON, b'{"why": "tired"}', "Service Unavailable")
        if seen.target == "/echo":  # in a form that only reading it shows
            body = json.dumps({"key": seen.headers.get("x-key", "")}).replace("/", "\\/")
            headers = {**JSON, "X-Back": seen.headers.get("x-key", ""), "Set-Cookie": "session=s3cr3t; HttpOnly"}
            return Reply(200, headers, body.encode(), "OK")
        return Reply(200, JSON, json.dumps({"target": seen.target, "method": seen.method}).encode(), "OK")

    def ask(self, method, path, body=None, role="edit"):
        token = TOKENS.get(role, f"ot_{role}_0123456789abcdef")
        return self.api.ask(method, path, body, headers={"Authorization": f"Bearer {token}"})

    def send(self, request, args=None, role="edit", tool=None, **more):
        request = {"urlTemplate": f"{self.url}{request}"} if isinstance(request, str) else request
        draft = {"type": "http", "httpImpl": {"request": request}, **(tool or {})}
        return self.ask("POST", "/tools/send", {"tool": draft, "args": args or {}, **more}, role)

    def close(self):
        self.api.stop()
        self.upstream.__exit__(None, None, None)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    running = Site(tmp_path_factory.mktemp("site"))
    yield running
    running.close()


CITY = {"argSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def test_a_draft_is_sent_and_shown_and_stored_nowhere(site):
    reply = site.send("/weather/${city}", {"city": "Oslo"}, tool=CITY, bundleID=site.bundle)
    found = reply.json()
    assert (reply.status_code, found["ok"]) == (200, True), reply.text
    [one] = found["responses"]
    assert (one["method"], one["url"], one["status"], one["text"]) == ("GET", f"{site.url}/weather/Oslo", 200, "OK")
    assert one["headers"]["content-type"] == "application/json"
    assert one["size"] == len(one["body"])
    assert one["ms"] >= 0
    assert found["value"] == json.loads(one["body"]) == {"target": "/weather/Oslo", "method": "GET"}
    checker(site.ask("GET", "/openapi.json").json(), "TrialReport").validate(found)
    tools = site.ask("GET", f"/tools/tools?bundleIDs={site.bundle}&includeDisabled=true").json()["tools"]
    assert tools == []


def test_what_the_tool_would_return_is_there_beside_the_response(site):
    response = {"httpImpl": {"request": {"urlTemplate": f"{site.url}/a"}, "response": {"selector": "target"}}}
    assert site.send("/a", tool=response).json()["value"] == "/a"
    found = site.send("/broken").json()
    assert (found["ok"], found["responses"][0]["status"]) == (False, 503)
    assert found["error"]["reason"] == "upstream_error"
    assert json.loads(found["responses"][0]["body"]) == {"why": "tired"}


def test_several_requests_are_all_shown(site):
    steps = [
        {"name": "first", "request": {"urlTemplate": f"{site.url}/1"}},
        {"name": "second", "request": {"urlTemplate": f"{site.url}/2", "query": {"was": "${steps.first.target}"}}},
    ]
    found = site.send("", tool={"httpImpl": {"requests": steps}}).json()
    assert [(one["step"], one["status"]) for one in found["responses"]] == [("first", 200), ("second", 200)]
    assert found["value"]["target"] == "/2?was=%2F1"


def test_secrets_and_cookies_are_hidden(site):
    reply = site.send({"urlTemplate": f"{site.url}/echo", "headers": {"X-Key": "${KEY}"}})
    assert site.upstream.seen[-1].headers["x-key"] == SECRET
    [one] = reply.json()["responses"]
    assert (one["headers"]["set-cookie"], one["headers"]["x-back"]) == ("***", "***")
    assert json.loads(one["body"]) == reply.json()["value"] == {"key": "***"}
    assert "0123456789" not in reply.text
    assert "s3cr3t" not in reply.text


def test_what_a_step_logs_in_with_is_hidden(site):
    login = {"Authorization": "Bearer ${steps.first.token}"}
    steps = [
        {"name": "first", "request": {"urlTemplate": f"{site.url}/token"}},
        {"name": "second", "request": {"urlTemplate": f"{site.url}/2", "headers": login}},
    ]
    reply = site.send("", tool={"httpImpl": {"requests": steps}})
    assert json.loads(reply.json()["responses"][0]["body"]) == {"token": "***"}


def test_a_body_is_bounded_and_bytes_are_not_shown(site):
    [one] = site.send("/long").json()["responses"]
    assert (len(one["body"]), one["size"], one["cut"]) == (64 * 1024, 200_000, True)
    before = site.ask("GET", "/results").json()
    found = site.send("/picture").json()
    assert (found["responses"][0]["body"], found["responses"][0]["size"]) == (None, 512_000)
    assert found["value"]["handle"] == "not-stored"
    assert site.ask("GET", "/results").json() == before


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_methods_that_change_something_need_a_word(site, method):
    request, before = {"method": method, "urlTemplate": f"{site.url}/x"}, len(site.upstream.seen)
    told = problem(site.send(request), 409, "not_confirmed")
    assert method in told["detail"]
    assert len(site.upstream.seen) == before
    assert site.send(request, confirmed=True).json()["value"]["method"] == method


def test_it_is_for_editors_and_their_allow_lists(site):
    before = len(site.upstream.seen)
    problem(site.send("/a", role="call"), 403, "role_needed")
    assert problem(site.send("/a", role="narrow"), 403, "tool_not_found")["reason"] == "denied"
    assert len(site.upstream.seen) == before
    assert site.send("/a", role="admin").json()["ok"]


def test_hosts_and_bindings_hold(site):
    found = site.send({"urlTemplate": "http://127.0.0.1:1/x"}).json()
    assert (found["ok"], found["responses"]) == (False, [])
    assert found["error"]["needs"]
    before = len(site.upstream.seen)
    problem(site.send({"urlTemplate": f"{site.url}/x", "headers": {"X": "${FREE}"}}), 403, "secret_not_bound")
    assert len(site.upstream.seen) == before


def test_the_limit_of_the_draft_counts_its_trials(site):
    limited = {"slug": "limited", "limits": {"maxCallsPerMinute": 2}}
    assert [site.send("/a", tool=limited, bundleID=site.bundle).status_code for _ in range(2)] == [200, 200]
    problem(site.send("/a", tool=limited, bundleID=site.bundle), 429, "rate_limited")


def test_what_is_wrong_is_told_with_its_place(site):
    told = problem(site.send({"method": "GRAB", "urlTemplate": "ftp://x"}), 400, "invalid")
    pointers = {one["pointer"] for one in told["errors"]}
    assert pointers == {"/tool/httpImpl/request/method", "/tool/httpImpl/request/urlTemplate"}
    told = problem(site.send("/${city}", {"city": 7, "x": 1}, tool=CITY), 400, "invalid_args")
    assert {one["pointer"] for one in told["errors"]} >= {"/args/city"}
    told = problem(site.send("/a", bundleID=site.api.new_id()), 400, "invalid")
    assert told["pointer"] == "/bundleID"
    script = {"tool": {"type": "script", "scriptImpl": {"code": "1"}}}
    assert problem(site.ask("POST", "/tools/send", script), 400, "invalid")["pointer"] == "/tool/type"


def test_it_is_audited_and_counted_nowhere(site):
    assert site.send("/a", tool={"slug": "audited"}, bundleID=site.bundle).json()["ok"]
    lines = site.ask("GET", "/audit", role="admin").json()["records"]
    [line] = [one for one in lines if one["what"].startswith("mine.audited@")]
    assert (line["kind"], line["via"], line["who"]) == ("call", "draft", "edit")
    assert line["hosts"] == ["127.0.0.1"]
    assert "audited" not in site.ask("GET", "/stats", role="admin").text
