"""What the audit log says of requests to a server: changes, logins, refusals, approvals; and who may read it."""

import json
from hashlib import sha256
from itertools import product

import pytest
from helpers import check_each, until
from interfaces.http.matrix import ID, bearer, served, status_of, token_entry, token_of
from postgres import database_url, postgres
from services.journals import lines_in

from onetool.app.operations import paging
from onetool.core import signed
from onetool.database import DatabaseError
from onetool.interfaces.http import request_log
from onetool.services.journal.table import EventTable

__all__ = ["database_url", "postgres"]  # fixtures

ROLES = ("call", "edit", "admin")
BUNDLE = {"slug": "weather", "displayName": "Weather"}


def entry(role):
    return token_entry(f"{role}-1", token_of(role), role=role)


@pytest.fixture
def place(tmp_path):
    opened = []

    def open_site(**config):
        config = {"http": {"tokens": [*map(entry, ROLES)]}, **config}
        app, site = served(tmp_path / "served", config)
        opened.append(app)
        return app, site

    yield open_site
    for app in opened:
        app.close()


def send(site, who, method, path, body=None, query=b""):
    headers = bearer(None if who is None else token_of(who))
    data = b"{}" if body is None else json.dumps(body).encode()
    return (
        status_of(site, path, method, headers, data) if not query else _with_query(site, method, path, headers, query)
    )


def _with_query(site, method, path, headers, query):
    async def with_query(scope, receive, send):
        await site({**scope, "query_string": query}, receive, send)

    return status_of(with_query, path, method, headers)


def lines(app):
    app.journal.audit.flush()
    return kept_lines(app)


def kept_lines(app):
    return lines_in(app.config.home)


def short(line):
    return (line["kind"], line["what"], line["outcome"], line.get("status"), line["who"], line["role"])


def test_a_change_is_noted_with_its_status_and_who_made_it(place):
    app, site = place()
    path = f"/tools/bundles/{ID}"
    assert send(site, "edit", "PUT", path, BUNDLE)[0] == 201
    assert send(site, "edit", "GET", path)[0] == 200
    assert send(site, "edit", "DELETE", f"/tools/bundles/{ID[:-1]}9")[0] == 404
    first, second = lines(app)
    assert short(first) == ("change", f"PUT {path}", "ok", 201, "edit-1", "edit")
    assert (first["from"], first["via"]) == ("127.0.0.1", "http")
    assert first["ms"] > 0
    assert short(second) == ("change", f"DELETE {path[:-1]}9", "not_found", 404, "edit-1", "edit")
    assert "Weather" not in json.dumps(lines(app))


def test_what_an_admin_does_is_noted_and_looking_at_drafts_is_not(place):
    app, site = place()
    send(site, "admin", "POST", "/servers/none/reconnect")
    send(site, "admin", "GET", "/servers/none/logs")
    send(site, "edit", "POST", "/tools/validate", {"tool": {}})
    send(site, "admin", "GET", "/audit")
    assert [short(line)[:2] for line in lines(app)] == [
        ("admin", "POST /servers/none/reconnect"),
        ("admin", "GET /servers/none/logs"),
    ]


def test_refusals_are_noted_without_what_was_sent(place):
    app, site = place()
    assert send(site, None, "GET", "/results/hunter2")[0] == 401
    assert send(site, "wrong-hunter2", "POST", "/mcp")[0] == 401
    assert send(site, "call", "PUT", f"/tools/bundles/{ID}", BUNDLE)[0] == 403
    assert send(site, None, "GET", "/hunter2")[0] == 401
    assert send(site, "call", "POST", "/tools/validate", {"tool": {}})[0] == 403
    assert [short(line) for line in lines(app)] == [
        ("refusal", "GET /results", "unauthorized", 401, "(nobody)", "call"),
        ("refusal", "POST /mcp", "unauthorized", 401, "(nobody)", "call"),
        ("refusal", f"PUT /tools/bundles/{ID}", "role_needed", 403, "call-1", "call"),
        ("refusal", "GET (unknown path)", "unauthorized", 401, "(nobody)", "call"),
        ("refusal", "POST /tools/validate", "role_needed", 403, "call-1", "call"),
    ]
    assert "hunter2" not in json.dumps(lines(app))


def test_too_many_refusals_are_counted_and_do_not_fill_the_disk(place, monkeypatch):
    monkeypatch.setattr(request_log, "MAX_IN_WINDOW", 3)
    app, site = place()
    now = 100.0
    site._audit._requests._clock = lambda: now
    for _ in range(8):
        send(site, None, "GET", "/status")
    assert len(lines(app)) == 3
    now += 60
    send(site, None, "GET", "/status")
    assert [line["what"] for line in lines(app)[3:]] == ["5 more requests refused", "GET /status"]


