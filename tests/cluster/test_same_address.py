"""Two replicas that say that they are reached at the same address: both logs, the checks, and who calls are told."""

import json
import time

import pytest
from cluster.members import KEY, Replica
from cluster.test_rows import settings
from helpers import cli, until

from onetool.cluster.members import Members

ADMIN = [("Authorization", f"Bearer {KEY}")]


def beat(*members):
    for one in members:
        time.sleep(0.01)
        one._beat()


def test_both_are_told_once(shared, caplog, monkeypatch):
    monkeypatch.setattr("onetool.cluster.OVERLAP_S", 0.0)
    one, other, elsewhere = (Members(settings(shared, address)) for address in ("a:1", "a:1", "b:1"))
    beat(*(one, other, elsewhere) * 3)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    for id in (one.id, other.id):
        assert sum(f"replica {id} has the same address as this one, a:1: give each" in line for line in lines) == 1


def test_who_was_killed_and_started_again_is_no_second_one(shared, caplog):
    killed, again = Members(settings(shared, "a:1")), Members(settings(shared, "a:1"))
    beat(killed, again, killed, again, again)  # its last heartbeat may come after the start of the other
    assert len(again.alive()) == 2
    assert not caplog.records


def test_who_stops_is_no_second_one(shared, caplog):
    stops, starts = Members(settings(shared, "a:1")), Members(settings(shared, "a:1"))
    stops.drain()
    beat(starts, stops, starts)
    assert not caplog.records


@pytest.fixture
def same(database_url, tmp_path):
    """Two replicas, of which the second one has the address of the first."""
    more = f"http: {{token: {KEY}}}\n"
    made = [Replica(tmp_path / "a", database_url, "--drain-s", "0", more=more)]
    try:
        made.append(Replica(tmp_path / "b", database_url, "--drain-s", "0", more=more, address=made[0].address))
        yield made
    finally:
        for one in made:
            one.kill()


def test_replicas_of_one_address(same):
    first = same[0]
    for one in same:
        until(lambda one=one: f"has the same address as this one, {first.address}" in one.log())
        found = one.send(None, ADMIN, path="/check", method="GET").message
        (wrong,) = [finding for finding in found["findings"] if "have the same address" in finding["message"]]
        assert (wrong["level"], found["ok"]) == ("error", False)
        assert "give each replica an address of its own" in wrong["fix"]
    told = cli("--config", str(first.folder / "onetool.yaml"), "check", "--json", cwd=first.folder)
    (mistake,) = [one for one in json.loads(told.stdout) if one["key"] == "cluster.address"]
    assert told.returncode == 1
    assert f"have the same address {first.address}" in mistake["message"]


@pytest.mark.long
def test_a_request_that_comes_back_says_why(same):
    """It is for a session of the second one, whose address is that of the first."""
    first, second = same
    until(lambda: len(first.send(None, ADMIN, path="/check", method="GET").message["replicas"]) == 2)
    found = first.send(None, ADMIN, path="/check", method="GET").message["replicas"]
    (id,) = [one["id"] for one in found if not one["isThis"]]
    refused = first.send(None, ADMIN, path=f"/ask/{id}{'1' * 32}", method="DELETE")
    assert (refused.status, json.loads(refused.body)["code"]) == (502, "same_address")
    assert f"a request for replica {id} at {first.address} has come back" in first.log()
    assert second.process.poll() is None
