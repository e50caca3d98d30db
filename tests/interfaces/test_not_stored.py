"""A call that had its effect, and whose large result can't be stored now: it waits."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import httpx
import pytest
from helpers import until
from interfaces.mcp.peers import HttpPeer
from interfaces.mcp.servers import Server
from postgres import database_url, postgres

__all__ = ["database_url", "postgres"]

PACK = '''
"""Calls that have an effect."""

def note(path: str) -> str:
    """Write a line into a file, and return many lines."""
    with open(path, "a") as file:
        file.write("a line\\n")
    return "\\n".join(f"line {number}" for number in range(3000))
'''
WAITING = '''
"""A call that has an effect, and takes some time."""

import time
from pathlib import Path

def note(path: str) -> str:
    """Write a line into a file, and wait for another one."""
    Path(path).write_text("a line")
    while not Path(f"{path}.end").exists():
        time.sleep(0.05)
    return "done"
'''


@contextmanager
def locked(home):
    """Lock the state as another program might."""
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield "state.db is locked by another process"
        other.execute("ROLLBACK")


@contextmanager
def stopped(postgres):
    postgres.stop()
    try:
        yield "the database can't be reached"
    finally:
        assert postgres.start_again()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def away(request, tmp_path):
    """A server, and a context in which its database is away."""
    pack, config = tmp_path / "pack.py", tmp_path / "onetool.yaml"
    pack.write_text(PACK)
    database = {"database": request.getfixturevalue("database_url")} if request.param == "postgres" else {}
    config.write_text(json.dumps({"packs": [str(pack)], **database}))
    server = Server(tmp_path, config=config)
    try:
        if database:
            yield server, stopped(request.getfixturevalue("postgres"))
        else:
            yield server, locked(tmp_path / "state")
    finally:
        server.stop()


def test_a_result_waits_for_the_database(away, tmp_path):
    server, gone = away
    url, notes = server.url.removesuffix("/mcp"), tmp_path / "notes"
    code = f"pack.note(path={str(notes)!r})"
    menus = {menu: HttpPeer(server, "new", query=f"?menu={menu}") for menu in ("run", "search", "direct")}
    old = HttpPeer(server, "old")
    handle = httpx.post(f"{url}/run", json={"code": code}).json()["stored"]
    with gone as why:
        for peer, tool, args in (
            (menus["run"], "run", {"code": code}),
            (menus["search"], "call", {"name": "pack.note", "args": {"path": str(notes)}}),
            (menus["direct"], "pack__note", {"path": str(notes)}),
        ):
            result = peer.call(tool, args)
            assert result.get("isError", False) is False
            assert "line 0\nline 1" in result["content"][0]["text"]
        waiting = httpx.post(f"{url}/run", json={"code": code}, timeout=60).json()["stored"]
        assert "line 2999" in read(menus["run"], waiting).body.decode()
        assert len(notes.read_text().splitlines()) == 5
        if "reached" in why:  # a locked file can be read
            for peer in (menus["run"], old):
                answer = read(peer, handle)
                error = json.loads(answer.body)["error"]
                assert (answer.status, error["code"], error["data"]) == (503, -32603, {"reason": "database_away"})
                assert error["message"].startswith(f"the result can't be read: {why}")
    for each in (handle, waiting):
        until(lambda each=each: each in [one["handle"] for one in httpx.get(f"{url}/results").json()["results"]])
        assert "line 2999" in read(menus["run"], each).body.decode()


@pytest.fixture
def slow(tmp_path):
    """A server whose tool works until a file exists, and a function that takes its database away meanwhile."""
    (tmp_path / "pack.py").write_text(WAITING)
    (tmp_path / "onetool.yaml").write_text(json.dumps({"packs": ["pack.py"], "audit": "required"}))
    server, notes = Server(tmp_path, config=tmp_path / "onetool.yaml"), tmp_path / "notes"
    notes.touch()

    def post(path, body):
        with ThreadPoolExecutor() as pool:
            calling = pool.submit(httpx.post, f"{server.url.removesuffix('/mcp')}{path}", json=body, timeout=60)
            until(notes.read_text)
            with locked(tmp_path / "state"):
                (tmp_path / "notes.end").touch()
                return calling.result()

    yield post, str(notes)
    server.stop()


def test_nor_is_that_of_a_call_in_a_conversation(slow):
    post, notes = slow
    answer = post("/ask/calls", {"name": "pack.note", "args": {"path": notes}})
    assert (answer.status_code, answer.json()["code"]) == (503, "not_stored")
    assert answer.json()["detail"].endswith("can't be written: state.db is locked by another process")
    assert "retry-after" not in answer.headers


def test_nor_is_that_of_a_call_before_one_that_is_refused(slow):
    post, notes = slow
    error = post("/run", {"code": f"pack.note(path={notes!r})\npack.note(path={notes!r})"}).json()["error"]
    assert error["reason"] == "audit_unavailable"
    assert "done: pack.note ×1" in error["hints"]
    assert "(state.db is locked by another process)" in error["message"]


def read(peer, handle):
    return peer.send(peer.message("resources/read", {"uri": f"ot://results/{handle}"}))
