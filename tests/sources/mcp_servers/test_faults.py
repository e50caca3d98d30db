"""Servers that do not start, or fail in the middle of a call: what a user sees, and that the others go on working."""

import asyncio
import os
import signal

import pytest
from helpers import until_async
from sources.mcp_servers.harness import call, connection_lost, is_fine, is_gone, ran, settle

from onetool import ToolCall

BROKEN = {
    "refuses": ("refuses_to_start", 60, ["exit code 3", "no license key: set LICENSE_KEY"]),
    "silent": ("never_answers", 1, ["1 s"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_that_does_not_start_says_why_and_the_others_work(harness, name):
    script, seconds, words = BROKEN[name]
    with harness.app({"bad": harness.nasty(script, connect_timeout=seconds), "good": harness.nasty("ok")}) as app:
        status = settle(app)
        assert (status["bad"].state, status["good"].state) == ("disconnected", "connected")
        assert all(word in status["bad"].error for word in words), status["bad"].error
        assert is_fine(app)
        failed = call(app, "bad.anything")
        assert failed.error.code == "tool_not_found"
        assert "bad" in failed.error.message
        assert app.health()["proxy"] == {
            "status": "degraded",
            "server_count": 2,
            "servers": {"bad": "disconnected", "good": "connected"},
            "errors": {"bad": status["bad"].error},
        }


def test_a_command_that_is_not_there(harness):
    block = {"command": "no-such-program", "args": ["--x"]}
    with harness.app({"bad": block, "worse": {"command": "/no/such/program"}, "good": harness.nasty("ok")}) as app:
        status = settle(app)
        assert "command not found: no-such-program" in status["bad"].error
        assert "/no/such/program" in status["worse"].error
        assert is_fine(app)


def test_a_folder_that_is_not_there(harness):
    with harness.app({"bad": harness.nasty("ok", cwd="/no/such/folder")}) as app:
        assert "/no/such/folder" in settle(app)["bad"].error


def test_the_command_line_says_why(harness):
    harness.config({"bad": harness.nasty("refuses_to_start"), "good": harness.nasty("ok")})
    done = harness.cli("run", "bad.anything(x=1)")
    assert done.returncode == 1
    assert "no license key: set LICENSE_KEY" in done.stdout + done.stderr
    done = harness.cli("tools", "invoke", "bad.anything")
    assert done.returncode == 1
    assert "no license key: set LICENSE_KEY" in done.stdout + done.stderr
    done = harness.cli("run", "good.echo(text='hello')")
    assert (done.stdout.strip(), done.returncode) == ("hello", 0)


def test_a_command_starts_only_the_servers_that_it_needs(harness):
    harness.config({"bad": harness.nasty("never_answers"), "good": harness.nasty("ok")})
    harness.cli("run", "good.echo(text='hello')")  # to be remembered
    before = len(harness.started())
    done = harness.cli("run", "good.echo(text='hello')")
    assert (done.stdout.strip(), done.returncode) == ("hello", 0)
    assert len(harness.started()) - before == 1


def test_one_that_starts_slowly_holds_up_nobody_and_is_waited_for(harness):
    gate = harness.folder / "gate"
    with harness.app({"slow": harness.nasty("starts_slowly", gate), "good": harness.nasty("ok")}) as app:
        assert is_fine(app)
        assert {one.name: one.state for one in app.servers.statuses()}["slow"] != "connected"
        gate.touch()
        assert call(app, "slow.fine").data == "fine"


def test_an_old_one_that_knows_only_the_handshake(harness):
    with harness.app({"old": harness.nasty("old")}) as app:
        status = settle(app)["old"]
        assert (status.state, status.error) == ("connected", None)
        assert call(app, "old.fine").data == "fine"


# It fails in the middle of a call


@pytest.fixture
def timeout():
    """Seconds that a call may take."""
    return 1.5


@pytest.fixture
def failing(harness, timeout):
    env = {"MARK": str(harness.folder / "mark")}
    block = harness.nasty("fails_in_calls", env=env, timeout=timeout)
    with harness.app({"bad": block, "good": harness.nasty("ok")}) as app:
        settle(app)
        yield app


def test_a_call_that_hangs_ends_at_its_time_out(failing):
    failed = call(failing, "bad.hangs")
    assert (failed.error.code, failed.error.reason) == ("execution_error", "timeout")
    assert "1.5 s" in failed.error.message
    assert call(failing, "bad.fine").data == "fine"  # on the same connection
    assert is_fine(failing)


@pytest.mark.parametrize(("tool", "words"), [("exits", "exit code 7"), ("is_killed", "SIGKILL")])
def test_a_server_that_dies_in_mid_call(failing, harness, tool, words):
    failed = call(failing, f"bad.{tool}")
    assert (failed.error.code, failed.error.reason) == ("execution_error", "source_unavailable")
    assert words in failed.error.message
    assert call(failing, "bad.fine").data == "fine"  # it was started again
    assert is_fine(failing)
    assert len(harness.started()) == 3  # two of one, one of the other


def test_its_last_words_are_in_the_error(failing):
    assert "out of memory, I give up" in call(failing, "bad.exits").error.message


def test_a_call_is_tried_again_only_where_that_does_no_harm(failing, harness):
    assert call(failing, "bad.once").error.reason == "source_unavailable"
    assert (harness.folder / "mark").read_text().split() == ["once"]
    (harness.folder / "mark").unlink()
    assert call(failing, "bad.again").data == "fine"
    assert (harness.folder / "mark").read_text().split() == ["again", "again"]
    (harness.folder / "mark").unlink()
    assert call(failing, "bad.reads").data == "fine"  # what changes nothing does no harm twice
    assert (harness.folder / "mark").read_text().split() == ["reads", "reads"]


def test_code_can_catch_it_and_go_on(failing):
    code = """
said = []
for tool in (bad.exits, bad.hangs, bad.fine):
    try:
        said.append(tool())
    except Exception as error:
        said.append("failed")
said
"""
    assert ran(failing, code).data == ["failed", "failed", "fine"]


@pytest.mark.parametrize("timeout", [60])
def test_many_calls_in_flight_all_fail_and_none_hangs(failing, harness):
    mark = harness.folder / "mark"

    async def main():
        names = ["bad.hangs"] * 20 + ["good.echo"] * 20
        calls = [
            failing.call(ToolCall(str(n), name, {"text": "x"} if "echo" in name else {}))
            for n, name in enumerate(names)
        ]
        tasks = [asyncio.ensure_future(each) for each in calls]
        await until_async(lambda: mark.exists() and mark.read_text().count("hangs") == 20)
        killer = await failing.call(ToolCall("k", "bad.is_killed"))
        return killer, await asyncio.gather(*tasks)

    killer, results = asyncio.run(main())
    assert killer.error.reason == "source_unavailable"
    assert {result.error.reason for result in results[:20]} == {"source_unavailable"}
    assert all(result.data == "x" for result in results[20:])


def test_killed_from_outside_it_comes_back(failing, harness):
    with connection_lost(failing, "bad"), connection_lost(failing, "good"):
        for pid in harness.started():
            os.kill(pid, signal.SIGKILL)
            assert is_gone(pid)
    assert call(failing, "bad.fine").data == "fine"
    assert is_fine(failing)
    assert len(harness.started()) == 4


def test_a_cancelled_call_is_cancelled_at_the_server(harness):
    async def main(app):
        told, slow = [], ToolCall("1", "good.slow", {"seconds": 5})
        task = asyncio.ensure_future(app.call(slow, progress=lambda *said: told.append(said)))
        await until_async(lambda: told)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(20):
            while (stopped := await app.call(ToolCall("2", "good.cancelled"))).data == []:
                await asyncio.sleep(0.01)
        return stopped.data

    with harness.app({"good": harness.nasty("ok")}) as app:
        settle(app)
        assert asyncio.run(main(app)) == [5]
