"""A fork server for the command line.

A command takes a second to start and a few hundredths of a second to do its work, and the tests run about a thousand
commands. So each run has one process that imports all of OneTool and forks for each command. The command has its own
process, environment, folder and pipes, as after a normal start. Tests of the start itself, of imports or of
interpreter options start a new interpreter instead: `helpers.cli(…, cold=True)`.
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
from pathlib import Path
from typing import Any

START_LOCK = threading.Lock()
SOCKET = "WARM_SOCKET"  # environment variable: the path of the fork server's socket, for the workers
# Prefixes of environment variables that the interpreter reads when it starts. A forked process would ignore a change.
STARTUP_PREFIXES = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name.startswith(STARTUP_PREFIXES)}
# Modules that OneTool imports inside functions.
LAZY_IMPORTS = (
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


def start_fork_server() -> None:
    """Start the fork server. It ends with this process, which has the only other end of its standard input."""
    os.environ[SOCKET] = os.path.join(tempfile.mkdtemp(prefix="warm-"), "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.environ[SOCKET])
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            env={key: os.environ[key] for key in os.environ if not key.startswith(STARTUP_PREFIXES)} | ENVIRONMENT,
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
    atexit.register(shutil.rmtree, os.path.dirname(os.environ[SOCKET]), ignore_errors=True)
    atexit.register(process.communicate)


def _socket_path() -> str:
    """Return the path of the fork server's socket. Starts the server if this run has none."""
    with START_LOCK:  # several threads may start commands at once
        if SOCKET not in os.environ:
            start_fork_server()
        return os.environ[SOCKET]


def program(args: Sequence[str], env: dict[str, str]) -> list[str]:
    """Return a command line that runs OneTool with these arguments, for clients that start their server themselves."""
    if not can_fork(env):
        return [sys.executable, "-m", "onetool", *args]
    client = Path(__file__).with_name("warm_client.py")
    return [sys.executable, "-I", "-S", str(client), _socket_path(), *args]


def can_fork(env: dict[str, str]) -> bool:
    """Return whether a forked process behaves like a new interpreter in this environment."""
    if sys.platform != "linux":
        return False
    return {name: value for name, value in env.items() if name.startswith(STARTUP_PREFIXES)} == ENVIRONMENT


