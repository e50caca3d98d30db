"""Logging in to MCP servers: a real authorization server, a real MCP server, a browser that is an HTTP client."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from time import time
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from document_stores import KeptLogin, in_home
from helpers import start, until
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from sources.mcp_servers.authority import PROGRAM, Authority, browser, stored, visit

from onetool.http.login import forget
from onetool.sources.mcp_servers.oauth import http_auth, login
from onetool.sources.mcp_servers.upstream_calls import AuthError, LoginRequiredError, auth_error_in, watching_auth

HERE = Path(__file__).parent


@pytest.fixture
def authority():
    with Authority() as authority:
        yield authority


@pytest.fixture
def folder(tmp_path):
    """Where logins are kept, as this process has them."""
    return in_home(tmp_path / "home", "logins")


@asynccontextmanager
async def connected(url, auth):
    async with (
        httpx2.AsyncClient(auth=auth, timeout=10) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def peek(authority, folder, auth="oauth", url=None):
    """One call in the background; what went wrong is raised as the lead of a connection would find it."""
    url = url or authority.url
    try:
        async with asyncio.timeout(20), connected(url, http_auth("vault", url, auth, folder)) as client:
            result = await client.call_tool("peek", {})
            return result.content[0].text
    except* AuthError as group:
        trouble = auth_error_in(group)
    raise trouble


def log_in(authority, folder, auth="oauth", browse=browser, said=None, **more):
    say = (said if said is not None else []).append
    return asyncio.run(login("vault", authority.url, auth, folder, say, browse=browse, **more))


def file_of(folder):
    return KeptLogin(folder, "vault")


def lock_of(folder):
    return folder._database.lock("logins/vault")._path


class TestLogin:
    def test_a_person_logs_in_and_calls_work(self, authority, folder):
        said = []
        assert log_in(authority, folder, said=said) == "read"
        assert f"{authority.issuer}/authorize?" in "".join(said)
        assert asyncio.run(peek(authority, folder)) == "gold"

    def test_what_is_kept_is_for_its_owner_alone(self, authority, folder):
        log_in(authority, folder)
        home = Path(folder.place).parent
        assert home.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in home.iterdir()} == {0o600}

    def test_the_page_at_the_end_is_friendly_and_safe(self, authority, folder):
        pages = []
        log_in(authority, folder, browse=lambda url: run_thread(lambda: pages.append(visit(url))))
        until(lambda: pages)
        status, headers, text = pages[0]
        assert status == 200
        assert "Return to the terminal" in text
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert not any(secret in text for secret in authority.secrets)

    def test_nothing_listens_afterwards(self, authority, folder):
        urls = []
        log_in(authority, folder, browse=lambda url: (urls.append(url), browser(url)))
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(redirect_of(urls[0]))

    def test_the_port_can_be_fixed_and_may_be_taken(self, authority, folder):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(AuthError, match=rf"can't listen on 127.0.0.1:{port}"):
                log_in(authority, folder, {"type": "oauth", "redirect_port": port})
        urls = []
        log_in(
            authority,
            folder,
            {"type": "oauth", "redirect_port": str(port)},
            browse=lambda url: (urls.append(url), browser(url)),
        )
        assert redirect_of(urls[0]) == f"http://127.0.0.1:{port}/callback"

    def test_an_answer_that_does_not_know_the_state_counts_for_nothing(self, authority, folder):
        answers = []

        def browse(url):
            def first_a_stranger():
                back = redirect_of(url)
                for query in ("code=stolen&state=guessed", "code=stolen", "error=access_denied&state=guessed", ""):
                    answers.append(httpx2.get(f"{back}?{query}").status_code)
                answers.append(httpx2.post(back).status_code)
                answers.append(httpx2.get(f"{back}/else").status_code)
                visit(url)

            run_thread(first_a_stranger)

        assert log_in(authority, folder, browse=browse) == "read"
        assert answers == [400, 400, 400, 400, 404, 404]
        assert all(form.get("code") != "stolen" for _, form in authority.requests)

    def test_who_says_no_is_told_so(self, authority, folder):
        authority.denies = True
        with pytest.raises(AuthError, match=r"the login to vault was refused \(access_denied: the user said no\)"):
            log_in(authority, folder)
        assert not file_of(folder).exists()

    def test_who_says_no_can_not_change_how_it_is_shown(self, authority, folder):
        def browse(url):
            state = parse_qs(urlsplit(url).query)["state"][0]
            said = {"error": "no", "error_description": "\u202eevil\x1b[31m\u200b\n" + "x" * 999, "state": state}
            run_thread(lambda: httpx2.get(redirect_of(url), params=said))

        with pytest.raises(AuthError, match=r"refused \(no:  evil \[31m") as caught:
            log_in(authority, folder, browse=browse)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 400

    def test_nobody_comes(self, authority, folder):
        urls = []
        with pytest.raises(AuthError, match="the login to vault was not finished within 1 s"):
            log_in(authority, folder, browse=urls.append, seconds=1.4)  # of which a busy machine needs some
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(redirect_of(urls[0]))

    def test_a_failed_login_leaves_the_last_one_as_it_was(self, authority, folder):
        log_in(authority, folder)
        before = file_of(folder).read_bytes()
        authority.denies = True
        with pytest.raises(AuthError):
            log_in(authority, folder)
        assert file_of(folder).read_bytes() == before
        assert asyncio.run(peek(authority, folder)) == "gold"

    def test_the_scopes_of_the_config_are_asked_for(self, authority, folder):
        assert log_in(authority, folder, {"type": "oauth", "scopes": "read write"}) == "read write"
        assert authority.scopes_asked == [["read", "write"]]

    def test_a_client_that_is_known_already_needs_no_registration(self, authority, folder):
        from mcp.shared.auth import OAuthClientInformationFull

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        authority.clients["known"] = OAuthClientInformationFull(
            client_id="known",
            client_secret="of-the-config",
            token_endpoint_auth_method="client_secret_basic",
            redirect_uris=[f"http://127.0.0.1:{port}/callback"],
            scope="read",
        )
        auth = {"type": "oauth", "client_id": "known", "client_secret": "of-the-config", "redirect_port": port}
        log_in(authority, folder, auth)
        assert list(authority.clients) == ["known"]
        assert "of-the-config" not in file_of(folder).read_text()
        authority.expire_everything()
        assert asyncio.run(peek(authority, folder, auth)) == "gold"
        # With another client these tokens are not ours.
        with pytest.raises(LoginRequiredError):
            asyncio.run(peek(authority, folder, "oauth"))

    def test_a_server_that_offers_no_login(self, http_404, folder):
        with pytest.raises(AuthError, match="it offers no login"):
            asyncio.run(login("plain", http_404, None, folder, lambda text: None))

    def test_a_server_that_is_not_there(self, folder):
        with pytest.raises(AuthError, match="the server gone can't be reached for a login"):
            asyncio.run(login("gone", "http://127.0.0.1:9/mcp", "oauth", folder, lambda text: None))

    def test_there_is_nothing_to_log_in_to_with_a_token(self, authority, folder):
        with pytest.raises(AuthError, match="has a token in its `auth`"):
            log_in(authority, folder, "a-token")

    @pytest.mark.long
    def test_ctrl_c_ends_it_cleanly(self, authority, folder):
        code = f"""
