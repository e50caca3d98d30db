"""A server with several workers, and load on it."""

import json
import re
import subprocess
from contextlib import suppress
from hashlib import sha256
from http.client import HTTPConnection, HTTPException
from threading import Event, Thread

from helpers import start, until
from interfaces.mcp.servers import Server, children_of, environment
from sources.mcp_servers.harness import Harness

PACK = '''"""Tells of its process."""
import os
import time


def get() -> int:
    """The id of the process."""
    return os.getpid()


def slow(seconds: float, begun: str) -> int:
    """The id of the process, after a while."""
    open(begun, "w").close()
    time.sleep(seconds)
    return os.getpid()
'''
PATIENCE = 60
TOKEN = "the-token-of-its-owner"
LIMITED, ALSO_LIMITED = "ot_" + "a" * 40, "ot_" + "b" * 40


def named(name, token, **more):
    return {"name": name, "hash": f"sha256:{sha256(token.encode()).hexdigest()}", "role": "call", **more}


class Workers(Server):
    """`onetool serve --workers N`."""

    def __init__(self, folder, count):
        folder.mkdir(exist_ok=True)
        self.folder, self.harness, self._kept = folder, Harness(folder), []
        (folder / "pid.py").write_text(PACK)
        tokens = [named("limited", LIMITED, rate="20/min"), named("also", ALSO_LIMITED, rate="5/min")]
        http = {"token": TOKEN, "tokens": tokens}
        self.config = self.harness.config({"ok": self.harness.nasty("ok", replicate=True)}, packs=["pid.py"], http=http)
        self.log_file, self.greeting_file = folder / "serve.log", folder / "out.txt"
        with self.log_file.open("wb") as log, self.greeting_file.open("wb") as out:
            self.process = start(
                *("--config", str(self.config), "serve", "--port", "0", "--workers", str(count)),
                cwd=folder,
                env=environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
            )
        self.port = int(until(self._address, PATIENCE)[1])

    def _address(self):
        assert self.process.poll() is None, self.log()
        return re.search(r"http://127\.0\.0\.1:(\d+)/mcp", self.greeting_file.read_text())

    def workers(self):
        """The ids of those that run."""
        found = set()
        for pid in children_of(self.process.pid):
            with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"--workers" in file.read():
                    found.add(pid)
        return found

    def connection(self):
        return HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, method, path, data=None, *, on=None, token=TOKEN):
        """The response and its body. `on` is a connection that is kept."""
        made = on or self.connection()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        try:
            made.request(method, path, None if data is None else json.dumps(data), headers)
            response = made.getresponse()
            return response, response.read()
        finally:
            if on is None:
                made.close()

    def call(self, name, on=None, **args):
        response, said = self.ask("POST", f"/call/{name}", args, on=on)
        assert response.status == 200, said
        return json.loads(said)

    def connected(self):
        """A connection to each worker, by its process id: until `hang_up`."""
        found = {}

        def another():
            made = self.connection()
            pid = self.call("pid.get", made)
            if found.setdefault(pid, made) is made:
                self._kept.append(made)
            else:
                made.close()
            return found.keys() >= self.workers()

        until(another, PATIENCE)
        return found

    def hang_up(self):
        while self._kept:
            self._kept.pop().close()


class Load:
    """Calls on a kept connection, or on new ones, until it is ended; `failures` are those that were not answered."""

    def __init__(self, server, kept=None):
        self.server, self.kept = server, kept
        self.calls, self.failures, self.pids = 0, [], set()
        self._ended = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._ended.wait(0.005):  # without a pause, four loads would take eight seconds of CPU
            try:
                self.pids.add(self.server.call("pid.get", self.kept))  # a kept one that was closed connects again
                self.calls += 1
            except ConnectionRefusedError:
                break  # it has stopped
            except (OSError, HTTPException, AssertionError) as error:
                self.failures.append(repr(error))
                if self.kept is not None:
                    self.kept.close()
        if self.kept is not None:
            self.kept.close()

    def goes_on(self, calls=20):
        """Wait until it has made so many more calls."""
        wanted = self.calls + calls
        until(lambda: self.calls >= wanted, PATIENCE)

    def end(self):
        self._ended.set()
        self._thread.join(PATIENCE)
        return self.failures
