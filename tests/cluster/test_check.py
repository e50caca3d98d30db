"""GET /check among several: whether the database is reached, and who serves."""

import json
from contextlib import ExitStack

import pytest
from cluster.members import KEY, Replica
from helpers import cli, until
from interfaces.rest.test_openapi import checker

NOWHERE = "postgresql://onetool:hidden-password@127.0.0.1:1/onetool"

TOKEN = ("Authorization", f"Bearer {KEY}")


def get(member, path, *headers):
    return member.send(None, headers, path=path, method="GET").message


def facts(found):
    return [(one["address"], one["isThis"], one["isDraining"]) for one in found["replicas"]]


def test_members_without_a_database_of_the_config(pair):
    """As workers are."""
    first, second = pair.servers
    until(lambda: len(get(first, "/check")["replicas"]) == 2)
    found = get(first, "/check")
    assert "database" not in found
    assert facts(found) == [(first.place, True, False), (second.place, False, False)]
    assert facts(get(second, "/check")) == [(first.place, False, False), (second.place, True, False)]
    assert all(one["since"].startswith("20") and one["version"] for one in found["replicas"])
    checker(get(first, "/openapi.json"), "CheckReport").validate(found)


@pytest.fixture
def replicas(database_url, tmp_path):
    with ExitStack() as ends:
        made = []
        for name in "ab":
            more = f"http: {{token: {KEY}}}\n"
            made.append(Replica(tmp_path / name, database_url, "--drain-s", "4", more=more))
            ends.callback(made[-1].kill)
        yield made


def test_replicas_over_postgres(replicas):
    first, second = replicas
    until(lambda: len(get(first, "/check", TOKEN)["replicas"]) == 2)
    found = get(first, "/check", TOKEN)
    assert facts(get(second, "/check", TOKEN)) == [(first.place, False, False), (second.place, True, False)]
    assert found["database"] == {"reached": True, "missingMigrations": [], "why": None}
    checker(get(first, "/openapi.json", TOKEN), "CheckReport").validate(found)
    second.process.terminate()
    until(lambda: [one["isDraining"] for one in get(first, "/check", TOKEN)["replicas"]] == [False, True])


def test_a_database_that_is_away(tmp_path):
    """Named tokens can't be read then, so that nobody is let in but with `http.token`."""
    replica = Replica(tmp_path / "a", NOWHERE, "--drain-s", "0", more=f"http: {{token: {KEY}}}\n")
    try:
        assert replica.send(None, path="/check", method="GET").status == 503
        found = get(replica, "/check", ("Authorization", f"Bearer {KEY}"))
    finally:
        replica.kill()
    assert (found["ok"], found["database"]["reached"], found["database"]["missingMigrations"]) == (False, False, [])
    assert "can't be reached" in found["database"]["why"]
    assert "hidden-password" not in json.dumps(found)
    assert KEY not in json.dumps(found)
    assert found["replicas"] == []
    command = ("--config", str(replica.folder / "onetool.yaml"), "check", "--json")
    told = {one["key"]: one for one in json.loads(cli(*command, cwd=replica.folder).stdout)}
    assert told["database"]["message"] == found["database"]["why"]
