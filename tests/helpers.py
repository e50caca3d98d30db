"""What several test modules need: small tools, and the shortest way to call them."""

import asyncio
import inspect
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import contextmanager

import warm

from onetool import Executor, Registry, ToolCall, ToolSpec

NOBODY = 65534
NO_ARGUMENTS = {"type": "object", "properties": {}}

# The built-in tools beside those of the pack `ot`, in their order, as the specification names them; and all packs.
BUILT_IN_TOOLS = ("time.now", "tools.echo", "shell.pwd", "fs.list_dir", "fs.read_file")
BUILT_IN_PACKS = {"ot", *(name.partition(".")[0] for name in BUILT_IN_TOOLS)}


def examples(many):
    """Of so many examples for hypothesis those that `make test` tries: each time others. `make fuzz` tries all."""
    return many if os.environ.get("ONETOOL_FUZZ") == "full" else max(many // 5, 10)


def definition(name="weather", **changes):
    """A complete definition of a mock tool; changes replace its fields, None removes one."""
    fields = {
        "name": name,
        "description": "Says what the weather is like.",
        "type": "function",
        "handler": name,
        "parameters": NO_ARGUMENTS,
        "implementation": {"type": "mock", "mock_response": {"c": 21}},
    }
    return {key: value for key, value in (fields | changes).items() if value is not None}


def executor_for(handler, schema=NO_ARGUMENTS, **options):
    """An executor with one tool, `t`."""
    registry = Registry()
    registry.register(ToolSpec(name="t", description="d", input_schema=schema, handler=handler))
    return Executor(registry, **options)


def run(executor, name="t", /, **args):
    """Call a tool and wait for the result."""
    return asyncio.run(executor.execute(ToolCall(id="1", name=name, args=args, source="test")))


def check_each(cases, check):
    """Check every case of a matrix and report all that failed together."""
    cases, failed = list(cases), []
    assert cases, "there is no case"
    for case in cases:
        try:
            check(*case) if isinstance(case, tuple) else check(case)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # `pytest.raises` fails with one that is no Exception
            error.add_note(f"The case: {ascii(case)[:200]}")
            failed.append(error)
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {len(cases)} cases failed", failed)


def each(names, cases):
    """Run a test with every case, as `pytest.mark.parametrize` does, but as one test.

    For many cases of one quick check. All cases share the test's fixtures: they are set up once.
    """
    if isinstance(names, str):
        names, cases = [names], [(case,) for case in cases]
    cases = list(cases)

    def decorate(test):
        def test_all(**others):
            def check(*case):
                test(**others, **dict(zip(names, case, strict=True)))

            check_each(map(tuple, cases), check)

        # Not `functools.wraps`: pytest would look for fixtures with the names of the cases' arguments.
        whole = inspect.signature(test)
        fixtures = [parameter for name, parameter in whole.parameters.items() if name not in names]
        test_all.__signature__ = whole.replace(parameters=fixtures)
        test_all.__name__, test_all.__qualname__ = test.__name__, test.__qualname__
        test_all.__doc__, test_all.__module__ = test.__doc__, test.__module__
        return test_all

    return decorate


def cli(*args, cwd, stdin=None, env=None, cold=False):
    """Run the real command line in a process of its own, piped as a program would run it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start(*args, cwd=cwd, env={**os.environ, **(env or {})}, cold=cold, **pipes) as process:
        try:
            said, told = process.communicate(stdin, timeout=60)
        finally:
            process.kill()
    return subprocess.CompletedProcess(args, process.returncode, said, told)


def start(*args, cold=False, terminal=False, script=None, **options):
    """Start the real command line, or a script, in a process of its own: `subprocess.Popen` with its options.

    The process has imported everything already (see `warm`), unless it is to start cold. With `terminal` its standard
    error is the terminal that Ctrl-C is pressed at.
    """
    if terminal:
        options["start_new_session"] = True
    if not cold and not options.get("preexec_fn") and warm.can_fork(options.get("env") or os.environ):
        return warm.Command(args, terminal=terminal, script=script and str(script), **options)
    if terminal:
        options["preexec_fn"] = warm.take_terminal
    return subprocess.Popen([sys.executable, *([str(script)] if script else ["-m", "onetool"]), *args], **options)


def session_text(home, id):
    """The records of a session of `ask` in `state.db`, as they are kept."""
    from onetool.database.sqlite import SqliteDatabase

    database = SqliteDatabase(home / "state.db")
    sql = "SELECT body FROM ask_records WHERE id = %s ORDER BY number"
    rows = database.read(lambda work: work.execute(sql, (id,)))
    database.close()
    return b"".join(body for (body,) in rows).decode()


def until(true, within=60):
    """Wait until something is true, and give it. The seconds are for what never comes: nothing is measured by them."""
    deadline = time.monotonic() + within
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)
    return found


async def until_async(true, within=60):
    """The same for who must not hold up the loop."""
    deadline = time.monotonic() + within
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.005)
    return found


async def forever():
    """What never ends by itself."""
    await asyncio.sleep(10**6)  # and not an event, of which the loop knows nothing: its task could be collected


class FakeClock:
    """A clock that jumps to the next timer as soon as its event loop has nothing else to do. Not for threads."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def run(self, work):
        """Run a coroutine on a loop of this clock."""
        with asyncio.Runner(loop_factory=self._loop) as runner:
            return runner.run(work)

    def _loop(self):
        selector = selectors.DefaultSelector()
        select = selector.select

        def jump(timeout=None):
            self.now += timeout or 0.0
            return select(timeout and 0)

        selector.select = jump
        loop = asyncio.SelectorEventLoop(selector)
        loop.time = self
        return loop


class Checkpoint:
    """Where a tool stops until its test lets it go on. So neither has to guess how long the other takes."""

    def __init__(self):
        self.reached, self._opened = threading.Event(), threading.Event()

    async def pause(self):
        """Said by the tool: it is here, and waits."""
        self.reached.set()
        await until_async(self._opened.is_set)

    def pause_thread(self):
        self.reached.set()
        assert self._opened.wait(60), "nobody opened it"

    async def arrival(self):
        """Said by the test: wait until the tool is there."""
        await until_async(self.reached.is_set)

    def open(self):
        self._opened.set()


CHECKPOINTS = defaultdict(Checkpoint)  # by name, for packs that are written as text: `from helpers import CHECKPOINTS`


@contextmanager
def calls(at_most=sys.maxsize):
    """Count calls of functions, Python's and C's, in this thread and in those that it starts; fail where more are made.

    So work that grows too fast is found on any machine, however busy it is. Gives a function that says how many.
    """
    events = 0  # two of each call: it begins, and it ends
    is_over = False

    def count(_frame, _event, _argument):
        nonlocal events
        if is_over:  # in a thread of a pool, which goes on with other work
            sys.setprofile(None)
            return
        events += 1
        assert events <= 2 * at_most, f"more than {at_most:,} calls"

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield lambda: events // 2
    finally:
        is_over = True
        sys.setprofile(None)
        threading.setprofile(None)
    assert events <= 2 * at_most, f"more than {at_most:,} calls"


@contextmanager
def sandboxed(**limits):
    """A worker of its own: a function that runs code in it and gives the value, and keeps its names."""
    from onetool.sandbox.messages import WorkerLimits
    from onetool.sandbox.pool import WorkerPool

    pool = WorkerPool(WorkerLimits(**limits), 32 * 1024 * 1024)
    try:
        with pool.session() as session:
            yield lambda code: _value(session, code)
    finally:
        pool.close()


def _value(session, code):
    from onetool.sandbox.messages import NameLookup

    question = session.feed(code, {}, lambda _stream, _text: None)
    while isinstance(question, NameLookup):  # nobody knows any name here
        question = session.resume_name(None)
    return question.value(16 * 1024 * 1024)


def trusted(folder, packs=True):
    """Trust a folder that a test has made, in that test's own home, with what it reaches now. Gives the folder.

    With `packs` those that come later, too: as after `onetool init`.
    """
    from onetool.config.find import trust_store
    from onetool.config.reach import reach_of
    from onetool.config.trust import trust_folder

    place = folder / ".onetool"
    config = place / "onetool.yaml"
    trust_folder(place, reach_of(place, config if config.is_file() else None), trust_store(), packs=packs)
    return folder


@contextmanager
def as_nobody(folder):
    """Be a user who may read a folder and its files, but not write there. Only root can become one."""

    def give(user, mode):
        for one in (folder, *folder.iterdir()):
            os.chown(one, user, -1)
        folder.chmod(mode)

    for parent in folder.parents:
        if parent.stat().st_uid == 0 and parent.is_relative_to("/tmp") and str(parent) != "/tmp":
            parent.chmod(parent.stat().st_mode | 0o011)
    give(NOBODY, 0o500)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        give(0, 0o700)
