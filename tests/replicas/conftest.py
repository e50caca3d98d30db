"""Three replicas behind balancers. They take minutes: `make test-cluster` runs these, `make test` does not."""

import os
from itertools import count

import httpx
import httpx2
import pytest
from postgres import database_url, postgres

from replicas.balancers import Balancer
from replicas.harness import PACK, TOKEN, Replica

__all__ = ["database_url", "postgres"]

if os.environ.get("ONETOOL_CLUSTER") != "full":
    collect_ignore_glob = ["test_*.py"]

STATEFUL = '''
"""A server that counts: it keeps state, as many do."""

import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("counter")
COUNT = {"now": 0}


@server.tool()
def add(by: int = 1) -> dict:
    """Count on; tells the number and the process."""
    COUNT["now"] += by
    return {"count": COUNT["now"], "pid": os.getpid()}


server.run()
'''


@pytest.fixture(autouse=True)
def everybody_shows_the_token(monkeypatch):
    """Clients that show nothing else show the token of the replicas, also those within the official MCP client."""
    for client in (httpx.Client, httpx.AsyncClient, httpx2.AsyncClient):
        real = client.__init__

        def made(self, *args, _real=real, **options):
            _real(self, *args, **options)
            self.headers.setdefault("authorization", f"Bearer {TOKEN}")

        monkeypatch.setattr(client, "__init__", made)


@pytest.fixture
def replicas(tmp_path, database_url):
    """Makes replicas that share a database; `more` are lines of their config."""
    pack, server = tmp_path / "probe.py", tmp_path / "counter.py"
    pack.write_text(PACK)
    server.write_text(STATEFUL)
    made, numbers = [], count(1)

    def make(how_many=3, more="", database=database_url, **options):
        more = more.replace("COUNTER", str(server))
        new = [Replica(tmp_path / f"r{next(numbers)}", pack, database, more, **options) for _ in range(how_many)]
        made.extend(new)
        for one in new:
            one.start()
        return [one.wait_until_ready() for one in new]

    yield make
    for one in made:
        one.tell_to_stop()
    for one in made:
        one.stop()
    for one in made:
        assert "Traceback" not in one.said(), one.said()[-5000:]


@pytest.fixture
def balance(tmp_path):
    """Starts a balancer in front of replicas."""
    made = []

    def start(kind, replicas):
        made.append(Balancer(kind, tmp_path / f"{kind}{len(made)}", [one.port for one in replicas]))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture(params=["haproxy", "nginx"])
def balanced(request, replicas, balance):
    """Three replicas and a balancer in front of them."""
    three = replicas(3)
    return three, balance(request.param, three)
