"""A replica that alone has lost the database: it says what it can't know, and the balancer leaves it out."""

import subprocess
import sys

import httpx
import pytest
from helpers import until

from replicas.harness import BUNDLE, Wire
from replicas.test_clients import TOOL
from replicas.test_faults import put

FRESH = f"{BUNDLE[:-4]}0007"
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def wire(postgres):
    made = Wire(postgres.port)
    yield made
    made.close()


@pytest.fixture
def cut_off(replicas, postgres, database_url, wire):
    """Two replicas, and one whose wire to the database is cut; the two have made something since."""
    others = replicas(2)
    (alone,) = replicas(1, database=database_url.replace(f":{postgres.port}/", f":{wire.port}/"))
    assert put(alone.url, BUNDLE).status_code in (200, 201)
    wire.cut()
    assert put(others[0].url, FRESH, slug="fresh").status_code in (200, 201)
    made = httpx.put(f"{others[0].url}/tools/bundles/{FRESH}/tools/double/version/v1", json=TOOL)
    assert made.status_code == 201, made.text
    yield others, alone
    wire.mend()


def rpc(url, method, params, **headers):
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    name = params.get("name") or params.get("taskId")
    head = {**ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, **headers}
    to = url if "/mcp" in url else f"{url}/mcp"
    return httpx.post(to, json=body, headers={**head, **({"Mcp-Name": name} if name else {})}, timeout=60)


def test_what_it_cannot_know_is_503_and_it_is_not_ready(cut_off):
    others, alone = cut_off
    command = [sys.executable, "-m", "onetool", "--config", str(others[0].config), "tokens", "add", "ada"]
    added = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    fresh_token = next(word for word in added.split() if word.startswith("ot_"))
    until(lambda: not alone.is_ready(), 30)
    assert httpx.get(f"{alone.url}/readyz").json()["status"] == "cut_off"
    assert all(one.is_ready() for one in others)
    asked = [
        httpx.get(f"{alone.url}/tools/bundles/{FRESH}", timeout=60),
        httpx.get(f"{alone.url}/tools/bundles/{FRESH}/tools/double/version/v1", timeout=60),
        httpx.get(f"{alone.url}/tools/bundles/{FRESH}/tools/double/versions", timeout=60),
        httpx.get(f"{alone.url}/tools/tools", params={"bundleIDs": FRESH}, timeout=60),
        httpx.get(f"{alone.url}/tools/tools/search", params={"q": "xylophone"}, timeout=60),
        httpx.post(f"{alone.url}/call/fresh.double", json={"n": 1}, timeout=60),
        rpc(alone.url, "tools/call", {"name": "fresh__double", "arguments": {"n": 1}}),
        rpc(alone.url, "tasks/get", {"taskId": "0123abcd" + "0" * 32}),
        httpx.get(f"{alone.url}/tools/tools", headers={"Authorization": f"Bearer {fresh_token}"}, timeout=60),
        httpx.post(f"{alone.url}/login", json={"token": fresh_token}, timeout=60),
    ]
    assert [(one.status_code, one.headers.get("retry-after")) for one in asked] == [(503, "1")] * len(asked), [
        (str(one.url), one.status_code, one.text[:300]) for one in asked
    ]
    # What it knows, it goes on with.
    assert httpx.get(f"{alone.url}/tools/bundles/{BUNDLE}", timeout=60).status_code == 200
    assert httpx.post(f"{alone.url}/call/probe.pid", json={}, timeout=60).json() == alone.pid
    assert httpx.get(f"{alone.url}/tools/tools", headers={"Authorization": ""}, timeout=60).status_code == 401


def test_it_is_ready_again_when_the_database_is_back(cut_off, wire):
    _, alone = cut_off
    until(lambda: not alone.is_ready(), 30)
    wire.mend()
    until(alone.is_ready, 30)
    until(lambda: httpx.get(f"{alone.url}/tools/bundles/{FRESH}", timeout=60).status_code == 200, 30)


def test_calls_go_on_if_all_have_lost_it(replicas, postgres):
    """None is ready then, and balancers send requests to all that are alive."""
    two = replicas(2)
    postgres.stop()
    try:
        for one in two:
            until(lambda one=one: not one.is_ready(), 30)
            assert httpx.get(f"{one.url}/readyz").json()["database"] == "away"
            assert httpx.get(f"{one.url}/healthz").status_code == 200
            assert httpx.post(f"{one.url}/call/probe.pid", json={}, timeout=60).status_code == 200
    finally:
        assert postgres.start_again()
