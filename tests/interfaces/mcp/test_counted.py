"""What clients do ends up in the stats: their names, the menus that they got, their runs, and how long they took."""

import json
import sqlite3
import time

import pytest
from helpers import each
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import CONFIG
from services.journals import Counted

from onetool import App
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.mcp.client import CallGapTimer, client_name
from onetool.interfaces.mcp.menus import menu


def kept(folder, question):
    database = sqlite3.connect(folder / "state" / "state.db")
    try:
        return database.execute(question).fetchall()
    finally:
        database.close()


def folder_of(peer):
    return peer.log_file.parent


@pytest.mark.parametrize("era", ["old", "new"])
def test_a_client_with_a_menu_of_one(stdio_peer, era):
    peer = stdio_peer(era, "--menu", "run")
    (listed,) = peer.result("tools/list")["tools"]
    code = "[working.add(a=1, b=2), working.add(a=3, b=4)]"
    assert peer.text("run", {"code": code}) == "[3, 7]"
    time.sleep(0.3)
    assert peer.text("run", {"code": "working.add(a=1)"})
    assert peer.close() == 0
    folder = folder_of(peer)
    calls = kept(folder, "SELECT tool, via, client, source, run, bytes_in, bytes_out FROM events WHERE kind = 'call'")
    assert [(*row[:4], *row[5:]) for row in calls][:2] == [
        ("working.add", "mcp", "peer", "local", len('{"a":1,"b":2}'), 1),
        ("working.add", "mcp", "peer", "local", len('{"a":3,"b":4}'), 1),
    ]
    runs = kept(folder, "SELECT id, via, client, outcome, bytes_in FROM events WHERE kind = 'run'")
    assert [row[1:] for row in runs] == [("mcp", "peer", "ok", len(code)), ("mcp", "peer", "ok", 16)]
    assert {row[4] for row in calls} == {row[0] for row in runs}
    replies = kept(folder, "SELECT run, bytes_out FROM events WHERE kind = 'reply'")
    assert [run for run, _ in replies] == [row[0] for row in runs]
    assert replies[0][1] == len("[3, 7]")
    ((client, full, sent),) = kept(folder, "SELECT client, bytes_in, bytes_out FROM events WHERE kind = 'menu'")
    assert (client, sent) == ("peer", pytest.approx(len(json.dumps([listed])), rel=0.2))
    assert full > sent
    ((waited,),) = kept(folder, "SELECT ms FROM events WHERE kind = 'wait'")
    assert waited >= 250
    summary = Counted(SqliteDatabase(folder / "state" / "state.db")).summary()
    assert (summary["runs"], summary["calls_in_runs"]) == (2, 3)
    assert summary["clients"] == [{"name": "peer", "calls": 3}]
    assert summary["context_saved"] > 0
    assert summary["time_saved_ms"] >= 250


def test_a_client_that_lists_every_tool_saves_nothing(stdio_peer):
    peer = stdio_peer("old", "--menu", "direct")
    peer.result("tools/list")
    time.sleep(0.5)  # after which it is recorded
    assert peer.close() == 0
    ((full, sent),) = kept(folder_of(peer), "SELECT bytes_in, bytes_out FROM events WHERE kind = 'menu'")
    assert full == sent


def test_clients_over_http_have_names_too(serve):
    server = serve("--menu", "direct")
    old, new = HttpPeer(server, "old"), HttpPeer(server, "new")
    for peer in (old, new):
        for number in (1, 2):
            assert peer.text("plus", {"a": number, "b": 1}) == str(number + 1)
    assert server.stop() == 0
    clients = kept(server.folder, "SELECT client, count(*) FROM events WHERE kind = 'call' GROUP BY client")
    assert clients == [("peer", 4)]
    # Requests that stand alone belong to no conversation.
    assert len(kept(server.folder, "SELECT * FROM events WHERE kind = 'wait'")) == 1


def test_calls_at_once_are_no_waiting(stdio_peer):
    peer = stdio_peer("old", "--menu", "run")
    under_way = [peer.begin("tools/call", {"name": "run", "arguments": {"code": str(n)}}) for n in range(5)]
    for one in under_way:
        one.answer()
    assert peer.close() == 0
    assert kept(folder_of(peer), "SELECT count(*) FROM events WHERE kind = 'wait'") == [(0,)]


@each(
    ("info", "name"),
    [
        ({"name": "claude-code", "version": "2"}, "claude-code"),
        ({"name": "x" * 5000}, "x" * 100),
        ({"name": "a\0\x1b[31mb\ud800\n"}, "a[31mb"),
        ({"name": 3}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_names_come_from_outside(info, name):
    assert client_name(info) == name


def test_a_peer_knows_when_it_was_silent():
    peer = CallGapTimer()
    assert peer.call_started() is None  # the first one
    peer.call_ended(has_result=True)
    assert peer.call_started() == pytest.approx(0, abs=5)
    assert peer.call_started() is None  # beside another
    peer.call_ended(has_result=True)
    assert peer.call_started() is None  # while another one is still under way
    peer.call_ended(has_result=True)
    peer.call_ended(has_result=True)
    assert peer.call_started() is not None
    peer.call_ended(has_result=False)
    assert peer.call_started() is None


def test_a_menu_is_weighed_once():
    with App.open(CONFIG) as app:
        small, full = menu("run", app), menu("direct", app)
        assert small.full_bytes() == full.sent_bytes() == full.full_bytes()
        assert small.full_bytes() == len(json.dumps(full.listing, separators=(",", ":"), ensure_ascii=False).encode())