class Command(subprocess.Popen):
    """A `subprocess.Popen` of `python -m onetool`, started and waited for by the fork server."""

    def __init__(self, args: Sequence[str], terminal: bool = False, script: str | None = None, **options: Any) -> None:
        self._status_pipe: int | None = None  # the fork server writes the process ID, then the exit status
        self._options = {"terminal": terminal, "script": script}
        super().__init__(["onetool", *map(str, args)], **options)

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *more) -> None:
        pipes, start_new_session = more[3:9], more[14]
        stdin, _, _, stdout, _, stderr = pipes
        assert not preexec_fn, "a command with preexec_fn needs cold=True"
        request_file = os.memfd_create("request")  # a message would limit its length
        request = {"args": args[1:], "cwd": str(cwd or os.getcwd()), "env": dict(os.environ if env is None else env)}
        os.write(request_file, json.dumps({**request, **self._options, "new_session": start_new_session}).encode())
        streams = [number if file == -1 else file for number, file in enumerate((stdin, stdout, stderr))]
        path = _socket_path()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            files = array.array("i", [*streams, request_file])
            connection.sendmsg([b"run"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
            self._status_pipe = connection.detach()
        self._child_created = True
        self._close_pipe_fds(*pipes)
        os.close(request_file)
        self.pid = int(_read_line(self._status_pipe))

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        timeout = 0 if wait_flags & os.WNOHANG else None
        if self._status_pipe is None or not select.select([self._status_pipe], [], [], timeout)[0]:
            return 0, 0
        status = int(_read_line(self._status_pipe) or b"9")
        os.close(self._status_pipe)
        self._status_pipe = None
        return self.pid, status

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self.returncode is None and self._status_pipe is not None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


def _read_line(file: int) -> bytes:
    """Read one line, without reading ahead."""
    line = b""
    while (byte := os.read(file, 1)) not in (b"", b"\n"):
        line += byte
    return line


# The fork server


def _main(listener: socket.socket) -> None:
    _import_everything()
    gc.collect()
    gc.freeze()  # otherwise the first collection of each command would copy all objects
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends pytest, which ends this process
    running: dict[int, tuple[int, int]] = {}  # by pidfd: process ID and status pipe
    while True:
        for ready in select.select([0, listener, *running], [], [])[0]:
            if ready == 0:
                return
            if ready in running:
                _send_exit_status(ready, *running.pop(ready))
                continue
            connection, _ = listener.accept()
            files = _receive_files(connection)
            status_end = connection.detach()
            if not files:  # the client was killed
                os.close(status_end)
                continue
            pid = os.fork()
            if pid == 0:
                listener.close()
                _close(status_end, *running, *(end for _, end in running.values()))
                _run_command(*files)
            _close(*files)
            _send_number(status_end, pid)
            running[os.pidfd_open(pid)] = pid, status_end


def _send_exit_status(pidfd: int, pid: int, status_end: int) -> None:
    _, status = os.waitpid(pid, 0)
    _send_number(status_end, status)
    _close(pidfd, status_end)


def _send_number(file: int, number: int) -> None:
    with suppress(ConnectionError):  # the reader is gone
        os.write(file, b"%d\n" % number)


def _close(*files: int) -> None:
    for file in files:
        os.close(file)


def _receive_files(connection: socket.socket) -> "array.array[int]":
    """Receive file descriptors; none if the sender has closed the connection."""
    files = array.array("i")
    for _, _, data in connection.recvmsg(16, socket.CMSG_SPACE(4 * 4))[1]:
        files.frombytes(data)
    return files


def _import_everything() -> None:
    import onetool
    from onetool.core import text

    found = [module.name for module in pkgutil.walk_packages(onetool.__path__, "onetool.")]
    for name in (*found, *LAZY_IMPORTS):
        if name != "onetool.__main__":
            importlib.import_module(name)
    for pattern in [one for one in gc.get_objects() if isinstance(one, text._LazyPattern)]:
        pattern.match  # compiles it  # noqa: B018
    importlib.import_module("onetool.services.search.meaning").load_table()  # takes as long as starting a server
    _open_app()
    importlib.import_module("keyring.backend").get_all_keyring()  # slow: starts compilers to find libraries
    set_constants(POLLS)


def _open_app() -> None:
    """Open an app once: what it prepares for the rest of the process is then there for each command."""
    from onetool.app.app import App

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "onetool.yaml")
        config.write_text("{}")
        App.open(config).close()
    assert threading.active_count() == 1


# No test cuts the power, so no write has to reach the disk.
NO_SYNC = dict.fromkeys(
    ("onetool.database.sqlite.FULL_SYNC", "onetool.database.sqlite.USUAL_SYNC"), "PRAGMA synchronous = OFF"
)
# Shorter polling intervals, in seconds: tests wait less, and nothing else changes.
POLLS = {
    "onetool.app.bundles.EVERY": 0.2,
    "onetool.app.reload.POLL_S": 0.2,
    "onetool.cluster.drift.LOG_AFTER_S": 1.0,
    **NO_SYNC,
    "onetool.interfaces.cli.audit.POLL_S": 0.05,
    "onetool.interfaces.http.admissions.CHECK_EVERY_S": 0.1,
    "onetool.interfaces.mcp.pending_calls.LOOK_SECONDS": 0.1,
    "onetool.sources.bundles.usage.GATHER_SECONDS": 0.1,
    "onetool.sources.mcp_servers.loop.LOOK_AGAIN": 0.2,
}
# Environment variable with further constants for one command, as JSON. They may only shorten a test.
CONSTANTS = "WARM_CONSTANTS"


def set_constants(values: dict[str, Any]) -> None:
    """Set module constants by their full names."""
    for path, value in values.items():
        module, _, name = path.rpartition(".")
        assert hasattr(sys.modules[module], name), f"{path} has moved"
        setattr(sys.modules[module], name, value)


def _run_command(stdin: int, stdout: int, stderr: int, request_file: int) -> None:
    """Become the requested command: take its streams, folder and environment, run it and exit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.lseek(request_file, 0, os.SEEK_SET)
    with os.fdopen(request_file, "rb") as file:
        request = json.loads(file.read())
    for number, file in enumerate((stdin, stdout, stderr)):
        os.dup2(file, number)
    _close(*{stdin, stdout, stderr})
    if sys.stdout.isatty():
        sys.stdout.reconfigure(line_buffering=True)
    if request["new_session"]:
        os.setsid()
    if request["terminal"]:
        take_terminal()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None  # found by an import, with TMPDIR as it was
    set_constants(json.loads(os.environ.pop(CONSTANTS, "{}")))
    code, script = 1, request["script"]
    sys.argv = [script or "onetool", *request["args"]]
    sys.path[0] = str(Path(script).parent) if script else request["cwd"]
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
        _exit(code)


def take_terminal() -> None:
    """Make standard error the controlling terminal of this session, so that Ctrl-C reaches this process."""
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)


def _exit(code: int) -> None:
    """Exit like an interpreter, but without destroying modules, which would copy all of them."""
    threading._shutdown()
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
