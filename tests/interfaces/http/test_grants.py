"""Hosts, secrets and tokens over REST: for admins alone, in force at once, and nothing is changed silently."""

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
import yaml
from helpers import cli, each, until
from interfaces.http.conftest import Served
from interfaces.http.matrix import token_entry, token_of
from interfaces.http.test_page_links import bearer, session_of
from services.journals import lines_in
from upstream import Reply, Upstream

from onetool.config.known_clients import CLIENTS

VALUE = "meteo-live-0123456789"
ID = "01890a5d-0000-7000-8000-00000000000a"
OWN = "server-token-0123456789"


class Place:
    """A real server, its owner, and an API that a tool of it calls."""

    def __init__(self, folder, **options):
        (folder / "home").mkdir()
        (folder / "home").chmod(0o700)
        self.home = folder / "home"
        env = {"ONETOOL_HOME": str(self.home), "HOME": str(folder)} | options.pop("env", {})
        self.server = Served(folder, "--port", "0", real=True, env=env, **options)
        self.owner = bearer(session_of(self.server))

    def ask(self, method, path, body=None, who=None, **headers):
        sent = [*(self.owner if who is None else who), *headers.items()]
        return self.server.ask(path, method, sent, b"" if body is None else json.dumps(body).encode())

    def allow(self, host, **options):
        return self.ask("PUT", f"/hosts/{quote(host, safe='')}", options.pop("body", {}), **options)

    def set(self, name, value=VALUE, hosts=(), query="", **options):
        return self.ask("PUT", f"/secrets/{name}{query}", {"value": value, "hosts": [*hosts]}, **options)

    def files(self):
        places = (self.home, self.server.folder / ".onetool")
        found = {one.name: one.read_text() for place in places for one in place.rglob("*.yaml")}
        config = self.server.folder / "onetool.yaml"
        return found | ({"config": config.read_text()} if config.exists() else {})

    def audit(self, what):
        return until(lambda: [one for one in lines_in(self.home) if one["what"] == what])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """With a config that names a secret, tokens of each role, and a variable of the environment."""
    folder = tmp_path_factory.mktemp("grants")
    docs = {"url": "https://docs.example.com/mcp", "headers": {"X-Key": "${DOCS_KEY}"}, "enabled": False}
    tokens = [token_entry(role, role=role) for role in ("call", "edit", "admin")]
    http = {"token": "${OWN_TOKEN}", "tokens": tokens}
    config = {"http": http, "servers": {"docs": docs}, "secrets": "secrets.yaml"}
    secrets = folder / "secrets.yaml"
    secrets.write_text(
        f"OWN_TOKEN: {OWN}\nBOUND: {{value: bound-0123456789, hosts: [api.github.com]}}\nFREE: free-0123456789\n"
    )
    secrets.chmod(0o600)
    one = Place(folder, config=config, env={"FROM_ENV": "env-0123456789"})
    one.secrets = secrets
    yield one
    one.server.stop()


@pytest.fixture
def fresh(tmp_path):
    """Nothing is configured: as after the first `onetool serve`."""
    one = Place(tmp_path)
    yield one
    one.server.stop()


