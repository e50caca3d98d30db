"""The audit log of an app: what it notes while it is served, and what `audit: required` stops."""

import asyncio
import json
import sqlite3

import pytest
from services.journals import lines_in

from onetool import App, ToolCall
from onetool.app.journal import audit_mistakes, noted_command
from onetool.core.principal import Principal, current_address, current_principal
from onetool.database import DatabaseError
from onetool.database.restoring import restore
from onetool.database.sqlite import SqliteDatabase
from onetool.services.access_tokens import new_token
from onetool.services.journal import AuditUnavailableError, table

PACK = '''
from onetool.sdk import call_tool

done = []

def work(secret: str = "") -> str:
    """Do something."""
    done.append(secret)
    return "done"

async def work_on_loop() -> str:
    """Do something on the loop."""
    return "done"

def fail() -> str:
    """Fail."""
    raise ValueError("no")

def through() -> str:
    """Call another one."""
    return call_tool("mine.work")

def count() -> int:
    """How often work was done."""
    return len(done)
'''


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PACK)
    apps = []

    def open_app(mode="usual"):
        write_config(tmp_path, mode)
        app = App.open(tmp_path / "onetool.yaml")
        app.journal.open()
        apps.append(app)
        return app

    yield open_app
    for app in apps:
        app.close()


def write_config(folder, mode):
    (folder / "onetool.yaml").write_text(json.dumps({"packs": ["mine.py"], "audit": mode}))


def call(app, name, allowed=None, **args):
    async def as_ci():
        current_principal.set(Principal(name="ci", owner="ci", role="call"))
        current_address.set("10.0.0.7")
        return await app.call(ToolCall("c1", name, args, "rest"), allowed)

    return asyncio.run(as_ci())


def lines(app):
    if app.journal.audit is not None:
        app.journal.flush()
    return lines_in(app.config.home)


def test_a_call_is_noted_with_its_caller(opened):
    app = opened()
    assert call(app, "mine.work", secret="hunter2").ok
    (line,) = lines(app)
    assert (line["what"], line["who"], line["from"], line["via"]) == ("mine.work", "ci", "10.0.0.7", "rest")
    assert "hunter2" not in json.dumps(line)


def test_nothing_is_noted_of_an_app_that_nobody_serves(opened, tmp_path):
    app = opened()
    app.journal.close()
    call(app, "mine.work")
    assert lines(app) == []


def test_a_reload_that_the_role_forbids_is_a_refusal(opened):
    app = opened()
    assert not call(app, "ot.reload").ok
    (line,) = lines(app)
    assert (line["kind"], line["what"], line["reason"]) == ("refusal", "ot.reload", "role_needed")


def test_where_it_is_required_both_lines_have_the_same_hash(opened):
    app = opened("required")
    assert call(app, "mine.work", secret="x").ok
    begun, ended = lines(app)
    assert begun["args"] == ended["args"] != ""


@pytest.mark.parametrize(
    ("name", "allowed", "expected"),
    [
        ("mine.fail", None, ("call", "mine.fail", "execution_error", None)),
        ("mine.work", ["mine.fail"], ("refusal", "mine.work", "tool_not_found", "denied")),
        ("mine.nothing", None, ("refusal", "unknown tool", "tool_not_found", None)),
    ],
)
def test_failures_and_refusals(opened, name, allowed, expected):
    app = opened()
    assert not call(app, name, allowed).ok
    (line,) = lines(app)
    what = line["what"].rpartition(" ")[0] or line["what"]
    assert (line["kind"], what, line["outcome"], line.get("reason")) == expected


def test_a_run_and_its_calls_and_what_tools_call_have_lines(opened):
    app = opened()

    async def as_ci():
        current_principal.set(Principal(name="ci", owner="ci", role="call"))
        return await app.run("mine.work(secret='hunter2')\nmine.through()", source="mcp")

    assert asyncio.run(as_ci()).ok
    found = lines(app)
    assert [(line["what"], line["who"]) for line in found] == [
        ("mine.work", "ci"),
        ("mine.work", "ci"),
        ("mine.through", "ci"),
        ("run", "ci"),
    ]
    run = found[-1]["id"]
    assert [line.get("run") for line in found] == [run, None, run, None]
    assert len(found[-1]["args"]) == 16
    assert "hunter2" not in json.dumps(found)


def test_a_reload_changes_the_mode(opened, tmp_path):
    app = opened("none")
    call(app, "mine.work")
    assert lines(app) == []
    for mode, count in (("usual", 1), ("required", 2), ("none", 0)):
        write_config(tmp_path, mode)
        app.reload()
        before = len(lines(app))
        call(app, "mine.work")
        assert len(lines(app)) - before == count, mode


# Required

FULL = "state.db can't be used: database or disk is full"


@pytest.fixture
def full_disk(monkeypatch):
    """Call it: nothing can be written from then on."""

    def fill():
        def refused(*_args, **_options):
            raise DatabaseError(FULL)

        monkeypatch.setattr(SqliteDatabase, "write", refused)

    return fill


