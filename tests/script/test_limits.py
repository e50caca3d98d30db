"""Every limit of a run, in a test that hits it: what the error says, and that nothing of it stays."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import each, forever, until, until_async

from onetool import App, ToolSpec

ANY_VALUE = {"type": "object", "properties": {"value": {}}}
NO_ARGUMENTS = {"type": "object", "properties": {}}
LIMITS = {"timeout_s": 60, "memory_mb": 64, "max_calls": 50, "max_output_bytes": 100_000}

on_linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")


class Limited:
    """An app with narrow limits, tools that hang in several ways, and a record of what happened to them."""

    def __init__(self, folder, **limits):
        config = folder / "onetool.yaml"
        run = ", ".join(f"{key}: {value}" for key, value in (LIMITS | limits).items())
        config.write_text(f"stats: {{enabled: false}}\nrun: {{{run}}}\n")
        self.app = App.open(config)
        self.log = []
        for name, handler, schema in (
            ("t.echo", lambda value=None: value, ANY_VALUE),
            ("t.fail", self.fail, NO_ARGUMENTS),
            ("t.hang", self.hang, NO_ARGUMENTS),
            ("t.block", self.block, NO_ARGUMENTS),
            ("t.soon", self.soon, ANY_VALUE),
        ):
            self.app.catalog.registry.register(
                ToolSpec(name=name, description="d", input_schema=schema, handler=handler)
            )

    def fail(self):
        raise ValueError("it fails")

    async def hang(self):
        self.log.append("began")
        try:
            await forever()
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise

    def block(self):
        self.log.append("began")
        time.sleep(2)

    async def soon(self, value=None):
        await asyncio.sleep(0.01)
        self.log.append(value)
        return value

    def error(self, code):
        """The error of code that goes over a limit; and the next run is as good as new."""
        result = self.app.run_sync(code)
        assert not result.ok, result.data
        assert self.app.run_sync("1 + 1").data == 2
        return result.error


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    limited = Limited(tmp_path_factory.mktemp("app"))
    yield limited
    limited.app.close()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """For code that never ends: nobody has to wait for it for a whole second."""
    limited = Limited(tmp_path_factory.mktemp("hasty"), timeout_s=0.3)
    yield limited
    limited.app.close()


@pytest.fixture
def make(tmp_path):
    made = []

    def make(**limits):
        made.append(Limited(tmp_path, **limits))
        return made[-1]

    yield make
    for limited in made:
        limited.app.close()


# Time


@each(
    "code",
    [
        "while True: pass",
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        "try:\n  while True: pass\nfinally:\n  while True: pass",
        "import math\nmath.factorial(10**7)",
        "sum(range(10**13))",
        "import time\ntime.sleep(60)\n'slept'",
        "import time\nfor _ in range(60): time.sleep(0.3)\n'slept'",
        "import asyncio\nawait asyncio.sleep(60)\n'slept'",
        "import asyncio\nawait asyncio.gather(*[asyncio.sleep(60) for _ in range(20)])",
        "t.block()",
        "t.hang()",
        "await t.hang()",
        "import asyncio\nawait asyncio.gather(t.hang(), t.hang(), t.soon(value=1), t.block())",
        "import asyncio\nawait asyncio.gather(t.hang(), asyncio.sleep(60))",
        "try:\n  t.hang()\nexcept BaseException: pass\n'went on'",
        "def f():\n  try: f()\n  except BaseException: f()\nf()",
        "ot.call('t.hang')",
        "eval('t.hang()')",
    ],
)
def test_the_time_is_up(hasty, code):
    result = hasty.app.run_sync(code)
    assert not result.ok, result.data
    until(lambda: hasty.app.run_sync("1 + 1").data == 2)  # a machine that is busy may take longer, once
    error = result.error
    assert (error.code, error.reason) == ("execution_error", "timeout")
    assert "0.3 s" in error.message
    assert "run.timeout_s" in error.hints[-1]


def test_sleeps_side_by_side_do_not_add_up(make):
    limited = make(timeout_s=5)
    code = "import asyncio\nasync def f(i):\n  await asyncio.sleep(0.2)\n  return i\n"
    result = limited.app.run_sync(f"{code}len(await asyncio.gather(*[f(i) for i in range(40)]))")
    assert result.data == 40


@pytest.mark.parametrize(
    "code",
    [
        "t.hang()",
        "await t.hang()",
        "import asyncio\nawait asyncio.gather(t.hang(), t.hang(), t.hang())",
        "import asyncio\nasync def f(): return await t.hang()\nawait asyncio.gather(f(), f())",
        "calls = [t.hang(), t.hang()]\nfor call in calls: await call",
        "call = t.hang()\nimport time\ntime.sleep(60)\nawait call",
    ],
)
def test_tools_are_cancelled_with_their_run(make, code):
    limited = make(timeout_s=1)
    limited.error(code)
    until(lambda: limited.log.count("cancelled") == limited.log.count("began") > 0)


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio\nawait asyncio.gather(t.hang(), t.fail(), t.hang())",
        "import asyncio\ntry:\n  await asyncio.gather(t.hang(), t.fail())\nexcept RuntimeError: pass\n'done'",
        "import asyncio\ncalls = [t.hang()]\nif 1 > 2: await asyncio.gather(*calls)\n'never awaited'",
    ],
)
def test_tools_that_nobody_waits_for_any_more_are_cancelled(make, code):
    limited = make()
    result = limited.app.run_sync(code)
    assert result.ok or result.error.reason != "timeout"
    until(lambda: limited.log.count("cancelled") == limited.log.count("began"))


def test_cancelling_a_run_stops_its_worker_and_its_tools(make):
    limited = make()

    async def cancelled(code, *began):
        limited.log.clear()
        task = asyncio.ensure_future(limited.app.run(f"t.soon(value='here')\n{code}"))
        await until_async(lambda: limited.log == ["here", *began])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await limited.app.run("1 + 1")).data

    for code in ("while True: pass", "import time\ntime.sleep(60)", "import math\nmath.factorial(10**7)"):
        assert asyncio.run(cancelled(code)) == 2
    assert asyncio.run(cancelled("t.block()", "began")) == 2
    assert asyncio.run(cancelled("import asyncio\nawait asyncio.gather(t.hang(), t.hang())", "began", "began")) == 2
    until(lambda: limited.log == ["here", "began", "began", "cancelled", "cancelled"])


# Memory and depth


@each(
    "code",
    [
        "x = 'a' * 10**9",
        "x = [0] * 10**9",
        "x = []\nwhile True: x.append('a' * 10**6)",
        "x = 'a'\nwhile True: x += x",
        "while True:\n  try:\n    x = [0] * 10**9\n  except BaseException: pass",
        "t.echo(value='a' * 10**9)",
        "f'{1:>1000000000}'",
        "10 ** 10**10",
        "list(range(10**9))",
        "{i: [i] * 100 for i in range(10**6)}",
    ],
)
def test_the_memory_is_full(limited, code):
    error = limited.error(code)
    assert (error.code, error.reason) == ("execution_error", "memory")
    assert "64 MB" in error.message
    assert "run.memory_mb" in error.hints[-1]


def test_a_tool_s_answer_counts_as_memory(make):
    limited = make(timeout_s=10)
    big = ToolSpec(name="t.big", description="d", input_schema=NO_ARGUMENTS, handler=lambda: "a" * 10**8)
    limited.app.catalog.registry.register(big)
    assert limited.error("len(t.big())").reason == "memory"


@pytest.mark.parametrize("code", ["def f(n): return f(n + 1)\nf(0)", "f = lambda: f()\nf()"])
def test_functions_that_call_each_other_without_end(limited, code):
    error = limited.error(code)
    assert "RecursionError" in error.message
    assert "use a loop" in error.hints


def test_code_may_catch_that(limited):
    assert limited.app.run_sync("def f(): f()\ntry: f()\nexcept RecursionError: r = 'caught'\nr").data == "caught"


# Calls


@each(
    "code",
    [
        "while True: t.echo(value=1)",
        "while True:\n  try:\n    while True: t.fail()\n  except BaseException: pass",
        "import asyncio\nawait asyncio.gather(*[t.soon(value=i) for i in range(10_000)])",
        "while True: ot.call('t.echo')",
        "exec('while True: t.echo()')",
        "[t.echo(value=i) for i in range(51)]",
    ],
)
def test_too_many_calls(limited, code):
    limited.log.clear()
    error = limited.error(code)
    assert (error.code, error.reason) == ("execution_error", "calls")
    assert error.message == "more than 50 tool calls in one run"
    assert "run.max_calls" in error.hints[-1]
    assert len(limited.log) <= 50


def test_as_many_as_are_allowed(limited):
    assert limited.app.run_sync("len([t.echo(value=i) for i in range(50)])").data == 50


@pytest.mark.parametrize("what", ["undefined", "t.undefined", "time.sleep(0)"])
def test_questions_without_end_are_calls_too_many(limited, what):
    code = f"import time\nwhile True:\n  try:\n    while True: {what}\n  except BaseException: pass"
    error = limited.error(code)
    assert error.reason == "calls"
    assert "run.max_calls" in error.hints[-1]


# What comes out


@each(
    "code",
    [
        "while True: print('line')",
        "while True: print()",
        "print('a' * 10**7)",
        "while True:\n  try:\n    while True: print('😀' * 1000)\n  except BaseException: pass",
        "import sys\nwhile True: print('a' * 1000, file=sys.stderr)",
        "import asyncio\nprint('a' * 99_999)\nprint('b')\nawait t.hang()",
    ],
)
def test_too_much_is_printed(limited, code):
    error = limited.error(code)
    assert (error.code, error.reason) == ("execution_error", "output")
    assert "100000 bytes" in error.message
    assert "run.max_output_bytes" in error.hints[-1]


def test_what_was_printed_before_is_kept_to_the_byte(limited):
    assert len(limited.app.run_sync("while True: print('a' * 999)").printed) == 100_000
    printed = limited.app.run_sync("while True: print('😀' * 999)").printed.encode()
    assert 100_000 - 4 < len(printed) <= 100_000


HUGE = {
    "a text": "'a' * 10**6",
    "wide characters": "'😀' * 30_000",
    "a list": "[1] * 10**5",
    "a list of nothing": "[''] * 10**5",
    "bytes": "b'a' * 10**6",
    "keys": "{'a' * 1000 + str(i): 0 for i in range(1000)}",
    "numbers": "[10**4000] * 100",
    "an exception": "[ValueError('a' * 10**6)]",
}
ENDLESS = {
    "lists in lists": "x = ['a']\nfor _ in range(40): x = [x, x]\nx",
    "dicts in dicts": "x = {}\nfor _ in range(40): x = {'a': x, 'b': x}\nx",
    "tuples": "x = ()\nfor _ in range(40): x = (x, x, x)\nx",
    "objects": "class A: pass\nx = 1\nfor _ in range(40):\n  a = A()\n  a.l = a.r = x\n  x = a\nx",
    "keys of many parts": "x = ()\nfor _ in range(18): x = (x, x)\n{x: 1}",
    "keys in keys": "x = '\\\\' * 1000\nfor _ in range(20): x = (x, x)\n{x: 1}",
    "a deep list": "x = []\nfor _ in range(100_000): x = [x]\nx",
    "a deep dict": "x = {}\nfor _ in range(100_000): x = {'a': x}\nx",
    "deep objects": "class A: pass\nx = 1\nfor _ in range(100_000):\n  a = A()\n  a.x = x\n  x = a\nx",
}


@each("code", [*HUGE.values(), *ENDLESS.values()])
def test_the_result_is_too_large(limited, code):
    error = limited.error(code)
    assert (error.code, error.reason) == ("execution_error", "output")
    assert "100000 bytes" in error.message
    assert "run.max_output_bytes" in error.hints[-1]


@pytest.mark.parametrize("code", ["10**5000", "[1 << 10**6]", "{10**5000: 1}", "t.echo(value=10**5000)"])
def test_a_number_that_nobody_could_print(limited, code):
    assert "4300 digits" in limited.error(code).message


@pytest.mark.long
@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS)
def test_what_a_tool_is_given_is_too_large(make, code):
    limited = make()
    body, _, value = code.rpartition("\n")
    body = body.replace("range(18)", "range(21)")  # a tool is given more than a result may have
    error = limited.error(f"{body}\nt.echo(value={value})")
    assert (error.code, error.reason) == ("execution_error", "output")
    assert "t.echo" in error.message


def test_a_key_that_has_no_hash_outside_is_a_text_there(limited):
    assert limited.app.run_sync("class A: pass\n{A(): 1}").data == {"{}": 1}
    assert limited.app.run_sync("class A: pass\nt.echo(value={A(): 1})").data == {"{}": 1}


def test_the_code_is_too_long(limited):
    error = limited.error("x = 1\n" * 200_000)
    assert (error.code, error.reason) == ("invalid_args", "syntax")
    assert "1 MiB" in error.message


# Many at once


@pytest.mark.parametrize("workers", [1, 2])
def test_more_runs_than_workers_go_in_order(make, workers):
    limited = make(workers=workers)

    async def all_of_them():
        return await asyncio.gather(*[limited.app.run(f"t.soon(value={i})") for i in range(12)])

    assert [result.data for result in asyncio.run(all_of_them())] == list(range(12))
    assert (limited.log if workers == 1 else sorted(limited.log)) == list(range(12))  # two may overtake each other


def test_a_stuck_run_holds_nobody_up(make):
    limited = make(workers=2)

    async def together():
        stuck = asyncio.ensure_future(limited.app.run("while True: pass"))
        others = [await limited.app.run(f"{i} + 1") for i in range(10)]
        assert not stuck.done()
        stuck.cancel()
        return [one.data for one in others]

    assert asyncio.run(together()) == list(range(1, 11))


@pytest.mark.long
def test_stuck_runs_end_at_their_limit_and_the_others_go_on(make):
    limited = make(workers=2, timeout_s=1)

    async def together():
        codes = ["while True: pass"] * 4 + ["1"] * 4
        return [result.ok for result in await asyncio.gather(*map(limited.app.run, codes))]

    assert asyncio.run(together()) == [False] * 4 + [True] * 4


# Nothing stays


def stat_of(pid):
    """The words behind its name in /proc; None when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def children(parent):
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid for pid in pids if (stat := stat_of(pid)) and stat[1] == str(parent) and stat[0] != "Z"}


