"""Servers that flood OneTool in the middle of a call: every call ends, other servers answer, and memory is bounded."""

import asyncio
import math
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from helpers import until
from sources.mcp_servers.harness import Harness, call, is_fine, settle

from onetool import ToolCall
from onetool.sources.mcp_servers.upstream import PAUSE

pytestmark = [pytest.mark.attack("hostile MCP servers"), pytest.mark.long]

SECRET = "s3cr3t-of-the-server"
MAX_TASKS = 400  # on the loop of all servers
MAX_BYTES = 80 * 1024 * 1024  # that wait: two messages, and what a pipe holds

HEARD = [
    "progress",
    "progress_of_others",
    "progress_of_no_number",
    "progress_with_long_words",
    "messages",
    "a_huge_message",
    "a_deep_message",
    "messages_of_no_level",
    "changes",
    "unknown_notifications",
    "cancellations",
    "pings",
    "pings_of_one_id",
    "pings_of_odd_ids",
    "pings_of_eight_megabytes",
    "questions",
    "samplings",
    "hostile_forms",
    "pages",
    "hostile_samplings",
    "unknown_requests",
    "the_answer_many_times",
    "answers_of_all_ids",
    "an_answer_by_its_id_as_text",
    "errors_of_all_kinds",
    "an_answer_in_drops",
    "rubbish",
    "blank_lines",
    "no_text_at_all",
    "lists_of_lists",
    "batches",
    "stderr_without_a_line",
]
ENDS = ["progress_of_400_digits", "children_that_hold_the_pipes", "it_hangs_up", "half_a_line"]


@pytest.fixture(scope="module")
def flooded(tmp_path_factory):
    harness = Harness(tmp_path_factory.mktemp("flooded"))
    env = {"KEY": "${KEY}", "RESTLESS": str(harness.folder / "restless")}
    bad = harness.nasty("floods", env=env, timeout=60)
    with harness.app({"bad": bad, "good": harness.nasty("ok")}, secrets={"KEY": SECRET}) as app:
        settle(app)
        app.harness = harness
        yield app


class Most:
    """What the connection to a server has had waiting at most: tasks of the loop, and bytes in both directions."""

    def __init__(self, app):
        self.tasks = self.bytes = 0
        self._loop = app.servers._loop

    def look(self):
        with suppress(RuntimeError, KeyError, AttributeError):  # it changes while we look, or is not there yet
            self.tasks = max(self.tasks, len(asyncio.all_tasks(self._loop.background._loop)))
            connection = self._loop.upstreams["bad"]._connection
            if connection is not None and connection._child is not None:
                child = connection._child
                pipe = child._pipe(0)
                unsent = pipe.get_write_buffer_size() if pipe is not None else 0
                self.bytes = max(self.bytes, unsent + sum(map(len, [*child.lines._waiting])))


@contextmanager
def watched(app):
    """Look often, in a thread."""
    most, is_over = Most(app), threading.Event()

    def look():
        while not is_over.wait(0.002):
            most.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        is_over.set()
        thread.join()


def answered(app, how, name="bad.deaf"):
    """Make a call while the other server is called, too. Return its result."""

    async def both():
        bad = asyncio.ensure_future(app.call(ToolCall("1", name, {"how": how}), progress=lambda *_: None))
        others = [await app.call(ToolCall("2", "good.echo", {"text": "x"})) for _ in range(3)]
        assert [one.data for one in others] == ["x"] * 3
        return await bad

    return asyncio.run(both())


@pytest.mark.parametrize("how", HEARD)
def test_what_nobody_wants_to_hear(flooded, how):
    with watched(flooded) as most:
        done = answered(flooded, how)
        assert call(flooded, "bad.fine").error is None  # on the same connection: nothing has ended it
    assert done.data == "done", done.error
    assert most.tasks < MAX_TASKS
    assert most.bytes < MAX_BYTES
    assert is_fine(flooded)


def test_requests_whose_answers_nobody_reads(harness):
    """The server is read no further, so its call ends at its timeout."""
    bad = harness.nasty("floods", timeout=4)
    with harness.app({"bad": bad, "good": harness.nasty("ok")}) as app, watched(app) as most:
        settle(app)
        assert answered(app, "pings_without_end").error.reason == "timeout"
        assert is_fine(app)
    assert most.tasks < MAX_TASKS


