"""Bodies become arguments, and arguments bodies."""

import json

import pytest
from sources.bundles.openapi.documents import body, imported, one, parameter, sent, skipped

PET = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}


def test_members_are_arguments():
    tool = one(body(PET), "post")
    assert tool["argSchema"]["required"] == ["name"]
    assert json.loads(sent(tool, name="Rex", age=3).body) == {"name": "Rex", "age": 3}
    assert json.loads(sent(tool, name="Rex").body) == {"name": "Rex"}


def test_of_an_optional_body_nothing_is_required():
    tool = one(body(PET, required=False), "post")
    assert "required" not in tool["argSchema"]


def test_clashes_with_parameters():
    given = {**body(PET), "parameters": [parameter("name", "path", required=True)]}
    request = sent(one(given, "put", "/pets/{name}"), name="old", body_name="new")
    assert (request.url.target, json.loads(request.body)) == ("/v1/pets/old", {"name": "new"})


def test_all_of_is_one_object():
    whole = {
        "allOf": [
            {"$ref": "#/components/schemas/Pet"},
            {"properties": {"tag": {"type": "string"}}},
            {"required": ["tag"]},
        ]
    }
    tool = one(body(whole), "post", components={"schemas": {"Pet": PET}})
    assert set(tool["argSchema"]["properties"]) == {"name", "age", "tag"}
    assert sorted(tool["argSchema"]["required"]) == ["name", "tag"]


def test_what_only_answers_have_is_not_asked_for():
    whole = {"type": "object", "required": ["id", "name"], "properties": {"id": {"readOnly": True}, "name": {}}}
    nested = {"type": "object", "properties": {"pet": whole}}
    assert one(body(whole), "post")["argSchema"] == {"type": "object", "properties": {"name": {}}, "required": ["name"]}
    assert one(body(nested), "post")["argSchema"]["properties"]["pet"]["required"] == ["name"]


def test_a_required_member_that_is_not_described_is_an_argument():
    parts = [{"required": ["kind", "tag"]}, {"properties": {"tag": {"type": "string"}}}]
    tool = one(body({**PET, "required": ["name", "grant_type"], "allOf": parts}), "post")
    assert tool["argSchema"]["properties"]["grant_type"] == {}
    assert tool["argSchema"]["required"] == ["tag", "name"]
    given = {"name": "Rex", "tag": "t", "kind": 1, "grant_type": "code"}
    assert json.loads(sent(tool, **given).body) == given


def test_members_without_names():
    found = imported({"/things": {"post": body({**PET, "additionalProperties": True})}})
    assert found.notes == [("POST /things", "members of its body that the document does not name can't be sent")]
    unnamed = {"type": "object", "properties": {"id": {"readOnly": True}}, "additionalProperties": True}
    assert json.loads(sent(one(body(unnamed), "put"), body={"colour": "red"}).body) == {"colour": "red"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "integer"}},
        {"oneOf": [PET, {"type": "array"}]},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {},
    ],
)
def test_what_is_no_plain_object_is_one_argument(schema):
    tool = one(body(schema), "post")
    assert list(tool["argSchema"]["properties"]) == ["body"]
    value = [1, 2] if schema != {"type": "object", "additionalProperties": {"type": "string"}} else {"a": "b"}
    request = sent(tool, body=value)
    assert json.loads(request.body) == value
    assert ("Content-Type", "application/json") in request.headers


def test_alternatives_of_what_is_required_are_the_servers_to_check():
    tool = one(body({**PET, "required": [], "anyOf": [{"required": ["name"]}, {"required": ["age"]}]}), "post")
    assert json.loads(sent(tool, age=3).body) == {"age": 3}


def test_names_that_no_placeholder_could_have():
    whole = {"type": "object", "properties": {"+1": {"type": "string"}, "-1": {"type": "string"}, "${TOKEN}": {}}}
    tool = one(body(whole), "post")
    assert json.loads(sent(tool, arg_1="a", body_arg_1="b", TOKEN="c").body) == {"+1": "a", "-1": "b", "${TOKEN}": "c"}


def test_forms():
    form = "application/x-www-form-urlencoded"
    whole = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "string"}}},
    }
    request = sent(one(body(whole, form), "post"), a="x y&z", b=["1", "2"])
    assert request.body == b"a=x%20y%26z&b=1&b=2"
    assert ("Content-Type", form) in request.headers


def test_texts_and_other_json():
    request = sent(one(body({"type": "string"}, "text/plain"), "post"), body="{hello}")
    assert (request.body, dict(request.headers)) == (b"{hello}", {"Content-Type": "text/plain"})
    request = sent(one(body(PET, "application/merge-patch+json; charset=utf-8"), "patch"), name="x")
    assert dict(request.headers)["Content-Type"] == "application/merge-patch+json"


@pytest.mark.parametrize("media", ["multipart/related", "application/xml"])
def test_what_no_template_can_make(media):
    assert skipped(body(PET, media), "post") == f"its body is {media}: only JSON, forms, text and files can be sent"
    found = imported({"/x": {"post": body(PET, media, required=False)}})
    assert "body" not in found.tools[0][2]["httpImpl"]["request"]
    assert found.notes[0].why.startswith("its optional body is left out")


def test_examples_of_a_body_are_those_of_its_members():
    components = {"examples": {"rex": {"value": {"name": "Rex", "age": 4}}}}
    tool = one(body(PET, examples={"a": {"$ref": "#/components/examples/rex"}}), "post", components=components)
    assert tool["argSchema"]["properties"]["name"]["examples"] == ["Rex"]
    assert tool["argSchema"]["properties"]["age"]["examples"] == [4]
