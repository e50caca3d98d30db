"""Rows of `replicas` that no holder of the cluster's key has written: nothing is sent there, and one is told."""

import json
import socket
import sqlite3
import time
from contextlib import ExitStack, closing

import pytest
from cluster.members import KEY, Replica
from cluster.test_rows import settings
from helpers import cli, until

from onetool.cluster import ClusterSettings, members
from onetool.cluster.members import Members, read_members
from onetool.services.secrets import Secret

pytestmark = pytest.mark.attack("replicas")

ADMIN = [("Authorization", f"Bearer {KEY}")]
OTHER = "another cluster.key (or its row was changed)"


@pytest.fixture
def two(shared):
    """Members of one key; the second one no longer beats, so that its row stays as the test leaves it."""
    one, other = Members(settings(shared, "a:1")), Members(settings(shared, "b:1"), "abcdef01")
    other.start()
    other._ended.set()
    other._thread.join()
    one._beat()
    assert one.find("abcdef01").address == "b:1"
    return one, other


CHANGES = {
    "address": "address = 'evil:1'",
    "id": "id = 'deadbeef'",
    "time": "seen_at = seen_at + 0.5",
    "draining": "is_draining = NOT is_draining",
    "version": "version = '9'",
    "no signature": "signature = ''",
    "another signature": "signature = 'é'",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_row_that_was_changed_is_nobody(shared, two, caplog, change):
    one, _ = two
    shared.write(lambda work: work.execute(f"UPDATE replicas SET {change} WHERE id = 'abcdef01'"))
    id, address = "deadbeef" if "deadbeef" in change else "abcdef01", "evil:1" if "evil" in change else "b:1"
    for _ in range(3):
        one._beat()
    assert [found.id for found in one.alive()] == [one.id]
    assert (one.find(id), one.is_alive(id)) == (None, False)
    told = f"replica {id} at {address} has {OTHER}: give all replicas the same key. Nothing is sent to it"
    assert [record.getMessage() for record in caplog.records] == [told]
    assert [(found.id, found.is_known) for found in read_members(shared, b"k") if found.id != one.id] == [(id, False)]


def test_a_row_of_old_cannot_be_brought_back(shared, two, monkeypatch):
    one, _ = two
    row = shared.read(lambda work: work.execute("SELECT * FROM replicas WHERE id = 'abcdef01'"))[0]
    monkeypatch.setattr(members, "GONE_S", 0.3)
    until(lambda: one._beat() or not one.is_alive("abcdef01"))
    monkeypatch.undo()
    assert one.find("abcdef01") is not None  # it was signed less than five seconds ago …
    shared.write(lambda work: work.execute(f"UPDATE replicas SET seen_at = {shared.clock} WHERE id = %s", row[:1]))
    one._beat()
    assert not one.is_alive("abcdef01")  # … and that time is a part of what was signed
    assert one.find("abcdef01") is None


def test_who_starts_hears_at_once_of_those_with_another_key(shared, two, caplog):
    late = Members(ClusterSettings("c:1", b"other", shared))
    late.start()
    late.close()
    assert "replica abcdef01 at b:1 has another cluster.key" in caplog.text


def test_an_address_of_the_environment_is_signed(shared, two):
    one, _ = two
    late = Members(settings(shared, Secret("c:1", "${REPLICA_ADDRESS}")))
    late._beat()
    one._beat()
    assert one.find(late.id).address == "c:1"


def test_what_strangers_write_fills_no_log(shared, two, caplog, monkeypatch):
    monkeypatch.setattr(members, "MAX_LOGGED", 3)
    one, _ = two
    for number in range(5):
        insert = f"INSERT INTO replicas VALUES (%s, %s, '9', 0, {shared.clock}, false, '', '')"
        shared.write(lambda work, number=number, sql=insert: work.execute(sql, (f"{number}\n\x1b" * 99, "x\ny" * 99)))
    one._beat()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert all("\n" not in line and "\x1b" not in line and len(line) < 1000 for line in lines)


@pytest.mark.long
def test_nothing_is_sent_where_a_forged_row_points(own_pair):
    server = own_pair.servers[0]
    with (
        socket.create_server(("127.0.0.1", 0)) as trap,
        closing(sqlite3.connect(server.folder.parent / "shared.db")) as file,
        file,
    ):
        trap.settimeout(0.5)
        address, now = f"127.0.0.1:{trap.getsockname()[1]}", time.time()
        columns = "id, address, version, since, seen_at, is_draining"
        row = ("deadbeef", address, "0", 0.0, now, False)
        file.execute(f"INSERT INTO replicas ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
        file.commit()
        found = server.send(None, path=f"/ask/deadbeef{'1' * 32}", method="DELETE")
        with pytest.raises(TimeoutError):
            trap.accept()
    assert (found.status, json.loads(found.body)["code"]) == (502, "replica_gone")
    until(lambda: f"replica deadbeef at {address} has {OTHER}" in server.log())


@pytest.fixture
def strangers(database_url, tmp_path):
    """Two replicas on one database with different keys."""
    with ExitStack() as ends:
        made = []
        for name, key in (("a", KEY), ("b", KEY[::-1])):
            options = {"more": f"http: {{token: {KEY}}}\n", "key": key}
            made.append(Replica(tmp_path / name, database_url, "--drain-s", "0", **options))
            ends.callback(made[-1].kill)
        yield made


def test_replicas_with_different_keys(strangers):
    first, second = strangers
    for one, other in (strangers, strangers[::-1]):
        until(lambda one=one, other=other: f"at {other.address} has {OTHER}" in one.log())
        found = one.send(None, ADMIN, path="/check", method="GET").message
        assert [replica["address"] for replica in found["replicas"]] == [one.address]
        (wrong,) = [finding for finding in found["findings"] if OTHER in finding["message"]]
        assert (wrong["level"], wrong["fix"], found["ok"]) == ("error", "give all replicas the same key", False)
        assert f"at {other.address} has" in wrong["message"]
    command = ("--config", str(first.folder / "onetool.yaml"), "check", "--json")
    told = cli(*command, cwd=first.folder)
    (mistake,) = [one for one in json.loads(told.stdout) if one["key"] == "cluster.key"]
    assert told.returncode == 1
    assert second.address in mistake["message"]