@pytest.mark.attack("event queue")
def test_a_flood_of_others_hides_no_failed_login_and_no_refusal_of_a_known_caller(place, monkeypatch):
    monkeypatch.setattr(request_log, "MAX_IN_WINDOW", 2)
    app, site = place()
    for _ in range(5):
        send(site, None, "GET", "/status")
    for _ in range(4):
        assert send(site, None, "POST", "/login", {"token": "hunter2"})[0] == 401
    assert send(site, "call", "PUT", f"/tools/bundles/{ID}", BUNDLE)[0] == 403
    app.journal.close()
    found = [(line["kind"], line["what"]) for line in kept_lines(app)]
    assert found.count(("login", "sign in")) == 2
    assert ("refusal", f"PUT /tools/bundles/{ID}") in found
    assert ("login", "2 more logins refused") in found
    assert ("refusal", "3 more requests refused") in found


@pytest.mark.attack("event queue")
def test_a_flood_of_a_known_caller_hides_no_refusal_of_another_one(place, monkeypatch):
    monkeypatch.setattr(request_log, "MAX_IN_WINDOW", 2)
    app, site = place()
    for _ in range(6):
        assert send(site, "call", "PUT", f"/tools/bundles/{ID}", BUNDLE)[0] == 403
    assert send(site, "edit", "POST", "/servers/x/reconnect")[0] == 403
    app.journal.close()
    found = [(line["who"], line["what"]) for line in kept_lines(app)]
    assert ("edit-1", "POST /servers/{server}/reconnect") in found
    assert ("call-1", "4 more requests refused") in found


def test_what_was_only_counted_is_noted_though_no_other_request_comes(place, monkeypatch):
    monkeypatch.setattr(request_log, "MAX_IN_WINDOW", 1)
    monkeypatch.setattr(request_log, "WINDOW_S", 0.5)
    app, site = place()
    site._audit._requests._clock = lambda: 100.0
    for _ in range(3):
        send(site, None, "GET", "/status")
    until(lambda: len(lines(app)) >= 2)
    assert [line["what"] for line in lines(app)] == ["GET /status", "2 more requests refused"]


def test_a_request_with_the_own_token_says_nothing_of_it(place):
    secret = "short"
    app, site = place(http={"token": secret})
    headers = [("authorization", f"Bearer {secret}")]
    assert status_of(site, "/call/time.now", "POST", headers, b"{}")[0] == 200
    (line,) = lines(app)
    assert line["who"] == "http.token"
    assert "owner" not in line
    assert sha256(f"principal:{secret}".encode()).hexdigest()[:16] not in json.dumps(line)


def test_logins_are_noted(place):
    app, site = place()
    status, body = send(site, None, "POST", "/login", {"token": token_of("edit")})
    assert status == 200
    session = json.loads(body)["session"]
    assert send(site, None, "POST", "/login", {"token": "hunter2"})[0] == 401
    assert status_of(site, "/login", "DELETE", [("authorization", f"Bearer {session}")])[0] == 204
    assert [short(line) for line in lines(app)] == [
        ("login", "sign in", "ok", 200, "edit-1", "edit"),
        ("login", "sign in", "unauthorized", 401, "(nobody)", "call"),
        ("login", "sign out", "ok", 204, "edit-1", "edit"),
    ]
    written = json.dumps(lines(app))
    assert session not in written
    assert "hunter2" not in written


def test_calls_over_rest_and_mcp_are_noted_once_with_their_caller(place):
    app, site = place()
    assert send(site, "call", "POST", "/call/time.now")[0] == 200
    assert send(site, "call", "POST", "/run", {"code": "time.now()"})[0] == 200
    found = lines(app)
    assert [(line["what"], line["who"], line["from"]) for line in found] == [
        ("time.now", "call-1", "127.0.0.1"),
        ("time.now", "call-1", "127.0.0.1"),
        ("run", "call-1", "127.0.0.1"),
    ]


def fill_disk(monkeypatch):
    def refused(*_args):
        raise DatabaseError("state.db can't be used: database or disk is full")

    monkeypatch.setattr(EventTable, "append", refused)


@pytest.mark.parametrize("disk", ["full", "usual"])
def test_where_it_is_required_nothing_is_changed_without_it(place, monkeypatch, disk):
    app, site = place(audit="required")
    if disk == "full":
        fill_disk(monkeypatch)
    status, body = send(site, "edit", "PUT", f"/tools/bundles/{ID}", BUNDLE)
    called = send(site, "call", "POST", "/call/time.now")[1]
    if disk == "usual":
        assert status == 201
        assert [line["outcome"] for line in lines(app)] == ["begun", "ok", "begun", "ok"]
        return
    assert (status, json.loads(body)["code"]) == (503, "audit_unavailable")
    assert b"audit_unavailable" in called
    assert send(site, "edit", "GET", f"/tools/bundles/{ID}")[0] == 404


@pytest.mark.attack("replicas")
@pytest.mark.parametrize("disk", ["full", "usual"])
def test_where_it_is_required_no_code_runs_without_it(place, monkeypatch, disk):
    app, site = place(audit="required")
    if disk == "full":
        fill_disk(monkeypatch)
    status, said = send(site, "call", "POST", "/run", {"code": "1 + 1"})
    if disk == "full":
        assert (status, json.loads(said)["code"]) == (503, "audit_unavailable")
        return
    begun, ended = lines(app)
    assert (status, begun["what"], begun["outcome"], ended["outcome"]) == (200, "run", "begun", "ok")
    assert (begun["id"], begun["args"]) == (ended["id"], ended["args"])
    assert begun["id"]