def test_what_is_allowed_and_set_is_in_force_at_once_on_a_fresh_home(fresh):
    with Upstream() as api:
        api.say(Reply(body=b'{"sky": "clear"}', headers={"Content-Type": "application/json"}))
        request = {"method": "GET", "urlTemplate": f"{api.url}/now", "headers": {"X-Key": "${METEO_KEY}"}}
        tool = {"type": "http", "argSchema": {"type": "object"}, "httpImpl": {"request": request, "response": {}}}
        assert fresh.ask("PUT", f"/tools/bundles/{ID}", {"slug": "meteo", "displayName": "Meteo"}).status == 201
        assert fresh.ask("PUT", f"/tools/bundles/{ID}/tools/now/version/1", tool).status == 201
        missing = fresh.ask("POST", "/call/meteo.now", {}).json["needs"]
        assert [(one.get("host"), one.get("secret")) for one in missing] == [(api.netloc, None), (None, "METEO_KEY")]
        found = [need for one in fresh.ask("GET", "/check").json["findings"] for need in one.get("needs", [])]
        assert sorted(found, key=str) == sorted(missing, key=str)
        checked = fresh.ask("POST", f"/tools/bundles/{ID}/tools/now/version/1/validate", {"args": {}}).json
        assert (checked["ok"], checked["needs"]) == (True, missing)
        host, secret = missing
        assert fresh.allow(host["host"]).json == {"host": api.netloc, "private": True}
        assert fresh.set("METEO_KEY", hosts=secret["hosts"]).json == {"name": "METEO_KEY", "hosts": [api.url]}
        assert fresh.ask("POST", "/call/meteo.now", {}).json == {"sky": "clear"}
        assert api.seen[0].headers["x-key"] == VALUE
        assert fresh.ask("GET", "/check").json["findings"] == []
    assert fresh.audit(f"PUT /hosts/{api.netloc}")[0]["who"] == "(owner)"
    assert fresh.audit("PUT /secrets/METEO_KEY")[0]["outcome"] == "ok"
    assert VALUE not in json.dumps(lines_in(fresh.home))
    assert VALUE not in fresh.server.log_file.read_text()
    assert (fresh.home / "secrets.yaml").stat().st_mode & 0o077 == 0


PATHS = (
    ("PUT", "/hosts/api.example.com", {}),
    ("PUT", "/secrets/METEO_KEY", {"value": VALUE, "hosts": ["api.example.com"]}),
    ("GET", "/secrets", None),
    ("GET", "/tokens", None),
    ("POST", "/tokens", {"name": "mine", "role": "admin"}),
    ("DELETE", "/tokens/call", None),
)


@pytest.mark.parametrize("case", PATHS, ids=lambda case: f"{case[0]} {case[1]}")
@pytest.mark.parametrize(
    ("who", "status"),
    [
        ([], 401),
        (bearer("wrong"), 401),
        (bearer(token_of("call")), 403),
        (bearer(token_of("edit")), 403),
    ],
    ids=["nobody", "wrong", "call", "edit"],
)
def test_others_than_admins_are_refused(place, case, who, status):
    before = place.files() | {"secrets": place.secrets.read_text()}
    method, path, body = case
    reply = place.ask(method, path, body, who=who)
    assert reply.status == status
    assert VALUE not in reply.body.decode()
    assert place.files() | {"secrets": place.secrets.read_text()} == before


def test_without_a_token_one_edits_and_grants_nothing(fresh):
    for method, path, body in PATHS:
        reply = fresh.ask(method, path, body, who=[])
        assert (reply.status, reply.code) == (403, "token_needed"), path
    assert fresh.files() == {}


@pytest.mark.parametrize("case", PATHS, ids=lambda case: f"{case[0]} {case[1]}")
@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example.com"}, {"Sec-Fetch-Site": "cross-site"}, {"OneTool-Call": "tool"}],
    ids=lambda one: next(iter(one)),
)
def test_other_origins_and_tools_are_refused_with_the_owners_session_too(place, case, headers):
    method, path, body = case
    assert place.ask(method, path, body, **headers).status == 403


@each(
    "host",
    [
        "*",
        "*.example.com",
        "*:443",
        "https://api.example.com",
        "api.example.com/path",
        "api.example.com\nother.example.com",
        "api.example.com\r\n- '*'",
        "user@api.example.com",
        "api.example.com:0",
        "api.example.com:99999",
        "api.example.com:443:80",
        "0.0.0.0",
        "224.0.0.1",
        "a b",
        "'*'",
        "{host: evil}",
        ".",
        "xn--",
        "\0",
        "api.example.com,other.example.com",
        "a" * 300,
    ],
)
def test_what_is_not_one_host_is_refused_and_nothing_written(place, host):
    before = place.files()
    reply = place.allow(host)
    assert reply.status == 400, reply.body
    assert place.files() == before


