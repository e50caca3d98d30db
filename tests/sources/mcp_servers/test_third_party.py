"""Servers that people really use, from the Python world: as packs, through every door."""

import asyncio
import json
import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from mcp import Client, StdioServerParameters
from sources.mcp_servers.harness import BIN, Harness, block_of, call, ran, settle

pytestmark = pytest.mark.long

CLOCK = {"command": str(BIN / "mcp-server-time"), "args": ["--local-timezone", "UTC"]}
LIGHT_CLOCK = block_of("light_clock")  # where it is not about the server
GIT = {"command": str(BIN / "mcp-server-git")}
FETCH = {"command": str(BIN / "mcp-server-fetch"), "args": ["--ignore-robots-txt", "--allow-private-ips"]}


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*args):
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
        subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git("add", "a.txt")
    git("commit", "-q", "-m", "The first one")
    (folder / "a.txt").write_text("one\ntwo\n")
    return folder


@pytest.fixture
def page():
    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            body = b"<html><head><title>Page</title></head><body><article><h1>Hello</h1><p>A <b>page</b>.</p></article>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Not on the test's stderr."""

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """All three: each takes a second or two to start, and no test changes any."""
    with Harness(tmp_path_factory.mktemp("three")).app({"clock": CLOCK, "git": GIT, "web": FETCH}) as app:
        yield app


def test_all_three_side_by_side(app, repository, page):
    found = settle(app)
    assert {name: (status.state, status.error) for name, status in found.items()} == {
        "clock": ("connected", None),
        "git": ("connected", None),
        "web": ("connected", None),
    }
    assert found["clock"].tools == 2
    assert found["clock"].version.startswith("mcp-time ")

    told = call(app, "clock.get_current_time", timezone="Asia/Tokyo")
    assert (told.data["timezone"], told.error) == ("Asia/Tokyo", None)
    assert "modified:   a.txt" in call(app, "git.git_status", repo_path=str(repository)).data
    assert "+two" in call(app, "git.git_diff_unstaged", repo_path=str(repository)).data
    read = call(app, "web.fetch", url=page)
    assert read.error is None
    assert "A **page**." in json.dumps(read.data)

    assert app.health()["proxy"] == {
        "status": "ok",
        "server_count": 3,
        "servers": {"clock": "connected", "git": "connected", "web": "connected"},
    }


def test_code_joins_what_two_servers_say(app, repository):
    code = f"""
status = git.git_status(repo_path={str(repository)!r})
there = clock.convert_time(source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
[there["time_difference"], "a.txt" in status]
"""
    assert ran(app, code).data == ["+9.0h", True]


def test_what_a_server_finds_wrong_is_the_error_of_the_call(app, tmp_path):
    wrong = call(app, "clock.get_current_time", timezone="Nowhere/Land")
    assert wrong.error.code == "execution_error"
    assert "Nowhere/Land" in wrong.error.message
    no_repository = call(app, "git.git_status", repo_path=str(tmp_path))
    assert str(tmp_path) in no_repository.error.message


def test_the_server_refuses_wrong_arguments_and_we_add_what_we_know(app):
    wrong = call(app, "clock.get_current_time", timezne="UTC").error
    assert wrong.code == "execution_error"
    assert "timezne: unknown argument (did you mean timezone?)" in wrong.hints[0]
    assert ran(app, "clock.get_current_time(timezne='UTC')").error.code == "invalid_args"


def test_a_server_called_like_a_built_in_pack_gives_its_tools_beside(harness):
    with harness.app({"time": LIGHT_CLOCK}) as app:
        assert call(app, "time.get_current_time", timezone="UTC").data["timezone"] == "UTC"
        assert "iso" in call(app, "time.now").data


def test_from_the_command_line(harness):
    harness.config({"clock": CLOCK})
    done = harness.cli("run", "clock.get_current_time(timezone='UTC')['timezone']")
    assert (done.stdout.strip(), done.returncode) == ("UTC", 0)
    harness.config({"clock": LIGHT_CLOCK})
    done = harness.cli("tools", "invoke", "clock.get_current_time", "--args", '{"timezone": "UTC"}')
    assert (json.loads(done.stdout)["result"]["data"]["timezone"], done.returncode) == ("UTC", 0)
    listed = json.loads(harness.cli("tools", "list").stdout)
    assert "clock.get_current_time" in {tool["name"] for tool in listed}


def test_through_our_own_mcp_server(harness):
    """A client that knows nothing of the clock's server: OneTool stands between them."""

    async def main():
        ours = {"ONETOOL_CONFIG": str(harness.config({"clock": CLOCK})), "ONETOOL_HOME": str(harness.folder / "state")}
        async with Client(StdioServerParameters(command=str(BIN / "onetool"), args=["mcp"], env=ours)) as client:
            code = "clock.get_current_time(timezone='UTC')['timezone']"
            ran = await client.call_tool("run", {"code": code})
            return ran.is_error, ran.content[0].text

    assert asyncio.run(main()) == (False, "UTC")


def test_the_lock_of_node_servers_pins_by_hash_and_names_no_place():
    lock = json.loads((Path(__file__).parent / "npm" / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert len(packages) > 100
    assert [name for name, package in packages.items() if "integrity" not in package or "resolved" in package] == []
