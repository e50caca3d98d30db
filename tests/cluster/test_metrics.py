"""GET /metrics of replicas over PostgreSQL: the pool of connections, and the replicas."""

from urllib.request import Request, urlopen

import pytest
from cluster.members import KEY, Replica
from helpers import until
from services.exposition import read_exposition

SCRAPER = {"Authorization": "Bearer metrics-token-0123456789"}
MORE = f"http: {{token: {KEY}}}\nmetrics: {{token: metrics-token-0123456789}}\n"


@pytest.fixture
def replicas(database_url, tmp_path):
    made = []
    try:
        for name in "ab":
            made.append(Replica(tmp_path / name, database_url, "--drain-s", "0", more=MORE))
        yield made
    finally:
        for one in made:
            one.kill()


def read(replica):
    request = Request(f"http://127.0.0.1:{replica.port}/metrics", headers=SCRAPER)
    with urlopen(request, timeout=60) as response:
        return read_exposition(response.read())


def value(found, name):
    ((labels, number),) = found[name].items()
    assert {*dict(labels)} == {"replica"}, "each replica answers for itself"
    return number


def test_the_gauges_of_replicas_and_their_database(replicas):
    first, second = replicas
    for one in replicas:
        until(lambda one=one: value(read(one), "onetool_replicas") == 2)
        found = read(one)
        assert value(found, "onetool_database_up") == 1
        pool = {dict(labels)["state"]: number for labels, number in found["onetool_database_connections"].items()}
        assert pool.keys() == {"open", "idle", "waiting"}
        assert pool["open"] >= max(1, pool["idle"])
        assert pool["waiting"] == 0
    second.stop()
    until(lambda: value(read(first), "onetool_replicas") == 1)
