"""One search: what `ot.search` and REST find follows every change, and the words of kept tools are in memory once."""

import time
from threading import enumerate as enumerate_threads

import pytest
from helpers import until

from onetool import App
from onetool.services.search.postings import WordIndex
from onetool.sources.bundles import searching
from onetool.sources.bundles.errors import UnavailableError
from onetool.sources.bundles.names import new_id

QUIET = {"type": "script", "argSchema": {"type": "object", "properties": {}}, "scriptImpl": {"code": "1"}}


@pytest.fixture
def config(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    return tmp_path / "onetool.yaml"


@pytest.fixture
def app(config):
    with App.open(config) as app:
        yield app


@pytest.fixture
def id(app):
    id = new_id(time.time())
    app.bundles.put_bundle(id, {"slug": "qzoo"})
    app.bundles.put_tool(id, "feed-quokka", "1", {**QUIET, "description": "Gives leaves to it"})
    return id


def found(app, query):
    """What both find, by their names."""
    said = [spec.name for spec, _ in app.search(query) if spec.pack in ("qzoo", "qpark")]
    rows, _ = app.bundles.search(query)
    assert {row["name"] for row in rows if not row["isBuiltIn"]} == set(said)
    return said


def test_both_follow_every_change(app, id):
    assert found(app, "quokka") == found(app, "quokak") == found(app, "qzoo") == ["qzoo.feed_quokka"]
    app.bundles.put_tool(id, "wash-quokka", "1", QUIET)
    assert set(found(app, "quokka")) == {"qzoo.feed_quokka", "qzoo.wash_quokka"}
    app.bundles.patch_tool(id, "feed-quokka", "1", {"isEnabled": False})
    assert found(app, "quokka") == ["qzoo.wash_quokka"]
    assert found(app, "leaves") == []
    app.bundles.rename_tool(id, "wash-quokka", "1", ("wash-wombat", "1"))
    assert found(app, "quokka") == []
    assert found(app, "wombat") == ["qzoo.wash_wombat"]
    app.bundles.put_bundle(id, {"slug": "qpark"})
    assert found(app, "qzoo") == []
    assert found(app, "qpark wombat") == ["qpark.wash_wombat"]
    app.bundles.patch_bundle(id, {"isEnabled": False})
    assert found(app, "wombat") == []
    app.bundles.patch_bundle(id, {"isEnabled": True})
    app.bundles.delete_tool(id, "wash-wombat", "1")
    assert found(app, "wombat") == []


def test_another_process_is_followed_too(app, id, config):
    assert found(app, "quokka") == ["qzoo.feed_quokka"]
    with App.open(config) as other:
        other.bundles.put_tool(id, "wash-quokka", "1", QUIET)
        other.bundles.delete_tool(id, "feed-quokka", "1")
    assert found(app, "quokka") == ["qzoo.wash_quokka"]


def test_only_the_newest_version_is_found_by_name(app, id):
    app.bundles.put_tool(id, "feed-quokka", "2", {**QUIET, "description": "Gives eucalyptus"})
    assert [spec.description for spec, _ in app.search("zoo feed quokka")][:1] == ["Gives eucalyptus"]
    assert [spec.name for spec, _ in app.search("leaves") if spec.pack == "qzoo"] == []
    assert {row["version"] for row in app.bundles.search("feed quokka")[0]} == {"1", "2"}


def test_words_of_kept_tools_are_in_memory_once(app, id):
    app.search("quokka")
    ranking, kept = app.catalog._index[1]._current(), app.catalog._bundles.service.store.searched()
    assert kept.count > 0
    assert all(part in ranking._words.parts for part in kept.parts)
    assert "qzoo.feed_quokka" not in {tool.name for tool in ranking._own.values()}


def test_after_a_moment_in_which_the_store_was_busy_the_search_catches_up(app, id, config, monkeypatch):
    monkeypatch.setattr(searching, "MIN_SAVED", 0)  # as with many tools: one that changes gets another place
    app.search("quokka")
    store = app.catalog._bundles.service.store

    def busy():
        raise UnavailableError("others have it")

    (file,) = config.parent.glob("bundles/*/tools/feed-quokka@1.json")
    file.write_text(file.read_text().replace("eaves", "eaves of an eucalyptus"))
    store.sync()
    with monkeypatch.context() as patch:
        patch.setattr(store, "searched", busy)
        app.search("quokka")  # of words as they were known last
    store.searched()
    assert [spec.name for spec, _ in app.search("eucalyptus")][:1] == ["qzoo.feed_quokka"]


def test_a_tool_that_stays_is_not_read_again(app, id, monkeypatch):
    app.search("quokka")
    read, really = [], WordIndex.put
    monkeypatch.setattr(
        WordIndex, "put", lambda self, key, document: read.extend(document.spelled) or really(self, key, document)
    )
    app.bundles.put_tool(id, "wash-quokka", "1", QUIET)
    assert len(app.search("quokka")) == 2
    assert read == ["qzoowashquokka"]


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_with_many_tools_first_requests_come_before_meanings(config, monkeypatch, seconds):
    monkeypatch.setattr("onetool.app.catalog.MANY_TOOLS", 0)
    monkeypatch.setattr("onetool.app.catalog.FIRST_REQUESTS_S", seconds)
    with App.open(config) as app:
        app.catalog.warm_search()
        threads = [one for one in enumerate_threads() if one.name == "onetool-search"]
        if seconds:
            assert app.catalog._index is None
            assert [one.is_alive() for one in threads] == [True]
        else:
            until(lambda: app.catalog._index is not None)
    for one in threads:
        one.join(20)  # nobody waits for it once the app is closed
        assert not one.is_alive()
