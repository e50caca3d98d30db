"""Two apps on one database, each over REST: what one writes the other gives, finds and calls at once."""

import asyncio
import json
from contextlib import ExitStack

import pytest
from helpers import until
from interfaces.rest.served import Api, problem
from postgres import database_url, postgres

from onetool import App
from onetool.sources.bundles.errors import ForbiddenError
from onetool.sources.bundles.named import BundleTools

__all__ = ["database_url", "postgres"]

HELLO = {"type": "script", "description": "Greets a penguin.", "scriptImpl": {"code": "'hello'"}}


@pytest.fixture
def apis(tmp_path, database_url):
    running = []
    for name in ("one", "two"):
        home = tmp_path / name
        home.mkdir(mode=0o700)
        (home / "onetool.yaml").write_text(json.dumps({"database": "${DATABASE_URL}"}))
        args = ("--config", str(home / "onetool.yaml"))
        running.append(Api(real=home, args=args, env={"DATABASE_URL": database_url}))
    yield running
    for api in running:
        api.stop()


@pytest.fixture
def apps(tmp_path, database_url):
    """Opens one more on the same database."""
    with ExitStack() as opened:

        def one_more(name):
            home = tmp_path / name
            home.mkdir(mode=0o700)
            (home / "onetool.yaml").write_text(json.dumps({"database": database_url}))
            (home / "onetool.yaml").chmod(0o600)
            return opened.enter_context(App.open(home / "onetool.yaml"))

        yield one_more


def slugs(reply):
    return {row["slug"] for row in reply.json()["tools"]}


def test_what_one_puts_the_other_has_at_once(apis, tmp_path):
    one, two = apis
    place = one.bundle(slug="birds")
    for number in range(5):
        tool = f"{place}/tools/hello{number}/version/1"
        assert one.ask("PUT", tool, HELLO).status_code == 201
        assert two.get(tool).status_code == 200
        assert f"hello{number}" in slugs(two.get("/tools/tools/search?q=penguin"))
        assert f"hello{number}" in slugs(two.get("/tools/tools?recommendedPageSize=1000"))
        assert two.ask("POST", f"{tool}/invoke", {"args": {}}).json() == {"ok": True, "value": "hello"}
    assert two.get(place).json()["slug"] == "birds"
    assert not (tmp_path / "one" / "bundles").exists()


@pytest.mark.long
def test_while_it_is_away_reads_go_on(apis, postgres):
    one, two = apis
    place = one.bundle(slug="birds")
    assert two.get(place).status_code == 200
    postgres.stop()
    try:
        assert two.get(place).json()["slug"] == "birds"
        reply = two.ask("PUT", f"/tools/bundles/{two.new_id()}", {"slug": "more"})
        problem(reply, 503, "database_away")
        assert reply.headers["retry-after"] == "1"
    finally:
        assert postgres.start_again()
    until(lambda: two.ask("PUT", f"/tools/bundles/{one.new_id()}", {"slug": "more"}).status_code == 201)


def test_what_one_switches_off_the_other_refuses_right_after_a_start_that_took_long(apps, monkeypatch):
    now, really = [1000.0], BundleTools.load

    def load(self, *args):
        now[0] += 1.0 if self.count == 0 else 0.0  # the clock stands still but for the first load
        return really(self, *args)

    monkeypatch.setattr("onetool.app.bundles.monotonic", lambda: now[0])
    monkeypatch.setattr(BundleTools, "load", load)
    one, id = apps("one"), "0190aaaa-0000-7000-8000-000000000001"
    one.bundles.put_bundle(id, {"slug": "birds"})
    one.bundles.put_tool(id, "hello", "1", HELLO)
    two = apps("two")
    two.tools()
    two.connect()
    until(lambda: not two.bundles.store.must_ask)  # it watches the database
    assert asyncio.run(two.bundles.invoke(id, "hello", "1", {})).data == "hello"
    one.bundles.patch_tool(id, "hello", "1", {"isEnabled": False})

    def is_refused():
        try:
            return not asyncio.run(two.bundles.invoke(id, "hello", "1", {}))
        except ForbiddenError:
            return True

    until(is_refused)
