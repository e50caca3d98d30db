"""The audit log of apps that share a database: one log for all, calls that wait for it, commands, and reloads."""

import asyncio
import json

import pytest
from helpers import until
from postgres import database, database_url, postgres
from services.journals import lines, lines_in

from onetool import App, ToolCall
from onetool.app.journal import audit_mistakes, noted_command
from onetool.core.principal import Principal, current_principal
from onetool.services.journal import AuditUnavailableError

__all__ = ["database", "database_url", "postgres"]  # fixtures

PACK = '''
done = []

def work(secret: str = "") -> str:
    """Do something."""
    done.append(secret)
    return "done"

def count() -> int:
    """How often work was done."""
    return len(done)
'''


def write_config(home, **config):
    (home / "onetool.yaml").write_text(json.dumps({"packs": ["mine.py"], **config}))


@pytest.fixture
def opened(tmp_path, database_url):
    apps = []

    def open_app(mode="usual", name="one", **config):
        home = tmp_path / name
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "mine.py").write_text(PACK)
        write_config(home, **{"audit": mode, "database": database_url, **config})
        app = App.open(home / "onetool.yaml")
        app.journal.open()
        apps.append(app)
        return app

    yield open_app
    for app in apps:
        app.close()


def call(app, name="mine.work", **args):
    async def as_ci():
        current_principal.set(Principal(name="ci", owner="ci", role="call"))
        return await app.call(ToolCall("c1", name, args, "rest"))

    return asyncio.run(as_ci())


def short(database):
    return [(line["what"], line["outcome"]) for line in lines(database)]


@pytest.mark.long
def test_all_replicas_write_one_log_and_none_keeps_its_own(opened, database):
    one, two = opened(name="one"), opened(name="two")
    assert call(one, secret="hunter2").ok
    one.journal.flush()
    assert call(two, secret="hunter2").ok
    two.journal.flush()
    first, second = lines(database)
    assert (first["who"], first["what"], first["args"]) == ("ci", "mine.work", second["args"])
    assert "hunter2" not in json.dumps([first, second])
    assert not (one.config.home / "state.db").exists()


@pytest.mark.long
def test_where_it_is_required_a_call_waits_for_its_row_and_is_refused_while_the_database_is_away(
    opened, database, postgres
):
    app = opened("required")
    assert call(app).ok
    app.journal.flush()
    assert short(database) == [("mine.work", "begun"), ("mine.work", "ok")]
    postgres.stop()
    try:
        result = call(app)
        assert (result.error.code, result.error.reason) == ("execution_error", "audit_unavailable")
        assert "the audit log can't be written (the database can't be reached" in result.error.message
        with pytest.raises(AuditUnavailableError), noted_command(app.config, "tokens add ann"):
            pytest.fail("it must not begin")
    finally:
        postgres.start_again()
    assert until(lambda: (found := call(app, "mine.count")).ok and found).data == 1


def test_where_it_is_usual_calls_go_on_and_health_tells(opened, database, postgres):
    app = opened()
    assert call(app).ok
    app.journal.flush()
    postgres.stop()
    try:
        assert call(app).ok
        app.journal.flush()
        found = app.journal.health()
        assert (found["status"], found["lost"]) == ("degraded", 0)
        assert "the database can't be reached" in found["problem"]
    finally:
        postgres.start_again()
    until(lambda: app.journal.health() is None)
    assert short(database) == [("mine.work", "ok")] * 2


def test_a_reload_goes_to_another_database_and_no_line_is_lost(opened, database, database_url):
    app = opened(database=None)
    call(app)
    write_config(app.config.home, database=database_url)
    app.reload()
    call(app)
    app.journal.flush()
    assert short(database) == [("mine.work", "ok")]
    write_config(app.config.home)
    app.reload()
    call(app)
    app.journal.flush()
    assert len(lines_in(app.config.home)) == 2
    assert len(lines(database)) == 1


def test_commands_are_noted_in_the_database(opened, database):
    app = opened()
    with noted_command(app.config, "tokens add ci"):
        pass
    assert short(database) == [("tokens add ci", "ok")]
    assert {line["via"] for line in lines(database)} == {"cli"}


def test_check_tells_of_lost_lines(opened, database):
    app = opened()
    assert list(audit_mistakes(app.config)) == []
    app.journal.audit.require(app.journal.audit.entry("gap", "3 lines lost"))
    (found,) = audit_mistakes(app.config)
    assert (found.message.partition(",")[0], found.severity) == ("3 lines lost", "warning")
    assert found.file == "the table events of the database"
