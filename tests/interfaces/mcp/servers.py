"""Servers in processes of their own, and single HTTP requests to them."""

import json
import os
import re
import signal
import socket
import subprocess
from base64 import b64encode
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

from helpers import start, until

CONFIG = Path(__file__).parent / "fixture" / "onetool.yaml"
PATIENCE = 60  # seconds, after which something that should come is taken not to


def environment(folder, **more):
    """A home of its own for a process."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("ONETOOL_")}
    return {**own, "HOME": str(folder), "ONETOOL_HOME": str(folder / "state"), **more}


def children_of(pid):
    """Processes that were started by any of its threads."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended meanwhile
            found += map(int, file.read_text().split())
    return found


def as_header(text):
    """A text as a header can carry it."""
    plain = text.isascii() and text.isprintable() and text.strip() == text
    return text if plain else f"=?base64?{b64encode(text.encode()).decode()}?="


def ended_well(end):
    """End something; whatever comes of it, others are ended too (see ExitStack)."""
    assert end() == 0


class Server:
    """`onetool serve`."""

    def __init__(self, folder, *args, config=CONFIG, **env):
        self.folder = folder
        self.log_file = folder / "serve.log"
        with self.log_file.open("wb") as log:
            self.process = start(
                *("--config", str(config), "serve", "--port", "0", *args),
                cwd=folder,
                env=environment(folder, **env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self.port = int(until(self._address)[1])
        except BaseException:
            self.stop()
            raise
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def _address(self):
        assert self.process.poll() is None, self.log()
        return re.search(r"http://127\.0\.0\.1:(\d+)/mcp", self.log())

    def log(self):
        return self.log_file.read_text()

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def stop(self):
        """The exit code."""
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()

    def send(self, message, headers=(), *, path="/mcp", method="POST"):
        """One request by hand, as long as it takes; a text or bytes go as they are."""
        exchange = Exchange(self.port, method, path, headers, message)
        exchange.read()
        return exchange


class Exchange:
    """One HTTP request, and what came back: `messages`, in `events` if it is a stream."""

    def __init__(self, port, method, path, headers, message=None):
        body = message if isinstance(message, bytes | None) else json.dumps(message).encode()
        self.status, self.headers, self.body = 0, {}, b""
        self.events = []
        self.messages = []
        self._connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._connection.putrequest(method, path)
        for name, value in headers:
            self._connection.putheader(name, value)
        if body is not None:
            self._connection.putheader("Content-Length", str(len(body)))
        self._connection.endheaders(body)
        self._socket = self._connection.sock

    @property
    def message(self):
        """The only one."""
        (message,) = self.messages
        return message

    @property
    def code(self):
        return self.message["error"]["code"]

    def read(self, arrived=None):
        """All of it. `arrived` is told each message."""
        response = None
        try:
            response = self._connection.getresponse()
            self.status, self.headers = response.status, {k.lower(): v for k, v in response.getheaders()}
            if self.headers.get("content-type") == "text/event-stream":
                self._read_events(response, arrived)
                return
            self.body = response.read()
            if self.body:
                self._take(json.loads(self.body), arrived)
        finally:
            if response is not None:
                response.close()
            self._connection.close()

    def hang_up(self):
        """Be gone, in the middle of it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read_events(self, response, arrived):
        event = {}
        for line in response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if line != b"\n":
                event[name] = value
                continue
            self.events.append(event)
            if event.get("data"):
                self._take(json.loads(event["data"]), arrived)
            event = {}

    def _take(self, message, arrived):
        self.messages.append(message)
        if arrived:
            arrived(message)
