"""A folder with a config, the servers in it, and every process that came of them, known by its id."""

import asyncio
import json
import os
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from helpers import cli, until

from onetool import App, ToolCall

SCRIPTS = Path(__file__).parent / "nasty"
BIN = Path(sys.executable).parent
PYTHON = [sys.executable, "-S", "-X", "utf8"]  # the scripts need nothing but the standard library


def block_of(script, *args, **settings):
    """The block of a server that is one of the scripts in `nasty`."""
    command, *before = PYTHON
    return {"command": command, "args": [*before, str(SCRIPTS / f"{script}.py"), *map(str, args)], **settings}


class Harness:
    def __init__(self, folder):
        self.folder = folder
        self._pids = folder / "pids"

    def nasty(self, script, *args, env=None, **settings):
        """The block of a server that is one of the scripts."""
        return block_of(script, *args, env={"PIDS": str(self._pids), **(env or {})}, **settings)

    def config(self, servers, **more):
        file = self.folder / "onetool.yaml"
        file.write_text(json.dumps({"servers": servers, **more}))
        return file

    @contextmanager
    def app(self, servers, **more):
        """The app, and at its end a look around: whatever it started must be gone."""
        with App.open(self.config(servers, **more)) as app:
            yield app
        assert self.left() == []

    def started(self):
        return [int(pid) for pid in self._pids.read_text().split()] if self._pids.exists() else []

    def left(self, within=60.0):
        """Process ids of servers that are still there, when they have had some time to go."""
        return [pid for pid in self.started() if not is_gone(pid, within)]

    def cli(self, *args, **options):
        done = cli(*args, cwd=self.folder, env={"ONETOOL_CONFIG": str(self.folder / "onetool.yaml")}, **options)
        assert "Traceback" not in done.stderr
        return done


def call(app, name, /, **args):
    return asyncio.run(app.call(ToolCall(id="1", name=name, args=args, source="test")))


def ran(app, code):
    return asyncio.run(app.run(code))


def settle(app, within=60.0):
    """Every server's status, when each has connected or failed. One that is told to go gets some time for it."""
    asyncio.run(app.servers.wait_connected())
    with suppress(AssertionError):
        until(lambda: all(status.state != "connecting" for status in app.servers.statuses()), within)
    return {status.name: status for status in app.servers.statuses()}


def is_fine(app, server="good"):
    """Whether a server that behaves still works."""
    return call(app, f"{server}.echo", text="still there").data == "still there"


def tools_of(app, server):
    return {spec.name.partition(".")[2] for spec in app.tools() if spec.source == f"proxy:{server}"}


@contextmanager
def connection_lost(app, server):
    """In here the connection to a server goes. It is over when the app has heard of that."""
    upstream = app.servers._loop.upstreams[server]
    before = upstream._connection
    yield
    until(lambda: upstream._connection is not before)


def kill(app, server, pid):
    """Kill the process of a server, and wait until the app has heard of it."""
    with connection_lost(app, server):
        os.kill(pid, signal.SIGKILL)
        assert is_gone(pid)


def is_gone(pid, within=60.0):
    """Whether a process goes, within some time. The seconds are for what never comes: nothing is measured by them."""
    deadline = monotonic() + within
    while _is_there(pid):
        if monotonic() > deadline:
            return False
        sleep(0.01)
    return True


def _is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended and waits for init to notice is gone as far as we are concerned.
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it went between two looks, or there is no /proc
        return not Path("/proc").is_dir()
