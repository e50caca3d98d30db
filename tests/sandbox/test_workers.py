"""Workers as processes: those that behave, those that don't, and those that are not told that we are gone.

Where a worker has to misbehave, a small program of ours stands in for it, and says what it should not.
"""

import contextlib
import os
import stat
import subprocess
import sys
import textwrap

import pytest
from helpers import calls, until, until_async

from onetool.app import App
from onetool.sandbox import (
    CodeError,
    MessageTooLargeError,
    OutOfMemoryError,
    ProtocolError,
    TooLargeError,
    WorkerError,
    wire,
)
from onetool.sandbox.messages import WorkerLimits
from onetool.sandbox.pool import WorkerPool
from onetool.sandbox.wire import Function

MEGABYTE = 1024 * 1024
OK = wire.message(10, b"")
NONE_RESULT = wire.message(6, wire.number(1, 0) + wire.message(2, b"\x12\x02\x12\x00"))

STAND_IN = """#!{python}
import os, sys, time

def read():
    data = b""
    while len(data) < 4:
        data += os.read(0, 4 - len(data)) or sys.exit()
    size, data = int.from_bytes(data, "little"), b""
    while len(data) < size:
        data += os.read(0, size - len(data)) or sys.exit()
    return data

def say(data):
    os.write(1, len(data).to_bytes(4, "little") + data)

CONFIGURE, FEED, RESET = 0x0A, 0x1A, 0x4A
OK, RESULT = {ok!r}, {result!r}

while True:
    request = read()
    kind = request[0]
{body}
"""


@pytest.fixture
def patient(monkeypatch):
    """A worker that was given back is waited for, however busy the machine is."""
    monkeypatch.setattr("onetool.sandbox.pool.START_SECONDS", 60)


@pytest.fixture
def pool(patient):
    pool = WorkerPool(WorkerLimits(seconds=5, memory_mb=64), 4 * MEGABYTE)
    yield pool
    pool.close()


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A worker that answers each request with this code; a pool of such workers."""
    pools = []

    def make(body, most_frame_bytes=MEGABYTE):
        path = tmp_path / "monty"
        body = textwrap.indent(textwrap.dedent(body), "    ")
        path.write_text(STAND_IN.format(python=sys.executable, ok=OK, result=NONE_RESULT, body=body))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("MONTY_BIN", str(path))
        pools.append(WorkerPool(WorkerLimits(), most_frame_bytes))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def quiet(_stream, _text):
    """Nobody listens."""


def value(session, code, budget=MEGABYTE):
    return session.feed(code, {}, quiet).value(budget)


# Reset


def test_nothing_is_left_for_the_next_session(pool):
    with pool.session() as session:
        assert value(session, "x = 1\nx") == 1
        assert value(session, "x + 1") == 2
        first = session.pid
    with pool.session() as session:
        assert session.pid == first
        session.feed("x", {}, quiet)  # it asks us what x is
        with pytest.raises(CodeError, match="name 'x' is not defined"):
            session.resume_name(None)


def test_the_next_session_does_not_wait_for_a_reset(stand_in, tmp_path):
    """A worker that takes long to forget is passed by, and is used again when it is through."""
    pool = stand_in("""
        if kind == RESET:
            while not os.path.exists(f"{__file__}.forgets"): time.sleep(0.005)
        say(RESULT if kind == FEED else OK)
    """)
    with pool.session() as session:
        slow = session.pid
        assert value(session, "1") is None
    with pool.session() as session:
        other = session.pid
        assert value(session, "1") is None
    assert other != slow
    (tmp_path / "monty.forgets").touch()

    def next_one():
        with pool.session() as session:
            return session.pid

    until(lambda: next_one() == slow)


def test_a_worker_that_does_not_acknowledge_its_reset_is_not_handed_on(stand_in, patient):
    pool = stand_in("""
        say(RESULT if kind == FEED else RESULT if kind == RESET else OK)
    """)
    with pool.session() as session:
        first = session.pid
        value(session, "1")
    with pool.session() as session:
        assert session.pid != first


def test_a_late_kill_does_not_reach_a_worker_that_was_given_back(pool):
    with pool.session() as session:
        value(session, "1")
    session.kill()
    with pool.session() as another:
        assert another.pid == session.pid
        assert value(another, "1 + 1") == 2


def test_code_that_failed_leaves_a_worker_that_is_used_again(pool):
    with pool.session() as session:
        with pytest.raises(CodeError) as caught:
            value(session, "def f():\n    return 1 / 0\n\nf()")
        assert caught.value.kind == "ZeroDivisionError"
        assert [line.line for line in caught.value.trace] == [4, 2]
        first = session.pid
    with pool.session() as session:
        assert session.pid == first


# Ends


def test_a_worker_that_is_refused_memory_says_so(pool):
    with pool.session() as session, pytest.raises((OutOfMemoryError, CodeError), match=r"memory|ended"):
        value(session, "x = 'x' * 1000\nwhile True: x = x + x")


def test_exit_status_65_is_out_of_memory(stand_in):
    pool = stand_in("""
        sys.exit(65) if kind == FEED else say(OK)
    """)
    with pool.session() as session, pytest.raises(OutOfMemoryError):
        value(session, "1")


def test_a_worker_that_ends_is_replaced(stand_in):
    pool = stand_in("""
        sys.exit(1) if kind == FEED else say(OK)
    """)
    for _ in range(2):
        with pool.session() as session, pytest.raises(WorkerError):
            value(session, "1")


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("the result", "'x' * 5_000_000"),
        ("the input of a tool", "f('x' * 5_000_000)"),
        ("the code's output or error", "raise ValueError('x' * 5_000_000)"),
    ],
)
def test_a_message_over_the_limit_is_refused_unread_and_the_worker_ends(pool, what, code):
    with pool.session() as session:
        with pytest.raises(MessageTooLargeError, match=f"{what} is larger than 4194304 bytes"):
            session.feed(code, {"f": Function("f")}, quiet)
        assert session.has_ended
    with pool.session() as session:
        assert value(session, "1 + 1") == 2


def test_a_value_that_is_too_large_costs_no_worker(pool):
    with pool.session() as session:
        with pytest.raises(TooLargeError):
            value(session, "'x' * 2000", budget=1000)
        assert value(session, "1 + 1") == 2


NONSENSE = {
    "an event that there is not": "say(bytes([19 << 3 | 2 & 127, 0]))",
    "no event": "say(b'')",
    "a node that there is not": "say(bytes([50, 8, 8, 0, 18, 4, 18, 2, 90 + 128, 3]))",
    "a value that is not there": "say(bytes([50, 2, 8, 9]))",
    "an answer to nothing": "say(OK)",
    "half a message": "os.write(1, b'\\x09\\0\\0\\0ab'); sys.exit()",
}


@pytest.mark.parametrize("says", NONSENSE.values(), ids=NONSENSE)
def test_a_worker_that_breaks_the_protocol_is_ended_and_the_run_says_so(stand_in, tmp_path, says):
    stand_in(f"""
        {says} if kind == FEED else say(OK)
    """)
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        error = app.run_sync("1 + 1").error
        assert (error.code, error.reason) == ("execution_error", "crashed")
        assert "sandbox" in error.message
        assert app.run_sync("1 + 1").error.reason == "crashed"  # not hanging on to the old one


def test_the_error_names_the_kind_of_node_that_is_unknown(stand_in):
    pool = stand_in("""
        say(bytes([50, 8, 8, 0, 18, 4, 18, 3, 0xda, 4, 0])) if kind == FEED else say(OK)
    """)
    with pool.session() as session, pytest.raises(ProtocolError, match="a node of kind 75"):
        value(session, "1")


def test_a_worker_that_says_nothing_can_be_killed(stand_in, tmp_path):
    stand_in("""
        time.sleep(60) if kind == FEED else say(OK)
    """)
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\nrun: {timeout_s: 0.1}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        assert app.run_sync("1 + 1").error.reason == "timeout"


def test_the_program_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("MONTY_BIN", str(tmp_path / "nothing"))
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        error = app.run_sync("1 + 1").error
    assert error.message.startswith("the sandbox does not start: ")
    assert "pip install" in error.hints[0]


# When we are gone

ABANDONED = """
    import sys
    from onetool.app import App
    from onetool.services.child_reaper import ChildReaper as Watch
    Watch.add = lambda self, pid: print(pid, flush=True)  # nobody but the worker itself looks after its end
    App.open(sys.argv[1]).run_sync("while True: pass")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the test looks into /proc")