@each(
    ("host", "kept", "private"),
    [
        ("API.Example.com", "api.example.com", False),
        ("api.example.com:8443", "api.example.com:8443", False),
        ("bücher.example", "xn--bcher-kva.example", False),
        ("localhost:9000", "localhost:9000", True),
        ("[::1]:9000", "[::1]:9000", True),
        ("10.0.0.1", "10.0.0.1", True),
    ],
)
def test_a_host_is_kept_as_it_is_dialled(place, host, kept, private):
    assert place.allow(host).json == {"host": kept, "private": private}
    again = place.files()
    assert place.allow(host).status == 200
    assert place.files() == again


def test_a_public_name_may_lead_to_private_addresses_only_if_that_is_said(place):
    assert place.allow("inside.example.com").json["private"] is False
    assert place.allow("inside.example.com", body={"private": True}).json["private"] is True
    assert place.allow("inside.example.com", body={"private": 1}).status == 400
    assert place.allow("inside.example.com", body={"privat": True}).status == 400


@each(
    ("name", "hosts", "query", "code"),
    [
        ("OWN_TOKEN", ["api.example.com"], "", "secret_in_use"),
        ("OWN_TOKEN", [], "?replace=true", "secret_in_use"),
        ("OPENAI_API_KEY", ["api.example.com"], "", "secret_in_use"),
        ("FROM_ENV", ["api.example.com"], "", "secret_in_use"),
        ("PATH", ["api.example.com"], "?replace=true", "secret_in_use"),
        ("DOCS_KEY", ["api.example.com"], "", "secret_in_use"),
        ("BOUND", ["evil.example.com"], "", "secret_exists"),
        ("BOUND", ["api.github.com"], "", "secret_exists"),
        ("BOUND", ["evil.example.com"], "?replace=true", "secret_bound"),
        ("BOUND", ["api.github.com", "evil.example.com"], "?replace=true", "secret_bound"),
        ("BOUND", ["http://api.github.com"], "?replace=true", "secret_bound"),
        ("FREE", ["evil.example.com"], "?replace=true", "secret_bound"),
    ],
)
def test_a_secret_that_is_used_elsewhere_is_left_alone(place, name, hosts, query, code):
    before = place.secrets.read_text()
    reply = place.set(name, hosts=hosts, query=query)
    assert (reply.status, reply.code) == (409, code), reply.body
    assert VALUE not in reply.body.decode()
    assert "0123456789" not in reply.body.decode()
    assert place.secrets.read_text() == before


def test_a_value_is_replaced_only_if_that_is_said_and_its_hosts_stay(place):
    assert place.set("ROTATED", hosts=["api.example.com"]).status == 200
    assert place.set("ROTATED", value="second-0123456789", hosts=["api.example.com"]).code == "secret_exists"
    reply = place.set("ROTATED", value="second-0123456789", query="?replace=true")
    assert reply.json == {"name": "ROTATED", "hosts": ["api.example.com"]}
    assert '"value": "second-0123456789", "hosts": ["api.example.com"]' in place.secrets.read_text()


@each(
    ("name", "value", "hosts"),
    [
        ("METEO-KEY", VALUE, []),
        ("1KEY", VALUE, []),
        ("KEY%0AOTHER", VALUE, []),
        ("KEY%3A%20x%0A", VALUE, []),
        ("METEO_KEY", "", []),
        ("METEO_KEY", "  ", []),
        ("METEO_KEY", "two\nlines: x", []),
        ("METEO_KEY", VALUE, ["*"]),
        ("METEO_KEY", VALUE, ["*.example.com"]),
        ("METEO_KEY", VALUE, ["api.example.com/path"]),
        ("METEO_KEY", VALUE, ["ftp://api.example.com"]),
        ("METEO_KEY", VALUE, ["api.example.com\n"]),
        ("METEO_KEY", VALUE, [""]),
    ],
)
def test_a_name_value_or_host_that_is_none_is_refused(place, name, value, hosts):
    before = place.secrets.read_text()
    reply = place.set(name, value=value, hosts=hosts)
    assert reply.status == 400, reply.body
    assert VALUE not in reply.body.decode()
    assert place.secrets.read_text() == before


