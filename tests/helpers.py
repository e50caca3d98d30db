"""Helpers that several test modules share."""

import asyncio
import inspect
import logging
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import chdir, contextmanager

import warm
from click.testing import CliRunner

from onetool import Executor, Registry, ToolCall, ToolSpec

LOGGERS = logging.Logger.manager.loggerDict

NOBODY = 65534
NO_ARGUMENTS = {"type": "object", "properties": {}}

# The built-in tools without those of the pack `ot`, in the order of the specification; then all built-in packs.
BUILT_IN_TOOLS = ("time.now", "tools.echo", "shell.pwd", "fs.list_dir", "fs.read_file")
BUILT_IN_PACKS = {"ot", *(name.partition(".")[0] for name in BUILT_IN_TOOLS)}

# `make test` runs the first test of these files of tests/browser, `make test-browser` all tests of all files.
BROWSER_FILES = {f"test_{name}.py" for name in ("page_chat", "page_hostile", "page_tools", "page_try", "report")}


def examples(many):
    """Return how many of these examples hypothesis tries: a fifth in `make test`, all in `make fuzz`."""
    return many if os.environ.get("ONETOOL_FUZZ") == "full" else max(many // 5, 6)


def definition(name="weather", **changes):
    """Return the complete definition of a mock tool. `changes` replace fields; None removes one."""
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
    """Return an executor with one tool, `t`."""
    registry = Registry()
    registry.register(ToolSpec(name="t", description="d", input_schema=schema, handler=handler))
    return Executor(registry, **options)


def run(executor, name="t", /, **args):
    """Call a tool and wait for the result."""
    return asyncio.run(executor.execute(ToolCall(id="1", name=name, args=args, source="test")))


def check_each(cases, check):
    """Check every case and report all failures together."""
    cases, failed = list(cases), []
    assert cases, "no cases"
    for case in cases:
        try:
            check(*case) if isinstance(case, tuple) else check(case)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the failure of `pytest.raises` isn't an Exception
            error.add_note(f"The case: {ascii(case)[:200]}")
            failed.append(error)
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {len(cases)} cases failed", failed)


def each(names, cases):
    """Run a test with every case, like `pytest.mark.parametrize`, but as one test.

    Use it for many cases of one quick check. All cases share the test's fixtures, which are set up once.
    """
    if isinstance(names, str):
        names, cases = [names], [(case,) for case in cases]
    cases = list(cases)

    def decorate(test):
        def test_all(**others):
            def check(*case):
                test(**others, **dict(zip(names, case, strict=True)))

            check_each(map(tuple, cases), check)

        # Not `functools.wraps`: pytest would search for fixtures named like the arguments of the cases.
        whole = inspect.signature(test)
        fixtures = [parameter for name, parameter in whole.parameters.items() if name not in names]
        test_all.__signature__ = whole.replace(parameters=fixtures)
        test_all.__name__, test_all.__qualname__ = test.__name__, test.__qualname__
        test_all.__doc__, test_all.__module__ = test.__doc__, test.__module__
        return test_all

    return decorate


def cli(*args, cwd, stdin=None, env=None, cold=False):
    """Run the real command line in another process, with pipes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start(*args, cwd=cwd, env={**os.environ, **(env or {})}, cold=cold, **pipes) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=60)
        finally:
            process.kill()
    return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)


def invoke(*args, cwd, stdin=None, env=None):
    """Run the command line in this process, which takes a third of the CPU of `cli`. For tests of output and files."""
    from onetool.interfaces.cli import cli as root
    from onetool.interfaces.cli import leave_after

    code, arguments = 0, [str(arg) for arg in args]
    with chdir(cwd), _process_settings_kept(), CliRunner().isolation(stdin, env) as (stdout, stderr, _):
        try:
            leave_after(lambda: root.main(arguments, prog_name="onetool", standalone_mode=False))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stdout.flush()
        sys.stderr.flush()
    texts = [stream.getvalue().decode() for stream in (stdout, stderr)]
    return subprocess.CompletedProcess(args, code, *texts)


@contextmanager
def _process_settings_kept():
    """Undo what commands set for their whole process: the levels of loggers, and the limit of digits."""
    digits = sys.get_int_max_str_digits()
    levels = {name: logging.getLogger(name).level for name in [*LOGGERS]}
    yield
    sys.set_int_max_str_digits(digits)
    for name in [*LOGGERS]:
        set_level(logging.getLogger(name), levels.get(name, logging.NOTSET))


def set_level(logger, level):
    """Set the level of a logger, which clears the caches of all loggers, only if it differs."""
    if logger.level != level:
        logger.setLevel(level)


def start(*args, cold=False, terminal=False, script=None, **options):
    """Start the real command line, or a script, in another process. The options are those of `subprocess.Popen`.

    The process is forked by the fork server of `warm`; `cold` starts a new interpreter instead. With `terminal`, its
    standard error is its controlling terminal, which sends Ctrl-C.
    """
    if terminal:
        options["start_new_session"] = True
    if not cold and not options.get("preexec_fn") and warm.can_fork(options.get("env") or os.environ):
        return warm.Command(args, terminal=terminal, script=script and str(script), **options)
    if terminal:
        options["preexec_fn"] = warm.take_terminal
    return subprocess.Popen([sys.executable, *([str(script)] if script else ["-m", "onetool"]), *args], **options)


def session_text(home, id):
    """Return the stored records of an `ask` session as text."""
    from onetool.database.sqlite import SqliteDatabase

    database = SqliteDatabase(home / "state.db")
    sql = "SELECT body FROM ask_messages WHERE id = %s ORDER BY number"
    rows = database.read(lambda work: work.execute(sql, (id,)))
    database.close()
    return b"".join(body for (body,) in rows).decode()


def until(true, within=60, every=0.005):
    """Call `true` until its result is true, and return the result. Fail after `within` seconds."""
    deadline = time.monotonic() + within
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(every)
    return found


async def until_async(true, within=60):
    """Do the same without blocking the event loop."""
    deadline = time.monotonic() + within
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.005)
    return found


async def forever():
    """Wait until cancelled."""
    await asyncio.sleep(10**6)  # the loop doesn't refer to an event, so a task waiting for one could be collected


class FakeClock:
    """A clock that jumps to the next timer as soon as its event loop is idle. It doesn't work with threads."""

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
    """A point at which a tool waits until its test opens it, so that neither guesses how long the other takes."""

    def __init__(self):
        self.reached, self._opened = threading.Event(), threading.Event()

    async def pause(self):
        """Called by the tool: report the arrival and wait."""
        self.reached.set()
        await until_async(self._opened.is_set)

    def pause_thread(self):
        self.reached.set()
        assert self._opened.wait(60), "the test did not open the checkpoint"

    async def arrival(self):
        """Called by the test: wait for the tool to arrive."""
        await until_async(self.reached.is_set)

    def open(self):
        self._opened.set()


CHECKPOINTS = defaultdict(Checkpoint)  # by name, for packs in source text


@contextmanager
def calls(at_most=sys.maxsize):
    """Count calls of Python and C functions in this thread and threads it starts; fail above `at_most`.

    This finds work that grows too fast on any machine, however busy. Yield a function that returns the count.
    """
    events = 0  # two per call: its begin and its end
    is_over = False

    def count(_frame, _event, _argument):
        nonlocal events
        if is_over:  # a pool's thread that continues with other work
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
    """Start a sandbox worker and yield a function that runs code in it and returns the value. Names are kept."""
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
    while isinstance(question, NameLookup):  # no name is defined outside
        question = session.resume_name(None)
    return question.value(16 * 1024 * 1024)


def trusted(folder, packs=True):
    """Trust a folder in the test's home, with everything it reaches now, and return the folder.

    With `packs`, packs added later are trusted, too, as after `onetool init`.
    """
    from onetool.config.find import trust_store
    from onetool.config.pin import see
    from onetool.config.trust import trust_folder

    place = folder / ".onetool"
    config = place / "onetool.yaml"
    trust_folder(place, see(place, config if config.is_file() else None), trust_store(), packs=packs)
    return folder


@contextmanager
def as_nobody(folder):
    """Run as a user who can read a folder and its files but not write them. Needs root."""

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
