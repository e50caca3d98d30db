"""Signing in at /login of a real server: sessions in the place of the token, their end, and guesses."""

import asyncio
import json
import signal
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import httpx
import pytest
import warm
from document_stores import in_home
from helpers import each
from interfaces.http.conftest import TOKEN
from interfaces.http.test_mount import served

import onetool
from onetool import App
from onetool.interfaces.http.login import LoginRequest
from onetool.interfaces.http.login_sessions import LoginSessions

CONFIG = {"http": {"token": TOKEN}}
OTHER = "another-token-0123456789"


def digest_of(token):
    return f"sha256:{sha256(token.encode()).hexdigest()}"


def bearer(text):
    return [("Authorization", f"Bearer {text}")]


ADMIN = {"name": "http.token", "role": "admin", "tools": None, "isCapped": False}


def sign_in(server, token=TOKEN, headers=()):
    return server.ask("/login", "POST", headers, json.dumps({"token": token}).encode())


def session_of(server):
    reply = sign_in(server)
    assert reply.status == 200, reply
    return reply.json["session"]


def test_a_session_opens_what_the_token_opens(guarded):
    reply = sign_in(guarded)
    assert (reply.status, reply.headers["cache-control"]) == (200, "no-store")
    assert set(reply.json) == {"session", "expiresAt", "name", "role", "tools", "isCapped"}
    assert (reply.json["name"], reply.json["role"], reply.json["tools"]) == ("http.token", "admin", None)
    assert reply.json["session"].startswith("ots_")
    left = datetime.fromisoformat(reply.json["expiresAt"]) - datetime.now(UTC)
    assert timedelta(hours=11, minutes=50) < left <= timedelta(hours=12)
    by_session = guarded.ask("/mcp", headers=bearer(reply.json["session"]))
    by_token = guarded.ask("/mcp", headers=bearer(TOKEN))
    assert (by_session.status, by_session.json) == (200, by_token.json)  # the principal, too: stored results are theirs
    assert not any(name.startswith("set-cookie") for name in reply.headers)


def test_the_page_asks_first_what_is_needed(guarded, server):
    assert server.ask("/login").json == {"needed": False, "name": "", "role": "edit", "tools": None, "isCapped": False}
    assert guarded.ask("/login").json == {"needed": True, "signedIn": False}
    assert guarded.ask("/login", headers=bearer("wrong")).json == {"needed": True, "signedIn": False}
    assert guarded.ask("/login", headers=bearer(TOKEN)).json == {"needed": True, "signedIn": True, **ADMIN}
    said = sign_in(guarded).json
    known = guarded.ask("/login", headers=bearer(said["session"]))
    assert known.json == {"needed": True, "signedIn": True, "expiresAt": said["expiresAt"], **ADMIN}
    assert known.headers["cache-control"] == "no-store"


def test_without_a_token_there_is_nothing_to_sign_in_to(server):
    for body in (b'{"token": "x"}', b"{}", b""):
        reply = server.ask("/login", "POST", body=body)
        assert (reply.status, reply.json) == (200, {"session": None, "needed": False})
    assert server.ask("/login", "DELETE").status == 204
    assert in_home(server.folder / "home", "page_sessions").keys() == []


def test_a_wrong_token_is_told_in_words(serve):
    server = serve(config=CONFIG)
    for wrong in ("", "wrong", TOKEN[:-1], TOKEN + "x", "é"):
        reply = sign_in(server, wrong)
        assert (reply.status, reply.code) == (401, "unauthorized"), wrong
        assert "Invalid token" in reply.json["error"]["message"]
    assert reply.headers["www-authenticate"] == 'Bearer realm="onetool"'
    assert sign_in(server, session_of(server)).status == 401  # a session is not a token, and does not make another one
    assert sign_in(server, f" {TOKEN}\n").status == 200  # as it comes out of a clipboard


@each(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"token": 1}', b'{"token": "x", "more": 1}', b'{"token": "\\ud800"}', b"[" * 4000],
)
def test_a_body_that_is_none_is_400(guarded, body):
    reply = guarded.ask("/login", "POST", body=body)
    assert (reply.status, reply.code) == (400, "bad_request")
    assert '{"token": "…"}' in reply.json["error"]["message"]


