"""Parts of large documents, and what such documents have: `#` and `$` in paths, plural acronyms, many operations."""

import json
from pathlib import Path

import pytest
from sources.bundles.openapi.documents import document, from_openapi, imported, sent

from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.openapi import Selection
from onetool.sources.bundles.openapi import document as reading
from onetool.sources.bundles.openapi.document import read_yaml

YAML = (Path(__file__).parents[3] / "data" / "openapi" / "constructs.yaml").read_text(encoding="utf-8")
JSON = json.dumps(read_yaml(YAML))

ALL = [
    *("post-create-queue", "post-delete-queue", "get-files-id", "get-files-id-get-shared-link"),
    *("users-messages-get-count", "reserved-ips-list", "reserved-ips-create", "create-upload", "put-urls"),
]


@pytest.fixture(params=[YAML, JSON], ids=["yaml", "json"])
def constructs(request):
    return request.param


def slugs(data, stored=None, **chosen):
    found = from_openapi(data, selection=Selection(**chosen), stored=stored)
    return [slug for slug, _, _ in found.tools]


def tool(data, slug):
    found = from_openapi(data)
    assert found.skipped == []
    return next(tool for one, _, tool in found.tools if one == slug)


def test_every_operation_is_a_tool(constructs):
    assert slugs(constructs) == ALL


def test_what_stands_behind_a_hash_is_not_sent(constructs):
    request = sent(tool(constructs, "post-create-queue"), Action="CreateQueue", QueueName="q")
    assert request.url.target == "/v1/?Action=CreateQueue&QueueName=q"
    request = sent(tool(constructs, "get-files-id-get-shared-link"), file_id="7", fields="shared_link")
    assert request.url.target == "/v1/files/7?fields=shared_link"


def test_a_dollar_stays_a_dollar(constructs):
    request = sent(tool(constructs, "users-messages-get-count"), user_id="ada")
    assert request.url.target == "/v1/users/ada/messages/$count"


def test_the_servers_of_a_path(constructs):
    request = sent(tool(constructs, "put-urls"))
    assert (request.url.host, request.url.target) == ("uploads.example.com", "/v2/elsewhere")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"only": ("/reserved*",)}, ["reserved-ips-list", "reserved-ips-create"]),
        ({"only": ("get-files*", "put-*")}, ["get-files-id", "get-files-id-get-shared-link", "put-urls"]),
        ({"tag": ("files",)}, ["get-files-id", "get-files-id-get-shared-link", "create-upload"]),
        ({"tag": ("links, shared", "addresses"), "only": ("*-get-*", "*-list")},
         ["get-files-id-get-shared-link", "reserved-ips-list"]),
        ({"tag": ("FILES",), "only": ("create-*",)}, ["create-upload"]),
        ({"operation": ("putURLs",)}, ["put-urls"]),
        ({"operation": ("get /reserved_ips", "Post /reserved_ips")}, ["reserved-ips-list", "reserved-ips-create"]),
        ({"operation": ("POST /#Action=DeleteQueue", "reserved-ips-list")}, ["post-delete-queue", "reserved-ips-list"]),
    ],
)  # fmt: skip
def test_a_part(constructs, chosen, expected):
    assert slugs(constructs, **chosen) == expected


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"only": ("/nothing*",)}, "No operation matches '/nothing*'"),
        ({"tag": ("file",)}, "No operation has the tag 'file': did you mean files?"),
        ({"tag": ("zzz", "files")}, "known: queues, files, links, shared, addresses"),
        ({"operation": ("putURLs", "putURL")}, "No operation is called 'putURL': did you mean putURLs"),
        (
            {"tag": ("queues",), "only": ("/files*",)},
            "leave out one of --only, --tag and --operation (over REST: only=, tag= and operation=)",
        ),
    ],
)
def test_what_nothing_has_is_refused(constructs, chosen, told):
    with pytest.raises(InvalidError) as caught:
        slugs(constructs, **chosen)
    assert told in str(caught.value)


def test_a_part_has_the_names_of_the_whole():
    paths = {f"/{name}/things": {"get": {"operationId": "same", "tags": [name]}} for name in "abc"}
    assert slugs(document(paths)) == ["same", "list-b-things", "list-c-things"]
    assert slugs(document(paths), tag=("c",)) == ["list-c-things"]


def test_a_large_document(monkeypatch):
    monkeypatch.setattr(reading, "MAX_YAML_BYTES", 1_000)
    monkeypatch.setattr(reading, "MAX_INPUT_BYTES", len(JSON))
    assert slugs(JSON, tag=("queues",)) == ["post-create-queue", "post-delete-queue"]
    with pytest.raises(InvalidError, match="convert it to JSON"):
        slugs(YAML, tag=("queues",))
    with pytest.raises(InvalidError, match="remove paths"):
        slugs(JSON + " ", tag=("queues",))


def test_a_document_of_too_many_values(monkeypatch):
    monkeypatch.setattr(reading, "MAX_VALUES", 20)
    with pytest.raises(InvalidError, match="more than 20 values"):
        slugs(JSON, tag=("queues",))


@pytest.mark.parametrize("broken", ['{"get": {"operationId": 1e}}', '{"get": {"summary": "\\x"}}', '{"get": {"a" 1}}'])
def test_a_part_that_is_not_json(broken):
    text = document({"/a": "BROKEN", "/b": {"get": {}}}).decode().replace('"BROKEN"', broken)
    with pytest.raises(InvalidError, match="not JSON"):
        from_openapi(text)


def test_references_into_every_level():
    response = {"200": {"content": {"application/json": {"schema": {"$ref": "#/components"}}}}}
    paths = {
        "/a": {"get": {"responses": response}},
        "/b": {"$ref": "#/paths/~1a"},
        "/c": {"get": {"responses": {"$ref": "#/paths/~1a/get/responses"}}},
        "/d": {"$ref": "#/paths/~1d"},
        "/e": {"get": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#"}}}}}},
        "/f": {"get": 5},
    }
    found = imported(paths, components={"type": "object", "properties": {"x": {"type": "string"}}})
    assert [slug for slug, _, _ in found.tools] == ["get-a", "get-b", "get-c", "get-e"]
    assert [about for about, _ in found.skipped] == ["/d"]


# Tools that are stored keep their names


def test_a_stored_tool_keeps_its_name(constructs):
    stored = {"POST /v1/reserved_ips": ["reserved-i-ps-create"], "GET /v1/files/{}": ["file"]}
    found = slugs(constructs, stored=stored)
    assert found == [
        {"reserved-ips-create": "reserved-i-ps-create", "get-files-id": "file"}.get(one, one) for one in ALL
    ]


def test_the_name_of_another_tool_is_not_taken(constructs):
    """What is stored for one operation is not a name for another, though it would be its best one."""
    stored = {"POST /v1/reserved_ips": ["reserved-ips-list"]}
    found = slugs(constructs, stored=stored, only=("/reserved*",))
    assert found == ["get-reserved-ips", "reserved-ips-list"]


def test_operations_on_one_url_keep_their_own_names(constructs):
    stored = {"POST /v1/": ["post-delete-queue"]}
    assert slugs(constructs, stored=stored) == ALL


def test_a_document_that_takes_too_long(monkeypatch):
    monkeypatch.setattr("onetool.sources.bundles.openapi.document.MAX_SECONDS", -1)
    with pytest.raises(InvalidError, match=r"to read: import a part of it"):
        from_openapi(JSON)
