"""A person's login for HTTP tools: a real authorization server, a real API, the command line, and a browser."""

import asyncio
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
from helpers import cli, start, until, until_async
from mcp.shared.auth import OAuthClientInformationFull
from postgres import database_url, postgres
from sources.mcp_servers.authority import Authority, browser, visit

from onetool import App, ToolCall
from onetool.database.documents import FileDocuments
from onetool.http.errors import AuthError
from onetool.http.login import StoredLogin, forget
from onetool.http.oauth_login import log_in
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


class Stage:
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
        (file,) = self.app.config.home.glob("servers/bundle.*.auth.json")
        return file

    def refreshes(self):
        return [kind for kind, _ in self.authority.requests].count("refresh_token")


@pytest.fixture
def stage(tmp_path):
    with Authority() as authority:
        stage = Stage(tmp_path, authority)
        yield stage
        stage.app.close()
        stage.api.close()
        stage.elsewhere.close()


def test_without_a_login_it_says_what_to_type(stage):
    error = stage.call("vault.look_again").error
    assert (error.reason, stage.api.requests) == ("denied", [])
    assert error.message == "it needs a login: onetool bundles login vault/look-again"


def test_a_person_logs_in_on_the_command_line(stage):
    place = ["vault/peek", "--config", str(stage.config)]
    process = start("bundles", "login", *place, stderr=subprocess.PIPE, text=True)
    lines = []
    while not (page := re.search(r"http://\S+/authorize\S+", "".join(lines))):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    asked = parse_qs(urlsplit(page[0]).query)
    assert (asked["code_challenge_method"], asked["scope"], asked["client_id"]) == (["S256"], ["read"], ["us"])
    assert f"Whoever answers at http://{stage.api.host} will get the token" in lines[0]
    assert visit(page[0])[0] == 200
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert "Logged in for vault (read). It is for look-again, peek." in rest
    assert not any(secret in rest for secret in stage.authority.secrets)

    # An app that was open before sees it, for all tools that share it. Its token is masked.
    for name in ("vault.peek", "vault.look_again"):
        result = stage.call(name)
        assert result.data == {"gold": 1, "sent": "***"}
    assert stage.file().stat().st_mode & 0o777 == 0o600
    assert stage.file().parent.stat().st_mode & 0o777 == 0o700

    again = cli("bundles", "logout", *place, cwd=stage.config.parent)
    assert again.returncode == 0
    assert "forgotten" in again.stderr
    assert "onetool bundles login vault/peek" in stage.call().error.message


def test_what_is_kept_of_a_login_is_not_shown():
    assert repr(StoredLogin(url="u", key="k", tokens={"access_token": "hidden"})) == "StoredLogin(***)"


@pytest.mark.parametrize("change", ["edited", "removed", "secret"])
def test_a_bundle_forgets_also_the_logins_that_no_tool_needs_any_more(stage, change):
    stage.log_in()
    other = stage.file().with_name(f"bundle.{stage.bundle}-x-{'0' * 16}.auth.json")  # of a bundle with a longer id
    other.write_text("{}")
    for slug in ("peek", "look-again"):
        stage.app.bundles.delete_tool(stage.bundle, slug, "1")
    if change != "removed":
        auth = {"scope": "other"} if change == "edited" else {"clientId": "${NOT_SET}"}
        stage.app.bundles.put_tool(stage.bundle, "peek", "2", stage.tool(**auth))
    command = ["bundles", "logout", "vault", "--config", str(stage.config)]
    done = cli(*command, cwd=stage.config.parent)
    assert (done.returncode, done.stderr) == (0, "The login for vault is forgotten.\n")
    assert stage.file() == other
    again = cli(*command, cwd=stage.config.parent)
    assert again.returncode == 1
    assert "there is no login for vault" in again.stderr


def test_a_token_that_has_ended_is_refreshed_once_for_all_who_wait(stage):
    stage.log_in()
    stage.authority.expire_everything()
    stage.authority.slow = 0.1

    async def crowd():
        calls = [stage.app.call(ToolCall(str(number), "vault.peek", {})) for number in range(5)]
        return await asyncio.gather(*calls)

    assert all(result.ok for result in asyncio.run(crowd()))
    assert stage.refreshes() == 1
    stage.authority.slow = 0
    stage.file().write_text(json.dumps(json.loads(stage.file().read_text()) | {"expires_at": time.time() + 5}))
    assert stage.call().ok  # by the clock, before anybody refuses it
    assert stage.refreshes() == 2


