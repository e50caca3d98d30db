"""Processes that use one folder of bundles at the same time.

`Other` is one that does what it is told, call by call. `crowd` forks many of one that has everything imported already,
and has each do one of the jobs below. With ONETOOL_FAULTS=full everything takes its full time.
"""

import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from random import Random

import msgspec

from onetool.sources.bundles.errors import BundleError, ConflictError
from onetool.sources.bundles.model import Bundle, BundleContent, Tool, ToolContent
from onetool.sources.bundles.names import new_id
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store.store import folder_store

FULL = os.environ.get("ONETOOL_FAULTS") == "full"


def some(short, full):
    return full if FULL else short


def bundle(text="", slug="weather"):
    return BundleContent(slug=slug, display_name=text, description=text)


def tool(text=""):
    return ToolContent(type="script", description=text, script_impl={"code": "1"})


def an_id():
    return new_id(time.time())


# One that does what it is told


class Other:
    def __init__(self, folder, now=None):
        command = [sys.executable, __file__, "serve", str(folder), *([] if now is None else [str(now)])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def send(self, method, *args):
        self.process.stdin.write(json.dumps([method, *args]) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, "the other process has ended"
        kind, value = json.loads(line)
        return value if kind == "ok" else kind

    def __call__(self, method, *args):
        """What it gives, or the name of the error."""
        self.send(method, *args)
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def serve(folder, now=None):
    clock = time.time if now is None else lambda: float(now)
    store = folder_store(Path(folder), now=clock)
    for line in sys.stdin:
        method, *args = json.loads(line)
        if method == "open":
            store.close()
            store = folder_store(Path(args[0]), now=clock)
            answer = ["ok", None]
        elif method == "hold":
            with store._storage._lock.held():
                print('["ok", null]', flush=True)
                sys.stdin.readline()
            answer = ["ok", None]
        else:
            answer = _called(store, method, args)
        print(json.dumps(answer), flush=True)
    store.close()


def _called(store, method, args):
    if method == "put_bundle":
        args[1] = bundle(**args[1])
    elif method == "put_tool":
        args[3] = tool(args[3])
    elif method in ("bundles", "tools"):
        args = [ListQuery(include_disabled=True)]
    try:
        return ["ok", msgspec.to_builtins(getattr(store, method)(*args))]
    except BundleError as error:
        return [type(error).__name__, str(error)]


# Many


def crowd(job, count, folder, *args, timeout=600):
    """What each of them gives."""
    command = [sys.executable, __file__, "crowd", job, str(count), str(folder), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _crowd(job, count, folder, *args):
    pipes = []
    for number in range(int(count)):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                result = JOBS[job](Path(folder), number, *args)
                with os.fdopen(write, "w") as stream:
                    json.dump(result, stream)
                code = 0
            except BaseException:
                traceback.print_exc()  # `_exit` would end without it
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(write)
        pipes.append((pid, read))
    for pid, read in pipes:
        with os.fdopen(read) as stream:
            print(stream.read() or "null", flush=True)
        if os.waitpid(pid, 0)[1] != 0:
            sys.exit(f"{pid} failed")


def put_same(folder, number, id, keys):
    """Which keys it was the first to put."""
    store, won, order = folder_store(folder), [], list(range(int(keys)))
    Random(number).shuffle(order)
    for key in order:
        try:
            store.put_tool(id, f"t{key}", "1", tool(f"of {number}"))
            won.append(key)
        except ConflictError:
            pass
    store.close()
    return won


def put_other(folder, number, id, keys):
    store = folder_store(folder)
    for key in range(int(keys)):
        store.put_tool(id, f"t{number}-{key}", "1", tool())
    store.close()


def make_bundle(folder, number, id):
    store = folder_store(folder)
    is_new = store.put_bundle(id, bundle())[1]
    store.close()
    return is_new


def read_or_write(folder, number, id, writers, seconds):
    """Writers put the same text in two places; readers must never see two texts, nor half a file."""
    store, until, count = folder_store(folder), time.monotonic() + float(seconds), 0
    (file,) = folder.glob("*/bundle.json")
    while time.monotonic() < until:
        count += 1
        if number < int(writers):
            store.put_bundle(id, bundle(f"{number}-{count}-" + "x" * (count % 150)))
            continue
        found = store.bundle(id)
        assert found.display_name == found.description, found
        data = json.loads(file.read_bytes())
        assert data["displayName"] == data["description"], data
        if count % 50 == 0:
            store.sync()
            assert store.mistakes() == [], store.mistakes()
    store.close()
    return count


def write_until_killed(folder, number, id, log):
    """Tells before and after each change, in a file of its own."""
    store, random = folder_store(folder), Random(int(time.time() * 1e6))
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def told(done, *what):
        os.write(out, (json.dumps([done, *what]) + "\n").encode())

    while True:
        slug, text = f"t{random.randrange(8)}", str(random.random())
        what, change = random.choice(
            [
                (["put", slug, text], lambda slug=slug, text=text: store.put_tool(id, slug, "1", tool(text))),
                (["patch", slug, random.random() < 0.5], None),
                (["delete", slug], lambda slug=slug: store.delete_tool(id, slug, "1")),
                (["bundle", text], lambda text=text: store.put_bundle(id, bundle(text))),
            ]
        )
        if change is None:
            change = lambda what=what: store.patch_tool(id, what[1], "1", what[2])  # noqa: E731
        told("begin", *what)
        try:
            change()
        except BundleError as error:
            told(type(error).__name__, *what)
        else:
            told("done", *what)


TOOLS_OF_WHOLE = 40


def put_whole_until_killed(folder, log):
    """Puts bundles with all of their tools, and tells the id of each that is there."""
    store, out = folder_store(folder), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    at = "2026-01-01T00:00:00.000Z"
    while True:
        made = Bundle(id=an_id(), slug="whole", created_at=at, modified_at=at)
        content = msgspec.structs.asdict(tool("x" * 1000))
        names = {"bundle_id": made.id, "version": "1", "created_at": at, "modified_at": at}
        tools = [Tool(**content, **names, id=an_id(), slug=f"t{number}") for number in range(TOOLS_OF_WHOLE)]
        os.write(out, b"begin\n")
        store.put_all(made, tools)
        os.write(out, f"{made.id}\n".encode())


class Victims:
    """A process that forks one that writes, whenever it is asked to."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "victims"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def new(self, folder, id, log):
        self.process.stdin.write(json.dumps([str(folder), id, str(log)]) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def gone(self):
        """When the last one has ended."""
        self.process.stdin.write("wait\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


def victims():
    pid = 0
    for line in sys.stdin:
        if line == "wait\n":
            os.waitpid(pid, 0)
            print("gone", flush=True)
            continue
        folder, id, log = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                if id:
                    write_until_killed(Path(folder), 0, id, log)
                put_whole_until_killed(Path(folder), log)
            finally:
                os._exit(1)
        print(pid, flush=True)


JOBS = {job.__name__: job for job in (put_same, put_other, make_bundle, read_or_write)}

if __name__ == "__main__":
    {"serve": serve, "crowd": _crowd, "victims": victims}[sys.argv[1]](*sys.argv[2:])
