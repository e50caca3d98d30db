"""`onetool serve --workers N`: several processes serve at one address. They are replaced, reloaded and stopped."""

import json
import os
import signal
import subprocess
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from threading import Event, Thread

import pytest
from helpers import start, until
from interfaces.mcp.servers import Server, children_of, environment
from sources.mcp_servers.stage import Stage, is_gone

PACK = '''"""Tells of its process."""
import os
import time


def get() -> int:
    """The id of the process."""
    return os.getpid()


def slow(seconds: float) -> int:
    """The id of the process, after a while."""
    time.sleep(seconds)
    return os.getpid()
'''
PATIENCE = 40


class Workers(Server):
    def __init__(self, folder, count, **config):
        folder.mkdir(exist_ok=True)
        self.folder, self.stage = folder, Stage(folder)
        (folder / "pid.py").write_text(PACK)
        self.config = self.stage.config({"ok": self.stage.nasty("ok")}, packs=["pid.py"], **config)
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
        import re

        assert self.process.poll() is None, self.log()
        return re.search(r"http://127\.0\.0\.1:(\d+)/mcp", self.greeting_file.read_text())

    def workers(self):
        """The ids of those that run."""
        found = {}
        for pid in children_of(self.process.pid):
            with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"workers.worker" in file.read():
                    found[pid] = pid
        return set(found)

    def call(self, name, connection=None, **args):
        made = connection or self.connection()
        try:
            made.request("POST", f"/call/{name}", json.dumps(args), {"Content-Type": "application/json"})
            response = made.getresponse()
            said = response.read()
        finally:
            if connection is None:
                made.close()
        assert response.status == 200, said
        return json.loads(said)

    def connection(self):
        return HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def answering(self, count):
        """The processes that answer, when there are so many of them."""
        found = set()
        until(lambda: found.add(self.call("pid.get")) or len(found) >= count, PATIENCE)
        return found


class Load:
    """Calls on new connections and on a kept one, until it is ended; `failures` are those that were not answered."""

    def __init__(self, server, keeps):
        self.server, self.keeps = server, keeps
        self.calls, self.failures, self.pids = 0, [], set()
        self._ended = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with closing(self.server.connection()) as kept:  # it connects again where it was closed
            self._call_on(kept)

    def _call_on(self, kept):
        while not self._ended.is_set():
            try:
                self.pids.add(self.server.call("pid.get", kept if self.keeps else None))
                self.calls += 1
            except ConnectionRefusedError:
                return  # it has stopped
            except (OSError, HTTPException, AssertionError) as error:
                self.failures.append(repr(error))
                kept.close()

    def end(self):
        self._ended.set()
        self._thread.join(PATIENCE)
        return self.failures


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    server = Workers(tmp_path_factory.mktemp("pair"), 2)
    yield server
    assert server.stop() == 0, server.log()
    assert "Traceback" not in server.log()
    assert server.stage.left() == []


def test_several_processes_answer_and_it_greets_once(pair):
    assert pair.answering(2) == pair.workers()
    assert pair.greeting_file.read_text().count("OneTool listens on") == 1


def test_log_lines_say_which_worker_wrote_them(pair):
    pair.answering(2)
    lines = [json.loads(line) for line in pair.log().splitlines()]
    assert {line["worker"] for line in lines if line["logger"] == "onetool.access"} == {1, 2}


def test_nothing_secret_stands_in_the_command_line(pair):
    for pid in pair.workers():
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            *_, module, descriptor, _ = file.read().split(b"\0")
        assert module == b"onetool.interfaces.workers.worker"
        assert descriptor.isdigit()


def test_a_stdio_server_has_one_process(pair):
    pids = {pair.call("ok.pid") for _ in range(20)}
    assert {int(pid) for pid in pids} == set(pair.stage.started())
    assert len(pids) == 1


def test_all_workers_are_one_server_for_the_page(pair):
    def hello():
        made = HTTPConnection("127.0.0.1", pair.port, timeout=PATIENCE)
        made.request("GET", "/events", headers={"Accept": "text/event-stream"})
        response = made.getresponse()
        line = next(line for line in iter(response.readline, b"") if line.startswith(b"data:"))
        made.close()
        return json.loads(line[5:])["instance"]

    assert len({hello() for _ in range(12)}) == 1


def test_a_reload_reaches_all(pair):
    block = json.loads(pair.config.read_text())
    pair.config.write_text(json.dumps(block | {"aliases": {"mine": "pid.get"}}))
    before = pair.log().count("Reloaded: ")
    pair.process.send_signal(signal.SIGHUP)
    until(lambda: pair.log().count("Reloaded: ") == before + 2)
    pair.config.write_text("{")
    pair.process.send_signal(signal.SIGHUP)
    until(lambda: "not reloaded" in pair.log())
    pair.config.write_text(json.dumps(block))
    assert pair.answering(2) == pair.workers()


def test_one_that_is_killed_is_replaced_and_calls_of_others_go_on(tmp_path):
    server = Workers(tmp_path, 3)
    try:
        before = server.workers()
        assert len(before) == 3
        killed = server.call("pid.get")
        loads = [Load(server, keeps=True) for _ in range(6)]
        until(lambda: all(load.calls > 20 for load in loads))
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(server.workers() - {killed}) == 3)
        failed = [load for load in loads if load.end()]
        assert all(killed in load.pids for load in failed)  # only those that were connected to it
        assert server.call("ok.echo", text="still there") == "still there"
        assert "was ended by SIGKILL; it is replaced now" in server.log()
    finally:
        server.stop()
    assert server.stage.left() == []


def test_no_call_fails_when_it_is_told_to_stop(tmp_path):
    server = Workers(tmp_path, 2)
    slow = [Load(server, keeps=keeps) for keeps in (True, True, False)]
    until(lambda: all(load.calls > 20 for load in slow))
    waiting = []
    thread = Thread(target=lambda: waiting.append(server.call("pid.slow", seconds=1.0)))
    thread.start()
    until(lambda: thread.is_alive())
    workers = server.workers()
    assert server.stop() == 0
    thread.join(PATIENCE)
    assert waiting
    assert waiting[0] in workers
    assert [failure for load in slow for failure in load.end() if "reset" not in failure.lower()] == []


def test_when_the_supervisor_is_killed_the_workers_end(tmp_path):
    server = Workers(tmp_path, 2)
    workers = server.workers()
    server.process.kill()
    server.process.wait()
    assert all(is_gone(pid) for pid in workers)
    assert server.stage.left() == []


def test_a_config_that_cannot_be_used_is_told_once(tmp_path):
    (tmp_path / "onetool.yaml").write_text("prt: 1\nhttp: {port: no}\n")
    process = start(
        *("--config", "onetool.yaml", "serve", "--workers", "2"),
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said, told = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (2, "")
    assert told.count("http.port") == 1
