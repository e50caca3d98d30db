"""Links that open the page as its owner: `onetool serve` at a terminal and `onetool page` make them, /login takes them.

All of it with real servers, commands and processes.
"""

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from document_stores import in_home
from helpers import NOBODY, check_each, cli, until
from interfaces.http.conftest import TOKEN, Served
from postgres import database_url, postgres
from services.journals import lines_in

from onetool.services.page_links import PageLinks

__all__ = ["database_url", "postgres"]

OWNER = {"name": "(owner)", "role": "admin", "tools": None, "isCapped": False}
ANONYMOUS = {"needed": False, "name": "", "role": "edit", "tools": None, "isCapped": False}
KEY = re.compile(r"#k=([A-Za-z0-9_-]{43})$")


def page(server, *args, **env):
    return cli("page", *args, cwd=server.folder, env={"ONETOOL_HOME": str(server.folder / "home"), **env})


def new_key(server):
    done = page(server)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"http://127.0.0.1:{server.port}/#k=")
    return KEY.search(done.stdout.strip())[1]


def use(server, key, headers=()):
    return server.ask("/login", "POST", headers, json.dumps({"key": key}).encode())


def bearer(text):
    return [("Authorization", f"Bearer {text}")]


def session_of(server):
    reply = use(server, new_key(server))
    assert reply.status == 200, reply
    return reply.json["session"]


def who(server, session):
    return server.ask("/login", headers=bearer(session)).json


def links_in(server, **more):
    return PageLinks(in_home(server.folder / "home", "page_links"), server.folder / "home", **more)


def test_a_link_opens_an_admin_session_and_the_rest_stays_as_it_was(server):
    reply = use(server, new_key(server))
    assert (reply.status, reply.headers["cache-control"]) == (200, "no-store")
    assert not any(name.startswith("set-cookie") for name in reply.headers)
    said = reply.json
    session, expires = said.pop("session"), said.pop("expiresAt")
    assert said == OWNER
    left = datetime.fromisoformat(expires) - datetime.now(UTC)
    assert timedelta(hours=11, minutes=50) < left <= timedelta(hours=12)
    assert who(server, session) == {"needed": False, "expiresAt": expires, **OWNER}
    assert server.ask("/audit", headers=bearer(session)).status == 200
    assert server.ask("/login").json == ANONYMOUS  # nobody needs a token because of it
    refused = server.ask("/audit")
    assert (refused.status, refused.code) == (403, "token_needed")
    assert "`onetool page`" in refused.json["detail"]


@pytest.mark.attack("the page")
def test_a_link_works_once(server):
    key = new_key(server)
    assert use(server, key).status == 200
    again = use(server, key)
    assert (again.status, again.code) == (401, "unauthorized")
    assert "`onetool page` prints a new one" in again.json["error"]["message"]


@pytest.mark.attack("the page")
def test_a_link_works_for_ten_minutes(server):
    [id] = links_in(server).servers().values()
    for seconds in (601, -601):  # also where the clock was set back meanwhile
        made = links_in(server, clock=lambda seconds=seconds: time.time() - seconds).make(id)
        assert use(server, made).status == 401
    assert use(server, links_in(server, clock=lambda: time.time() - 590).make(id)).status == 200


@pytest.mark.attack("the page")
def test_guesses_open_nothing_and_keep_no_owner_out(serve):
    server = serve()
    key = new_key(server)
    guesses = [use(server, key[:-1] + ("A" if key[-1] != "A" else "B")) for _ in range(11)]
    assert [one.status for one in guesses] == [401] * 11
    assert use(server, key).status == 200


@pytest.mark.parametrize("body", [b'{"key": ""}', b'{"key": "x"}', b'{"key": "\\u0000"}'])
def test_what_is_no_key_is_refused(serve, body):
    assert serve().ask("/login", "POST", body=body).status == 401


def test_a_body_has_a_token_or_a_key(guarded):
    for body in (b'{"key": 1}', b'{"key": "x", "token": "y"}', b'{"key": null}'):
        assert guarded.ask("/login", "POST", body=body).status == 400


@pytest.mark.attack("other origins")
@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "http://localhost:3000", "null"])
def test_pages_of_another_origin_or_port_can_use_neither_link_nor_session(server, origin):
    key = new_key(server)
    refused = use(server, key, [("Origin", origin)])
    assert (refused.status, refused.code) == (403, "bad_origin")
    started = use(server, key)
    assert started.status == 200  # it was not used up
    headers = [*bearer(started.json["session"]), ("Origin", origin)]
    assert server.ask("/audit", headers=headers).status == 403


@pytest.mark.attack("the page")
def test_a_tool_can_open_no_link(server):
    key = new_key(server)
    assert use(server, key, [("OneTool-Call", "1")]).status == 403
    assert use(server, key).status == 200