@pytest.mark.parametrize("value", ["schlüssel-0123456789", "'\\\": {}[]#&*!|>%@`-0123456789", "x" * 100_000])
def test_any_line_of_text_can_be_a_value(place, value):
    assert place.set("ODD", value, ["api.example.com"], "?replace=true").status == 200
    stored = yaml.safe_load(place.secrets.read_text())
    assert stored["ODD"] == {"value": value, "hosts": ["api.example.com"]}
    assert stored["FREE"] == "free-0123456789"


def test_hosts_and_secrets_that_come_at_once_are_all_kept(place):
    with ThreadPoolExecutor(8) as pool:
        replies = [*pool.map(lambda n: place.allow(f"h{n}.example.org"), range(8))]
        replies += pool.map(lambda n: place.set(f"AT_ONCE_{n}", hosts=["api.example.com"]), range(8))
        same = [*pool.map(lambda n: place.set("SAME", f"value-{n}-0123456789", ["api.example.com"]), range(8))]
    assert {one.status for one in replies} == {200}, [one.body for one in replies]
    assert sorted(one.status for one in same) == [200] + [409] * 7
    config, secrets = place.files()["config"], place.secrets.read_text()
    assert all(f"h{n}.example.org" in config for n in range(8))
    assert all(f"AT_ONCE_{n}:" in secrets for n in range(8))


def test_no_route_tells_a_secret(place):
    assert place.set("TOLD_NOWHERE", hosts=["api.example.com"]).status == 200
    assert place.ask("GET", "/secrets/TOLD_NOWHERE").status == 405
    listed = place.ask("GET", "/secrets")
    assert listed.status == 200
    assert VALUE not in listed.body.decode()
    assert "0123456789" not in listed.body.decode()


def test_secrets_are_listed_with_where_they_may_go(place):
    assert place.set("LISTED", hosts=["api.example.com"]).status == 200
    assert place.set("OPENAI_API_KEY").status == 200
    rows = {one["name"]: one for one in place.ask("GET", "/secrets", who=bearer(token_of("admin"))).json["secrets"]}
    assert rows["LISTED"] == {
        "name": "LISTED", "provider": None, "source": "file", "hosts": ["api.example.com"], "use": None
    }  # fmt: skip
    key = rows["OPENAI_API_KEY"]
    assert (key["provider"], key["source"], key["hosts"]) == ("openai", "file", ["api.openai.com"])
    assert (rows["GEMINI_API_KEY"]["source"], rows["OWN_TOKEN"]["use"]) == (None, "http.token")
    assert "FROM_ENV" not in rows


# Clients


def test_the_entries_are_those_of_init(place):
    url = "http://127.0.0.1:8765"
    told = place.ask("GET", f"/tools/clients?url={quote(url, safe='')}", who=bearer(token_of("edit"))).json["clients"]
    assert [one["client"] for one in told] == list(CLIENTS)
    env = {"ONETOOL_HOME": str(place.home), "HOME": str(place.server.folder), "OWN_TOKEN": OWN}
    for one in told:
        way = ["--http", url] if CLIENTS[one["client"]].takes_urls else []
        config = ["--config", str(place.server.folder / "onetool.yaml")]
        done = cli("init", "--client", one["client"], "--user", *way, *config, cwd=place.server.folder, env=env)
        assert one["entry"] == done.stdout, one["client"]
        assert one["token"] == ("OWN_TOKEN" if way else None)
    told = place.ask("GET", "/tools/clients", who=bearer(token_of("call")))
    assert "claude-desktop" not in told.body.decode()
    assert str(place.server.folder) not in told.body.decode()
    assert place.ask("GET", "/tools/clients?url=http://a:b@127.0.0.1/mcp").status == 400