# GET /audit


def listed(site, query=b"", who="admin"):
    status, body = send(site, who, "GET", "/audit", query=query or b"pageSize=1000")
    return status, json.loads(body)


@pytest.fixture(params=["sqlite", "postgres"])
def kept_in(request):
    """What the config says of where the log is."""
    return {} if request.param == "sqlite" else {"database": request.getfixturevalue("database_url")}


def test_an_admin_reads_it_with_filters_and_page_by_page(place, kept_in):
    _, site = place(**kept_in)
    for _ in range(5):
        send(site, "call", "POST", "/call/time.now")
    send(site, None, "GET", "/status")
    status, found = listed(site)
    assert status == 200
    assert (found["enabled"], found["nextPageToken"], found["lost"]) == (True, None, 0)
    assert [one["kind"] for one in found["records"]] == ["refusal", *["call"] * 5]
    assert len(listed(site, b"kind=call&who=call-1&tool=time.*&outcome=ok&since=1h")[1]["records"]) == 5
    assert listed(site, b"until=1h")[1]["records"] == []
    seen, query = [], b"pageSize=2"
    while True:
        page = listed(site, query)[1]
        seen += page["records"]
        if page["nextPageToken"] is None:
            break
        query = b"pageSize=2&pageToken=" + page["nextPageToken"].encode()
    assert seen == found["records"]


@pytest.mark.long
def test_while_the_database_is_away_it_cant_be_read_and_nothing_is_called_where_it_is_required(
    place, postgres, database_url
):
    app, site = place(audit="required", database=database_url)
    assert send(site, "call", "POST", "/call/time.now")[0] == 200
    assert len(listed(site)[1]["records"]) == 2
    postgres.stop()
    try:
        status, found = listed(site)
        assert (status, found["code"]) == (503, "database_away")
        assert "the database can't be reached" in found["detail"]
        assert b"audit_unavailable" in send(site, "call", "POST", "/call/time.now")[1]
        assert "the database can't be reached" in app.journal.health()["problem"]
    finally:
        postgres.start_again()
    until(lambda: send(site, "call", "POST", "/call/time.now")[0] == 200)
    assert len(lines_over(site)) >= 4
    assert lines_in(app.config.home) == []


def lines_over(site):
    return listed(site)[1]["records"]


LISTS = {
    "/audit": b"",
    "/tools/bundles": b"pageSize=1&",
    "/tools/tools": b"recommendedPageSize=1&",
    "/tools/tools/search": b"q=time&pageSize=1&",
    "/ask/sessions": b"",
}


POSITIONS = [["audit-1.jsonl", 3], [1.5, 2**64], [1.5], {"at": 1}, 7, None]


def test_a_page_token_of_another_version_is_refused(place, monkeypatch):
    """It is signed with the same key, but its position is of another form."""
    _, site = place()
    read = paging.verify

    def check(path, position):
        tokens, data = list[str](), json.dumps(position).encode()
        monkeypatch.setattr(
            paging,
            "verify",
            lambda key, text, bound: tokens.append(signed.sign(key, data, bound)) or read(key, text, bound),
        )
        for token in ("x", None):
            query = LISTS[path] + b"pageToken=" + (token or tokens[0]).encode()
            status, body = send(site, "admin", "GET", path, query=query)
            assert (status, json.loads(body)["code"]) == (400, "bad_page_token")

    check_each(product(LISTS, POSITIONS), check)


@pytest.mark.parametrize("query", [b"since=yesterday", b"kind=calls", b"pageToken=abc", b"pageSize=0", b"x=1"])
def test_a_bad_query_is_told(place, query):
    _, site = place()
    status, found = listed(site, query)
    assert status == 400
    assert found["pointer"].startswith("/") or found["errors"]


def test_others_may_not_read_it(place):
    _, site = place()
    for who in ("call", "edit"):
        assert listed(site, who=who)[0] == 403
    assert listed(site, who="nobody")[0] == 401


def test_without_a_log_it_is_empty(place):
    _, site = place(audit="none")
    assert send(site, "call", "POST", "/call/time.now")[0] == 200
    assert listed(site)[1] == {
        "enabled": False,
        "records": [],
        "nextPageToken": None,
        "lost": 0,
        "problem": None,
    }


def test_names_of_servers_that_somebody_typed_are_not_repeated(place):
    app, site = place()
    for who, name in (("call", "hunter2"), ("admin", "my%20password"), ("admin", "vault")):
        send(site, who, "POST", f"/servers/{name}/enable")
    said = [line["what"] for line in lines(app)]
    assert sorted(said) == ["POST /servers/vault/enable", *["POST /servers/{server}/enable"] * 2]