@pytest.mark.attack("credentials")
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_processes_of_another_user_can_neither_make_nor_read_a_link(serve):
    server = serve()
    home = server.folder / "home"
    page(server, "--open", BROWSER=_browser(server.folder))
    for folder in (home, *home.parents):  # they come as far as the files
        folder.chmod(folder.stat().st_mode | 0o005)
    for file in home.iterdir():
        for command in ('cat "$0"', ': >> "$0"'):
            done = subprocess.run(
                ["/bin/sh", "-c", command, file], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True
            )
            assert (done.returncode != 0, done.stdout) == (True, b""), file


@pytest.mark.attack("state")
def test_neither_state_nor_logs_have_the_key_or_the_session(serve):
    server = serve()
    key = new_key(server)
    session = use(server, key).json["session"]
    server.ask(f"/{session}", headers=bearer(session))
    server.stop()
    files = [file for file in server.folder.rglob("*") if file.is_file()]
    for secret in (key, session):
        assert [file.name for file in files if secret.encode() in file.read_bytes()] == []


def test_what_is_done_with_links_is_in_the_audit_log(serve):
    server = serve()
    session = session_of(server)
    use(server, "wrong")
    assert server.ask("/login", "DELETE", bearer(session)).status == 204
    server.stop()
    found = [(one["what"], one.get("who"), one["outcome"]) for one in lines_in(server.folder / "home")]
    assert found == [
        ("page", None, "ok"),
        ("sign in", "(owner)", "ok"),
        ("sign in", "(nobody)", "unauthorized"),
        ("sign out", "(owner)", "ok"),
    ]


def test_signing_out_ends_the_session(server):
    session, other = session_of(server), session_of(server)
    assert server.ask("/login", "DELETE", bearer(session)).status == 204
    assert who(server, session) == ANONYMOUS
    assert server.ask("/audit", headers=bearer(session)).status == 403
    assert who(server, other)["role"] == "admin"


@pytest.mark.attack("credentials")
def test_links_and_sessions_end_with_the_server(serve, tmp_path):
    first = serve()
    session, unused, used = session_of(first), new_key(first), new_key(first)
    assert use(first, used).status == 200
    assert first.stop() == 0
    assert "home. Start one: onetool serve. Reload a server that was started here before" in page(first).stderr
    second = serve(port=first.port, env={"ONETOOL_HOME": str(first.folder / "home")})
    assert who(second, session) == ANONYMOUS
    assert second.ask("/audit", headers=bearer(session)).status == 403
    assert [use(second, key).status for key in (unused, used)] == [401, 401]


def test_a_new_token_is_shown_with_the_address_of_the_running_server(serve):
    server = serve()
    done = cli("tokens", "add", "ci", cwd=server.folder, env={"ONETOOL_HOME": str(server.folder / "home")})
    assert done.returncode == 0
    assert f'$ONETOOL_TOKEN" http://127.0.0.1:{server.port}/tools/tools' in done.stderr


def test_a_server_that_was_killed_gets_no_links(serve):
    server = serve()
    server.stop(signal.SIGKILL)
    done = page(server)
    assert (done.returncode, done.stdout) == (1, "")
    assert "onetool serve" in done.stderr


def test_a_server_goes_along_with_a_config_that_a_reload_finds(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    env = {"ONETOOL_HOME": "", "HOME": str(tmp_path / "user")}
    server = Served(folder, "--port", "0", env=env)
    try:
        assert cli("init", cwd=folder, env=env).returncode == 0
        assert "Reload a server that was started here before" in page(server, **env).stderr
        server.process.send_signal(signal.SIGHUP)
        until(lambda: page(server, **env).returncode == 0)
        assert use(server, KEY.search(page(server, **env).stdout.strip())[1]).status == 200
        assert "No running server" in cli("page", cwd=tmp_path, env=env).stderr
    finally:
        server.stop()


def test_of_several_servers_one_is_chosen(serve):
    first = serve()
    second = serve(env={"ONETOOL_HOME": str(first.folder / "home")})
    done = page(first)
    assert done.returncode == 1
    assert "--port" in done.stderr
    key = KEY.search(page(first, "--port", str(second.port)).stdout.strip())[1]
    assert use(first, key).status == 401  # it is for the other one
    assert "No running server" in page(first, "--port", "1").stderr


def test_with_tokens_the_owner_is_an_admin_too(serve):
    server = serve(config={"http": {"token": TOKEN}})
    session = session_of(server)
    assert who(server, session).items() >= {"needed": True, "signedIn": True, **OWNER}.items()
    assert server.ask("/audit", headers=bearer(session)).status == 200
    assert server.ask("/audit").status == 401


def test_a_server_for_calls_caps_the_owner(serve):
    server = serve("--tool-allow", "time.now")
    assert "as its owner, with the role call.\n" in server.greeting
    assert use(server, new_key(server)).json.items() >= {"role": "call", "isCapped": True}.items()


@pytest.mark.attack("credentials")
def test_other_addresses_have_no_links(serve):
    server = serve("--host", "0.0.0.0", "--open", config={"http": {"token": TOKEN}})
    assert "onetool page" not in server.greeting
    assert "--open: there is no link to this server" in server.log_file.read_text()
    assert page(server).returncode == 1
    key = links_in(server).make("0" * 64)
    assert use(server, key).status == 401


@pytest.mark.attack("replicas")
def test_a_database_has_links_and_a_cluster_has_none(serve, database_url):
    server = serve(config={"database": database_url}, real=True)
    key = KEY.search(page(server, "--config", str(server.folder / "onetool.yaml")).stdout.strip())[1]
    assert [use(server, key).status for _ in range(2)] == [200, 401]
    server.stop()
    cluster = {"address": "127.0.0.1:1", "key": "a key of many characters, for replicas alone"}
    config = {"database": database_url, "cluster": cluster, "http": {"token": TOKEN, "local": "edit"}}
    replica = serve(config=config, real=True)
    assert "onetool page" not in replica.greeting
    assert "http.local" not in replica.greeting
    assert page(replica, "--config", str(replica.folder / "onetool.yaml")).returncode == 1
    assert use(replica, key).status == 401
    assert replica.ask("/login").json == {"needed": True, "signedIn": False}


def test_workers_take_a_link_once_and_know_its_session(serve):
    server = serve("--workers", "2", real=True)
    key = new_key(server)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: use(server, key), range(8)))
    assert sorted(one.status for one in replies) == [200] + [401] * 7
    [session] = [one.json["session"] for one in replies if one.status == 200]
    assert {who(server, session)["role"] for _ in range(16)} == {"admin"}
    assert server.ask("/login", "DELETE", bearer(session)).status == 204
    assert {who(server, session)["role"] for _ in range(16)} == {"edit"}


INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def test_workers_pass_on_what_belongs_to_another_worker(serve):
    """A session of MCP lives in one worker; each request here comes on a connection of its own."""
    server = serve("--workers", "2", config={"http": {"token": TOKEN, "local": "call"}}, real=True)

    def passed_on(credentials, code):
        headers = [*credentials, ("Accept", "application/json, text/event-stream")]

        def send(method, params, more=()):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return server.ask("/mcp", "POST", [*headers, *more], json.dumps(body).encode())

        begun = send("initialize", INITIALIZE)
        session = [("Mcp-Session-Id", begun.headers["mcp-session-id"])]
        assert {send("tools/list", {}, session).status for _ in range(12)} == {200}
        called = send("tools/call", {"name": "run", "arguments": {"code": code}}, session)
        assert b'"isError":true' not in called.body

    check_each([(bearer(session_of(server)), "ot.reload()"), ([], "time.now()")], passed_on)


def _at_terminal(folder, *args):
    """What `onetool serve` prints at a terminal, and how to end it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["ONETOOL_HOME"] = str(folder / "home")
        os.execv(sys.executable, [sys.executable, "-m", "onetool", "serve", "--port", "0", *args])
    shown = b""
    try:
        while b"curl" not in shown:
            shown += os.read(terminal, 65536)
    finally:
        os.write(terminal, b"\x03")
        os.waitpid(pid, 0)
        os.close(terminal)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


@pytest.mark.parametrize("args", [(), pytest.param(("--workers", "2"), marks=pytest.mark.long)])
def test_at_a_terminal_the_link_comes_first(tmp_path, args):
    lines = _at_terminal(tmp_path, *args).splitlines()
    assert lines[0] == "Open the page as its owner (the link works once, within ten minutes):"
    assert re.fullmatch(r"  http://127\.0\.0\.1:\d+/#k=[A-Za-z0-9_-]{43}", lines[1])
    assert lines[2].startswith("OneTool listens on http://127.0.0.1:")


def test_elsewhere_the_greeting_names_the_command(server):
    assert "#k=" not in server.greeting
    assert "onetool page prints a link that opens it as its owner, with the role admin.\n" in server.greeting


def _browser(folder):
    """A program that writes down what it is asked to open."""
    script = folder / "browser.py"
    script.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\n"
        f"pathlib.Path({str(folder / 'opened.tmp')!r}).write_text('\\n'.join(sys.argv[1:]))\n"
        f"pathlib.Path({str(folder / 'opened.tmp')!r}).rename({str(folder / 'opened')!r})\n"
    )
    script.chmod(0o755)
    return str(script)


@pytest.mark.attack("credentials")
@pytest.mark.parametrize("way", ["serve", "page"])
def test_a_browser_gets_a_private_file_and_not_the_link(serve, tmp_path, way):
    browser = _browser(tmp_path)
    server = serve(*(["--open"] if way == "serve" else []), env={"BROWSER": browser})
    if way == "page":
        done = page(server, "--open", BROWSER=browser)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    until((tmp_path / "opened").exists)
    file = server.folder / "home" / "open-page.html"
    assert (tmp_path / "opened").read_text() == file.as_uri()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = re.search(rf"url=http://127\.0\.0\.1:{server.port}/#k=([A-Za-z0-9_-]{{43}})\"", file.read_text())[1]
    assert use(server, key).status == 200


def test_without_a_browser_the_link_is_printed(server):
    done = page(server, "--open", BROWSER="/nowhere/browser", PATH="/nowhere")
    assert KEY.search(done.stdout.strip()), done
    assert "No browser" in done.stderr
