"""The server on a pipe: nothing but the protocol goes over it, and it ends when it should, with all that it started."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import start, until
from interfaces.mcp.servers import CONFIG, PATIENCE, children_of, environment
from warm import CONSTANTS

DIRECT = ("--menu", "direct")
ENDLESS = {"name": "run", "arguments": {"code": "while True: pass"}}


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


def said(message):
    return message["result"]["content"][0]["text"]


def alive(pids):
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


# Only the protocol


@pytest.mark.parametrize("era", ["old", "new"])
def test_tools_that_write_to_standard_output_do_not_disturb(era, stdio_peer):
    peer = stdio_peer(era, *DIRECT)
    for _ in range(3):
        assert peer.text("rude__shout") == "shouted"
    assert peer.text("plus", {"a": 1}) == "1"
    assert peer.close() == 0
    assert peer.other_lines == []
    for line in ("printed", "written", "raw", "from a command"):
        assert peer.log().count(line) == 3


@pytest.mark.parametrize("era", ["old", "new"])
def test_tools_that_read_standard_input_read_nothing(era, stdio_peer):
    peer = stdio_peer(era, *DIRECT)
    eating = peer.begin("tools/call", call("rude__eat"))
    assert peer.text("plus", {"a": 1}) == "1"
    assert json.loads(said(eating.answer())) == ["", "", ""]
    assert peer.text("plus", {"a": 2}) == "2"


def test_what_code_prints_is_its_result(stdio_peer):
    peer = stdio_peer("old")
    assert peer.text("run", {"code": "print('a')\nrude.shout()"}) == "a\nshouted"
    assert peer.close() == 0
    assert peer.other_lines == []


def test_a_config_that_can_not_be_used_is_told_beside_the_protocol(tmp_path):
    (tmp_path / "onetool.yaml").write_text("menu: all\n")
    done = subprocess.run(
        [sys.executable, "-m", "onetool", "--config", "onetool.yaml", "mcp"],
        cwd=tmp_path,
        env=environment(tmp_path),
        input=b"",
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"menu" in done.stderr
    assert b"Traceback" not in done.stderr


def test_what_is_wrong_with_packs_is_told_beside_the_protocol_and_the_rest_works(stdio_peer, tmp_path):
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "broken.py").write_text("def f(:\n")
    (tmp_path / "packs" / "loud.py").write_text("print('imported')\n\n\ndef f() -> int:\n    return 1\n")
    (tmp_path / "onetool.yaml").write_text("menu: direct\n")
    peer = stdio_peer("old", config=tmp_path / "onetool.yaml")
    assert peer.text("loud__f") == "1"
    assert peer.close() == 0
    assert peer.other_lines == []
    assert "broken.py" in peer.log()


# Large messages


def test_a_message_that_is_too_long_is_refused_and_the_next_one_works(stdio_peer):
    peer = stdio_peer("old", *DIRECT)
    huge = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "' + b"x" * (17 * 1024**2) + b'"}}\n'
    reply = peer.reply_to(huge)
    assert (reply["id"], reply["error"]["code"]) == (None, -32600)
    assert "a message of over 16777216 bytes" in reply["error"]["message"]
    assert peer.text("plus", {"a": 1}) == "1"


def test_large_messages_go_both_ways(stdio_peer, tmp_path):
    (tmp_path / "onetool.yaml").write_text("menu: direct\nresults: {inline_bytes: 10000000}\n")
    peer = stdio_peer("new", config=tmp_path / "onetool.yaml")
    text = "x" * 4_000_000
    assert peer.text("tools__echo", {"message": text}) == text


def test_a_client_that_does_not_read_is_not_asked_for_more_and_the_server_still_ends(tmp_path):
    """It goes on asking, and reads none of the answers."""
    (tmp_path / "onetool.yaml").write_text("menu: direct\nresults: {inline_bytes: 10000000}\n")
    with start(
        "--config",
        "onetool.yaml",
        "mcp",
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        process.stdin.write(json.dumps(first).encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline()  # and this was all that it reads
        echo = call("tools__echo", message="x" * 100_000)
        messages = [{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": echo} for id in range(1, 200)]
        data = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        os.set_blocking(process.stdin.fileno(), False)
        sent = 0
        deadline = time.monotonic() + 2
        while sent < len(data) and time.monotonic() < deadline:
            try:
                sent += os.write(process.stdin.fileno(), data[sent : sent + 65536])
            except BlockingIOError:
                time.sleep(0.05)
                deadline = min(deadline, time.monotonic() + 0.5)  # it has stopped to read
        assert sent < len(data)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


# The end


def test_three_messages_in_a_pipe_are_answered(tmp_path):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call("run", code="working.add(a=1, b=2)")},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "onetool", "--config", str(CONFIG), "mcp"],
        cwd=tmp_path,
        env=environment(tmp_path),
        input="\n".join(map(json.dumps, lines)).encode(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    replies = {reply["id"]: reply for reply in map(json.loads, done.stdout.splitlines())}
    assert (done.returncode, said(replies[2])) == (0, "3")


@pytest.mark.parametrize("tool", ["working__hang", "working__wait_for_blocking"])
def test_when_the_client_has_said_all_quick_calls_are_answered_and_slow_ones_cancelled(stdio_peer, tmp_path, tool):
    peer = stdio_peer("old", *DIRECT, env={CONSTANTS: '{"onetool.interfaces.mcp.stdio.LAST_SECONDS": 1}'})
    slow = peer.begin("tools/call", call(tool, path=str(tmp_path / "it")))
    until((tmp_path / "it.began").exists)
    quick = peer.begin("tools/call", call("plus", a=1))
    peer.process.stdin.close()
    assert peer.ended() == 0
    assert said(quick.answer()) == "1"
    assert not slow.is_answered
    assert (tmp_path / "it.cancelled").exists() == (tool == "working__hang")
    assert "Traceback" not in peer.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_nothing_is_written(stdio_peer, tmp_path, number):
    """Clients stop reading before they send one, and some raise an error for an answer that comes then."""
    peer = stdio_peer("old", *DIRECT)
    slow = peer.begin("tools/call", call("working__hang", path=str(tmp_path / "it")))
    until((tmp_path / "it.began").exists)
    peer.process.send_signal(number)
    assert peer.ended() == 0
    assert (tmp_path / "it.cancelled").exists()
    assert not slow.is_answered
    assert peer.other_lines == []


@pytest.mark.long
def test_many_calls_in_one_go_and_then_the_end(tmp_path):
    """As `cat calls | onetool mcp` does; the last line has no end."""
    lines = [{"jsonrpc": "2.0", "id": 0, "method": "ping"}]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    lines += [{"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": hello}]
    lines += [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": call("plus", a=n)} for n in range(1, 101)]
    text = "\n".join(map(json.dumps, lines))
    for stdin in ({"input": text.encode()}, {"stdin": (tmp_path / "calls").open("wb+")}):
        if "stdin" in stdin:  # a file can't be watched as a pipe can
            stdin["stdin"].write(text.encode())
            stdin["stdin"].seek(0)
        done = subprocess.run(
            [sys.executable, "-m", "onetool", "--config", str(CONFIG), "mcp", *DIRECT],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            **stdin,
        )
        assert done.returncode == 0, done.stderr
        replies = {reply["id"]: reply for reply in map(json.loads, done.stdout.splitlines())}
        assert [said(replies[n]) for n in range(1, 101)] == [str(n) for n in range(1, 101)]
        if "stdin" in stdin:
            stdin["stdin"].close()


def test_a_question_to_a_client_that_has_gone_does_not_keep_it(stdio_peer):
    peer = stdio_peer("old", *DIRECT)
    peer.answers["elicitation/create"] = lambda params: time.sleep(0.5) or {"action": "cancel"}
    asking = peer.begin("tools/call", call("asking__name"))
    until(lambda: peer.asked)
    assert peer.close() == 0
    assert said(asking.answer()) == "Error: the client could not answer: the client has closed the connection"


def test_nor_does_a_stream_of_changes(stdio_peer):
    peer = stdio_peer("new", *DIRECT)
    peer.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    peer.hear("notifications/subscriptions/acknowledged")
    assert peer.close() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_all_its_workers(stdio_peer, number, tmp_path):
    peer = stdio_peer("old")
    peer.begin("tools/call", ENDLESS)
    slow = f"working.wait_for_blocking(path={str(tmp_path / 'it')!r})"  # a thread that nobody can stop
    peer.begin("tools/call", {"name": "run", "arguments": {"code": slow}})
    until((tmp_path / "it.began").exists)
    children = until(lambda: len(found := children_of(peer.process.pid)) >= 2 and found)
    peer.process.send_signal(number)
    assert peer.ended() == 0
    until(lambda: not alive(children))
    assert "Traceback" not in peer.log()


def test_the_end_of_the_pipe_ends_the_workers_too(stdio_peer):
    peer = stdio_peer("old")
    assert peer.text("run", {"code": "1"}) == "1"
    children = until(lambda: children_of(peer.process.pid))
    assert peer.close() == 0
    until(lambda: not alive(children))


def test_not_even_a_sudden_death_leaves_a_worker(stdio_peer):
    peer = stdio_peer("old")
    peer.begin("tools/call", ENDLESS)
    children = until(lambda: children_of(peer.process.pid))
    peer.process.kill()
    assert peer.ended() == -signal.SIGKILL
    until(lambda: not alive(children))


def test_a_client_that_closes_its_reading_end_ends_it(tmp_path):
    with start(
        "--config",
        str(CONFIG),
        "mcp",
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n')
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0
        assert b"Traceback" not in process.stderr.read()
