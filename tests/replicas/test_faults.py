"""What goes wrong with machines: killed, restarted, cut off, with another clock, or without the database."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from helpers import until

from replicas.harness import BUNDLE, Load, Wire

CONTENT = {"slug": "sums", "displayName": "Sums", "description": "Sums."}


def put(url, id, **changes):
    return httpx.put(f"{url}/tools/bundles/{id}", json={**CONTENT, **changes}, timeout=30)


def numbered(number):
    return f"{BUNDLE[:-4]}{number:04d}"


def test_no_call_fails_in_a_rolling_restart(balanced):
    three, balancer = balanced
    with Load(balancer.url) as load:
        load.more()
        for one in three:
            assert one.stop() in (0, -15), one.said()[-2000:]
            one.start().wait_until_ready()
            load.more()
            until(lambda one=one: str(one.pid) in load.answers)  # the balancer has found it again
    assert load.failed == []


def test_no_slow_call_fails_in_a_rolling_restart(replicas, balance):
    three = replicas(3)
    balancer = balance("haproxy", three)
    with Load(balancer.url, "/call/probe.slow", body={"seconds": 0.8}) as load:
        load.more(5)
        for one in three:
            one.stop()
            one.start().wait_until_ready()
            load.more(5)
    assert load.failed == []


def test_others_go_on_when_one_is_killed(balanced):
    three, balancer = balanced
    with Load(balancer.url) as load:
        load.more()
        three[0].kill()
        load.more(200)
    # Each of the four threads loses the call that it had begun, and at most one more: the balancer may send it on a
    # connection of which it hasn't yet seen the end.
    assert len(load.failed) <= 8, load.failed


def test_changes_are_refused_while_postgres_is_stopped_and_all_else_goes_on(balanced, postgres):
    three, balancer = balanced
    assert put(balancer.url, BUNDLE).status_code in (200, 201)
    for one in three:  # a replica that has not read it yet would answer 503
        assert httpx.get(f"{one.url}/tools/bundles/{BUNDLE}", timeout=30).status_code == 200
    with Load(balancer.url) as load:
        load.more()
        postgres.stop()
        try:
            until(lambda: put(balancer.url, numbered(1), slug="later").status_code == 503, 30)
            refused = put(balancer.url, numbered(1), slug="later")
            assert "database" in refused.text
            for one in three:
                assert httpx.get(f"{one.url}/tools/bundles/{BUNDLE}", timeout=30).status_code == 200
                assert "probe" in httpx.get(f"{one.url}/tools/tools/search", params={"q": "process"}, timeout=30).text
            load.more()
        finally:
            assert postgres.start_again()
        for one in three:
            until(lambda one=one: put(one.url, numbered(1), slug="later").status_code in (200, 201), 20)
        load.more()
    assert load.failed == []


def test_of_eight_writers_on_a_key_one_wins(balanced):
    three, _balancer = balanced
    rounds, writers = 10, 8

    def write(number, writer):
        url = three[writer % 3].url
        start[number].wait()
        headers = {"If-None-Match": "*"}
        body = {**CONTENT, "slug": f"key-{number}", "displayName": f"by {writer}"}
        return httpx.put(f"{url}/tools/bundles/{numbered(number)}", json=body, headers=headers, timeout=30)

    start = [threading.Barrier(writers) for _ in range(rounds)]
    with ThreadPoolExecutor(writers) as pool:
        for number in range(rounds):
            answers = list(pool.map(write, [number] * writers, range(writers)))
            statuses = sorted(answer.status_code for answer in answers)
            assert statuses.count(201) == 1, (statuses, [answer.text[:200] for answer in answers])
            assert set(statuses[1:]) <= {409, 412}, statuses
            (winner,) = [answer for answer in answers if answer.status_code == 201]
            for one in three:
                kept = httpx.get(f"{one.url}/tools/bundles/{numbered(number)}").json()
                assert kept["displayName"] == winner.json()["displayName"]


def test_a_replica_with_another_clock_is_one_of_them(replicas, balance):
    two = replicas(2)
    (other,) = replicas(1, skew=3 * 3600)
    balancer = balance("haproxy", [*two, other])
    assert put(other.url, BUNDLE).status_code in (200, 201)
    for one in two:
        assert httpx.get(f"{one.url}/tools/bundles/{BUNDLE}").status_code == 200
    with Load(balancer.url) as load:
        load.more(100)
    assert load.failed == []
    assert len(load.answers) == 3


def test_a_replica_that_is_cut_off_from_the_database_serves_tools_and_comes_back(
    replicas, balance, postgres, database_url
):
    wire = Wire(postgres.port)
    try:
        two = replicas(2)
        (alone,) = replicas(1, database=database_url.replace(f":{postgres.port}/", f":{wire.port}/"))
        assert put(alone.url, BUNDLE).status_code in (200, 201)
        wire.cut()
        until(lambda: put(alone.url, numbered(1), slug="later").status_code == 503, 60)
        assert httpx.post(f"{alone.url}/call/probe.pid", json={}, timeout=30).status_code == 200
        assert put(two[0].url, numbered(2), slug="meanwhile").status_code in (200, 201)
        wire.mend()
        until(lambda: httpx.get(f"{alone.url}/tools/bundles/{numbered(2)}", timeout=30).status_code == 200, 30)
        assert put(alone.url, numbered(1), slug="later").status_code in (200, 201)
    finally:
        wire.close()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_session_goes_on_after_its_replica_is_gone(replicas, how):
    first, second = replicas(2)
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    accept = {"Accept": "application/json, text/event-stream"}
    begun = httpx.post(f"{first.url}/mcp", json=body, headers=accept)
    headers = {**accept, "Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    (first.kill if how == "kill" else first.stop)()
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    answer = httpx.post(f"{second.url}/mcp", json=ping, headers=headers)
    assert answer.status_code == 200, answer.text
