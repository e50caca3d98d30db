"""Replicas over PostgreSQL count the requests of a token together."""

import json
from contextlib import ExitStack
from hashlib import sha256

import pytest
from cluster.members import Balancer, Replica

OWNER, LIMITED = "the-token-of-its-owner", "ot_" + "a" * 40
HTTP = {
    "token": OWNER,
    "tokens": [
        {"name": "ci", "hash": f"sha256:{sha256(LIMITED.encode()).hexdigest()}", "role": "call", "rate": "20/min"}
    ],
}


@pytest.fixture(scope="module")
def replicas(tmp_path_factory, postgres):
    folder, url = tmp_path_factory.mktemp("rates"), postgres.new_schema()
    with ExitStack() as ends:
        servers = []
        for name in "ab":
            servers.append(Replica(folder / name, url, "--drain-s", "0", more=f"http: {json.dumps(HTTP)}\n"))
            ends.callback(servers[-1].stop)
        yield Balancer(*servers)


def statuses(replicas, count, path, message, token=None):
    """What each replica in turn answers."""
    headers = [("Content-Type", "application/json"), *([("Authorization", f"Bearer {token}")] if token else [])]
    return [replicas.send(message, headers, path=path).status for _ in range(count)]


@pytest.mark.long
def test_a_rate_of_a_token_holds_over_all_replicas(replicas):
    assert statuses(replicas, 30, "/call/plus", {"a": 1, "b": 1}, LIMITED) == [200] * 20 + [429] * 10