# Tokens


def test_an_admin_lists_and_revokes_but_only_the_owner_adds(place):
    admin = bearer(token_of("admin"))
    listed = place.ask("GET", "/tokens", who=admin).json
    assert (listed["canAdd"], listed["closes"]) == (False, False)
    assert {one["name"]: one["state"] for one in listed["tokens"]}["call"] == "valid"
    for who in (admin, bearer(OWN)):
        reply = place.ask("POST", "/tokens", {"name": "more", "role": "admin"}, who=who)
        assert (reply.status, reply.code) == (403, "owner_needed")
    made = place.ask("POST", "/tokens", {"name": "ci", "tools": ["time.*"], "rate": "600/min", "expires": "30d"})
    assert made.status == 200, made.body
    assert made.headers["cache-control"] == "no-store"
    token = made.json["token"]
    assert place.ask("GET", "/tools/tools", who=bearer(token)).status == 200
    assert place.ask("POST", "/tokens", {"name": "ci"}).code == "exists"
    taken = place.ask("POST", "/tokens", {"name": "call"})
    assert (taken.status, taken.json["detail"].endswith("onetool tokens add call --print.")) == (409, True), taken.body
    text = place.ask("GET", "/tokens", who=admin).body.decode()
    assert token not in text
    assert "sha256" not in text
    assert place.ask("DELETE", "/tokens/ci", who=admin).json == {"name": "ci", "remove": []}
    assert place.ask("GET", "/tools/tools", who=bearer(token)).status == 401
    assert place.ask("POST", "/tokens", {"name": "ci"}).code == "name_revoked"
    assert place.ask("POST", "/tokens", {"name": "ci", "again": True}).status == 200
    assert place.ask("DELETE", "/tokens/nobody").status == 404
    assert place.ask("DELETE", f"/tokens/{token}").status == 404  # a token in place of its name
    assert place.audit("DELETE /tokens/ci")[0]["who"] == "admin"
    assert place.audit("DELETE /tokens/ot_***")
    assert token not in json.dumps(lines_in(place.home)) + place.server.log_file.read_text()


@each(
    ("body", "pointer"),
    [
        ({"name": "(owner)"}, "/name"),
        ({"name": "http.token"}, "/name"),
        ({"name": "a b"}, "/name"),
        ({"name": "x", "role": "root"}, "/role"),
        ({"name": "x", "rate": "fast"}, "/rate"),
        ({"name": "x", "expires": "soon"}, "/expires"),
        ({"name": "x", "hash": "sha256:00"}, "/hash"),
        ({"name": "x", "tools": []}, "/tools"),
        ({"name": "x", "tools": [""]}, "/tools"),
    ],
)
def test_a_token_that_can_not_be_is_refused(place, body, pointer):
    reply = place.ask("POST", "/tokens", body)
    assert (reply.status, reply.json.get("pointer")) == (400, pointer), reply.body


def test_the_first_token_closes_the_server_and_the_owner_stays(fresh):
    listed = fresh.ask("GET", "/tokens").json
    assert (listed["canAdd"], listed["closes"], listed["tokens"]) == (True, True, [])
    assert fresh.ask("POST", "/tokens", {"name": "ci"}).status == 200
    assert fresh.ask("GET", "/tools/tools", who=[]).status == 401
    listed = fresh.ask("GET", "/tokens").json
    assert (listed["closes"], listed["noneLeft"]) == (False, False)
    assert fresh.ask("DELETE", "/tokens/ci").status == 200
    assert fresh.ask("GET", "/tools/tools", who=[]).status == 401
    listed = fresh.ask("GET", "/tokens").json
    assert (listed["tokens"][0]["state"], listed["noneLeft"]) == ("revoked", True)
    found = fresh.ask("GET", "/check").body.decode()
    assert "All tokens were revoked, so the server refuses every client" in found
