"""Real servers: `onetool serve` in a process of its own, on a port that the system chooses, with a stand-in for MCP."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers import start, until
from interfaces.http.collector import Collector

STAND_IN = Path(__file__).with_name("stand_in.py")
PATIENCE = 60


class Reply(NamedTuple):
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        said = self.json
        if "error" not in said:
            return said["code"]  # a problem, as REST tells it
        return said["error"]["data"]["reason"] if "jsonrpc" in said else said["error"]["code"]


class Served:
    """A server that runs, and ways to talk to it."""

    def __init__(self, folder, *args, config=None, env=None, limits=None, real=False, command=None):
        """With `real` it is the whole of OneTool, and no stand-in for MCP. `command` starts another one, cold."""
        self.folder = folder
        if config is not None:
            (folder / "onetool.yaml").write_text(json.dumps(config))
            args = (*args, "--config", str(folder / "onetool.yaml"))
        self.log_file = folder / "stderr.txt"
        with self.log_file.open("wb") as log:
            begin = partial(start, "serve", *args, script=None if real else STAND_IN)
            if command is not None:
                begin = partial(subprocess.Popen, [sys.executable, *command, "serve", *args])
            self.process = begin(
                cwd=folder,
                env={
                    **os.environ,
                    "ONETOOL_HOME": str(folder / "home"),
                    "STAND_IN_LIMITS": json.dumps(limits or {}),
                    **(env or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.greeting = self._read_greeting()
        found = re.search(r"listens on http://(\S+):(\d+) ", self.greeting)
        if found is None:
            self.stop()
            pytest.fail(f"it did not start: {self.greeting} {self.log_file.read_text()}")
        self.host, self.port = found[1].strip("[]"), int(found[2])

    def _read_greeting(self):
        text, deadline = b"", time.monotonic() + PATIENCE
        while time.monotonic() < deadline and b"curl" not in text:
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                piece = os.read(self.process.stdout.fileno(), 65536)
                if not piece:
                    break
                text += piece
        return text.decode()

    def connect(self, timeout=PATIENCE):
        return socket.create_connection((self.host, self.port), timeout)

    def send(self, data, timeout=PATIENCE):
        """Raw bytes in, one reply out."""
        with self.connect(timeout) as client:
            client.sendall(data)
            return self.read(client)

    def ask(self, path="/mcp", method="GET", headers=(), body=b"", host=None, kind="application/json"):
        """`kind` is what it says of its body, unless that is None or stands in the headers."""
        lines = [f"{method} {path} HTTP/1.1"]
        if host is not False:
            lines.append(f"Host: {host or f'127.0.0.1:{self.port}'}")
        if body:
            lines.append(f"Content-Length: {len(body)}")
        if kind and (body or method == "POST") and "Content-Type" not in dict(headers):
            lines.append(f"Content-Type: {kind}")
        lines += [f"{name}: {value}" for name, value in headers]
        return self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    @staticmethod
    def read(client):
        """One reply from a socket; a status of 0 when the connection ended without one."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = _received(client)
            if not piece:
                return Reply(0, {}, data)
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)) and (piece := _received(client)):
            body += piece
        return Reply(int(first.split()[1]), headers, body)

    def log(self, wait_for=None):
        """The log's lines as data; waits until one of them has the text."""
        if wait_for is not None:
            until(lambda: wait_for in self.log_file.read_text())
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def wait_begun(self, count=1):
        """Wait until so many requests have come to the stand-in."""
        began = self.folder / "began"
        until(lambda: began.exists() and began.stat().st_size >= count)

    def requests(self, wait_for=None):
        return [line for line in self.log(wait_for) if line["logger"] == "onetool.access"]

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.stdout.close()


def _received(client):
    try:
        return client.recv(65536)
    except ConnectionError:
        return b""


@pytest.fixture
def serve(tmp_path):
    """Start servers; all of them are ended with the test."""
    running = []

    def start(*args, port=0, **options):
        folder = tmp_path / f"server-{len(running)}"
        folder.mkdir()
        running.append(Served(folder, "--port", str(port), *args, **options))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def collector():
    """A stand-in for an OTLP collector."""
    made = Collector()
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server with the default config, for tests that leave it as it was."""
    running = Served(tmp_path_factory.mktemp("server"), "--port", "0")
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """One that waits for no client for long; tests leave it as it was."""
    limits = {"head_s": 0.2, "keep_alive_s": 1.5}
    running = Served(tmp_path_factory.mktemp("hasty"), "--port", "0", limits=limits)
    yield running
    assert running.stop() == 0


TOKEN = "sesame-token-0123456789"
ORIGIN = "https://app.example"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """One with a token, and with names and pages that it knows."""
    config = {"http": {"token": TOKEN, "hosts": ["tools.example"], "origins": [ORIGIN], "max_body_mb": 1}}
    running = Served(tmp_path_factory.mktemp("guarded"), "--port", "0", config=config)
    running.token, running.origin = TOKEN, ORIGIN
    yield running
    assert running.stop() == 0
