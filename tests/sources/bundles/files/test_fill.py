"""A new index is filled with many files at once: what comes of it is what comes of them one by one."""

import json
import shutil

import pytest
from sources.bundles.files.things import reasons

from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.files import form
from onetool.sources.bundles.index import IndexTransaction, changes

TOOL = {"type": "script", "version": "1", "tags": ["a", "b"], "scriptImpl": {"code": "1 + 1"}}


def write_tools(folder, names):
    (folder / "tools").mkdir(parents=True)
    (folder / "bundle.json").write_text(json.dumps({"slug": folder.name}))
    for name in names:
        (folder / "tools" / f"{name}@1.json").write_text(json.dumps({**TOOL, "slug": name}))
    return folder / "tools"


def messy(folder):
    """Tools of use, a file that is none, two of one id, two of one name, and the copy of a bundle."""
    tools = write_tools(folder / "one", ("first", "second", "third"))
    head = {"slug": "one", "id": "01890a5d-ac96-774b-bcce-b302099a8058"}
    (folder / "one" / "bundle.json").write_text(json.dumps(head))
    same = {**TOOL, "id": "01890a5d-ac96-774b-bcce-b302099a8057"}
    (tools / "m@1.json").write_text(json.dumps({**same, "slug": "m"}))
    (tools / "n@1.json").write_text(json.dumps({**same, "slug": "n"}))
    (tools / "a.json").write_text(json.dumps({**TOOL, "slug": "second"}))
    (tools / "broken.json").write_text('{"slug": "x", "slug": "y"}')
    shutil.copytree(folder / "one", folder / "zero")
    write_tools(folder / "three", [f"t{number}" for number in range(20)])


def seen(store):
    tools = [(tool.slug, tool.id, tool.tags) for tool in store.tools(limit=100)]
    return tools, [store.search(word, True, None, 100) for word in ("second", "t1")], sorted(map(str, store.mistakes()))


@pytest.mark.parametrize("at_once", [1, 3, 1_000])
def test_tools_that_clash_are_told_as_one_by_one(opened, folder, monkeypatch, at_once):
    messy(folder)
    monkeypatch.setattr(changes, "AT_ONCE", at_once)
    store = opened()
    many = seen(store)
    assert set(reasons(store)) == {"n@1.json", "a.json", "broken.json", "bundle.json"}
    assert len(many[0]) == 4 + 20
    store.close()
    shutil.rmtree(folder / ".state")
    monkeypatch.setattr(IndexTransaction, "put_new_tools", lambda *_: False)
    assert seen(opened()) == many


def test_without_a_clash_no_tool_is_put_alone(opened, folder, monkeypatch):
    write_tools(folder / "one", [f"t{number}" for number in range(20)])
    (folder / "one" / "tools" / "broken.json").write_text("{")
    monkeypatch.setattr(IndexTransaction, "put_tool", None)
    store = opened()
    assert len(store.tools(limit=100)) == 20
    assert list(reasons(store)) == ["broken.json"]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"b": [{"a": 1, "\\u0061": 2}]}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        '{"a": "\\u00e9\\/"}',
        '{"a": -0, "b": 1.50, "c": 1E2, "d": 123456789012345678901234567890}',
        '{"a": "\t"}',
        '{"a": 1}\n{}',
        "\ufeff{}",
        '{"a": \x00}',
        "[]",
        " ",
    ],
)
def test_json_is_read_as_strictly_as_by_the_strict_reader_alone(monkeypatch, text):
    def read():
        try:
            return repr(form.parsed(text.encode()))
        except InvalidError as error:
            return error.args

    found = read()
    monkeypatch.setattr(form, "_read_plain", lambda _: None)
    assert read() == found
