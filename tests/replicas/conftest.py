"""Three replicas behind balancers. They take minutes: `make test-cluster` runs these, `make test` does not."""

import os
import subprocess
import sys
from itertools import count

import httpx
import httpx2
import pytest
from helpers import until
from postgres import database_url, free_port, postgres

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
    pack = tmp_path / "probe.py"
    pack.write_text(PACK)
    made, numbers = [], count(1)

    def make(how_many=3, more="", database=database_url, **options):
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
def drains_quickly(monkeypatch):
    monkeypatch.setenv("ONETOOL_DRAIN_S", "0.5")


@pytest.fixture
def counter(tmp_path):
    """The block of a server that counts, as a server of its own with an address."""
    script, config, port = tmp_path / "counter.py", tmp_path / "counter.yaml", free_port()
    script.write_text(STATEFUL)
    config.write_text("{}\n")
    command = [sys.executable, "-m", "onetool", "serve", "--bare", "--config", str(config), "--port", str(port)]
    environment = {**os.environ, "ONETOOL_HOME": str(tmp_path / "counter-home")}
    with open(tmp_path / "counter.log", "ab") as log:
        process = subprocess.Popen(
            [*command, "--", sys.executable, str(script)], stdout=log, stderr=log, env=environment
        )
    try:
        until(lambda: "listens" in (tmp_path / "counter.log").read_text(), 60)
        yield f"servers: {{counter: {{url: 'http://127.0.0.1:{port}/mcp'}}}}"
    finally:
        process.terminate()
        process.wait(30)


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
