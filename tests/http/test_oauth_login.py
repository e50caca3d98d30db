"""A person's login for HTTP tools: a real authorization server, a real API, the command line, and a browser."""

import asyncio
import hashlib
import json
import re
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import httpx2
import psycopg
import pytest
from document_stores import KeptLogin, in_home
from helpers import cli, start, until, until_async
from mcp.shared.auth import OAuthClientInformationFull
from postgres import database_url, postgres
from sources.mcp_servers.authority import Authority, browser, visit

from onetool import App, ToolCall
from onetool.database.documents import Documents
from onetool.http.errors import AuthError
from onetool.http.login import StoredLogin, forget
from onetool.http.oauth import log_in
from onetool.interfaces.cli.bundles import _logins
from onetool.interfaces.cli.bundles.references import ToolReference
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.names import new_id

__all__ = ["database_url", "postgres"]


class Api:
    """Gives gold to those with a token of the authority, and says what it was sent."""

    def __init__(self, authority):
        api = self
        self.requests = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                api.requests.append(token)
                status = 200 if token in authority.accesses else 401
                body = json.dumps({"gold": 1, "sent": token}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Harness:
    def __init__(self, folder, authority, **settings):
        self.authority, self.api, self.elsewhere = authority, Api(authority), Api(authority)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        authority.clients["us"] = OAuthClientInformationFull(
            client_id="us",
            token_endpoint_auth_method="none",
            redirect_uris=[f"http://127.0.0.1:{self.port}/callback"],
            scope="read",
        )
        hosts = [urlsplit(authority.issuer).netloc, self.api.host, self.elsewhere.host]
        self.config = folder / "onetool.yaml"
        allowed = [{"host": one, "allowPrivate": True} for one in hosts]
        self.config.write_text(json.dumps({"allowedHosts": allowed, **settings}))
        self.app = App.open(self.config)
        self.bundle = self.new_bundle("vault", "peek", "look-again")

    def auth(self, **more):
        issuer = self.authority.issuer
        return {
            "type": "oauth2",
            "grant": "authorizationCode",
            "authorizationUrl": f"{issuer}/authorize",
            "tokenUrl": f"{issuer}/token",
            "clientId": "us",
            "scope": "read",
            "redirectPort": self.port,
            **more,
        }

    def tool(self, host=None, **auth):
        url = f"http://{host or self.api.host}/peek"
        return {"type": "http", "httpImpl": {"request": {"urlTemplate": url, "auth": self.auth(**auth)}}}

    def new_bundle(self, slug, *tools):
        id = new_id(time.time())
        self.app.bundles.put_bundle(id, {"slug": slug})
        for name in tools:
            self.app.bundles.put_tool(id, name, "1", self.tool())
        return id

    def call(self, name="vault.peek"):
        return asyncio.run(self.app.call(ToolCall("1", name, {})))

    def log_in(self, place="vault", browse=browser, **more):
        _, found = _logins(self.app, ToolReference(*place.split("/")))
        return [asyncio.run(log_in(one.login, "vault", one.origins, print, browse, **more)) for one in found]

    def file(self):
        (key,) = self.logins().keys()
        return KeptLogin(self.logins(), key)

    def logins(self):
        return in_home(self.app.config.home, "logins")

    def refreshes(self):
        return [kind for kind, _ in self.authority.requests].count("refresh_token")


@pytest.fixture
def harness(tmp_path):
    with Authority() as authority:
        harness = Harness(tmp_path, authority)
        yield harness
        harness.app.close()
        harness.api.close()
        harness.elsewhere.close()


def test_without_a_login_it_says_what_to_type(harness):
    error = harness.call("vault.look_again").error
    assert (error.reason, harness.api.requests) == ("denied", [])
    assert error.message == "it requires a login: onetool bundles login vault/look-again"


def test_a_person_logs_in_on_the_command_line(harness):
    place = ["vault/peek", "--config", str(harness.config)]
    process = start("bundles", "login", *place, stderr=subprocess.PIPE, text=True)
    lines = []
    while not (page := re.search(r"http://\S+/authorize\S+", "".join(lines))):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    asked = parse_qs(urlsplit(page[0]).query)
    assert (asked["code_challenge_method"], asked["scope"], asked["client_id"]) == (["S256"], ["read"], ["us"])
    assert f"The token of this login will be sent to http://{harness.api.host}" in lines[0]
    assert visit(page[0])[0] == 200
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert "Logged in for vault (read). It is for look-again, peek." in rest
    assert not any(secret in rest for secret in harness.authority.secrets)

    # An app that was open before sees it, for all tools that share it. Its token is masked.
    for name in ("vault.peek", "vault.look_again"):
        result = harness.call(name)
        assert result.data == {"gold": 1, "sent": "***"}
    assert (harness.app.config.home / "state.db").stat().st_mode & 0o777 == 0o600

    again = cli("bundles", "logout", *place, cwd=harness.config.parent)
    assert again.returncode == 0
    assert "forgotten" in again.stderr
    assert "onetool bundles login vault/peek" in harness.call().error.message


def test_what_is_kept_of_a_login_is_not_shown():
    assert repr(StoredLogin(url="u", key="k", tokens={"access_token": "hidden"})) == "StoredLogin(***)"


@pytest.mark.parametrize("change", ["edited", "removed", "secret"])
def test_a_bundle_forgets_also_the_logins_that_no_tool_needs_any_more(harness, change):
    harness.log_in()
    other = f"bundle.{harness.bundle}-x-{'0' * 16}"  # of a bundle with a longer id
    harness.logins().write(other, b"{}")
    for slug in ("peek", "look-again"):
        harness.app.bundles.delete_tool(harness.bundle, slug, "1")
    if change != "removed":
        auth = {"scope": "other"} if change == "edited" else {"clientId": "${NOT_SET}"}
        harness.app.bundles.put_tool(harness.bundle, "peek", "2", harness.tool(**auth))
    command = ["bundles", "logout", "vault", "--config", str(harness.config)]
    done = cli(*command, cwd=harness.config.parent)
    assert (done.returncode, done.stderr) == (0, "Deleted the login for vault.\n")
    assert harness.logins().keys() == [other]
    again = cli(*command, cwd=harness.config.parent)
    assert again.returncode == 1
    assert "There is no login for vault" in again.stderr


def test_a_token_that_has_ended_is_refreshed_once_for_all_who_wait(harness):
    harness.log_in()
    harness.authority.expire_everything()
    harness.authority.slow = 0.1

    async def crowd():
        calls = [harness.app.call(ToolCall(str(number), "vault.peek", {})) for number in range(5)]
        return await asyncio.gather(*calls)

    assert [result.error for result in asyncio.run(crowd())] == [None] * 5
    assert harness.refreshes() == 1
    harness.authority.slow = 0
    harness.file().write_text(json.dumps(json.loads(harness.file().read_text()) | {"expires_at": time.time() + 5}))
    assert harness.call().ok  # by the clock, before anybody refuses it
    assert harness.refreshes() == 2


@pytest.mark.parametrize("ends", ["cancelled", "timeout"])
def test_a_refresh_is_kept_also_when_its_call_has_ended(harness, ends, monkeypatch):
    harness.log_in()
    harness.authority.expire_everything()
    harness.authority.slow = 1.0
    fsyncs = []
    write = Documents.write
    monkeypatch.setattr(Documents, "write", lambda *args: (fsyncs.append(threading.current_thread()), write(*args))[1])

    async def given_up():
        limit = 0.5 if ends == "timeout" else None
        call = asyncio.create_task(harness.app.call(ToolCall("1", "vault.peek", {}, timeout=limit)))
        await until_async(lambda: harness.refreshes() or call.done())
        if ends == "cancelled":
            call.cancel()
        await asyncio.wait([call])
        assert call.cancelled() or not call.result().ok
        harness.authority.slow = 0
        return await harness.app.call(ToolCall("2", "vault.peek", {}))

    assert asyncio.run(given_up()).ok
    assert harness.refreshes() == 1
    assert threading.main_thread() not in fsyncs, "the event loop waits for no disk"


def test_a_login_that_was_taken_back_wants_a_new_one(harness):
    harness.log_in()
    harness.authority.expire_everything()
    harness.authority.refreshes.clear()
    error = harness.call().error
    assert "its login has ended: onetool bundles login vault/peek" in error.message
    assert "onetool bundles login" in harness.call().error.message
    assert harness.log_in("vault/peek") == ["read"]
    assert harness.call().ok


def test_an_authorization_server_in_trouble_costs_no_login(harness):
    harness.log_in()
    harness.authority.expire_everything()
    harness.authority.fault = (503, {"error": "temporarily_unavailable"})
    assert "answered 503" in harness.call().error.message
    harness.authority.fault = None
    assert harness.call().ok


def test_another_bundle_does_not_get_it(harness):
    harness.log_in()
    harness.new_bundle("thief", "peek")
    assert "onetool bundles login thief/peek" in harness.call("thief.peek").error.message
    assert harness.api.requests == []


def test_it_goes_to_the_hosts_of_its_login_alone(harness):
    harness.log_in()
    harness.app.bundles.put_tool(harness.bundle, "send-away", "1", harness.tool(harness.elsewhere.host))
    error = harness.call("vault.send_away").error
    assert f"the login is only for requests to http://{harness.api.host}" in error.message
    assert harness.elsewhere.requests == []
    harness.log_in("vault/send-away")  # whoever means it logs in again
    assert harness.call("vault.send_away").ok
    assert harness.call().ok


def test_another_token_url_or_client_is_another_login(harness):
    harness.log_in()
    for number, other in enumerate(
        ({"tokenUrl": f"{harness.authority.issuer}/token?x"}, {"clientId": "them"}, {"scope": "read write"})
    ):
        harness.app.bundles.put_tool(harness.bundle, f"other-{number}", "1", harness.tool(**other))
        assert "it requires a login" in harness.call(f"vault.other_{number}").error.message


def answering(more):
    """A browser whose answer says something else, too."""

    def browse(url):
        def come_back():
            page = httpx2.get(url, follow_redirects=False)
            httpx2.get(f"{page.headers['location']}{more}")

        threading.Thread(target=come_back, daemon=True).start()

    return browse


@pytest.mark.parametrize("issuer", ["", "https://login.example.com"])
def test_an_answer_of_another_issuer_is_refused(harness, issuer):
    harness.app.bundles.put_tool(harness.bundle, "named", "1", harness.tool(issuer=issuer, scope="read"))
    said = "https%3A%2F%2Fevil.example.com"
    with pytest.raises(AuthError, match=r"is from https://evil\.example\.com, not from"):
        harness.log_in("vault/named", answering(f"&iss={said}"))
    assert [kind for kind, _ in harness.authority.requests] == []
    assert harness.logins().keys() == []


def test_an_answer_of_the_right_issuer_is_taken(harness):
    assert harness.log_in(browse=answering(f"&iss={harness.authority.issuer}")) == ["read"]


def test_the_address_of_a_login_page_chooses_neither_state_nor_challenge(harness):
    page = f"{harness.authority.issuer}/authorize?state=known&code_challenge=c&redirect_uri=http://x&prompt=a%20b"
    harness.app.bundles.put_tool(harness.bundle, "fixed", "1", harness.tool(authorizationUrl=page))
    pages = []

    def browse(url):
        pages.append(parse_qs(urlsplit(url).query))
        browser(url)

    assert harness.log_in("vault/fixed", browse) == ["read"]
    asked = pages[0]
    assert (asked["prompt"], asked["redirect_uri"]) == (["a b"], [f"http://127.0.0.1:{harness.port}/callback"])
    assert {len(asked[key]) for key in ("state", "code_challenge")} == {1}
    assert len(asked["state"][0]) > 40


def test_who_says_no_is_told_so_and_the_last_login_stays(harness):
    harness.log_in()
    before = harness.file().read_bytes()
    harness.authority.denies = True
    with pytest.raises(AuthError, match=r"the login to vault was refused \(access_denied: the user said no\)"):
        harness.log_in()
    with pytest.raises(AuthError, match="the login to vault was not finished within 0 s"):
        harness.log_in(browse=lambda url: None, seconds=0.2)
    assert harness.file().read_bytes() == before


def test_the_port_may_be_taken(harness):
    with socket.create_server(("127.0.0.1", harness.port)):
        done = cli("bundles", "login", "vault", "--config", str(harness.config), cwd=harness.config.parent)
    assert done.returncode == 1
    assert f"can't listen on 127.0.0.1:{harness.port} for the redirect of the login" in done.stderr


def test_a_login_of_earlier_versions_is_used_and_refreshed(harness):
    """The document as it has always been: its name, its key and its tokens."""
    issuer = harness.authority.issuer
    about = [harness.bundle, f"{issuer}/authorize", f"{issuer}/token", "", "us", "read"]
    key = hashlib.sha256(json.dumps(about, separators=(",", ":")).encode()).hexdigest()
    granted = harness.authority._grant("us", ["read"], None)
    tokens = {"access_token": granted.access_token, "refresh_token": granted.refresh_token, "scope": "read"}
    kept = {"url": f"{issuer}/token", "key": key, "tokens": tokens, "origins": [f"http://{harness.api.host}"]}
    harness.logins().write(f"bundle.{harness.bundle}-{key[:16]}", json.dumps(kept).encode())
    assert harness.call().ok
    harness.authority.expire_everything()
    assert harness.call().ok
    assert harness.refreshes() == 1


def test_a_bundle_without_such_tools_has_nothing_to_log_in_to(harness):
    harness.new_bundle("plain")
    done = cli("bundles", "login", "plain", "--config", str(harness.config), cwd=harness.config.parent)
    assert done.returncode == 1
    assert "plain needs no login" in done.stderr


@pytest.mark.parametrize(
    ("auth", "pointer", "words"),
    [
        ({"authorizationUrl": ""}, "/httpImpl/request/auth/authorizationUrl", "needs authorizationUrl"),
        ({"authorizationUrl": "http://login.example.com/a"}, "/httpImpl/request/auth/authorizationUrl", "https"),
        ({"tokenUrl": "http://login.example.com/t"}, "/httpImpl/request/auth/tokenUrl", "not encrypted"),
        ({"tokenUrl": "https://${HOST}/t"}, "/httpImpl/request/auth/tokenUrl", "placeholders"),
        ({"redirectPort": 0}, "/httpImpl/request/auth/redirectPort", "redirectPort"),
        ({"clientId": "${who}"}, "/httpImpl/request/auth", "argument"),
    ],
)
def test_what_can_never_be_a_login(harness, auth, pointer, words):
    tool = harness.tool(**auth) | {"argSchema": {"type": "object", "properties": {"who": {"type": "string"}}}}
    with pytest.raises(InvalidError, match=words) as caught:
        harness.app.bundles.put_tool(harness.bundle, "wrong", "1", tool)
    assert caught.value.pointer == pointer


def test_the_host_of_a_tool_with_a_login_is_written_out(harness):
    tool = harness.tool(host="${TENANT}.example.com")
    with pytest.raises(InvalidError, match="the host can't have placeholders"):
        harness.app.bundles.put_tool(harness.bundle, "wrong", "1", tool)


# Replicas


@pytest.fixture
def replicas(tmp_path, database_url):
    """The harness, and another app on the same database, with a folder of its own."""
    cluster = {"address": "127.0.0.1:8765", "key": "a key that is long enough for everybody"}
    (tmp_path / "one").mkdir(mode=0o700)
    (tmp_path / "two").mkdir(mode=0o700)
    with Authority() as authority:
        harness = Harness(tmp_path / "one", authority, database=database_url, cluster=cluster)
        (tmp_path / "two" / "onetool.yaml").write_text(harness.config.read_text())
        with App.open(tmp_path / "two" / "onetool.yaml") as other:
            yield harness, other
        harness.app.close()
        harness.api.close()
        harness.elsewhere.close()


def test_replicas_refresh_a_rotating_token_once_and_all_go_on(replicas, database_url, tmp_path):
    harness, other = replicas
    harness.log_in()
    assert asyncio.run(other.call(ToolCall("1", "vault.peek", {}))).ok

    async def crowd(app):
        return await asyncio.gather(*(app.call(ToolCall(str(number), "vault.peek", {})) for number in range(3)))

    for round in (1, 2, 3):  # each refresh token is good for one use
        harness.authority.expire_everything()
        harness.authority.slow = 0.1
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda app: asyncio.run(crowd(app)), (harness.app, other)))
        assert [one.error for some in results for one in some] == [None] * 6
        assert harness.refreshes() == round
    with psycopg.connect(database_url) as connection:
        ((body,),) = connection.execute("SELECT body FROM documents WHERE kind = 'logins'").fetchall()
    assert not any(secret.encode() in body for secret in harness.authority.secrets)
    assert not list(tmp_path.rglob("state.db"))
    logins = harness.app.runtime.documents("logins")
    assert [forget(logins, name) for name in logins.keys()] == [True]  # noqa: SIM118 - no dict
    until(lambda: not asyncio.run(other.call(ToolCall("1", "vault.peek", {}))).ok)
