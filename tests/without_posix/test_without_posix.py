"""Where the modules, flags and calls are missing that only POSIX has, all that people use works nevertheless.

This is not Windows: paths are POSIX paths here. It shows that nothing needs what Windows has not.
"""

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from ask.harness import KEY
from ask.stand_in import StandIn
from ask.stand_in.script import Says, Wants
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from without_posix.conftest import hidden_environment

pytestmark = pytest.mark.long  # each starts processes of its own; `make faults` runs them

ECHO = {
    "type": "python",
    "argSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "pythonImpl": {"func": "tools.echo"},
}


def python(code, *args):
    command = [sys.executable, "-c", code, *map(str, args)]
    done = subprocess.run(command, env=hidden_environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_they_are_hidden():
    code = """
import os, select, signal
for name in ("fcntl", "termios", "resource", "pwd", "grp", "tty", "pty"):
    try:
        __import__(name)
    except ImportError:
        continue
    print(name)
print([hasattr(os, "O_NOFOLLOW"), hasattr(os, "pread"), hasattr(signal, "SIGHUP"), hasattr(select, "poll")])
"""
    assert python(code) == "[False, False, False, False]\n"


def test_every_module_can_be_imported():
    python("""
import importlib, pkgutil, onetool
for found in pkgutil.walk_packages(onetool.__path__, "onetool."):
    if not found.name.endswith("__main__") and ".monty_stdlib." not in found.name:
        importlib.import_module(found.name)
""")


def test_the_command_line(onetool, folder):
    assert onetool("--version")
    assert "pack.hello" in onetool("tools", "list")
    assert json.loads(onetool("tools", "invoke", "pack.hello", "name=you"))["result"]["data"] == "Hello you"
    onetool("check")
    onetool("auth", "set", "API_KEY", stdin="0123456789abcdef\n")
    assert "API_KEY" in onetool("auth", "list")
    assert oct((folder / "secrets.yaml").stat().st_mode)[-3:] == "600"


def test_a_folder_is_trusted(onetool, folder):
    (folder / ".onetool").mkdir()
    (folder / ".onetool" / "onetool.yaml").write_text("packs: []\n")
    onetool("trust", "--yes", str(folder), ONETOOL_CONFIG="")


def test_run(onetool):
    assert json.loads(onetool("run", 'pack.hello(name="you") + "!"', "--json")) == "Hello you!"


def test_servers_and_files_over_mcp(folder):
    config = yaml.safe_load((folder / "onetool.yaml").read_text())
    config["fs"]["roots"] = [str(folder / "notes")]
    config["servers"] = {"clock": {"command": sys.executable, "args": ["-m", "mcp_server_time"]}}
    (folder / "onetool.yaml").write_text(yaml.safe_dump(config))
    code = """
print(clock.get_current_time(timezone="UTC")["timezone"])
print(fs.read_file(path="a.txt"))
"""

    async def work():
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "onetool", "mcp", "--config", str(folder / "onetool.yaml")],
            env=hidden_environment(),
        )
        async with asyncio.timeout(60), Client(stdio_client(server)) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
            return listed, [await client.call_tool("run", {"code": code}) for _ in range(3)]

    listed, answers = asyncio.run(work())
    assert listed == ["run"]
    for answer in answers:
        assert not answer.is_error, answer.content[0].text
        assert "UTC" in answer.content[0].text
        assert "one\ntwo" in answer.content[0].text


def test_bundles(onetool, folder):
    (folder / "echo.json").write_text(json.dumps(ECHO))
    onetool("bundles", "create", "mine")
    onetool("bundles", "add", "mine/say", "echo.json")
    assert "Hi" in onetool("tools", "invoke", "mine.say", "message=Hi")
    onetool("bundles", "export", "mine", "-o", "mine.zip")
    onetool("bundles", "disable", "mine/say")
    onetool("bundles", "enable", "mine/say")
    onetool("bundles", "delete", "mine/say", "--yes")
    assert "say" in onetool("bundles", "import", "mine.zip", "--as", "other")
    assert "Hi" in onetool("tools", "invoke", "other.say", "message=Hi")


def test_many_write_bundles_at_once(onetool):
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: onetool("bundles", "create", f"b{number}"), range(6)))
    listed = onetool("bundles", "list")
    assert all(f"b{number}" in listed for number in range(6))


