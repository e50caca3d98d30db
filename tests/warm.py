"""The command line in a process of its own that has imported everything already.

A command takes a second to start and a few hundredths to do its work, and the tests run it about a thousand times. So
one process per worker of pytest imports all of OneTool and forks for each command: the command has a process, an
environment, a folder and pipes of its own, as it would have otherwise. What is about starting up, importing or the
interpreter's own options takes a real start instead: `helpers.cli(…, cold=True)`.
"""

import array
import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

LOCK = threading.Lock()
Starter = tuple[socket.socket, dict[str, str], subprocess.Popen[bytes]]
# What the interpreter reads when it starts: a process that was forked would not see it.
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_")
# Imported inside of functions, where they are used.
ALSO = (
    "click._textwrap",
    "docstring_parser.google",
    "docstring_parser.numpydoc",
    "docstring_parser.rest",
    "httpx",
    "jsonschema_rs",
    "mcp",
    "mcp.client.session",
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "minijinja",
    "rapidfuzz.distance",
    "rapidfuzz.process",
    "rich.console",
    "uvicorn",
    "uvicorn.lifespan.on",
    "uvloop",
)


def _started() -> Starter:
    with LOCK:  # several threads may start something at once
        return _start()


@cache
def _start() -> Starter:
    """The process that forks; it ends when ours does, because then nobody has the other end of its socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = dict(os.environ)
    others = socket.socket(socket.AF_UNIX)
    others.bind(_place())
    others.listen(64)
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno()), str(others.fileno())],
        pass_fds=[theirs.fileno(), others.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    theirs.close()
    others.close()
    atexit.register(shutil.rmtree, os.path.dirname(_place()), ignore_errors=True)
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours, environment, process


@cache
def _place() -> str:
    """Where others than us find the process that forks: see `warm_client`."""
    return os.path.join(tempfile.mkdtemp(prefix="warm-"), "socket")


def program(args: Sequence[str], env: dict[str, str]) -> list[str]:
    """A command line that runs the command with these arguments, for who can only start programs."""
    if not can_fork(env):
        return [sys.executable, "-m", "onetool", *args]
    client = Path(__file__).with_name("warm_client.py")
    return [sys.executable, "-I", "-S", str(client), _place(), *args]


def can_fork(env: dict[str, str]) -> bool:
    """Whether a command in this environment does not need an interpreter of its own."""
    if sys.platform != "linux":
        return False
    _, known, _ = _started()
    names = [name for name in env.keys() | known.keys() if name.startswith(READ_AT_START)]
    return all(env.get(name) == known.get(name) for name in names)


class Command(subprocess.Popen):
    """As `subprocess.Popen` starts `python -m onetool`; only who starts it and how its end is heard differ."""

    def __init__(self, args: Sequence[str], terminal: bool = False, script: str | None = None, **options: Any) -> None:
        self._ended: int | None = None  # where the exit status comes
        self._how = {"terminal": terminal, "script": script}
        super().__init__(["onetool", *map(str, args)], **options)

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *more) -> None:
        pipes, start_new_session = more[3:9], more[14]
        its_in, _, _, its_out, _, its_errors = pipes
        assert not preexec_fn, "such a command starts cold"
        self._ended, its_end = os.pipe()
        order = os.memfd_create("order")  # of any length
        wanted = {"args": args[1:], "cwd": str(cwd or os.getcwd()), "env": dict(os.environ if env is None else env)}
        os.write(order, json.dumps({**wanted, **self._how, "new_session": start_new_session}).encode())
        given = [number if file == -1 else file for number, file in enumerate((its_in, its_out, its_errors))]
        files = array.array("i", [*given, its_end, order])
        _started()[0].sendmsg([b"run"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        self._child_created = True
        self._close_pipe_fds(*pipes)
        os.close(its_end)
        os.close(order)
        self.pid = int(_line(self._ended))

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        timeout = 0 if wait_flags & os.WNOHANG else None
        if self._ended is None or not select.select([self._ended], [], [], timeout)[0]:
            return 0, 0
        status = int(_line(self._ended) or b"9")
        os.close(self._ended)
        self._ended = None
        return self.pid, status

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self.returncode is None and self._ended is not None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


def _line(file: int) -> bytes:
    """One line, and nothing of the next."""
    found = b""
    while (one := os.read(file, 1)) not in (b"", b"\n"):
        found += one
    return found


# The process that forks


def _main(control: socket.socket, others: socket.socket) -> None:
    _import_everything()
    gc.collect()
    gc.freeze()  # else the first collection of each command would copy all of it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of who runs the tests: it ends when they do
    running: dict[int, tuple[int, int]] = {}  # by file of the process: its id, and where its end is told
    while True:
        for ready in select.select([control, others, *running], [], [])[0]:
            if ready in running:
                _tell_end(ready, *running.pop(ready))
                continue
            files = _files(control) if ready is control else _files_of_client(others.accept()[0])
            if not files:
                return
            *given, its_end, order = files
            pid = os.fork()
            if pid == 0:
                control.close()
                others.close()
                _close(its_end, *running, *(end for _, end in running.values()))
                _be_the_command(*given, order)
            _close(*given, order)
            _tell(its_end, pid)
            running[os.pidfd_open(pid)] = pid, its_end


def _tell_end(process: int, pid: int, its_end: int) -> None:
    _, status = os.waitpid(pid, 0)
    _tell(its_end, status)
    _close(process, its_end)


def _tell(file: int, number: int) -> None:
    with suppress(ConnectionError):  # nobody waits for it any more
        os.write(file, b"%d\n" % number)


def _close(*files: int) -> None:
    for file in files:
        os.close(file)


def _files(connection: socket.socket) -> "array.array[int]":
    """The files that somebody has sent; none if he has gone."""
    files = array.array("i")
    for _, _, data in connection.recvmsg(16, socket.CMSG_SPACE(5 * 4))[1]:
        files.frombytes(data)
    return files


def _files_of_client(connection: socket.socket) -> list[int]:
    """The same of a `warm_client`: how its command ends is told on its own connection."""
    its_in, its_out, its_errors, order = _files(connection)
    return [its_in, its_out, its_errors, connection.detach(), order]


def _import_everything() -> None:
    import onetool
    from onetool.core import text

    found = [module.name for module in pkgutil.walk_packages(onetool.__path__, "onetool.")]
    for name in (*found, *ALSO):
        if name != "onetool.__main__":
            importlib.import_module(name)
    for pattern in [one for one in gc.get_objects() if isinstance(one, text._LazyPattern)]:
        pattern.match  # compiles it  # noqa: B018
    importlib.import_module("onetool.services.search.meaning").load_table()  # as long as all other work of a server
    importlib.import_module("keyring.backend").get_all_keyring()  # starts compilers to look for libraries
    set_constants(POLLS)


# No test cuts the power: what was written survives the end of every process without waiting for the disk.
NO_SYNC = dict.fromkeys(
    ("onetool.database.sqlite.FULL_SYNC", "onetool.database.sqlite.USUAL_SYNC"), "PRAGMA synchronous = OFF"
)
# Seconds between two looks. A look that comes sooner changes nothing but how long a test waits, and costs a little CPU.
POLLS = {
    "onetool.app.bundles.EVERY": 0.2,
    "onetool.app.reload.POLL_S": 0.2,
    **NO_SYNC,
    "onetool.interfaces.cli.audit.POLL_S": 0.05,
    "onetool.interfaces.http.credentials.CHECK_EVERY_S": 0.1,
    "onetool.interfaces.mcp.pending_calls.LOOK_SECONDS": 0.1,
    "onetool.services.stats.writer.GATHER_SECONDS": 0.1,
    "onetool.sources.bundles.usage.GATHER_SECONDS": 0.1,
    "onetool.sources.mcp_servers.loop.LOOK_AGAIN": 0.2,
}
# Other constants for one command, as JSON. A test that sets some passes without them, too, after a longer wait.
CONSTANTS = "WARM_CONSTANTS"


def set_constants(values: dict[str, Any]) -> None:
    for place, value in values.items():
        module, _, name = place.rpartition(".")
        assert hasattr(sys.modules[module], name), f"{place} has moved"
        setattr(sys.modules[module], name, value)


def _be_the_command(its_in: int, its_out: int, its_errors: int, order: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.lseek(order, 0, os.SEEK_SET)
    with os.fdopen(order, "rb") as file:
        wanted = json.loads(file.read())
    for number, file in enumerate((its_in, its_out, its_errors)):
        os.dup2(file, number)
    _close(*{its_in, its_out, its_errors})
    if sys.stdout.isatty():
        sys.stdout.reconfigure(line_buffering=True)
    if wanted["new_session"]:
        os.setsid()
    if wanted["terminal"]:
        take_terminal()
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    tempfile.tempdir = None  # found by an import, with TMPDIR as it was
    set_constants(json.loads(os.environ.pop(CONSTANTS, "{}")))
    code, script = 1, wanted["script"]
    sys.argv = [script or "onetool", *wanted["args"]]
    sys.path[0] = str(Path(script).parent) if script else wanted["cwd"]
    try:
        if script:
            runpy.run_path(script, run_name="__main__")
        else:
            runpy.run_module("onetool", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def take_terminal() -> None:
    """Make standard error the terminal of this session: the one that Ctrl-C is pressed at."""
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)


def _leave(code: int) -> None:
    """End as an interpreter does, but take nothing apart: that would copy everything that was imported."""
    threading._shutdown()
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _main(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
