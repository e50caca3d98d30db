"""Other processes that use the same sessions: run as a script, with the name of what to do."""

import asyncio
import os
import random
import subprocess
import sys
import traceback
from pathlib import Path

from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Call, Result, Usage, User
from onetool.ask.sessions import SessionStore
from onetool.database.sqlite import SqliteDatabase


def store_in(home):
    return SessionStore(SqliteDatabase(home / "state.db", makes_folder=True))


def other(job, folder, *args):
    """A process that does it, with pipes. Who starts it ends it."""
    command = [sys.executable, __file__, job, str(folder), *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def said(job, folder, *args, timeout=60):
    """What it prints. It has to end well."""
    process = other(job, folder, *args)
    try:
        text = process.communicate(timeout=timeout)[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, text
    return text.splitlines()


def messages(text):
    """Those of one turn."""
    return [
        User(text=text),
        Assistant(calls=(Call(id="1", name="t", args={"of": text}), Call(id="2", name="t"))),
        Result(call="1", name="t", content=text * 300),
        Result(call="2", name="t", content=text),
        Assistant(text=text),
    ]


async def hang(folder, id):
    """In the middle of a turn: the second call has no result."""
    async with store_in(folder).turn(id) as session:
        for message in messages("first")[:3]:
            session.append(message)
        await session.settle()
        print("ready", flush=True)
        await asyncio.sleep(60)


async def take_turns(folder, id, count):
    """Turns that begin again when another process got ahead of them. Each prints its text when it has ended."""
    sessions = store_in(folder)
    for number in range(int(count)):
        text, is_done = f"{os.getpid()}-{number}", False
        while not is_done:
            try:
                async with sessions.turn(id) as session:
                    for message in messages(text):
                        session.append(message)
                        await asyncio.sleep(0.0005)
                    session.end("p", "m", Usage(input=1), 1)
                is_done = True
            except SessionError as error:
                if error.reason != "busy":
                    raise
                await asyncio.sleep(random.random() / 50)
        print(text, flush=True)


def crowd(folder, job, count, *args):
    pids = []
    for _ in range(int(count)):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _run(JOBS[job], folder, *args)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        pids.append(pid)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))


def _run(job, folder, *args):
    asyncio.run(job(Path(folder), *args))


JOBS = {job.__name__: job for job in (hang, take_turns)}

if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    if name == "crowd":
        crowd(*rest)
    else:
        _run(JOBS[name], *rest)
