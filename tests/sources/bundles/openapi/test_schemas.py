"""Schemas of documents in today's words: for arguments as they are meant, for answers as lenient as answers are."""

import json
import re

from helpers import each
from sources.bundles.openapi.documents import answer, body, imported, one, parameter, parameters, sent

from onetool.core.schema import CHEAP, CompiledSchema
from onetool.core.schema_guard import guard
from onetool.core.spec import FROM_DOCUMENT

NODE = {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/components/schemas/Node"}}}


def argument(schema, **more):
    return one(body({"type": "object", "properties": {"a": schema}}), "post", **more)["argSchema"]


@each(
    ("given", "meant"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        (
            {"nullable": True, "allOf": [{"type": "string"}]},
            {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "string", "example": "x", "xml": {}, "x-a": 1}, {"type": "string", "examples": ["x"]}),
        ({"type": "file", "required": True, "minLength": -1}, {}),
        ({"type": ["string", "null"], "examples": ["x", "y"]}, {"type": ["string", "null"], "examples": ["x", "y"]}),
        ({"type": "string", "pattern": 3, "enum": [], "multipleOf": 0}, {"type": "string"}),
        ({"type": "array", "items": {"type": "string"}, "enum": ["a"]}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "string", "enum": [969, 576]}, {"type": ["integer", "string"]}),
        ({"type": "number", "enum": [1, 2]}, {"type": "number", "enum": [1, 2]}),
        ({"type": "string", "pattern": r"^[\\w-]+$"}, {"type": "string"}),
        ({"type": "string", "pattern": r"^[\w-]+$"}, {"type": "string", "pattern": r"^[\w-]+$"}),
    ],
)
def test_words_of_today(given, meant):
    assert argument(given)["properties"]["a"] == meant


def test_a_definition_is_in_its_place_or_shared():
    components = {"schemas": {"One": {"type": "object", "properties": {"x": {}}}, "Text": {"type": "string"}}}
    properties = {"a": {"$ref": "#/components/schemas/One"}, "t": {"$ref": "#/components/schemas/Text"}}
    schema = one(body({"type": "object", "properties": properties}), "post", components=components)["argSchema"]
    assert schema["properties"]["a"] == {"type": "object", "properties": {"x": {}}}
    assert "$defs" not in schema
    twice = {"type": "object", "properties": {**properties, "b": {"$ref": "#/components/schemas/One"}}}
    schema = one(body(twice), "post", components=components)["argSchema"]
    assert schema["properties"]["b"] == {"$ref": "#/$defs/One"}
    assert schema["$defs"] == {"One": {"type": "object", "properties": {"x": {}}}}


@each("more", [False, {"type": "string"}])
@each("parts", ["allOf", "anyOf", "oneOf"])
def test_members_of_all_parts_are_known(parts, more):
    whole = {parts: [{"properties": {"a": {"type": "boolean"}}}], "additionalProperties": more, "type": "object"}
    check = CompiledSchema(argument({**whole, "properties": {"b": {"type": "integer"}}})).check
    assert check({"a": {"a": True, "b": 1}}) == []
    assert check({"a": {"c": True}})
    answered = CompiledSchema(one(answer(whole))["outputSchema"])
    assert answered.check({"a": True}) == []


def test_circles_are_kept():
    schema = argument({"$ref": "#/components/schemas/Node"}, components={"schemas": {"Node": NODE}})
    check = CompiledSchema(schema, closed=True).check
    assert check({"a": {"value": 1, "next": {"value": 2, "next": {}}}}) == []
    assert check({"a": {"next": {"next": {"value": "x"}}}})


@each("version", ["3.0.3", "3.1.0"])
def test_a_default_behind_a_reference_is_described_and_not_sent(version):
    """An argument's `default` would be sent with every call: a PATCH would change what nobody named."""
    schemas = {
        "Active": {"type": "boolean", "default": True},
        "Plan": {"$ref": "#/components/schemas/Active"},
        "Address": {"type": "object", "default": {"city": ""}, "properties": {"city": {"default": ""}}},
    }
    references = {name.lower(): {"$ref": f"#/components/schemas/{name}", "default": None} for name in schemas}
    del references["active"]["default"], references["address"]["default"]
    user = {"type": "object", "properties": {"name": {"type": "string"}, **references}}
    place = parameter("page", schema={"$ref": "#/components/schemas/Active"}, description="Which.")
    tool = one({**body(user), **parameters(place)}, "patch", version=version, components={"schemas": schemas})
    arguments = tool["argSchema"]["properties"]
    assert [name for name, schema in arguments.items() if "default" in schema] == []
    assert arguments["active"]["description"] == "Without it: true."
    assert arguments["page"]["description"] == "Which. Without it: true."
    assert arguments["plan"]["description"] == "Without it: null."
    assert json.loads(sent(tool, name="Ada").body) == {"name": "Ada"}


def test_alternatives_may_overlap():
    """`oneOf` would refuse values that fit two alternatives, and APIs take those."""
    card = {"type": "object", "properties": {"type": {"type": "string"}, "number": {"type": "string"}}}
    wallet = {"type": "object", "properties": {"type": {"type": "string"}, "token": {"type": "string"}}}
    check = CompiledSchema(argument({"oneOf": [card, wallet]})).check
    assert [check({"a": value}) == [] for value in ({"type": "card"}, {}, 3)] == [True, True, False]
    both = {"anyOf": [{"type": "string"}, {"type": "integer"}], "oneOf": [{"minimum": 2}, {"maxLength": 2}]}
    check = CompiledSchema(argument(both)).check
    assert [check({"a": value}) == [] for value in (2, "ab", True, [])] == [True, True, False, False]