def test_signing_out_ends_this_session_at_once_and_no_other(guarded):
    first, second = session_of(guarded), session_of(guarded)
    assert guarded.ask("/login", "DELETE", bearer(first)).status == 204
    gone = guarded.ask("/mcp", headers=bearer(first))
    assert (gone.status, gone.code) == (401, "unauthorized")
    assert "sign in again" in gone.json["error"]["message"]
    assert guarded.ask("/login", headers=bearer(first)).json == {"needed": True, "signedIn": False}
    assert guarded.ask("/login", "DELETE", bearer(first)).status == 401
    assert guarded.ask("/mcp", headers=bearer(second)).status == 200
    assert guarded.ask("/login", "DELETE").status == 401
    token = guarded.ask("/login", "DELETE", bearer(TOKEN))
    assert (token.status, token.code) == (400, "no_session")
    assert guarded.ask("/mcp", headers=bearer(TOKEN)).status == 200


def test_a_changed_token_ends_its_sessions_and_a_removed_one_does(serve):
    server = serve(config=CONFIG)
    session = session_of(server)

    def reload(config, times):
        (server.folder / "onetool.yaml").write_text(json.dumps(config))
        server.process.send_signal(signal.SIGHUP)
        for _ in range(1000):
            if server.log_file.read_text().count("Reloaded") == times:
                return
            time.sleep(0.02)
        pytest.fail("it was not reloaded")

    assert server.ask("/mcp", headers=bearer(session)).status == 200
    reload({"http": {"token": OTHER}}, 1)
    assert server.ask("/mcp", headers=bearer(session)).status == 401
    assert sign_in(server, TOKEN).status == 401
    assert sign_in(server, OTHER).status == 200
    reload({}, 2)
    assert server.ask("/login", headers=bearer(session)).json["needed"] is False


def test_a_session_is_good_in_all_processes_of_the_state_and_after_a_start(serve, tmp_path):
    shared = {"ONETOOL_HOME": str(tmp_path / "state")}
    one, other = serve(config=CONFIG, env=shared), serve(config=CONFIG, env=shared)
    session = session_of(one)
    assert other.ask("/mcp", headers=bearer(session)).status == 200
    one.stop()
    again = serve(config=CONFIG, env=shared)
    assert again.ask("/mcp", headers=bearer(session)).status == 200
    assert again.ask("/login", "DELETE", bearer(session)).status == 204
    assert other.ask("/mcp", headers=bearer(session)).status == 401
    elsewhere = serve(config=CONFIG)
    assert elsewhere.ask("/mcp", headers=bearer(session_of(other))).status == 401


def test_no_session_begins_where_the_state_can_not_be_written(serve, tmp_path):
    server = serve(config=CONFIG, env={"ONETOOL_HOME": str(tmp_path / "state")})
    for file in (tmp_path / "state").glob("state.db*"):
        file.unlink()
    (tmp_path / "state" / "state.db").mkdir()
    reply = sign_in(server)
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "database_away", "1")


def test_who_signs_out_is_told_if_the_session_has_not_ended(serve, tmp_path):
    soon = {warm.CONSTANTS: '{"onetool.interfaces.http.login_sessions.MAX_WAIT_S": 0.1}'}
    server = serve(config=CONFIG, env={"ONETOOL_HOME": str(tmp_path / "state"), **soon})
    session = session_of(server)
    lock = in_home(tmp_path / "state", "page_sessions")._database.lock("page_sessions/sessions")
    assert lock.take()
    try:
        reply = server.ask("/login", "DELETE", bearer(session))
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "database_away", "1")
        assert server.ask("/mcp", headers=bearer(session)).status == 200
    finally:
        lock.release()
    assert server.ask("/login", "DELETE", bearer(session)).status == 204
    assert server.ask("/mcp", headers=bearer(session)).status == 401


def test_many_who_share_a_token_may_sign_in_and_only_sign_outs_are_counted(serve):
    server = serve(config=CONFIG)
    sessions = [session_of(server) for _ in range(105)]
    replies = [server.ask("/login", "DELETE", bearer(session)) for session in sessions]
    assert [reply.status for reply in replies] == [204] * 100 + [429] * 5
    assert (replies[-1].code, replies[-1].headers["retry-after"].isdigit()) == ("too_many", True)
    assert session_of(server)


def test_nothing_but_the_header_carries_a_session(guarded):
    session = session_of(guarded)
    for headers in ([("Cookie", f"session={session}")], [("OneTool-Session", session)], bearer(session) * 2):
        assert guarded.ask("/mcp", headers=headers).status == 401
    assert guarded.ask(f"/mcp?session={session}&access_token={session}").status == 401