def megabytes(pid):
    pages = int((Path(f"/proc/{pid}/statm").read_text() or "0 0").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2


def lives(pid):
    stat = stat_of(pid)
    return stat is not None and stat[0] != "Z"


@pytest.mark.long
@on_linux
def test_neither_processes_nor_memory_are_left(tmp_path):
    before = children(os.getpid())
    limited = Limited(tmp_path, timeout_s=1)
    for code in ("while True: pass", "x = []\nwhile True: x.append('a' * 10**6)", "t.hang()", "'a' * 50_000_000", "1"):
        limited.app.run_sync(code)
    workers = children(os.getpid()) - before
    assert workers
    until(lambda: sum(megabytes(pid) for pid in workers if lives(pid)) < 64)
    limited.app.close()
    until(lambda: not children(os.getpid()) - before)


@pytest.mark.long
@on_linux
def test_what_a_run_held_is_given_back(make):
    limited = make(memory_mb=128)
    limited.app.run_sync("1")
    used = megabytes(os.getpid())
    for _ in range(5):
        limited.app.run_sync("'a' * 60_000_000")
    assert megabytes(os.getpid()) < used + 100


@pytest.fixture
def command(tmp_path):
    """Start `onetool run` with some code; a pack has a tool that hangs."""
    (tmp_path / "t.py").write_text(
        "import asyncio, time\n\nasync def hang() -> None:\n    await asyncio.sleep(60)\n\n"
        "def block() -> None:\n    time.sleep(60)\n"
    )
    (tmp_path / "onetool.yaml").write_text("packs: [t.py]\nstats: {enabled: false}\nrun: {timeout_s: 30}\n")
    started = []

    def start(code):
        command = [sys.executable, "-m", "onetool", "--config", str(tmp_path / "onetool.yaml"), "run", "-"]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Whoever runs the tests in the background does not hear Ctrl-C, and neither would what they start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        process.stdin.write(f"print('begun')\nimport time\ntime.sleep(0)\n{code}".encode())
        process.stdin.close()
        assert process.stderr.readline() == b"begun\n"
        time.sleep(0.2)  # so that the code is where it will be stuck
        return process, children(process.pid)

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


STUCK = {
    "code": "while True: pass",
    "one number": "import math\nmath.factorial(10**7)",
    "sleep": "import time\ntime.sleep(60)",
    "async tool": "t.hang()",
    "plain tool": "t.block()",
    "several tools": "import asyncio\nawait asyncio.gather(t.hang(), t.block())",
}


@pytest.mark.long
@on_linux
@pytest.mark.parametrize("code", STUCK.values(), ids=STUCK)
def test_ctrl_c_ends_the_command_at_once(command, code):
    process, workers = command(code)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130  # of the thirty seconds that it may take
    until(lambda: not any(map(lives, workers)))


@pytest.mark.long
@on_linux
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("code", [STUCK["code"], STUCK["one number"], STUCK["sleep"]])
def test_whoever_kills_us_leaves_no_worker_behind(command, code, how):
    process, workers = command(code)
    assert workers
    process.send_signal(how)
    assert process.wait(10) == -how
    until(lambda: not any(map(lives, workers)))
