"""One id through everything: the response, the error, the access log, the log of calls and the audit log."""

import asyncio
import json
import logging

import pytest
from interfaces.http.matrix import bearer, exchange, served, status_of, token_entry, token_of
from services.journals import lines_in

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SENT = (("x-request-id", "job-7"), ("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"))


@pytest.fixture
def place(tmp_path):
    roles = ("call", "admin")
    config = {"http": {"tokens": [token_entry(f"{role}-1", token_of(role), role=role) for role in roles]}}
    app, site = served(tmp_path / "served", config)
    yield app, site
    app.close()


def post(site, path, who="call", sent=SENT, body=b"{}"):
    return asyncio.run(exchange(site, path, "POST", (*bearer(token_of(who) if who else None), *sent), body))


def audit_lines(app):
    app.journal.audit.flush()
    return lines_in(app.config.home)


def test_a_call_has_the_clients_ids_in_every_record(place, caplog):
    app, site = place
    caplog.set_level(logging.INFO, "onetool")
    status, headers, _ = post(site, "/call/time.now")
    app.runtime.recorder.flush()
    assert (status, headers[b"x-request-id"]) == (200, b"job-7")
    (access,) = [one.fields for one in caplog.records if one.name == "onetool.access"]
    (call,) = [vars(one) for one in caplog.records if one.name == "onetool.call"]
    (line,) = [one for one in audit_lines(app) if one["what"] == "time.now"]
    assert {one["request_id"] for one in (access, call)} == {line["request"]} == {"job-7"}
    assert {one["trace_id"] for one in (access, call)} == {line["trace"]} == {TRACE}
    assert {one["own_id"] for one in (access, call)} == {line["own"]}
    assert line["own"] not in ("", "job-7")


def test_code_and_what_it_calls_have_them_too(place):
    app, site = place
    assert post(site, "/run", body=b'{"code": "time.now()"}')[0] == 200
    found = {one["what"]: (one["request"], one["trace"]) for one in audit_lines(app)}
    assert found["run"] == found["time.now"] == ("job-7", TRACE)


@pytest.mark.parametrize("path", ["/mcp", "/call/time.now", "/openapi.json"])
def test_an_error_says_it_in_the_form_of_its_route(place, path):
    app, site = place
    status, headers, body = post(site, path, who=None)
    assert (status, headers[b"x-request-id"]) == (401, b"job-7")
    said = json.loads(body)
    assert [one for one in (said, said.get("error", {}), said.get("error", {}).get("data", {})) if "request_id" in one]
    (line,) = audit_lines(app)
    assert (line["kind"], line["request"]) == ("refusal", "job-7")


def test_without_one_or_with_a_wrong_one_it_is_made(place):
    app, site = place
    for sent in ((), (("x-request-id", "a b"),), (("x-request-id", "x" * 65),)):
        made = post(site, "/call/time.now", sent=sent)[1][b"x-request-id"].decode()
        line = audit_lines(app)[-1]
        assert made == line["request"] == line["own"]


def test_two_requests_with_one_id_are_told_apart(place):
    app, site = place
    post(site, "/call/time.now")
    post(site, "/call/time.now")
    first, second = audit_lines(app)
    assert first["request"] == second["request"]
    assert first["own"] != second["own"]


def test_the_audit_log_is_searched_by_each_of_them(place):
    app, site = place
    post(site, "/call/time.now")
    post(site, "/call/time.now", sent=())
    line = audit_lines(app)[0]

    for id in (line["request"], line["own"], line["trace"]):

        async def asked(scope, receive, send, id=id):
            await site({**scope, "query_string": b"request=%b" % id.encode()}, receive, send)

        found = json.loads(status_of(asked, "/audit", "GET", bearer(token_of("admin")))[1])["records"]
        assert [one["own"] for one in found] == [line["own"]]


def test_a_server_alone_names_no_replica(place):
    assert b"onetool-replica" not in post(place[1], "/call/time.now", who="admin")[1]