def test_no_tool_signs_in(guarded):
    mark = ("OneTool-Call", "1")
    assert sign_in(guarded, headers=[mark]).code == "not_for_tools"
    session = session_of(guarded)
    assert guarded.ask("/login", "DELETE", [mark, *bearer(session)]).status == 403
    assert guarded.ask("/mcp", headers=bearer(session)).status == 200


def test_other_methods_and_types_are_refused(guarded):
    reply = guarded.ask("/login", "PUT")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, POST, DELETE")
    body = json.dumps({"token": TOKEN}).encode()
    for kind in (None, "text/plain", "application/x-www-form-urlencoded"):
        assert guarded.ask("/login", "POST", body=body, kind=kind).status == 415
    assert sign_in(guarded, headers=[("Origin", "http://127.0.0.1:1")]).status == 403
    assert guarded.ask("/login", "POST", body=body, host="evil.example").status == 421


def test_neither_tokens_nor_sessions_are_in_the_log(guarded):
    session = session_of(guarded)
    guarded.ask(f"/nothing/{session}", headers=bearer(session))
    guarded.ask(f"/nothing/{TOKEN}", headers=bearer(session))
    guarded.ask(f"/mcp?fail&{session}", headers=bearer(session))
    sign_in(guarded, "a wrong guess")
    guarded.ask("/the-end", headers=bearer(session))
    guarded.log(wait_for="/the-end")
    text = guarded.log_file.read_text()
    assert not any(secret in text for secret in (session, session[4:40], TOKEN, "a wrong guess"))
    assert "/nothing/ots_***" in text
    assert TOKEN not in repr(LoginRequest(TOKEN))


def test_no_tool_reads_the_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "onetool.yaml").write_text("fs: {roots: [.]}\n")
    (tmp_path / "mine.txt").write_text("mine")
    with App.open(tmp_path / "onetool.yaml") as app:
        LoginSessions(app.runtime.documents("page_sessions")).start(b"x")
        assert asyncio.run(app.run("fs.read_file(path='mine.txt')")).data == "mine"
        assert app.config.home == tmp_path  # a place that tools may read otherwise
        read = asyncio.run(app.run("fs.read_file(path='state.db')"))
        assert (read.ok, read.error.reason) == (False, "denied")


# Guesses


@pytest.mark.attack("other callers")
def test_guesses_of_others_keep_nobody_out(serve):
    server = serve(config=CONFIG)
    assert {sign_in(server, f"wrong-{number}").status for number in range(30)} == {401}
    assert sign_in(server).status == 200


# In a web app


def test_in_a_web_app_with_its_own_users_there_is_no_login(tmp_path):
    (tmp_path / "onetool.yaml").write_text(json.dumps(CONFIG))
    with App.open(tmp_path / "onetool.yaml") as app, served(onetool.asgi(app, auth=lambda _scope: "ada")) as url:
        assert httpx.get(f"{url}/login").json()["needed"] is False
        assert httpx.post(f"{url}/login", json={"token": TOKEN}).json() == {"session": None, "needed": False}
        assert httpx.delete(f"{url}/login").status_code == 204
        assert httpx.get(f"{url}/tools/bundles").status_code == 200
        assert "Authorization" not in httpx.get(f"{url}/").text


def test_in_a_web_app_without_users_of_its_own_it_is_the_same_login(tmp_path):
    (tmp_path / "onetool.yaml").write_text(json.dumps(CONFIG))
    with App.open(tmp_path / "onetool.yaml") as app, served(onetool.asgi(app)) as url:
        assert httpx.get(f"{url}/login").json() == {"needed": True, "signedIn": False}
        assert httpx.get(f"{url}/tools/bundles").status_code == 401
        session = httpx.post(f"{url}/login", json={"token": TOKEN}).json()["session"]
        headers = {"Authorization": f"Bearer {session}"}
        assert httpx.get(f"{url}/tools/bundles", headers=headers).status_code == 200
        assert httpx.delete(f"{url}/login", headers=headers).status_code == 204
        assert httpx.get(f"{url}/tools/bundles", headers=headers).status_code == 401


def test_a_session_of_the_token_is_none_of_a_web_app_with_its_own_users(tmp_path):
    (tmp_path / "onetool.yaml").write_text(json.dumps(CONFIG))
    with App.open(tmp_path / "onetool.yaml") as app:
        with served(onetool.asgi(app)) as url:
            session = httpx.post(f"{url}/login", json={"token": TOKEN}).json()["session"]
        with served(onetool.asgi(app, auth=lambda _scope: None)) as url:
            headers = {"Authorization": f"Bearer {session}"}
            assert httpx.get(f"{url}/tools/bundles", headers=headers).status_code == 401
