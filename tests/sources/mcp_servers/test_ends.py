"""How a connection ends, and that nothing of it stays: no process, no task, no call that waits for what won't come."""

import asyncio
import logging
import signal
import sys
import threading
from pathlib import Path
from time import sleep

import pytest
from helpers import until
from sources.mcp_servers.harness import call, connection_lost, is_gone, kill, settle

from onetool.sources.mcp_servers.process import _signal_name

LONG = 60  # seconds that nobody waits for
QUICK = 20  # seconds, on a machine that is busy


# It says no more, and lives on


def test_one_that_hangs_up_in_a_call_is_told_at_once(harness):
    with harness.app({"bad": harness.nasty("hangs_up", timeout=LONG)}) as app:
        first = call(app, "bad.pid").data
        failed = call(app, "bad.never")
        assert failed.error.reason == "source_unavailable"
        assert "in the middle of never: it closed its standard output" in failed.error.message
        assert call(app, "bad.pid").data != first
        assert is_gone(int(first))


def test_after_one_has_hung_up_the_next_call_gets_another(harness):
    with harness.app({"bad": harness.nasty("hangs_up", timeout=LONG)}) as app:
        first = call(app, "bad.pid").data
        with connection_lost(app, "bad"):
            assert call(app, "bad.last").data == "bye"
        assert call(app, "bad.pid").data != first


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_servers_that_start_at_once_get_nothing_of_ours(harness, http):
    """Neither pipes of each other, which would never end, nor connections."""
    blocks = {name: harness.nasty("hangs_up") for name in ("one", "two", "three")}
    with harness.app({**blocks, "web": {"url": http.url("ok")}}) as app:
        settle(app)
        for name in blocks:
            files = call(app, f"{name}.open_files").data["files"]
            assert set(files) == {"0", "1", "2"}, files


# It ends


@pytest.mark.parametrize("script", ["hangs_up", "lists_slowly"])
def test_a_call_after_the_end_of_a_process_goes_to_the_next_one(harness, script):
    with harness.app({"bad": harness.nasty(script, "/")}) as app:
        for _ in range(2):
            pid = int(call(app, "bad.pid").data)
            kill(app, "bad", pid)
            after = call(app, "bad.pid")
            assert after.error is None, after.error
            assert int(after.data) != pid


def test_signals_without_a_name_have_a_number():
    assert _signal_name(signal.SIGKILL) == "SIGKILL"
    assert _signal_name(40) == "signal 40"


# It does not tell what it has


def test_one_that_never_tells_its_new_tools_can_be_used(harness):
    gate = harness.folder / "gate"
    asked = Path(f"{gate}.asked")
    with harness.app({"bad": harness.nasty("lists_slowly", gate, connect_timeout=LONG)}) as app:
        first = int(call(app, "bad.grow").data)
        until(asked.exists)
        asked.unlink()
        assert call(app, "bad.echo", text="a").data == "a"
        kill(app, "bad", first)
        assert call(app, "bad.echo", text="b").data == "b"
        assert call(app, "bad.grow").error is None
        until(asked.exists)
        assert settle(app)["bad"].state == "connected"


def test_that_it_does_not_tell_is_noted_and_it_may_tell_later(harness):
    with harness.app({"bad": harness.nasty("lists_slowly", harness.folder / "gate", connect_timeout=1)}) as app:
        settle(app)  # a busy machine may take longer than a second
        until(lambda: call(app, "bad.grow").error is None)
        until(lambda: any("changed tools can't be listed" in line for line in app.servers.log_lines("bad", 50)))
        assert call(app, "bad.echo", text="a").data == "a"


# Nothing is left


def tasks(app):
    """What runs on the loop of the servers, by name."""

    async def names():
        return sorted(one.get_coro().__qualname__ for one in asyncio.all_tasks() - {asyncio.current_task()})

    return app.servers._loop.background.run_sync(names())


def test_connections_that_come_and_go_leave_no_tasks(harness):
    with harness.app({"good": harness.nasty("ok")}) as app:
        pid = int(call(app, "good.pid").data)
        before = tasks(app)
        for turn in range(3):
            kill(app, "good", pid)
            call(app, "good.grow")
            harness.config({"good": harness.nasty("ok", env={"TURN": str(turn)})})
            app.reload()
            pid = int(call(app, "good.pid").data)
        until(lambda: tasks(app) == before)


def test_a_life_that_is_cancelled_takes_its_tasks_with_it(harness):
    with harness.app({"good": harness.nasty("ok")}) as app:
        call(app, "good.echo", text="x")
        loop = app.servers._loop

        async def cancel():
            loop.upstreams["good"]._task.cancel()

        loop.background.run_sync(cancel())
        until(lambda: tasks(app) == ["ServerLoop._poll_approvals"])
        assert harness.left() == []


def test_when_it_is_closed_neither_tasks_nor_threads_are_left(harness):
    with harness.app({"good": harness.nasty("ok"), "bad": harness.nasty("never_answers")}) as app:
        app.connect()
        call(app, "good.grow")
        there = app.servers._loop.background._loop
    until(there.is_closed)
    assert asyncio.all_tasks(there) == set()
    until(lambda: "onetool-servers" not in [one.name for one in threading.enumerate()])


def test_who_calls_when_it_is_closed_is_refused_and_nobody_starts(harness):
    with harness.app({"good": harness.nasty("ok"), "new": harness.nasty("ok")}) as app:
        assert call(app, "good.echo", text="a").data == "a"
    assert len(harness.started()) == 1
    for name in ("good.echo", "new.echo"):
        refused = call(app, name, text="b")
        assert refused.error is not None
    assert call(app, "good.echo", text="b").error.reason == "source_unavailable"
    app.close()
    assert len(harness.started()) == 1
    assert app.servers._loop is None


@pytest.mark.parametrize("server", ["good", "bad"])
def test_a_call_that_is_under_way_at_the_end_comes_back(harness, server):
    answers = []

    def wait(app):
        try:
            answers.append(call(app, f"{server}.slow", seconds=LONG))
        except BaseException as error:  # looked at below
            answers.append(error)

    blocks = {"good": harness.nasty("ok"), "bad": harness.nasty("never_answers", connect_timeout=LONG)}
    with harness.app(blocks) as app:
        call(app, "good.echo", text="x")
        waiting = threading.Thread(target=wait, args=(app,))
        waiting.start()
        sleep(0.5)
    waiting.join(QUICK)
    assert not waiting.is_alive()
    (answer,) = answers
    assert getattr(answer, "error", None) is not None, repr(answer)


# Looking for approvals


def test_an_error_in_looking_does_not_end_it(harness, monkeypatch, caplog):
    monkeypatch.setattr("onetool.sources.mcp_servers.loop.LOOK_AGAIN", 0.02)
    with harness.app({"good": harness.nasty("ok")}) as app:
        looks = []

        def look():
            looks.append(1)
            if len(looks) < 3:
                raise OSError("the disk is gone")

        monkeypatch.setattr(app.servers, "reread_approvals", look)
        with caplog.at_level(logging.CRITICAL, logger="onetool.servers"):
            call(app, "good.echo", text="x")
            until(lambda: len(looks) > 4)
