"""State of an older version: a file that commit a3b9da9b has made, and the same rows in PostgreSQL."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from postgres import database_url, postgres

from onetool.ask.messages import Assistant, Call, Result, Usage, User
from onetool.ask.sessions import SessionStore
from onetool.ask.sessions.records import INTERRUPTED
from onetool.database import migrations
from onetool.database.documents import Documents
from onetool.database.migrations import migrate
from onetool.database.postgres import Postgres
from onetool.database.sqlite import SqliteDatabase
from onetool.services.access_tokens import TokenStore, token_digest
from onetool.services.results import HandleNotFoundError
from onetool.services.results.store import ResultStore

__all__ = ["database_url", "postgres"]

OLD_FILE = Path(__file__).parents[1] / "data" / "state-a3b9da9b.db.gz"
LAST = 13  # the last migration of that version
TOKEN = "ot_A-HPWymcaBreruoqP7gAn0pCWM9uhYU5f4U6ByjH6-s"  # ada's; bob's was revoked


@pytest.fixture
def old_file(tmp_path):
    file = tmp_path / "home" / "state.db"
    file.parent.mkdir(mode=0o700)
    file.touch(0o600)
    file.write_bytes(gzip.decompress(OLD_FILE.read_bytes()))
    return file


def old_postgres(url, file, monkeypatch):
    """Create the tables of that version, and copy the rows of the file into them."""
    first = migrations.migrations()[:LAST]
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "migrations", lambda: first)
        patch.setattr(migrations, "NEWEST", LAST)
        found = Postgres(url)
        migrate(found)
    with closing(sqlite3.connect(file)) as old:
        for table in ("documents", "ask_sessions", "ask_records"):
            for row in old.execute(f"SELECT * FROM {table}"):
                marks = ", ".join(["%s"] * len(row))
                found.write(lambda work, t=table, m=marks, r=row: work.execute(f"INSERT INTO {t} VALUES ({m})", r))
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def state(request, old_file, monkeypatch):
    if request.param == "sqlite":
        found = SqliteDatabase(old_file)
    else:
        found = old_postgres(request.getfixturevalue("database_url"), old_file, monkeypatch)
        assert "ask_messages" in migrate(found)
    yield found
    found.close()


def test_conversations_are_there_and_go_on(state):
    sessions = SessionStore(state)
    cut, tea = sorted(sessions.list(), key=lambda one: one.id)
    assert (cut.id, cut.turns, cut.title, cut.answered) == ("cut", 1, "Go.", False)
    assert (tea.id, tea.turns, tea.title, tea.answered) == ("tea", 2, "Drinks", True)
    assert (tea.created, tea.provider, tea.model) == (1_794_000_000.25, "openai", "gpt-x")
    assert tea.usage == Usage(input=20, output=4)
    read = sessions.read("tea")
    assert read.messages == (
        User(text="What is tea?"),
        Assistant(calls=(Call(id="1", name="t.a", args={"n": 1}),)),
        Result(call="1", name="t.a", content="é", value={"a": 1}),
        Assistant(text="A drink."),
        User(text="And mate?"),
        Assistant(text="Another."),
    )
    assert (read.title, read.damaged, len(read.ended)) == ("Drinks", 0, 2)
    assert sessions.read("cut").messages[-1] == Result(call="1", name="t.a", content=INTERRUPTED, ok=False)
    assert [one.title for one in SessionStore(state, owners=("ada",)).list()] == ["Mine."]
    sessions.rename("tea", "Tea")
    assert (sessions.info("tea").title, sessions.read("tea").title) == ("Tea", "Tea")


def test_tokens_are_accepted_and_revoked_ones_are_not(state):
    tokens = TokenStore(Documents(state, "tokens"))
    assert [token.name for token in tokens.list()] == ["ada"]
    assert tokens.find(token_digest(TOKEN)).name == "ada"
    assert [gone.name for gone in tokens.revoked().values()] == ["bob"]


def test_results_are_forgotten(state):
    results = ResultStore(state, 3600, 8)
    assert list(results.kept("ada")) == []
    with pytest.raises(HandleNotFoundError):
        results.read("0" * 32, "ada")
