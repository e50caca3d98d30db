"""Many files are read at once: what comes of it is what comes of them one by one."""

import json
import shutil

import pytest
from sources.bundles.files.things import reasons

from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store import folder as files_of
from onetool.sources.bundles.store import storage, text

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


def seen(of):
    tools = [(tool.slug, tool.id, tool.tags) for tool in of.tools(ListQuery(limit=100))]
    return tools, [of.search(word, True, None, 100) for word in ("second", "t1")], sorted(map(str, of.mistakes()))


def test_what_clashes_is_told_by_the_next_process_too(opened, folder, monkeypatch):
    messy(folder)
    monkeypatch.setattr(storage, "MIN_MIRRORED", 1)
    monkeypatch.setattr(files_of, "RACY_S", 0.0)
    one = opened()
    many = seen(one)
    assert set(reasons(one)) == {"n@1.json", "a.json", "broken.json", "bundle.json"}
    assert len(many[0]) == 4 + 20
    one.close()
    read, really = [], files_of.read_row
    monkeypatch.setattr(files_of, "read_row", lambda *args: read.append(args[0]) or really(*args))
    assert seen(opened()) == many
    assert read == ["one/tools/broken.json", "zero/tools/broken.json"], "only what could not be read is read again"


@pytest.mark.parametrize(
    "given",
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
def test_json_is_read_as_strictly_as_by_the_strict_reader_alone(monkeypatch, given):
    def read():
        try:
            return repr(text.parsed(given.encode()))
        except InvalidError as error:
            return error.args

    found = read()
    monkeypatch.setattr(text, "_read_plain", lambda _: None)
    assert read() == found
