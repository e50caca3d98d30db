"""The database comes back: replicas that were alive all the time count as alive, and servers go on."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from helpers import until

from replicas.test_cut_off import ACCEPT
from replicas.test_without_database import INITIALIZE


def test_servers_go_on_while_the_database_is_away_and_when_it_is_back(replicas, postgres, counter):
    three = replicas(3, counter)

    def count(one):
        return httpx.post(f"{one.url}/call/counter.add", json={"by": 1}, timeout=60)

    until(lambda: all(count(one).status_code == 200 for one in three), 60)
    counted = count(three[0]).json()["count"]
    for is_back in (False, True):
        if is_back:
            assert postgres.start_again()
        else:
            postgres.stop()
            until(lambda: all(httpx.get(f"{one.url}/readyz").json()["database"] == "away" for one in three), 30)
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline:
            for one in three:
                after, counted = count(one), counted + 1
                assert (after.status_code, after.json()["count"]) == (200, counted), after.text


def test_an_answer_reaches_its_call_through_a_replica_that_does_not_know_the_session(replicas, postgres):
    one, other = replicas(2)
    until(lambda: len(httpx.get(f"{other.url}/check", timeout=30).json()["replicas"]) == 2)
    wants = {**INITIALIZE, "params": {**INITIALIZE["params"], "capabilities": {"elicitation": {"form": {}}}}}
    begun = httpx.post(f"{one.url}/mcp", json=wants, headers=ACCEPT, timeout=30)
    headers = {**ACCEPT, "Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "probe__wish", "arguments": {}}}
    heard = []

    def collect():
        with httpx.stream("POST", f"{one.url}/mcp", json=call, headers=headers, timeout=60) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    heard.append(json.loads(line.removeprefix("data: ")))

    thread = threading.Thread(target=collect)
    thread.start()
    until(lambda: heard)
    postgres.stop()
    is_back = False
    try:
        until(lambda: httpx.get(f"{other.url}/readyz").json()["database"] == "away", 30)
        answer = {"jsonrpc": "2.0", "id": heard[0]["id"]}
        accepted = {"action": "accept", "content": {"colour": "green"}}
        with ThreadPoolExecutor(1) as pool:  # the answer is held until the database is back
            taking = pool.submit(
                httpx.post, f"{other.url}/mcp", json={**answer, "result": accepted}, headers=headers, timeout=60
            )
            time.sleep(2)
            assert not taking.done()
            is_back = postgres.start_again()
            assert taking.result().status_code == 202, taking.result().text
        thread.join(30)
        assert heard[-1]["result"]["content"][0]["text"] == f"green in {one.pid}"
    finally:
        assert is_back or postgres.start_again()
