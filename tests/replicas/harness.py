"""Real replicas: processes of `onetool serve` that share a PostgreSQL, each with a home and an address of its own."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import httpx
from helpers import until
from postgres import free_port

KEY = "0123456789abcdef0123456789abcdef"
BUNDLE = "01890a5d-ac96-774b-bcce-b302099a8057"
PACK = '''
"""Tools to tell replicas apart, and calls that take a while."""

import asyncio
import os

from onetool.sdk import ask_person, report_progress


def pid() -> int:
    """The process that answers."""
    return os.getpid()


async def slow(seconds: float = 1.0) -> int:
    """Wait, then tell the process."""
    await asyncio.sleep(seconds)
    return os.getpid()


async def note(path: str) -> int:
    """Write the process to the end of a file, and take long."""
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\\n")
    await asyncio.sleep(3)
    return os.getpid()


async def steps(count: int = 3, seconds: float = 0.2) -> int:
    """Tell of progress, then the process."""
    for number in range(count):
        report_progress(number + 1, count)
        await asyncio.sleep(seconds)
    return os.getpid()


async def wish() -> str:
    """Ask the person for a colour."""
    answer = await ask_person("Which colour?", {"colour": {"type": "string"}}, key="colour")
    return f"{answer['colour']} in {os.getpid()}"


def long_text(lines: int = 5000) -> str:
    """Many lines."""
    return "\\n".join(f"line {number}" for number in range(1, lines + 1))
'''
TOKEN = "a-token-of-all-the-replicas-0123456789"  # a replica lets nobody in without one
CONFIG = """
{database}
cluster: {{{cluster}}}
http: {{port: {port}, hosts: [127.0.0.1], access_log: false{http}}}
packs: [{pack}]
menu: direct
{more}
"""


class Replica:
    """One process of `onetool serve`."""

    def __init__(
        self,
        folder: Path,
        pack: Path,
        database: str,
        more: str = "",
        skew: int = 0,
        http: str = "",
        finish: str = "",
        key: str = KEY,
        version: str = "",
        home: Path | None = None,
    ) -> None:
        """With a `home`, it shares its state.db with others, and no database."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self.home = home or folder / "home"
        folder.mkdir()
        text = f"import time\nreal = time.time\ntime.time = lambda: real() + {skew}\n" if skew else ""
        text += f"import onetool._version as found\nfound.__version__ = {version!r}\n" if version else ""
        self._first = folder / "first" if text else None
        if self._first is not None:  # Python runs this first
            self._first.mkdir()
            (self._first / "sitecustomize.py").write_text(text)
        self.config = folder / "onetool.yaml"
        self.config.write_text(
            CONFIG.format(
                database="" if home else f"database: {database}",
                port=self.port,
                cluster=", ".join(filter(None, ("" if home else f"key: {key}", finish))),
                pack=pack,
                more=more,
                http=f", {http or f'token: {TOKEN}'}",
            )
        )
        self.process: subprocess.Popen | None = None
        self._told = 0  # the process that was told to stop

    def start(self) -> "Replica":
        environment = {**os.environ, "ONETOOL_HOME": str(self.home)}
        if self._first is not None:
            environment["PYTHONPATH"] = os.pathsep.join([str(self._first), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "onetool", "serve", "--config", str(self.config)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        return self

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        return False

    def wait_until_ready(self) -> "Replica":
        until(self.is_ready, 60)
        return self

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(20)

    def tell_to_stop(self) -> bool:
        """Return whether it runs; only one signal lets it finish."""
        runs = self.process is not None and self.process.poll() is None
        if runs and self._told != self.pid:
            self._told = self.pid
            os.kill(self.pid, signal.SIGTERM)
        return runs

    def stop(self) -> int:
        """As a rolling restart does it."""
        return self.process.wait(60) if self.tell_to_stop() else 0

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


class Load:
    """Calls through a balancer, over and over, from several threads; `failed` has what went wrong."""

    def __init__(self, url: str, path: str = "/call/probe.pid", threads: int = 4, body: dict | None = None) -> None:
        self._url, self._path, self._body = url, path, body or {}
        self._is_over = threading.Event()
        self.done = 0
        self.failed: list[str] = []
        self.answers: set[str] = set()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)

    def more(self, count: int = 50) -> None:
        """Wait until so many more calls have been answered."""
        wanted, deadline = self.done + count, time.monotonic() + 60
        while self.done < wanted:
            assert time.monotonic() < deadline, self.failed[:5]
            assert len(self.failed) < 1000, self.failed[:5]
            time.sleep(0.01)

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as client:
            while not self._is_over.is_set():
                try:
                    response = client.post(self._path, json=self._body)
                except httpx.HTTPError as error:
                    self.failed.append(f"{type(error).__name__}: {error}")
                    continue
                if response.status_code == 200:
                    self.answers.add(response.text)
                    self.done += 1
                else:
                    self.failed.append(f"{response.status_code} {response.text[:300]}")


class Wire:
    """A TCP connection to a server that can be cut: nothing passes any more, and nobody is told."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._is_cut = threading.Event()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut.set()

    def mend(self) -> None:
        """Connections of before stay dead, as after a partition that has lasted: their ends find out."""
        self._is_cut.clear()
        for one in self._sockets:
            with suppress(OSError):
                one.close()
        self._sockets.clear()

    def close(self) -> None:
        self._listening.close()
        self.mend()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self._sockets.append(near)
                if self._is_cut.is_set():
                    continue
                far = socket.create_connection(("127.0.0.1", self._to))
                self._sockets.append(far)
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(a, b), daemon=True).start()

    def _pass(self, a: socket.socket, b: socket.socket) -> None:
        with suppress(OSError), closing(a), closing(b):
            while data := a.recv(65536):
                while self._is_cut.is_set():
                    time.sleep(0.05)
                b.sendall(data)
