"""A server that is stuck does not stay so: whatever blocks it, it is ended, and its client or supervisor can go on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import start, until

pytestmark = pytest.mark.long

PACK = '''
async def block() -> str:
    """Hold up the loop for ever."""
    while True:
        pass
'''
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


class Pipe:
    def __init__(self, folder, seconds):
        (folder / "packs").mkdir()
        (folder / "packs" / "bad.py").write_text(PACK)
        (folder / "onetool.yaml").write_text("packs: [packs]\n")
        self.process = start(
            "--config",
            str(folder / "onetool.yaml"),
            "mcp",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "HOME": str(folder), "ONETOOL_WATCHDOG": seconds},
        )
        self.send("initialize", HELLO)
        self.line()

    def send(self, method, params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def line(self):
        return self.process.stdout.readline()

    def run(self, code):
        self.send("tools/call", {"name": "run", "arguments": {"code": code}})

    def has_a_dog(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return any("select.select" in Path(f"/proc/{one}/cmdline").read_text() for one in children)


@pytest.fixture
def pipe(tmp_path):
    made = []

    def start(seconds="1"):
        made.append(Pipe(tmp_path, seconds))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()
        for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
            stream.close()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_a_server_that_is_stuck_is_ended(pipe):
    stuck = pipe()
    until(stuck.has_a_dog)
    stuck.run("bad.block()")
    assert stuck.process.wait(20) == -signal.SIGKILL
    told = stuck.process.stderr.read().decode()
    assert f"onetool (process {stuck.process.pid}) did not respond for 1 s and was killed" in told
    assert "ONETOOL_WATCHDOG=0 turns this check off" in told


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_a_server_that_is_only_busy_is_let_be_and_leaves_nobody_behind(pipe):
    busy = pipe()
    until(busy.has_a_dog)
    busy.run("import time\ntime.sleep(2.5)\n'rested'")
    assert b"rested" in busy.line()
    busy.process.stdin.close()
    assert busy.process.wait(10) == 0
    assert busy.process.stderr.read() == b""  # which ends only when the dog has, too


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_who_does_not_want_it_has_none(pipe):
    alone = pipe("0")
    time.sleep(1.5)
    assert not alone.has_a_dog()