def test_answers_are_described_and_hardly_checked():
    pet = {
        "type": "object",
        "required": ["id", "kind"],
        "additionalProperties": False,
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "kind": {"type": "string", "enum": ["cat", "dog"], "description": "What it is"},
            "secret": {"type": "string", "writeOnly": True},
            "owner": {"oneOf": [{"type": "string"}, {"type": "object"}]},
        },
    }
    schema = one(answer(pet))["outputSchema"]
    check = CompiledSchema(schema).check
    assert schema["type"] == "object"
    assert schema["properties"]["kind"] == {
        "type": ["string", "null"], "description": "What it is", "examples": ["cat", "dog"],
    }  # fmt: skip
    assert "secret" not in schema["properties"]
    for real in ({}, {"id": 0, "kind": "bird"}, {"id": None, "more": 1}, {"owner": None}, {"owner": {}}):
        assert check(real) == []
    assert check({"id": "x"})
    assert check([])


def test_several_answers():
    both = {**answer({"type": "object"})["responses"], **answer({"type": "array"}, code="202")["responses"]}
    check = CompiledSchema(one({"responses": both})["outputSchema"]).check
    assert [check(value) == [] for value in ({}, [], "x")] == [True, True, False]


@each(
    ("media", "encoding", "schema"),
    [
        ("application/json", "json", {"type": "array"}),
        ("application/problem+json", "json", {"type": "array"}),
        ("text/csv", "text", {"type": "string"}),
        ("application/xml", "text", {"type": "string"}),
        ("image/png", "binary", {}),
        ("application/octet-stream", "binary", {}),
        ("text/event-stream", "sse", {}),
    ],
)
def test_how_an_answer_is_read(media, encoding, schema):
    tool = one(answer({"type": "array"}, media))
    assert tool["httpImpl"]["response"]["encoding"] == encoding
    assert tool["httpImpl"]["request"]["headers"]["Accept"] == media
    assert tool["outputSchema"] == schema | ({FROM_DOCUMENT: True} if schema else {})


def test_an_answer_that_only_redirects():
    assert one({"responses": {"302": {"description": "there"}}})["httpImpl"]["request"]["followRedirects"] is True
    assert "followRedirects" not in one({"responses": {"204": {"description": ""}}})["httpImpl"]["request"]


def test_what_is_too_large_is_cut_where_it_is_farthest():
    schemas = {}
    for level in range(8):
        following = {f"p{n}": {"$ref": f"#/components/schemas/L{level + 1}"} for n in range(4)}
        texts = {f"text{n}": {"type": "string", "description": "x" * 150} for n in range(25)}
        schemas[f"L{level}"] = {"type": "object", "properties": {**following, **texts}}
    schemas["L8"] = {"type": "object"}
    top = {"$ref": "#/components/schemas/L0"}
    tool = one({**answer(top), **body({"type": "array", "items": top})}, "post", components={"schemas": schemas})
    assert len(str(tool["outputSchema"])) < 20_000
    assert "p1" in tool["outputSchema"]["properties"]
    assert guard(tool["outputSchema"]).costs[0] <= CHEAP
    assert len(str(tool["argSchema"])) < 80_000


def test_a_costly_answer_is_cut_too():
    """A schema that takes long to check would refuse large answers."""
    arms = [{"type": "object", "properties": {f"x{n}": {"type": "object"}}} for n in range(150)]
    tool = one(answer({"anyOf": arms}))
    assert guard(tool["outputSchema"]).costs[0] <= CHEAP


def test_patterns_that_no_engine_takes_skip_nothing():
    found = imported({"/x": {"get": parameters(parameter("q", schema={"type": "string", "pattern": "(?<bad"}))}})
    assert found.tools[0][2]["argSchema"]["properties"]["q"] == {"type": "string"}
    assert found.notes[0].why.endswith("a pattern is left out that is too large for the validator, or wrong: (?<bad")


def test_a_pattern_that_goes_takes_nothing_with_it():
    deep = {"type": "object", "properties": {"b": {"type": "object", "properties": {"c": {"enum": ["x"]}}}}}
    large = {"type": "string", "pattern": r"^[\p{L}\p{Nd}-]{1,64}$", "maxLength": 64}
    named = {"type": "object", "patternProperties": {"(": {}, "^x": {"type": "integer"}}}
    schema = argument({"allOf": [deep, {"properties": {"d": large, "e": named}}]})
    assert schema["properties"]["a"]["allOf"] == [
        deep,
        {
            "properties": {
                "d": {"type": "string", "maxLength": 64},
                "e": {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
            }
        },
    ]


def whys(schema, **more):
    return [note.why for note in imported({"/x": {"post": body(schema)}}, **more).notes]


def test_why_arguments_are_in_outline_only():
    properties = {f"p{n}": {"enum": ["x" * 400]} for n in range(190)}
    (large,) = whys({"type": "object", "properties": properties})
    assert re.fullmatch(r".* in outline only: it is too large \(\d+ KiB; the limit is 64 KiB\)", large)
    schemas = {
        f"S{n}": {"type": "object", "properties": {"x": {"$ref": f"#/components/schemas/S{n + 1}"}}} for n in range(20)
    }
    (deep,) = whys(schemas["S0"], components={"schemas": {**schemas, "S20": {}}})
    assert "outline only: it continues after 10 references" in deep
    arms = {f"A{n}": {"anyOf": [{"$ref": f"#/components/schemas/A{n + 1}"}] * 4} for n in range(8)}
    (costly,) = whys(
        {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/A0"}}},
        components={"schemas": {**arms, "A8": {"type": "string"}}},
    )
    assert "outline only: its JSON Schema" in costly or "outline only: its alternatives multiply" in costly
