"""The stores of the database, as processes write them until something goes wrong: run as a script.

A store has `write`, which keeps a text under a name, and `names`, of all that is kept whole. The script prints a name
once its text is acknowledged. Its database is a `state.db`, or the address of a PostgreSQL.
"""

import asyncio
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from onetool.ask.messages import User
from onetool.ask.sessions import SessionStore
from onetool.core.call import ToolCall
from onetool.core.context import CallEvent
from onetool.core.errors import OneToolError
from onetool.core.principal import Principal
from onetool.database.documents import Documents
from onetool.database.sqlite import SqliteDatabase
from onetool.services.access_tokens import TokenStore
from onetool.services.journal.audit import AuditFilter, AuditLog
from onetool.services.journal.row import ArgumentHasher, Entry, RowMaker
from onetool.services.journal.table import EventTable
from onetool.services.results.store import ResultStore

TEXT = "\n" + "x" * 9_000  # some pages of the file
TOOL = "x" * 100  # all tokens are one document


def open_database(address):
    if not str(address).startswith("postgresql:"):
        return SqliteDatabase(Path(address), makes_folder=True)
    from onetool.database.postgres import Postgres

    return Postgres(address)


class Tokens:
    def __init__(self, database):
        home = None if database.is_shared else database.file.parent
        self.store = TokenStore(Documents(database, "tokens"), home=home)

    def write(self, name):
        self.store.add(name, tools=(TOOL,))

    def names(self):
        return [one.name for one in self.store.list() if one.tools == (TOOL,)]


class Results:
    def __init__(self, database):
        self.store = ResultStore(database, 3600, 100)

    def write(self, name):
        self.store.put(name + TEXT)

    def names(self):
        return [self.store.read(one.handle).removesuffix(TEXT) for one in self.store.kept()]


class Sessions:
    """Each process has a session of its own."""

    def __init__(self, database):
        self.store = SessionStore(database)

    def write(self, name):
        asyncio.run(self._say(name))

    async def _say(self, name):
        async with self.store.turn(f"of-{os.getpid()}") as session:
            session.append(User(text=name + TEXT))

    def names(self):
        read = [self.store.read(one.id) for one in self.store.list()]
        damaged = ["damaged"] * sum(one.damaged for one in read)
        return [message.text.removesuffix(TEXT) for one in read for message in one.messages] + damaged


class Stats:
    """The journal's table, without the thread that tries again what could not be written."""

    def __init__(self, database):
        self.table = EventTable(database)

    def write(self, name):
        event = CallEvent.of(ToolCall("1", name), principal=Principal(owner=TOOL))
        self.table.append([RowMaker().of_call(event, time.time())], 10.0)

    def names(self):
        sql = "SELECT tool FROM events WHERE owner = :owner ORDER BY number"
        return [name for (name,) in self.table.read(lambda query: query.rows(sql, {"owner": TOOL}))]


class Audit:
    def __init__(self, database):
        self.log = AuditLog(database)

    def write(self, name):
        entry = Entry(at=time.time(), kind="call", what=name, principal=Principal())
        self.log.table.append([RowMaker(hasher=ArgumentHasher(None)).of_entry(entry)], 10.0)

    def names(self):
        return [record.what for record in self.log.read_on(AuditFilter())]


STORES = {"tokens": Tokens, "results": Results, "sessions": Sessions, "stats": Stats, "audit": Audit}


def run(job, address, store, *args, timeout=600):
    """Return what a process prints that does one of the jobs below. It has to end well."""
    command = [sys.executable, __file__, job, str(address), store, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tell(value):
    os.write(1, json.dumps(value).encode() + b"\n")


def write_at_once(address, store, processes, texts):
    """Have many processes write, each some texts."""

    def write_all(number):
        opened = STORES[store](open_database(address))
        for text in range(int(texts)):
            opened.write(f"{number}-{text}")
            tell(f"{number}-{text}")

    children = [_fork(lambda number=number: write_all(number)) for number in range(int(processes))]
    assert {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children} == {0}


def write_and_die(address, store, rounds):
    """Kill a process that writes, at any point, again and again. Prints what it has acknowledged."""

    def write_forever(turn, out):
        os.dup2(out, 1)
        opened = STORES[store](open_database(address))
        for text in count():
            opened.write(f"{turn}-{text}")
            tell(f"{turn}-{text}")

    for turn in range(int(rounds)):
        read, write = os.pipe()
        child = _fork(lambda turn=turn, write=write: write_forever(turn, write))
        os.close(write)
        with os.fdopen(read) as acknowledged:
            first = acknowledged.readline()
            time.sleep(random.uniform(0, 0.05))
            os.kill(child, signal.SIGKILL)
            print(first + acknowledged.read(), end="")
        os.waitpid(child, 0)


def write_until_full(address, store, *steps):
    """Let no file grow by more than that, for each of some numbers of bytes. Prints texts, and errors with `!`."""
    opened, names = STORES[store](open_database(address)), count()
    no_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    for step in map(int, steps):
        opened.write(name := f"before-{next(names)}")
        tell(name)
        size = max(one.stat().st_size for one in Path(address).parent.glob("state.db*"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + step, no_limit[1]))
        while _try(opened, f"full-{next(names)}"):
            pass
        resource.setrlimit(resource.RLIMIT_FSIZE, no_limit)


def write_to_broken_disk(address, store, *devices):
    """Have each file of the database in turn fail as a device does. Prints texts, and errors with `!`."""
    opened, names = STORES[store](open_database(address)), count()
    for device in devices:
        for file in (Path(address), Path(f"{address}-wal")):
            opened.write(name := f"before-{next(names)}")
            opened.names()
            tell(name)
            with failing(file, device):
                _try(opened, f"broken-{next(names)}")
            opened.write(name := f"after-{next(names)}")
            tell(name)


@contextmanager
def failing(file, device):
    """Have this process write to, and read from, a device instead of a file that it has open."""
    broken, before = os.open(device, os.O_RDWR), {}
    for number in _open_as(file):
        before[number] = os.dup(number)
        os.dup2(broken, number)
    try:
        yield
    finally:
        os.close(broken)
        still_open = _open_as(device)
        for number, real in before.items():
            if number in still_open:
                os.dup2(real, number)
            os.close(real)


def _open_as(file):
    real = os.path.realpath(file)
    numbers = [int(number) for number in os.listdir("/proc/self/fd")]
    return [one for one in numbers if os.path.realpath(f"/proc/self/fd/{one}") == real]


def _try(store, name):
    try:
        store.write(name)
    except OneToolError as error:
        tell(f"!{error}")
        return False
    tell(name)
    return True


def _fork(job):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            job()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


if __name__ == "__main__":
    jobs = (write_at_once, write_and_die, write_until_full, write_to_broken_disk)
    {job.__name__: job for job in jobs}[sys.argv[1]](*sys.argv[2:])
