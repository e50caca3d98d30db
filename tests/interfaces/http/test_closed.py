"""A server that shares a database, or that other machines can reach, is never opened by what is missing."""

import json

import pytest
from helpers import cli, until
from interfaces.http.matrix import ADDRESS, HOST, bearer, served, status_of
from postgres import database, database_url, postgres

from onetool.app.access import token_store
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.serve import follow_config
from onetool.interfaces.http.site import build_site
from onetool.interfaces.mcp.http import McpHttpApp
from onetool.services.access_tokens import token_hash

pytestmark = pytest.mark.attack("credentials")

__all__ = ["database", "database_url", "postgres"]

KEY = "0123456789abcdef0123456789abcdef"


def status(site, *shown):
    return status_of(site, "/tools/tools", "GET", *shown)[0]


@pytest.fixture
def replica(tmp_path, database, database_url):
    """Makes one of a cluster: the app, and its routes."""
    opened = []

    def make(name="a"):
        cluster = {"address": "127.0.0.1:8765", "key": KEY}
        opened.append(served(tmp_path / name, {"database": database_url, "cluster": cluster}))
        return opened[-1]

    yield make
    for app, _ in opened:
        app.close()


def test_deleting_the_row_of_tokens_opens_no_replica(replica, database):
    app, site = replica()
    shown = token_store(app.config, app.runtime.documents("tokens", "at once")).add("ci")
    until(lambda: status(site, bearer(shown)) == 200)
    database.write(lambda work: work.execute("DELETE FROM documents WHERE kind = 'tokens'"))
    until(lambda: status(site, bearer(shown)) == 401)
    assert status(site) == 401
    _, started_later = replica("b")
    assert status(started_later) == 401


def test_a_stranger_does_not_read_what_is_wrong_with_the_row(replica, database):
    app, site = replica()
    place = app.runtime.documents("tokens", "at once")
    shown = token_store(app.config, place).add("ci")
    until(lambda: status(site, bearer(shown)) == 200)
    database.write(
        lambda work: work.execute(
            "UPDATE documents SET body = %s, version = version + 1 WHERE kind = 'tokens'", (b"junk",)
        )
    )
    until(lambda: status(site, bearer(shown)) == 503)
    code, body = status_of(site, "/tools/tools", "GET", bearer("wrong"))
    assert code == 503
    assert "can't be checked now" in json.loads(body)["detail"]
    assert "damaged" not in str(body)
    assert "database" not in json.loads(body)["detail"]


def test_a_server_that_others_can_reach_stays_closed_without_its_tokens(tmp_path):
    app, _ = served(tmp_path / "it", {})
    site = build_site(app, BoundAddress("127.0.0.1", 8765, ("192.0.2.1",)), McpHttpApp(app), lambda _: f"http://{HOST}")
    assert status(site) == 401
    app.close()


def delete(home):
    for file in home.glob("state.db*"):
        file.unlink()


def damage(home):
    delete(home)
    (home / "state.db").write_bytes(b"garbage" * 1000)


@pytest.mark.parametrize("lose", [delete, damage])
def test_a_revoked_token_of_the_config_does_not_come_back_with_a_new_database(tmp_path, lose):
    named = [{"name": name, "hash": token_hash(f"{name}-0123456789abcdef")} for name in ("leaked", "good")]
    config = {"http": {"tokens": named}}
    app, site = served(tmp_path / "it", config)
    leaked, good = (bearer(f"{name}-0123456789abcdef") for name in ("leaked", "good"))
    app.runtime.tokens.store.revoke_hash(named[0]["hash"], "leaked")
    assert (status(site, leaked), status(site, good)) == (401, 200)
    lose(app.config.home)
    assert status(site, leaked) == 401
    app.close()
    if lose is damage:
        assert cli("--config", str(tmp_path / "it" / "onetool.yaml"), "db", "restore", cwd=tmp_path).returncode == 0
    app, site = served(tmp_path / "it", config)
    assert (status(site, leaked), status(site, good)) == (401, 401)
    app.runtime.tokens.store.revoke_hash(named[0]["hash"], "leaked")
    assert (status(site, leaked), status(site, good)) == (401, 200)
    app.close()


def test_a_reload_forgets_no_tokens(tmp_path):
    app, site = served(tmp_path / "it", {})
    app.runtime.tokens.store.add("ci")
    assert status(site) == 401
    for file in app.config.home.glob("state.db*"):
        file.unlink()
    assert status(site) == 401
    follow_config(app, ADDRESS, site)
    (tmp_path / "it" / "onetool.yaml").write_text(json.dumps({"http": {"max_body_mb": 3}}))
    app.reload()
    assert site.max_body == 3 * 1024**2
    assert status(site) == 401
    app.close()
