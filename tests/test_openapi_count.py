"""`make openapi` counts what is lost: here in documents of which that is known."""

import json
from pathlib import Path

import openapi_count
import pytest
from helpers import each
from openapi_count import Document, call_all, calling, count

from onetool.sources.bundles.openapi import Selection
from onetool.sources.bundles.openapi.document import read_yaml

DATA = Path(__file__).parent / "data" / "openapi"
CONSTRUCTS = read_yaml((DATA / "constructs.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def place():
    with calling() as (app, upstream):
        yield app, upstream


def counted(folder, root, **chosen):
    file = folder / "document.json"
    file.write_text(json.dumps(root))
    return count(Document(file, Selection(**chosen)))


def test_nothing_is_lost(tmp_path):
    found = counted(tmp_path, CONSTRUCTS)
    assert (found.operations, found.tools, found.arguments, found.lost) == (9, 9, 8, ())
    part = counted(tmp_path, CONSTRUCTS, tag=("queues",))
    assert (part.operations, part.tools, part.arguments, part.lost) == (2, 2, 4, ())


def test_what_is_lost(tmp_path, monkeypatch):
    properties = {"a": {"type": "string"}, "b": {"type": "string", "readOnly": True}, "c": True}
    schema = {"type": "object", "properties": properties}
    xml = {"requestBody": {"required": True, "content": {"text/xml": {"schema": schema}}}}
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    paths = {"/a": {"get": {}, "put": xml, "post": body}, "/b c": {"get": {}}, "x-more": {"get": {}}}
    found = counted(tmp_path, {**CONSTRUCTS, "paths": paths})
    assert (found.operations, found.tools, found.arguments, found.lost, found.impossible) == (4, 2, 2, (), 2)
    monkeypatch.setattr(openapi_count, "IMPOSSIBLE", ())
    assert len(counted(tmp_path, {**CONSTRUCTS, "paths": paths}).lost) == 2
    monkeypatch.setattr(openapi_count, "_has", lambda arguments, wanted: False)
    assert len(counted(tmp_path, {**CONSTRUCTS, "paths": paths}).lost) == 4


def test_a_document_that_is_refused(tmp_path):
    assert counted(tmp_path, {**CONSTRUCTS, "openapi": "2.0"}).lost[0].startswith("all: openapi")


@each(
    ("name", "right", "empty", "not_made"),
    [("openai", 56, 0, 0), ("fleethub", 16, 2, 0), ("slicebox", 236, 0, 0)],
)
def test_whole_documents_send_what_was_said_and_nothing_else(place, name, right, empty, not_made):
    """A default that was sent unasked, a lost argument, or a refused answer would be wrong."""
    found = call_all(*place, name, Document(DATA / f"{name}.json"), 10_000)
    assert (found.wrong, found.warned) == ((), ())
    assert (found.right, found.empty, found.not_made) == (right, empty, not_made)


def test_what_a_call_changes_is_wrong(place, tmp_path, monkeypatch):
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}}}
    answer = {"responses": {"200": {"content": {"application/json": {"schema": schema}}}}}
    operation = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}, **answer}
    file = tmp_path / "document.json"
    file.write_text(json.dumps({**CONSTRUCTS, "paths": {"/a": {"post": operation}}}))
    assert call_all(*place, "right", Document(file), 10).right == 2
    monkeypatch.setattr(openapi_count, "arguments_of", lambda properties, call: {"b": "x"})
    wrong = call_all(*place, "wrong", Document(file), 10).wrong
    assert wrong[0] == "POST /a with what it requires: the body {'b': 'x'}, not {}"
    assert len(wrong) == 2
