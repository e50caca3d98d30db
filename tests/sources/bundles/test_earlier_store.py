"""A store that an earlier version of OneTool has made: a folder, and the tables of a database."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from postgres import database_url, postgres
from sources.bundles.files.things import built_in, files

from onetool.database import migrations
from onetool.database.migrations import migrate
from onetool.database.postgres import Postgres
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.store.store import database_store, folder_store

__all__ = ["database_url", "postgres"]

DATA = Path(__file__).parents[2] / "data" / "earlier_store"
OLD = 13  # the last migration of that version


class Expected(msgspec.Struct):
    bundles: list[Bundle]
    tools: list[Tool]


@pytest.fixture
def is_as_before():
    def check(store):
        expected = msgspec.json.decode((DATA / "expected.json").read_bytes(), type=Expected)
        bundles, tools = store.everything()
        assert (bundles, [*tools]) == (expected.bundles, expected.tools)
        mine, (read_file, list_dir) = built_in()
        assert not store.tool(mine.id, read_file.slug, "1").is_enabled
        assert store.tool(mine.id, list_dir.slug, "1").examples[0].args == {"path": "a"}
        assert store.mistakes() == []
        assert store.search("forecast")[0].tool == expected.tools[0]

    return check


def test_a_folder_opens_unchanged(tmp_path, is_as_before):
    folder = tmp_path / "bundles"
    shutil.copytree(DATA / "bundles", folder)
    (folder / ".state").mkdir()
    (folder / ".state" / "changes.log").write_text('["weather-000000000001/bundle.json"]\n')
    (folder / ".state" / "bundles.cache").write_bytes(b"onetool bundles 1\n0000")
    before = files(folder)
    for _ in range(2):
        store = folder_store(folder, [built_in()])
        is_as_before(store)
        store.close()
    assert files(folder) == before


def test_a_database_is_copied_once_and_opens_unchanged(database_url, monkeypatch, is_as_before):
    all_of_them = migrations.migrations()
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "migrations", lambda: all_of_them[:OLD])
        patch.setattr(migrations, "NEWEST", OLD)
        database = Postgres(database_url)
        migrate(database)

    def fill(work):
        for table, rows in json.loads((DATA / "rows.json").read_bytes()).items():
            for *cells, body, revision in rows:
                marks = ", ".join(["%s"] * (len(cells) + 2))
                work.execute(f"INSERT INTO {table} VALUES ({marks})", (*cells, body.encode(), revision))
        work.execute("UPDATE bundle_store SET revision = 30")

    database.write(fill)
    assert "bundle_files" in migrate(database)
    store = database_store(database, None, [built_in()])
    is_as_before(store)
    forecast = next(tool for tool in store.tools() if tool.slug == "forecast")
    renamed = store.rename_tool(forecast.bundle_id, "forecast", "1", "later", "1")
    store.delete_tool(forecast.bundle_id, "later", "1")
    again = database_store(database, None, [built_in()])
    assert renamed.id not in {tool.id for tool in again.tools()}
    assert again.tools() == store.tools()
    for one in (store, again, database):
        one.close()