@pytest.mark.parametrize("name", ["mine.work", "mine.work_on_loop"])
def test_where_it_is_required_a_line_is_there_before_the_call(opened, name):
    app = opened("required")
    assert call(app, name).ok
    begun, ended = lines(app)
    assert (begun["outcome"], begun["id"], begun["who"]) == ("begun", ended["id"], "ci")
    assert begun["args"] == ended["args"]
    assert "ms" not in begun


def test_where_it_is_required_a_full_disk_stops_calls_before_they_begin(opened, full_disk):
    app = opened("required")
    assert call(app, "mine.count").data == 0
    full_disk()
    for result in (call(app, "mine.work"), call(app, "mine.through")):
        assert (result.error.code, result.error.reason) == ("execution_error", "audit_unavailable")
        assert (
            "the audit log can't be written (state.db can't be used: database or disk is full)" in result.error.message
        )
    ran = asyncio.run(app.run("mine.work()"))
    assert "audit log can't be written" in ran.error.message
    app.journal.flush()
    assert app.journal.health() == {"status": "degraded", "problem": FULL, "waiting": 4, "lost": 0}
    app.journal.close()
    assert call(app, "mine.count").data == 0


def test_where_it_is_usual_a_full_disk_stops_nothing(opened, full_disk):
    app = opened()
    full_disk()
    assert call(app, "mine.work").ok
    lines(app)
    assert f"journal: problem: {FULL}, waiting: 1, lost: 0" in app.health()["findings"]


def test_check_tells_of_a_log_that_cant_be_written_and_of_lost_lines(opened, full_disk):
    app = opened()
    call(app, "mine.work")
    assert list(audit_mistakes(app.config)) == []
    app.journal.audit.require(app.journal.audit.entry("gap", "3 lines lost"))
    assert [one.message.partition(",")[0] for one in audit_mistakes(app.config)] == ["3 lines lost"]
    full_disk()
    (found,) = audit_mistakes(app.config)
    assert (found.key, found.severity) == ("audit", "warning")
    assert "the audit log can't be written" in found.message


def test_check_makes_nothing(opened):
    app = opened()
    app.journal.close()
    for file in app.config.home.glob("state.db*"):
        file.unlink()
    before = sorted(app.config.home.iterdir())
    assert list(audit_mistakes(app.config)) == []
    assert sorted(app.config.home.iterdir()) == before


@pytest.mark.parametrize("harm", ["locked", "damaged", "gone", "no file"])
def test_where_it_is_required_no_call_runs_while_the_database_is_out_of_order(opened, harm, monkeypatch):
    monkeypatch.setattr(table, "MAX_WAIT_S", 0.05)
    app = opened("required")
    file = app.config.home / "state.db"
    assert call(app, "mine.count").data == 0
    holder = sqlite3.connect(file, isolation_level=None)
    if harm == "locked":
        holder.execute("BEGIN IMMEDIATE")
    else:
        holder.close()
        lines(app)
        for one in app.config.home.glob("state.db*"):
            one.unlink()
        if harm == "damaged":
            file.write_bytes(b"no database" * 1000)
            file.chmod(0o600)
        elif harm == "no file":
            file.mkdir()
    result = call(app, "mine.work")
    if harm == "gone":  # a new one is made
        assert result.ok
        assert [line["outcome"] for line in lines(app)] == ["begun", "ok"]
        return
    assert (result.error.code, result.error.reason) == ("execution_error", "audit_unavailable")
    if harm == "no file":
        file.rmdir()
    elif harm == "damaged":
        restore(file)
    holder.close()
    assert call(app, "mine.count").data == 0


# Commands


def test_a_command_is_ok_only_when_it_is_done(opened):
    app = opened()
    with noted_command(app.config, "tokens add ci"):
        assert lines(app) == []
    with pytest.raises(ValueError, match="no"), noted_command(app.config, "tokens add ann"):
        raise ValueError("no")
    assert [(line["what"], line["outcome"]) for line in lines(app)] == [
        ("tokens add ci", "ok"),
        ("tokens add ann", "error"),
    ]
    assert {(line["kind"], line["via"]) for line in lines(app)} == {("admin", "cli")}


def test_a_token_in_place_of_a_name_is_not_noted(opened):
    app, token = opened(), new_token()
    with noted_command(app.config, f"tokens revoke {token}"):
        pass
    assert [line["what"] for line in lines(app)] == ["tokens revoke ot_***"]


def test_where_it_is_required_a_command_begins_in_the_log(opened, full_disk):
    app = opened("required")
    with noted_command(app.config, "tokens add ci"):
        assert [line["outcome"] for line in lines(app)] == ["begun"]
    assert [line["outcome"] for line in lines(app)] == ["begun", "ok"]
    full_disk()
    with pytest.raises(AuditUnavailableError), noted_command(app.config, "tokens add ann"):
        pytest.fail("it must not begin")


def test_a_command_that_never_waits_goes_on_where_the_log_is_required_and_full(opened, full_disk):
    app, done = opened("required"), []
    full_disk()
    with noted_command(app.config, "tokens revoke ci", waits=False):
        done.append("revoked")
    assert done == ["revoked"]