def test_a_worker_that_nobody_watches_ends_at_its_own_limit(tmp_path):
    """Where there is neither a shell nor `ps`: its time is up, it wants to say so, and nobody is there."""
    config = tmp_path / "onetool.yaml"
    config.write_text("stats: {enabled: false}\nrun: {timeout_s: 2}\n")
    ours = subprocess.Popen([sys.executable, "-c", textwrap.dedent(ABANDONED), str(config)], stdout=subprocess.PIPE)
    try:
        pid = int(ours.stdout.readline())
        assert os.path.exists(f"/proc/{pid}")
    finally:
        ours.kill()
        ours.communicate()
    until(lambda: not os.path.exists(f"/proc/{pid}"))


# Found by reading


def test_a_tool_that_comes_back_late_does_not_talk_to_another_s_worker(tmp_path):
    """A cancelled run: its worker's pipes are closed, and their numbers stand for others soon."""
    import asyncio
    import threading

    from onetool import ToolSpec

    began, go_on = threading.Event(), threading.Event()
    (tmp_path / "onetool.yaml").write_text("stats: {enabled: false}\n")

    async def main(app):
        late = asyncio.create_task(app.run("t.slow()"))
        await until_async(began.is_set)
        late.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await late
        assert (await app.run("1 + 1")).data == 2
        go_on.set()
        for number in range(20):
            assert (await app.run(f"{number} + 1")).data == number + 1

    with App.open(tmp_path / "onetool.yaml") as app:
        schema = {"type": "object", "properties": {}}
        slow = ToolSpec(
            name="t.slow", description="d", input_schema=schema, handler=lambda: (began.set(), go_on.wait(10))[1]
        )
        app.catalog.registry.register(slow)
        asyncio.run(main(app))


def test_workers_start_where_pipes_can_not_be_enlarged(monkeypatch):
    import fcntl

    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(fcntl, "fcntl", refused)
    pool = WorkerPool(WorkerLimits(), MEGABYTE)
    with pool.session() as session:
        assert value(session, "1 + 1") == 2
    pool.close()


def test_a_program_that_ends_at_once_leaves_nothing_behind(monkeypatch):
    monkeypatch.setenv("MONTY_BIN", "/bin/true")
    pool = WorkerPool(WorkerLimits(), MEGABYTE)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(WorkerError), pool.session() as session:
            value(session, "1")
    pool.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_one_list_as_large_as_a_message_is_refused_unread():
    from onetool.sandbox.messages import read_event

    node = wire.message(2, b"\x12\x00")
    indexes = wire.message(2, wire.message(11, wire.message(1, bytes(30 * MEGABYTE))))
    event = read_event(wire.message(6, wire.number(1, 1) + wire.message(2, node + indexes)))
    with calls(1_000), pytest.raises(TooLargeError):
        event.value(MEGABYTE)
