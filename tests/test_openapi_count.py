"""`make openapi` counts what is lost: here in documents of which that is known."""

import json
from pathlib import Path

import openapi_count
from openapi_count import Document, count

from onetool.sources.bundles.openapi import Selection
from onetool.sources.bundles.openapi.document import read_yaml

CONSTRUCTS = read_yaml((Path(__file__).parent / "data" / "openapi" / "constructs.yaml").read_text(encoding="utf-8"))


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
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string", "readOnly": True}}}
    xml = {"requestBody": {"required": True, "content": {"text/xml": {"schema": schema}}}}
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    paths = {"/a": {"get": {}, "put": xml, "post": body}, "/b c": {"get": {}}, "x-more": {"get": {}}}
    found = counted(tmp_path, {**CONSTRUCTS, "paths": paths})
    assert (found.operations, found.tools, found.arguments, found.lost, found.impossible) == (4, 2, 1, (), 2)
    monkeypatch.setattr(openapi_count, "IMPOSSIBLE", ())
    assert len(counted(tmp_path, {**CONSTRUCTS, "paths": paths}).lost) == 2
    monkeypatch.setattr(openapi_count, "_has", lambda arguments, wanted: False)
    assert len(counted(tmp_path, {**CONSTRUCTS, "paths": paths}).lost) == 3


def test_a_document_that_is_refused(tmp_path):
    assert counted(tmp_path, {**CONSTRUCTS, "openapi": "2.0"}).lost[0].startswith("all: openapi")