def test_calls_of_a_server_that_reads_nothing(harness):
    """Their arguments don't gather in memory when they are given up."""
    bad = harness.nasty("floods", timeout=0.5)
    with harness.app({"bad": bad, "good": harness.nasty("ok")}) as app, watched(app) as most:
        settle(app)

        async def several():
            args = {"text": "x" * 1_000_000}
            return await asyncio.gather(*(app.call(ToolCall(str(n), "bad.takes", args)) for n in range(8)))

        assert {one.error.reason for one in asyncio.run(several())} == {"timeout"}
        assert is_fine(app)
    assert most.bytes < 3_000_000


@pytest.mark.parametrize("how", ["progress_with_a_secret", "progress_of_no_number", "progress_with_long_words"])
def test_what_a_caller_is_told_of_its_progress(flooded, how):
    told = []
    work = flooded.call(ToolCall("1", "bad.deaf", {"how": how}), progress=lambda *what: told.append(what))
    assert asyncio.run(work).data == "done"
    assert SECRET not in str(told)
    assert all(math.isfinite(done) and len(words or "") < 1_000 for done, _, words in told)
    assert told != [] or how == "progress_of_no_number"


@pytest.mark.parametrize("how", ENDS)
def test_an_end_in_the_middle(flooded, how):
    done = answered(flooded, how)
    assert done.data == "done" or done.error.reason == "source_unavailable"
    until(lambda: call(flooded, "bad.fine").error is None)
    assert is_fine(flooded)


@pytest.mark.parametrize("how", ["it_stops", "it_ignores_signals"])
def test_one_that_does_not_end(harness, how):
    """Its processes are looked for when the app has ended."""
    bad = harness.nasty("floods", env={"GOES_ON": "1"}, timeout=2)
    with harness.app({"bad": bad, "good": harness.nasty("ok")}) as app:
        assert answered(app, how).data == "done"
        assert is_fine(app)


def test_lists_that_change_whenever_they_are_asked_for(flooded):
    restless = flooded.harness.folder / "restless"
    before, began = int(call(flooded, "bad.fine").data), time.monotonic()
    restless.touch()
    call(flooded, "bad.deaf", how="changes")
    until(lambda: int(call(flooded, "bad.fine").data) > before + 3)
    assert is_fine(flooded)
    restless.unlink()
    assert int(call(flooded, "bad.fine").data) - before <= (time.monotonic() - began) / PAUSE + 3


def test_pages_that_never_end_and_are_large(harness):
    """They are asked for until there is too much to keep."""
    heavy = harness.nasty("floods", env={"HEAVY": "8000000"})
    with harness.app({"bad": heavy, "good": harness.nasty("ok")}) as app:
        settle(app)
        assert is_fine(app)
        assert 0 < len(app.servers.proxy("bad").cached.tools) <= 5


def test_no_line_of_a_server_looks_like_one_of_ours(flooded):
    call(flooded, "bad.deaf", how="a_message_in_our_name")
    until(lambda: any("forged" in line for line in flooded.servers.log_lines("bad", 500)))
    lines = [line for line in flooded.servers.log_lines("bad", 500) if "forged" in line]
    assert [line for line in lines if line[20:].startswith("-- connected")] == []
    assert all(line.isprintable() for line in lines)


def test_lines_of_a_server_are_cut(flooded):
    for how in ("a_huge_message", "messages_of_no_level", "rubbish", "stderr_without_a_line"):
        call(flooded, "bad.deaf", how=how)
    assert max(map(len, flooded.servers.log_lines("bad", 5_000))) < 3_000


def test_an_error_of_eight_megabytes_is_cut(flooded):
    failed = answered(flooded, "an_error_of_eight_megabytes")
    assert len(str(failed.error)) < 200_000
    assert is_fine(flooded)


def test_questions_of_one_call_one_after_the_other(flooded):
    assert answered(flooded, "one_question_after_the_other", "bad.ask").data == "done"
    assert is_fine(flooded)