@pytest.mark.parametrize("ends", ["cancelled", "timeout"])
def test_a_refresh_is_kept_also_when_its_call_has_ended(stage, ends, monkeypatch):
    stage.log_in()
    stage.authority.expire_everything()
    stage.authority.slow = 1.0
    fsyncs = []
    write = FileDocuments.write
    monkeypatch.setattr(
        FileDocuments, "write", lambda *args: (fsyncs.append(threading.current_thread()), write(*args))[1]
    )

    async def given_up():
        limit = 0.5 if ends == "timeout" else None
        call = asyncio.create_task(stage.app.call(ToolCall("1", "vault.peek", {}, timeout=limit)))
        await until_async(lambda: stage.refreshes() or call.done())
        if ends == "cancelled":
            call.cancel()
        await asyncio.wait([call])
        assert call.cancelled() or not call.result().ok
        stage.authority.slow = 0
        return await stage.app.call(ToolCall("2", "vault.peek", {}))

    assert asyncio.run(given_up()).ok
    assert stage.refreshes() == 1
    assert threading.main_thread() not in fsyncs, "the event loop waits for no disk"


def test_a_login_that_was_taken_back_wants_a_new_one(stage):
    stage.log_in()
    stage.authority.expire_everything()
    stage.authority.refreshes.clear()
    error = stage.call().error
    assert "its login has ended: onetool bundles login vault/peek" in error.message
    assert "onetool bundles login" in stage.call().error.message
    assert stage.log_in("vault/peek") == ["read"]
    assert stage.call().ok


def test_an_authorization_server_in_trouble_costs_no_login(stage):
    stage.log_in()
    stage.authority.expire_everything()
    stage.authority.fault = (503, {"error": "temporarily_unavailable"})
    assert "answered 503" in stage.call().error.message
    stage.authority.fault = None
    assert stage.call().ok


def test_another_bundle_does_not_get_it(stage):
    stage.log_in()
    stage.new_bundle("thief", "peek")
    assert "onetool bundles login thief/peek" in stage.call("thief.peek").error.message
    assert stage.api.requests == []


def test_it_goes_to_the_hosts_of_its_login_alone(stage):
    stage.log_in()
    stage.app.bundles.put_tool(stage.bundle, "send-away", "1", stage.tool(stage.elsewhere.host))
    error = stage.call("vault.send_away").error
    assert f"the login is only for requests to http://{stage.api.host}" in error.message
    assert stage.elsewhere.requests == []
    stage.log_in("vault/send-away")  # whoever means it logs in again
    assert stage.call("vault.send_away").ok
    assert stage.call().ok


def test_another_token_url_or_client_is_another_login(stage):
    stage.log_in()
    for number, other in enumerate(
        ({"tokenUrl": f"{stage.authority.issuer}/token?x"}, {"clientId": "them"}, {"scope": "read write"})
    ):
        stage.app.bundles.put_tool(stage.bundle, f"other-{number}", "1", stage.tool(**other))
        assert "it needs a login" in stage.call(f"vault.other_{number}").error.message


def answering(more):
    """A browser whose answer says something else, too."""

    def browse(url):
        def come_back():
            page = httpx2.get(url, follow_redirects=False)
            httpx2.get(f"{page.headers['location']}{more}")

        threading.Thread(target=come_back, daemon=True).start()

    return browse


@pytest.mark.parametrize("issuer", ["", "https://login.example.com"])
def test_an_answer_of_another_issuer_is_refused(stage, issuer):
    stage.app.bundles.put_tool(stage.bundle, "named", "1", stage.tool(issuer=issuer, scope="read"))
    said = "https%3A%2F%2Fevil.example.com"
    with pytest.raises(AuthError, match=r"is of https://evil\.example\.com, and not of"):
        stage.log_in("vault/named", answering(f"&iss={said}"))
    assert [kind for kind, _ in stage.authority.requests] == []
    assert not list(stage.app.config.home.glob("servers/bundle.*.auth.json"))


def test_an_answer_of_the_right_issuer_is_taken(stage):
    assert stage.log_in(browse=answering(f"&iss={stage.authority.issuer}")) == ["read"]


