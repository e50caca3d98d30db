"""Replicas with another key: nothing is sent there, and one is told."""

import json
from contextlib import ExitStack

import pytest
from cluster.members import KEY, Replica
from cluster.test_rows import settings
from helpers import cli, until

from onetool.cluster import ClusterSettings, members
from onetool.cluster.members import Members, read_members

pytestmark = pytest.mark.attack("replicas")

ADMIN = [("Authorization", f"Bearer {KEY}")]
OTHER = "another cluster.key"


@pytest.fixture
def two(shared):
    """Members of one key; the second one no longer beats, so that its row stays as the test leaves it."""
    one, other = Members(settings(shared, "a:1")), Members(settings(shared, "b:1"), "abcdef01")
    other.start()
    other._ended.set()
    other._thread.join()
    one._beat()
    assert one.is_alive("abcdef01")
    return one, other


def test_a_row_of_another_key_is_nobody(shared, two, caplog):
    one, _ = two
    shared.write(lambda work: work.execute("UPDATE replicas SET key_number = 'é' WHERE id = 'abcdef01'"))
    for _ in range(3):
        one._beat()
    assert [found.id for found in one.alive()] == [one.id]
    told = f"replica abcdef01 at b:1 has {OTHER}: give all replicas the same key. Nothing is sent to it"
    assert [record.getMessage() for record in caplog.records] == [told]
    others = [(found.id, found.is_known) for found in read_members(shared, b"k") if found.id != one.id]
    assert others == [("abcdef01", False)]


def test_who_starts_hears_at_once_of_those_with_another_key(shared, two, caplog):
    late = Members(ClusterSettings("c:1", b"other", shared))
    late.start()
    late.close()
    assert "replica abcdef01 at b:1 has another cluster.key" in caplog.text


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
        until(lambda one=one, other=other: f"at {other.place} has {OTHER}" in one.log())
        found = one.send(None, ADMIN, path="/check", method="GET").message
        assert [replica["address"] for replica in found["replicas"]] == [one.place]
        (wrong,) = [finding for finding in found["findings"] if OTHER in finding["message"]]
        assert (wrong["level"], wrong["fix"], found["ok"]) == ("error", "give all replicas the same key", False)
        assert f"at {other.place} has" in wrong["message"]
    command = ("--config", str(first.folder / "onetool.yaml"), "check", "--json")
    told = cli(*command, cwd=first.folder)
    (mistake,) = [one for one in json.loads(told.stdout) if one["key"] == "cluster.key"]
    assert told.returncode == 1
    assert second.place in mistake["message"]
