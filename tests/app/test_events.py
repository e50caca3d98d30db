"""What stays of a call is written down later, by one thread, as it was when the call ended."""

import asyncio
import threading

import pytest
from services.journals import lines_in

from onetool import App, ToolCall
from onetool.core.principal import Principal, current_principal
from onetool.database import DatabaseError
from onetool.database.sqlite import SqliteDatabase
from onetool.services.journal.audit import AuditFilter, AuditLog

PACK = '''
from onetool.sdk import call_tool

kept = []

def rows(more: list | None = None) -> list:
    """Give rows."""
    return [1, 2, 3]

def keeps(x: int) -> list:
    """Give the list that it keeps."""
    kept.append(x)
    return kept

def changes() -> int:
    """Change what it sent, and what it got."""
    sent = [1]
    got = call_tool("mine.rows", more=sent)
    sent.extend(range(1000))
    got.extend(range(1000))
    return len(got)
'''


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PACK)
    (tmp_path / "onetool.yaml").write_text("packs: [mine.py]\nstats: {enabled: true}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        app.journal.open()
        yield app


def call(app, name, who="ci", **args):
    async def as_principal():
        current_principal.set(Principal(name=who, owner=who, role="admin"))
        return await app.call(ToolCall("c1", name, args, "rest"))

    return asyncio.run(as_principal())


def sizes(app):
    app.journal.flush()
    return app.runtime.state.read(
        lambda work: work.execute("SELECT tool, bytes_in, bytes_out FROM events ORDER BY number")
    )


def test_a_size_is_that_of_the_value_that_was_returned(app):
    assert call(app, "mine.changes").data == 1003
    result = call(app, "mine.keeps", x=1)
    result.data.extend(range(1000))
    call(app, "mine.keeps", x=2)
    assert sizes(app) == [
        ("mine.rows", len('{"more":[1]}'), len("[1,2,3]")),
        ("mine.changes", len("{}"), len("1003")),
        ("mine.keeps", len('{"x":1}'), len("[1]")),
        ("mine.keeps", len('{"x":2}'), len("[1,2]")),
    ]


def test_a_hash_is_that_of_the_arguments_that_were_sent(app):
    call(app, "mine.changes")
    call(app, "mine.rows", more=[1])
    app.journal.audit.flush()
    found = [line["args"] for line in lines_in(app.config.home) if line["what"] == "mine.rows"]
    assert found == [AuditLog(app.runtime.state).hash_of({"more": [1]})] * 2


def test_whoever_reads_waits_for_the_calls_before(app):
    for number in range(1, 4):
        assert call(app, "mine.rows").ok
        assert app.runtime.stats.facts("mine.rows")["calls"] == number


def test_one_thread_writes_log_stats_and_evidence(app):
    before = threading.enumerate()
    heard = []
    app.on_call(lambda event: heard.append(threading.current_thread().name))
    for _ in range(20):
        call(app, "mine.rows")
    app.journal.flush()
    new = [thread.name for thread in threading.enumerate() if thread not in before]
    assert {name for name in new if name.startswith("onetool-")} == {
        "onetool-events",
        "onetool-handler",
    }
    assert len(heard) == 20


def test_a_full_queue_blocks_no_call_and_health_counts_what_was_dropped(app, monkeypatch):
    entered, leave = threading.Event(), threading.Event()

    def block(_event):
        entered.set()
        leave.wait()

    end = app.on_call(block)
    monkeypatch.setattr("onetool.services.journal.recorder.MAX_WAITING", 5)
    assert call(app, "mine.rows").ok
    assert entered.wait(60)
    for _ in range(8):
        assert call(app, "mine.rows").ok
    leave.set()
    end()
    app.journal.flush()
    assert "events: dropped: 3" in app.health()["findings"]
    assert app.runtime.stats.facts("mine.rows")["calls"] == 6


def test_a_flood_costs_no_call_and_a_gap_tells_how_many_lines_are_missing(app, monkeypatch):
    def refuse(*_args, **_options):
        raise DatabaseError("away")

    call(app, "mine.rows")
    app.journal.flush()
    monkeypatch.setattr("onetool.services.journal.MAX_WAITING", 20)
    with monkeypatch.context() as away:
        away.setattr(SqliteDatabase, "write", refuse)
        for _ in range(40):
            assert call(app, "mine.rows", who="flood").ok
        app.journal.flush()
        lost = app.journal.health()["lost"]
        assert f"lost: {lost}" in str(app.health()["findings"])
    app.journal.flush()
    lines = lines_in(app.config.home)
    (gap,) = [line for line in lines if line["kind"] == "gap"]
    assert gap["what"] == f"{lost} lines lost"
    assert sum(line.get("who") == "flood" for line in lines) == 40 - lost == 20
    found = AuditLog(app.runtime.state).page(AuditFilter(kind="gap"), 10).records
    assert [one.what for one in found] == [gap["what"]]


def test_the_end_of_an_app_writes_everything(app):
    for _ in range(30):
        call(app, "mine.rows")
    home = app.config.home
    app.close()
    with App.open(home / "onetool.yaml") as again:
        assert again.runtime.stats.facts("mine.rows")["calls"] == 30
    assert sum(line["what"] == "mine.rows" for line in lines_in(home)) == 30
