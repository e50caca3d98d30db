"""Servers behind a url, and what can go wrong there: the answer that a user sees, and what works again by itself."""

import pytest
from helpers import until
from sources.mcp_servers.harness import call, ran, settle
from sources.mcp_servers.nasty.http_server import TOKEN, HttpServer

from onetool.sources.mcp_servers import opening

REFUSED = {
    "unauthorized": ["the server bad requires a token", "onetool servers login bad"],
    "forbidden": ["403 Forbidden: not you"],
    "broken": ["500"],
    "html": ["text/html"],
    "nowhere": ["it can't be reached"],
}


@pytest.mark.parametrize("way", REFUSED)
def test_one_that_can_not_be_used_says_why_and_the_others_work(harness, http, way):
    bad = "http://127.0.0.1:9/mcp" if way == "nowhere" else http.url(way)
    blocks = {"bad": {"url": bad, "connect_timeout": 5}, "good": {"url": http.url("ok")}}
    with harness.app(blocks) as app:
        status = settle(app)
        assert (status["bad"].state, status["good"].state) == ("disconnected", "connected")
        assert all(word in status["bad"].error for word in REFUSED[way]), status["bad"].error
        assert "Traceback" not in status["bad"].error
        assert call(app, "good.echo", text="hello").data == "hello"


def test_a_403_is_a_matter_of_logins_only_where_it_says_nothing_else(harness, http):
    blocks = {way: {"url": http.url(way), "connect_timeout": 5} for way in ("forbidden", "forbidden_mutely")}
    with harness.app(blocks) as app:
        status = settle(app)
        assert "login" not in status["forbidden"].error
        assert "403 Forbidden: not you" in "\n".join(app.servers.log_lines("forbidden", 100))
        assert "it requires a login" in status["forbidden_mutely"].error


def test_a_403_in_a_call_is_told_and_kept_in_the_log(harness, http):
    with harness.app({"there": {"url": http.url("ok"), "timeout": 5}}) as app:
        settle(app)
        failed = call(app, "there.forbid")
        assert "403 Forbidden: your plan has no writes" in failed.error.message
        assert "second line" not in failed.error.message
        assert "your plan has no writes" in "\n".join(app.servers.log_lines("there", 100))
        assert call(app, "there.echo", text="hello").data == "hello"


@pytest.mark.parametrize("way", ["ok", "stream", "slow"])
def test_all_ways_of_answering(harness, http, way):
    with harness.app({"there": {"url": http.url(way)}}) as app:
        assert ran(app, "there.echo(text='hällo')").data == "hällo"


@pytest.mark.parametrize("block", [{"type": "sse"}, {"type": "http"}, {}])
def test_a_server_with_the_transport_of_2024(harness, http, block):
    with harness.app({"old": {"url": http.url("sse"), **block}}) as app:
        status = settle(app)["old"]
        assert (status.state, status.error) == ("connected", None)
        assert call(app, "old.echo", text="hello").data == "hello"


def test_a_bearer_token_comes_from_the_secrets_and_is_not_shown(harness, http):
    block = {"url": http.url("token"), "headers": {"Authorization": "Bearer ${THE_TOKEN}"}}
    with harness.app({"there": block}, secrets={"THE_TOKEN": TOKEN}) as app:
        assert call(app, "there.echo", text="hello").data == "hello"
        assert TOKEN not in str([app.servers.statuses(), app.servers.log_lines("there", 100), app.health()])
        assert call(app, "there.echo", text=TOKEN).data == TOKEN  # a mask would tell that the guess is right


def test_a_server_that_is_not_there_yet(harness, http):
    with harness.app({"later": {"url": http.url("later"), "connect_timeout": 10}}) as app:
        until(lambda: settle(app)["later"].state == "connected")
        assert call(app, "later.echo", text="hello").data == "hello"


def test_a_connection_that_is_dropped_in_mid_call(harness, http):
    with harness.app({"there": {"url": http.url("drops"), "timeout": 5}}) as app:
        settle(app)
        failed = call(app, "there.drop")
        assert failed.error.code == "execution_error"
        assert failed.error.reason == "source_unavailable"
        assert call(app, "there.echo", text="hello").data == "hello"


def test_a_session_that_was_forgotten_is_opened_anew(harness, http):
    with harness.app({"there": {"url": http.url("forgets"), "timeout": 5}}) as app:
        settle(app)
        assert call(app, "there.forget").data == "forget"
        assert call(app, "there.echo", text="hello").data == "hello"
        assert http.state.made == 2


def test_an_error_of_http_in_a_call(harness, http):
    with harness.app({"there": {"url": http.url("ok"), "timeout": 5}}) as app:
        settle(app)
        failed = call(app, "there.fail")
        assert failed.error.code == "execution_error"
        assert "503" in failed.error.message
        assert call(app, "there.echo", text="hello").data == "hello"


def test_a_call_that_hangs_ends_at_its_time_out(harness, http):
    with harness.app({"there": {"url": http.url("ok"), "timeout": 1}}) as app:
        settle(app)
        assert call(app, "there.hang").error.reason == "timeout"
        assert call(app, "there.echo", text="hello").data == "hello"


@pytest.mark.long
def test_an_answer_of_fifty_megabytes_is_refused(harness, http):
    with harness.app({"there": {"url": http.url("ok"), "timeout": 20}}) as app:
        settle(app)
        failed = call(app, "there.huge")
        assert failed.error is not None
        assert call(app, "there.echo", text="hello").data == "hello"


@pytest.mark.long
@pytest.mark.parametrize("way", ["ok", "stream"])
def test_an_answer_of_too_many_parts_is_refused_before_it_is_read(harness, http, way, monkeypatch):
    monkeypatch.setattr(opening, "has_at_most", lambda *_: True)  # that comes after reading
    with harness.app({"there": {"url": http.url(way), "timeout": 20}}) as app:
        settle(app)
        assert "its response has more than 500,000 parts" in call(app, "there.lists").error.message
        assert call(app, "there.echo", text="hello").data == "hello"


def test_a_server_that_goes_away_and_comes_back(harness):
    with HttpServer() as first:
        port = first.port
        config = {"there": {"url": first.url("ok"), "timeout": 5, "connect_timeout": 5}}
        app = harness.app(config)
        opened = app.__enter__()
        assert call(opened, "there.echo", text="hello").data == "hello"
    try:
        gone = call(opened, "there.echo", text="hello")
        assert gone.error.reason == "source_unavailable"
        with HttpServer(port):
            until(lambda: call(opened, "there.echo", text="again").data == "again")
    finally:
        app.__exit__(None, None, None)


def test_headers_do_not_follow_to_another_place(harness, http):
    """A token for one server is not for the one that it points to."""
    with HttpServer() as elsewhere:
        http.state.target = elsewhere.url("ok")
        headers = {"Authorization": "Bearer mine", "X-Api-Key": "mine, too"}
        block = {"url": http.url("redirects"), "headers": headers, "connect_timeout": 5}
        with harness.app({"there": block}) as app:
            settle(app)
        assert http.requests
        assert [r for r in elsewhere.requests if {"authorization", "x-api-key"} & set(r.headers)] == []