import asyncio
from pathlib import Path
from onetool.database.documents import Documents
from onetool.database.sqlite import SqliteDatabase
from onetool.sources.mcp_servers.oauth import login
logins = Documents(SqliteDatabase(Path({folder.place!r})), "logins")
show = lambda url: print(url, flush=True)
try:
    asyncio.run(login("vault", {authority.url!r}, "oauth", logins, lambda text: None, browse=show))
except KeyboardInterrupt:
    print("left")
"""
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            page = child.stdout.readline().decode().strip()
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=20)
        assert (out.decode().strip(), err, child.returncode) == ("left", b"", 0)
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(redirect_of(page))

    def test_logging_out_forgets(self, authority, folder):
        log_in(authority, folder)
        assert forget(folder, "vault")
        assert not forget(folder, "vault")
        with pytest.raises(LoginRequiredError, match="the server vault requires a login: onetool servers login vault"):
            asyncio.run(peek(authority, folder))


class TestBackground:
    def test_without_a_login_it_says_so_at_once(self, authority, folder):
        with pytest.raises(LoginRequiredError) as caught:
            asyncio.run(peek(authority, folder))
        assert str(caught.value) == "the server vault requires a login: onetool servers login vault"
        assert authority.requests == []
        assert not Path(folder.place).exists()

    def test_a_login_is_offered_where_the_config_says_nothing(self, authority, folder):
        with pytest.raises(LoginRequiredError, match="requires a login: onetool"):
            asyncio.run(peek(authority, folder, auth=None))
        log_in(authority, folder, auth=None)
        assert asyncio.run(peek(authority, folder, auth=None)) == "gold"

    def test_spent_tokens_are_refreshed_and_kept(self, authority, folder):
        log_in(authority, folder)
        before = stored(file_of(folder))
        assert before["expires_at"] == pytest.approx(time() + 3600, abs=30)
        file_of(folder).write_text(json.dumps({**before, "expires_at": time() - 1}))
        assert asyncio.run(peek(authority, folder)) == "gold"
        after = stored(file_of(folder))
        assert after["tokens"]["refresh_token"] != before["tokens"]["refresh_token"]
        assert [kind for kind, _ in authority.requests] == ["authorization_code", "refresh_token"]
        assert authority.requests[1][1]["resource"] == authority.url  # as the standard wants it
        assert asyncio.run(peek(authority, folder)) == "gold"
        assert len(authority.requests) == 2

    def test_a_login_of_earlier_versions_is_used_and_refreshed(self, authority, folder):
        """The document as it has always been: its name, its key and its tokens."""
        log_in(authority, folder)  # for a client that the authority knows
        client = stored(file_of(folder))["client"]
        granted = authority._grant(client["client_id"], ["read"], authority.url)
        forget(folder, "vault")
        issuer, algorithms = authority.issuer, {"code_challenge_methods_supported": ["S256"]}
        server = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
        }
        tokens = {"access_token": granted.access_token, "token_type": "Bearer", "refresh_token": granted.refresh_token}
        about = {"url": authority.url, "key": "oauth ", "client": client, "tokens": tokens, "expires_at": time() + 3600}
        kept = {**about, "authorization_server": {**server, **algorithms, "response_types_supported": ["code"]}}
        file_of(folder).write_text(json.dumps(kept))
        assert asyncio.run(peek(authority, folder)) == "gold"
        authority.expire_everything()
        assert asyncio.run(peek(authority, folder)) == "gold"
        assert [kind for kind, _ in authority.requests] == ["authorization_code", "refresh_token"]

    def test_tokens_that_are_refused_before_their_time_are_refreshed(self, authority, folder):
        log_in(authority, folder)
        authority.expire_everything()
        assert asyncio.run(peek(authority, folder)) == "gold"

    @pytest.mark.parametrize("lifetime", [None, 0])
    def test_tokens_that_never_say_when_they_end(self, authority, folder, lifetime):
        authority.lifetime = lifetime
        log_in(authority, folder)
        assert asyncio.run(peek(authority, folder)) == "gold"
        authority.expire_everything()
        assert asyncio.run(peek(authority, folder)) == "gold"

    def test_a_refresh_token_that_is_over_needs_a_login(self, authority, folder):
        log_in(authority, folder)
        authority.expire_everything()
        authority.refreshes.clear()
        with pytest.raises(
            LoginRequiredError, match="requires a new login, the last one has expired: onetool servers login vault"
        ):
            asyncio.run(peek(authority, folder))
        asked = len(authority.requests)
        with pytest.raises(LoginRequiredError):
            asyncio.run(peek(authority, folder))
        assert len(authority.requests) == asked  # what is over is not tried again
        log_in(authority, folder)
        assert asyncio.run(peek(authority, folder)) == "gold"

    @pytest.mark.parametrize("fault", [(503, {}), (400, {"error": "temporarily_unavailable"}), (200, {"nonsense": 1})])
    def test_an_authorization_server_in_trouble_costs_no_login(self, authority, folder, fault):
        log_in(authority, folder)
        authority.expire_everything()
        authority.fault = fault
        with pytest.raises(AuthError, match="could not be refreshed") as caught:
            asyncio.run(peek(authority, folder))
        assert not isinstance(caught.value, LoginRequiredError)
        authority.fault = None
        assert asyncio.run(peek(authority, folder)) == "gold"

    def test_a_call_that_wants_more_rights_leaves_the_others_alone(self, authority, folder):
        log_in(authority, folder)

        async def work():
            async with connected(authority.url, http_auth("vault", authority.url, "oauth", folder)) as client:
                other = asyncio.create_task(client.call_tool("peek", {"wait": 0.5}))
                with watching_auth() as watch, pytest.raises(MCPError):
                    await client.call_tool("burn", {})
                with watching_auth() as elsewhere:
                    await client.call_tool("peek", {})
                return watch.error, elsewhere.error, (await other).content[0].text

        trouble, elsewhere, text = asyncio.run(work())
        assert isinstance(trouble, LoginRequiredError)
        assert trouble.scopes == ("admin",)
        assert str(trouble) == "the server vault requires a login with more rights (admin): onetool servers login vault"
        assert (elsewhere, text) == (None, "gold")
        # The next logins ask for them, beside those they had.
        assert log_in(authority, folder) == "read admin"
        assert log_in(authority, folder) == "read admin"

        async def burn():
            async with connected(authority.url, http_auth("vault", authority.url, "oauth", folder)) as client:
                return (await client.call_tool("burn", {})).content[0].text

        assert asyncio.run(burn()) == "ashes"

    def test_calls_go_side_by_side(self, authority, folder):
        log_in(authority, folder)

        async def work():
            async with connected(authority.url, http_auth("vault", authority.url, "oauth", folder)) as client:
                await asyncio.gather(*(client.call_tool("peek", {"wait": 0.5}) for _ in range(4)))

        asyncio.run(work())
        assert authority.most_at_once == 4

    def test_a_login_elsewhere_is_noticed_and_so_is_a_logout(self, authority, folder):
        auth = http_auth("vault", authority.url, "oauth", folder)

        async def status():
            async with httpx2.AsyncClient(auth=auth) as http:
                return (await http.post(authority.url, json={})).status_code

        with pytest.raises(LoginRequiredError):
            asyncio.run(status())
        log_in(authority, folder)
        assert asyncio.run(status()) != 401
        forget(folder, "vault")
        with pytest.raises(LoginRequiredError):
            asyncio.run(status())

    def test_tokens_for_another_url_are_not_used(self, authority, folder):
        log_in(authority, folder)
        other = authority.url.replace("127.0.0.1", "localhost")
        seen = []

        def look(request):
            seen.append(request.headers.get("authorization"))
            return httpx2.Response(401)

        async def send():
            auth = http_auth("vault", other, "oauth", folder)
            async with httpx2.AsyncClient(auth=auth, transport=httpx2.MockTransport(look)) as http:
                await http.post(other)

        with pytest.raises(LoginRequiredError):
            asyncio.run(send())
        assert seen == [None]

    def test_a_header_of_the_config_is_left_alone(self, authority, folder):
        log_in(authority, folder, auth=None)
        seen = []

        def look(request):
            seen.append(request.headers["authorization"])
            return httpx2.Response(200)

        async def send():
            auth = http_auth("vault", authority.url, None, folder)
            transport = httpx2.MockTransport(look)
            async with httpx2.AsyncClient(auth=auth, transport=transport, headers={"authorization": "Mine"}) as http:
                await http.post(authority.url)

        asyncio.run(send())
        assert seen == ["Mine"]

    @pytest.mark.parametrize("content", ["", '{"url": 1}', "\0", "[" * 10_000], ids=["empty", "other", "nul", "deep"])
    def test_a_damaged_file_counts_as_no_login(self, authority, folder, content):
        log_in(authority, folder)
        file_of(folder).write_text(content)
        with pytest.raises(LoginRequiredError):
            asyncio.run(peek(authority, folder))
        log_in(authority, folder)
        assert asyncio.run(peek(authority, folder)) == "gold"

    def test_what_somebody_edited_counts_as_no_login(self, authority, folder):
        log_in(authority, folder)
        kept = stored(file_of(folder))
        file_of(folder).write_text(json.dumps({**kept, "tokens": {"access_token": 5}}))
        with pytest.raises(LoginRequiredError):
            asyncio.run(peek(authority, folder))

    def test_nothing_can_be_kept(self, authority, folder):
        log_in(authority, folder)
        authority.expire_everything()
        lock_of(folder).unlink()
        lock_of(folder).mkdir()
        with pytest.raises(AuthError, match=r"the login can't be stored in logins/vault in .*: Is a directory"):
            asyncio.run(peek(authority, folder))


class TestSeveralProcesses:
    def test_one_refreshes_and_all_go_on(self, authority, folder):
        log_in(authority, folder)
        authority.expire_everything()
        authority.slow = 0.5
        visitor, pipes = HERE / "authority_visitor.py", {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        children = [start(authority.url, folder.place, script=visitor, **pipes) for _ in range(3)]
        try:
            for child in children:
                assert child.stdout.readline() == b"ready\n"
            for child in children:
                child.stdin.write(b"go\n")
                child.stdin.flush()
            results = [child.communicate(timeout=60)[0].strip() for child in children]
        finally:
            for child in children:
                child.kill()
                child.wait()
        assert results == [b"gold"] * 3
        assert [kind for kind, _ in authority.requests] == ["authorization_code", "refresh_token"]
        assert stored(file_of(folder))["tokens"]["refresh_token"] in authority.refreshes

    def test_one_that_died_with_the_lock_keeps_nobody_waiting(self, authority, folder):
        log_in(authority, folder)
        authority.expire_everything()
        lock = lock_of(folder)
        code = (
            f"import fcntl, time; f = open({str(lock)!r}); fcntl.flock(f, 2); print('held', flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            os.kill(holder.pid, signal.SIGKILL)
        assert asyncio.run(peek(authority, folder)) == "gold"

    def test_one_that_never_lets_go_is_not_waited_for_for_ever(self, authority, folder, monkeypatch):
        import fcntl

        monkeypatch.setattr("onetool.http.login.MAX_WAIT_S", 0.3)
        log_in(authority, folder)
        authority.expire_everything()
        with open(lock_of(folder)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(AuthError, match=r"stored in logins/vault in .*: another process has locked it"):
                asyncio.run(peek(authority, folder))


class TestPrograms:
    def test_a_program_logs_in_by_itself(self, authority, folder):
        auth = {"type": "client_credentials", "client_id": PROGRAM[0], "client_secret": PROGRAM[1], "scopes": "read"}
        assert asyncio.run(peek(authority, folder, auth)) == "gold"
        assert asyncio.run(peek(authority, folder, auth)) == "gold"
        assert len(authority.requests) == 1
        authority.expire_everything()
        assert asyncio.run(peek(authority, folder, auth)) == "gold"
        assert len(authority.requests) == 2
        assert PROGRAM[1] not in file_of(folder).read_text()

    def test_wrong_credentials(self, authority, folder):
        auth = {"type": "client_credentials", "client_id": PROGRAM[0], "client_secret": "made-up-secret"}
        with pytest.raises(AuthError, match=r"Token exchange failed \(401\)") as caught:
            asyncio.run(peek(authority, folder, auth))
        assert "made-up" not in str(caught.value)

    def test_they_go_to_no_other_authorization_server(self, authority, folder):
        auth = {"type": "client_credentials", "client_id": PROGRAM[0], "client_secret": PROGRAM[1]}
        with pytest.raises(AuthError, match="issuer mismatch"):
            asyncio.run(peek(authority, folder, {**auth, "issuer": "https://elsewhere.example"}))
        assert authority.requests == []
        assert asyncio.run(peek(authority, folder, auth)) == "gold"
        kept = stored(file_of(folder))
        kept["authorization_server"]["issuer"] = "https://first.example"  # the one that let us in first was another
        file_of(folder).write_text(json.dumps(kept))
        authority.expire_everything()
        with pytest.raises(AuthError, match="issuer mismatch"):
            asyncio.run(peek(authority, folder, auth))

    def test_more_rights_are_fetched(self, authority, folder):
        auth = {"type": "client_credentials", "client_id": PROGRAM[0], "client_secret": PROGRAM[1]}

        async def burn():
            async with connected(authority.url, http_auth("vault", authority.url, auth, folder)) as client:
                return (await client.call_tool("burn", {})).content[0].text

        assert asyncio.run(burn()) == "ashes"
        assert stored(file_of(folder))["wanted"] == "admin"  # the next token is asked for with it, too


class TestBearer:
    @pytest.mark.parametrize("shape", ["{}", "Bearer {}", {"type": "bearer", "token": "{}"}])
    def test_a_token_of_the_config(self, authority, folder, shape):
        token = authority._grant("x", ["read"], authority.url).access_token
        auth = shape.format(token) if isinstance(shape, str) else {**shape, "token": token}
        assert asyncio.run(peek(authority, folder, auth)) == "gold"
        assert not Path(folder.place).exists()

    def test_one_that_is_not_taken(self, authority, folder):
        with pytest.raises(AuthError, match="does not accept the token in its `auth`") as caught:
            asyncio.run(peek(authority, folder, "made-up-token"))
        assert "made-up" not in str(caught.value)


class TestSecrecy:
    def test_nothing_secret_is_logged_or_told(self, authority, folder, caplog, capfd):
        caplog.set_level(logging.DEBUG)
        told = []
        log_in(authority, folder)
        for fault in (None, (200, {"refresh_token": "refresh-in-rubbish"}), (400, {"error": "invalid_grant"})):
            authority.expire_everything()
            authority.fault = fault
            try:
                asyncio.run(peek(authority, folder))
            except AuthError as error:
                told.append(str(error))
        authority.fault = (200, {"refresh_token": "refresh-in-rubbish"})
        with pytest.raises(AuthError) as caught:
            log_in(authority, folder)
        told.append(str(caught.value))
        out, err = capfd.readouterr()
        ours = [record for record in caplog.records if not record.name.startswith(("mcp.server", "uvicorn"))]
        texts = "\n".join([caplog.handler.format(record) for record in ours] + told + [out, err])
        assert len(told) == 3
        assert [secret for secret in (*authority.secrets, "refresh-in-rubbish") if secret in texts] == []

    def test_redaction_can_know_them(self, authority, folder):
        log_in(authority, folder)
        authority.expire_everything()
        known = set()

        async def work():
            auth = http_auth("vault", authority.url, "oauth", folder, mask_also=known.add)
            async with connected(authority.url, auth) as client:
                await client.call_tool("peek", {})

        asyncio.run(work())
        given_out = {one for one in authority.secrets if not one.startswith("code-")}
        assert known == given_out

    def test_an_authorization_server_in_the_clear_is_refused(self, folder):
        url = "https://mcp.example/mcp"
        asked = []

        def answer(request):
            asked.append(str(request.url))
            if request.url.path == "/mcp":
                place = 'Bearer resource_metadata="http://127.0.0.1:1/secret-place"'
                return httpx2.Response(401, headers={"www-authenticate": place})
            return httpx2.Response(200, json={})

        async def send():
            auth = http_auth("far", url, {"type": "client_credentials", "client_id": "a", "client_secret": "b"}, folder)
            async with httpx2.AsyncClient(auth=auth, transport=httpx2.MockTransport(answer)) as http:
                await http.post(url)

        with pytest.raises(
            AuthError, match=r"requires a login at http://127\.0\.0\.1:1, which is not encrypted: refused"
        ):
            asyncio.run(send())
        assert asked == [url]


@pytest.fixture
def http_404():
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_error(200 if self.path == "/mcp" else 404)

        def do_GET(self):
            self.send_error(404)

        def log_message(self, *args): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()


def redirect_of(url):
    return parse_qs(urlsplit(url).query)["redirect_uri"][0]


def run_thread(work):
    from threading import Thread

    Thread(target=work, daemon=True).start()
