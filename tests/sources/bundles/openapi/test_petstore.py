"""The Petstore, imported whole, and its tools called against a server that behaves as the document says."""

import json
from pathlib import Path

import pytest
from http_harness import Harness, allowed
from sources.bundles.openapi.documents import from_openapi
from upstream import Reply, Upstream

from onetool.core.schema import CompiledSchema

FILE = Path(__file__).parents[3] / "data" / "openapi" / "petstore.yaml"
SECRETS = {"PETSTORE_TOKEN": "t0ken-1", "PETSTORE_API_KEY": "key-1"}
REX = {"id": 7, "name": "Rex", "photoUrls": ["http://x/1.png"], "status": "sold"}


@pytest.fixture(scope="module")
def petstore():
    return from_openapi(FILE.read_bytes())


class Mock:
    """The pet store, as far as it is called here: a dict of pets."""

    def __init__(self):
        self.pets = {}

    def __call__(self, seen):
        path, _, query = seen.target.partition("?")
        path = path.removeprefix("/api/v3")
        if path == "/pet" and seen.method in ("POST", "PUT"):
            pet = json.loads(seen.body)
            self.pets[pet["id"]] = pet
            return _json(pet)
        if path == "/pet/findByStatus":
            return _json([pet for pet in self.pets.values() if f"status={pet['status']}" == query])
        if path == "/pet/findByTags":
            return _json([{**REX, "name": query}])
        if path.startswith("/pet/") and seen.method == "GET":
            pet = self.pets.get(int(path.rpartition("/")[2]))
            return _json(pet) if pet else Reply(404, body=b"no such pet")
        if path.startswith("/pet/") and seen.method == "DELETE":
            self.pets.pop(int(path.rpartition("/")[2]), None)
            return Reply(200)
        if path == "/store/inventory":
            return _json({"sold": 3})
        if path == "/user/createWithList":
            return _json(json.loads(seen.body)[0])
        if path == "/pet/7/uploadImage":
            return _json({"code": 200, "message": seen.body.decode(), "type": seen.headers["content-type"]})
        return Reply(500, body=b"what?")


def _json(value):
    return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(value).encode())


@pytest.fixture
def shop():
    """A function that calls one of its tools, and the server."""
    with Upstream(Mock()) as upstream:
        text = FILE.read_text().replace("https://petstore3.swagger.io", upstream.url)
        tools = {slug: tool for slug, _, tool in from_openapi(text).tools}

        def call(slug, **args):
            tool = tools[slug]
            assert CompiledSchema(tool["argSchema"], closed=True).check(args) == []
            value = Harness(tool["httpImpl"], tool["argSchema"], secrets=SECRETS, hosts=allowed(upstream))(**args)
            assert CompiledSchema(tool["outputSchema"]).check(value) == []
            return value

        yield call, upstream


def test_all_of_it(petstore):
    assert petstore.bundle["slug"] == "petstore"
    assert petstore.bundle["displayName"] == "Swagger Petstore - OpenAPI 3.0"
    assert petstore.hosts == ["petstore3.swagger.io"]
    assert petstore.secrets == ["PETSTORE_TOKEN", "PETSTORE_API_KEY"]
    assert petstore.skipped == []
    assert {version for _, version, _ in petstore.tools} == {"1.0.27-SNAPSHOT"}


def test_names(petstore):
    assert sorted(slug for slug, _, _ in petstore.tools) == [
        "add-pet", "create-user", "create-users-with-list-input", "delete-order", "delete-pet", "delete-user",
        "find-pets-by-status", "find-pets-by-tags", "get-inventory", "get-order-by-id", "get-pet-by-id",
        "get-user-by-name", "login-user", "logout-user", "place-order", "update-pet", "update-pet-with-form",
        "update-user", "upload-file",
    ]  # fmt: skip


def test_what_a_tool_says_of_itself(petstore):
    tool = next(tool for slug, _, tool in petstore.tools if slug == "update-user")
    assert tool["displayName"] == "Update user resource"
    assert tool["description"] == "Update user resource. This can only be done by the logged in user."
    assert tool["tags"] == ["user"]
    # The one in the path keeps its name; that of the body says where it stands.
    assert tool["argSchema"]["required"] == ["username"]
    assert tool["httpImpl"]["request"]["body"]["username"] == "${body_username}"
    assert tool["argSchema"]["properties"]["body_username"]["examples"] == ["theUser"]


def test_a_pet_is_added_and_found(shop):
    call, upstream = shop
    assert call("add-pet", **REX) == REX
    assert upstream.seen[0].headers["authorization"] == "Bearer t0ken-1"
    assert json.loads(upstream.seen[0].body) == REX
    assert call("get-pet-by-id", petId=7) == REX
    assert upstream.seen[1].headers["api_key"] == "key-1"
    assert upstream.seen[1].headers["accept"] == "application/json"
    assert call("find-pets-by-status", status="sold") == [REX]
    assert call("delete-pet", petId=7) is None


def test_lists_in_queries_bodies_and_texts(shop):
    call, upstream = shop
    assert call("find-pets-by-tags", tags=["a b", "c"])[0]["name"] == "tags=a%20b&tags=c"
    assert call("create-users-with-list-input", body=[{"username": "ada"}]) == {"username": "ada"}
    assert call("upload-file", petId=7, body="data:,bytes") == {
        "code": 200, "message": "bytes", "type": "application/octet-stream",
    }  # fmt: skip
    assert call("get-inventory") == {"sold": 3}
    assert upstream.seen[-1].target == "/api/v3/store/inventory"


def test_a_default_of_the_server_is_told_and_not_sent(petstore):
    tool = next(tool for slug, _, tool in petstore.tools if slug == "find-pets-by-status")
    status = tool["argSchema"]["properties"]["status"]
    assert status["description"] == 'Status values that need to be considered for filter Without it: "available".'
    assert "default" not in status