def test_who_says_no_is_told_so_and_the_last_login_stays(stage):
    stage.log_in()
    before = stage.file().read_bytes()
    stage.authority.denies = True
    with pytest.raises(AuthError, match=r"the login was refused \(access_denied: the user said no\)"):
        stage.log_in()
    with pytest.raises(AuthError, match="nobody has finished the login for vault within 0 s"):
        stage.log_in(browse=lambda url: None, patience=0.2)
    assert stage.file().read_bytes() == before


def test_a_bundle_without_such_tools_has_nothing_to_log_in_to(stage):
    stage.new_bundle("plain")
    done = cli("bundles", "login", "plain", "--config", str(stage.config), cwd=stage.config.parent)
    assert done.returncode == 1
    assert "plain needs no login" in done.stderr


@pytest.mark.parametrize(
    ("auth", "pointer", "words"),
    [
        ({"authorizationUrl": ""}, "/httpImpl/request/auth/authorizationUrl", "needs authorizationUrl"),
        ({"authorizationUrl": "http://login.example.com/a"}, "/httpImpl/request/auth/authorizationUrl", "https"),
        ({"tokenUrl": "http://login.example.com/t"}, "/httpImpl/request/auth/tokenUrl", "not encrypted"),
        ({"tokenUrl": "https://${HOST}/t"}, "/httpImpl/request/auth/tokenUrl", "written out"),
        ({"redirectPort": 0}, "/httpImpl/request/auth/redirectPort", "redirectPort"),
        ({"clientId": "${who}"}, "/httpImpl/request/auth", "argument"),
    ],
)
def test_what_can_never_be_a_login(stage, auth, pointer, words):
    tool = stage.tool(**auth) | {"argSchema": {"type": "object", "properties": {"who": {"type": "string"}}}}
    with pytest.raises(InvalidError, match=words) as caught:
        stage.app.bundles.put_tool(stage.bundle, "wrong", "1", tool)
    assert caught.value.pointer == pointer


def test_the_host_of_a_tool_with_a_login_is_written_out(stage):
    tool = stage.tool(host="${TENANT}.example.com")
    with pytest.raises(InvalidError, match="the host has to be written out"):
        stage.app.bundles.put_tool(stage.bundle, "wrong", "1", tool)


# Replicas


@pytest.fixture
def replicas(tmp_path, database_url):
    """The stage, and another app on the same database, with a folder of its own."""
    cluster = {"address": "127.0.0.1:8765", "key": "a key that is long enough for everybody"}
    (tmp_path / "one").mkdir(mode=0o700)
    (tmp_path / "two").mkdir(mode=0o700)
    with Authority() as authority:
        stage = Stage(tmp_path / "one", authority, database=database_url, cluster=cluster)
        (tmp_path / "two" / "onetool.yaml").write_text(stage.config.read_text())
        with App.open(tmp_path / "two" / "onetool.yaml") as other:
            yield stage, other
        stage.app.close()
        stage.api.close()
        stage.elsewhere.close()


def test_replicas_refresh_a_rotating_token_once_and_all_go_on(replicas, database_url, tmp_path):
    stage, other = replicas
    stage.log_in()
    assert asyncio.run(other.call(ToolCall("1", "vault.peek", {}))).ok

    async def crowd(app):
        return await asyncio.gather(*(app.call(ToolCall(str(number), "vault.peek", {})) for number in range(3)))

    for round in (1, 2, 3):  # each refresh token is good for one use
        stage.authority.expire_everything()
        stage.authority.slow = 0.1
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda app: asyncio.run(crowd(app)), (stage.app, other)))
        assert [one.error for some in results for one in some] == [None] * 6
        assert stage.refreshes() == round
    with psycopg.connect(database_url) as connection:
        ((body,),) = connection.execute("SELECT body FROM documents WHERE kind = 'logins'").fetchall()
    assert not any(secret.encode() in body for secret in stage.authority.secrets)
    assert not list(tmp_path.rglob("*.auth.json"))
    logins = stage.app.runtime.documents("logins")
    assert [forget(logins, name) for name in logins.keys()] == [True]  # noqa: SIM118 - no dict
    until(lambda: not asyncio.run(other.call(ToolCall("1", "vault.peek", {}))).ok)