def test_ask_and_its_sessions(onetool, folder):
    with StandIn() as model:
        config = yaml.safe_load((folder / "onetool.yaml").read_text())
        config["ask"] = {"provider": "openai", "model": "stand-in", "base_url": model.urls["openai"]}
        (folder / "onetool.yaml").write_text(yaml.safe_dump(config))
        model.will(Says(calls=[Wants("pack.hello", {"name": "you"})]), Says("It is said."))
        first = onetool("ask", "--approve", "always", "--session", "s", "Greet", OPENAI_API_KEY=KEY)
        assert "It is said." in first
        model.will(Says("Again."))
        assert "Again." in onetool("ask", "--session", "s", "And now?", OPENAI_API_KEY=KEY)
    shown = onetool("sessions", "show", "s")
    assert "Hello you" in shown, shown
    assert "And now?" in shown
    onetool("sessions", "delete", "s", "--yes")
    assert "no session" in onetool("sessions", "show", "s", fails=True).stderr


@pytest.mark.parametrize("path", ["../outside.txt", "out/outside.txt", "link.txt", "..", "sub/../../outside.txt"])
def test_files_are_confined(onetool, folder, path):
    (folder / "notes" / "sub").mkdir()
    (folder / "notes" / "out").symlink_to(folder)
    (folder / "notes" / "link.txt").symlink_to(folder / "outside.txt")
    for tool in ("fs.read_file", "fs.list_dir"):
        done = onetool("tools", "invoke", tool, f"path={path}", "--envelope", fails=True)
        assert json.loads(done.stdout)["result"]["error"]["reason"] in ("denied", "not_a_directory"), done.stdout


@pytest.mark.parametrize("name", ["a.txt:stream", "NUL", "con.txt", "a.txt.", "a.txt ", "C:a.txt", "a\\..\\..\\x"])
def test_names_that_windows_takes_for_something_else(onetool, name):
    done = onetool("tools", "invoke", "fs.read_file", "--args", json.dumps({"path": name}), "--envelope", fails=True)
    assert json.loads(done.stdout)["result"]["error"]["reason"] in ("bad_path", "denied"), done.stdout


def test_files_are_read_listed_and_written(onetool, folder):
    (folder / "notes" / "sub").mkdir()
    (folder / "notes" / "sub" / "b.txt").write_text("three")
    (folder / "notes" / "inside").symlink_to("sub")
    listed = json.loads(onetool("tools", "invoke", "fs.list_dir", "recursive=true"))["result"]["data"]
    assert [one["path"] for one in listed] == ["a.txt", "inside", "sub", "sub/b.txt"]
    assert json.loads(onetool("tools", "invoke", "fs.read_file", "path=inside/b.txt"))["result"]["data"] == "three"
    read = onetool("tools", "invoke", "fs.read_file", f"path={folder}/notes/a.txt")
    assert json.loads(read)["result"]["data"] == "one\ntwo\n"
    (folder / "onetool.yaml").write_text('topics: [{pattern: "log*", file: noted.yaml}]\n')
    for word in ("first", "second"):
        onetool("run", f'ot.notify(topic="log", message="{word}")')
    noted = next(folder.rglob("noted.yaml")).read_text()
    assert noted.index("first") < noted.index("second")


def test_a_lock_is_held_by_one_process_until_it_ends(tmp_path):
    (tmp_path / "file").touch()
    code = """
import os, subprocess, sys
from onetool.core import flock
file = os.open(sys.argv[1], os.O_RDWR)
if len(sys.argv) > 2:
    print(flock.take(file), flush=True)
    sys.stdin.read()
else:
    held = subprocess.Popen([sys.executable, *sys.orig_argv[1:], "hold"], stdin=-1, stdout=-1, text=True)
    seen = [held.stdout.readline().strip(), flock.take(file)]
    held.kill(), held.wait()
    seen += [flock.take(file), flock.take(file)]
    other = os.open(sys.argv[1], os.O_RDWR)
    seen.append(flock.take(other))
    flock.give_back(file)
    seen.append(flock.take(other))
    print(seen)
"""
    assert python(code, tmp_path / "file") == "['True', False, True, True, False, True]\n"


def test_tokens_are_added_and_revoked(onetool, folder):
    token = onetool("tokens", "add", "ci", "--tools", "time.*").strip()
    assert token.startswith("ot_")
    assert [(row["name"], row["state"]) for row in json.loads(onetool("tokens", "list"))] == [("ci", "valid")]
    onetool("tokens", "revoke", "ci")
    assert [(row["name"], row["state"]) for row in json.loads(onetool("tokens", "list"))] == [("ci", "revoked")]
    assert token.encode() not in (folder / "state.db").read_bytes()
