"""One search: what `ot.search` and REST find follows every change, and the words of kept tools are in memory once."""

import time

import pytest

from onetool import App
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
    time.sleep(0.06)  # a change by others counts after a moment
    assert found(app, "quokka") == ["qzoo.wash_quokka"]


def test_only_the_newest_version_is_found_by_name(app, id):
    app.bundles.put_tool(id, "feed-quokka", "2", {**QUIET, "description": "Gives eucalyptus"})
    assert [spec.description for spec, _ in app.search("zoo feed quokka")][:1] == ["Gives eucalyptus"]
    assert [spec.name for spec, _ in app.search("leaves") if spec.pack == "qzoo"] == []
    assert {row["version"] for row in app.bundles.search("feed quokka")[0]} == {"1", "2"}


def test_words_of_kept_tools_are_in_memory_once(app, id):
    app.search("quokka")
    index = app.catalog._index[1]
    assert index.kept is app.catalog._bundles.service.store.searched()
    assert "qzoo.feed_quokka" not in {spec.name for _, spec in index._own.values()}
    assert index.kept.words is index._words


def test_a_tool_that_stays_is_not_read_again(app, id, monkeypatch):
    app.search("quokka")
    read = []
    words = app.catalog._index[1]._words
    really = words.add
    monkeypatch.setattr(words, "add", lambda document: read.append(document.name) or really(document))
    app.bundles.put_tool(id, "wash-quokka", "1", QUIET)
    assert len(app.search("quokka")) == 2
    assert read == ["qzoo.wash_quokka"]
