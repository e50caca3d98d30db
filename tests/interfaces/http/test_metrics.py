"""GET /metrics: who may read it, what it says of a server that works, and that the dashboard asks for what there is."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from interfaces.http.matrix import bearer, exchange, served, token_entry, token_of
from services.exposition import read_exposition

DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana-dashboard.json"
SCRAPER = "metrics-token-0123456789"
ELSEWHERE = {"onetool_replicas", "onetool_database_up", "onetool_database_connections"}  # of replicas and PostgreSQL


@pytest.fixture
def site(tmp_path):
    tokens = [token_entry(f"{role}-1", token_of(role), role=role) for role in ("call", "edit", "admin")]
    config = {
        "http": {"tokens": tokens},
        "metrics": {"token": SCRAPER},
        "servers": {"gone": {"command": "no-such-command-0"}},
    }
    app, site = served(tmp_path / "served", config)
    yield site
    app.close()


def ask(site, token, path="/metrics", method="GET", body=b"{}"):
    return asyncio.run(exchange(site, path, method, bearer(token), body))


def read(site):
    status, headers, text = ask(site, SCRAPER)
    assert (status, headers[b"content-type"]) == (200, b"text/plain; version=0.0.4; charset=utf-8")
    return read_exposition(text)


@pytest.mark.parametrize(
    ("token", "status"),
    [
        (None, 401),
        ("wrong-token-0123456789", 401),
        (token_of("call"), 403),
        (token_of("edit"), 403),
        (token_of("admin"), 200),
        (SCRAPER, 200),
    ],
)
def test_admins_and_the_token_may_read_it(site, token, status):
    assert ask(site, token)[0] == status


@pytest.mark.parametrize("path", ["/status", "/audit", "/tools", "/mcp", "/openapi.json"])
def test_the_token_is_good_for_nothing_else(site, path):
    assert ask(site, SCRAPER, path)[0] == 401


def test_it_counts_calls_runs_and_requests(site):
    assert ask(site, token_of("call"), "/call/time.now", "POST")[0] == 200
    assert ask(site, token_of("call"), "/run", "POST", b'{"code": "time.now()"}')[0] == 200
    assert ask(site, token_of("call"), "/call/no.such", "POST")[0] == 404
    found = read(site)
    calls = {(dict(one)["tool"], dict(one)["outcome"]): value for one, value in found["onetool_calls_total"].items()}
    assert calls == {("time.now", "ok"): 2, ("other", "tool_not_found"): 1}
    assert found["onetool_runs_total"] == {(("outcome", "ok"),): 1}
    requests = {(dict(one)["route"], dict(one)["status"]) for one in found["onetool_http_requests_total"]}
    assert requests == {("/call", "200"), ("/run", "200"), ("/call", "404")}
    assert found["onetool_queue_dropped_total"] == {(("queue", "events"),): 0, (("queue", "audit"),): 0}
    assert found["onetool_sandbox_runs"] == {(("state", "running"),): 0, (("state", "waiting"),): 0}
    assert found["onetool_upstream_up"] == {(("server", "gone"),): 0}


def test_no_label_names_a_caller(site):
    ask(site, token_of("call"), "/call/time.now", "POST")
    text = ask(site, SCRAPER)[2]
    assert b"call-1" not in text
    assert b"127.0.0.1" not in text


def test_the_dashboard_asks_for_metrics_that_there_are(site):
    ask(site, token_of("call"), "/run", "POST", b'{"code": "time.now()"}')
    there = {*read(site), *ELSEWHERE}
    asked = json.dumps(json.loads(DASHBOARD.read_text()))
    named = {*re.findall(r"\b(?:onetool|process)_\w+", asked)}
    assert len(named) > 15
    assert named <= there, named - there
    bases = {re.sub("_(bucket|sum|count)$", "", one) for one in there}
    shown = {re.sub("_(bucket|sum|count)$", "", one) for one in named}
    assert bases - shown <= {"onetool_tools", "process_start_time_seconds"}
