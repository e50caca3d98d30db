"""Parameters for Gemini: whatever the schema, the result keeps Gemini's rules, is small, and comes soon."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import calls, check_each, each, examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onetool.formats.gemini import MAX_DEPTH, gemini_parameters

LIVEMCP = json.loads((Path(__file__).parents[1] / "data" / "livemcp.json").read_text())["tools"]

COMMON = {"type", "title", "description", "nullable", "default"}
FIELDS = {
    "string": COMMON | {"enum", "format", "pattern", "minLength", "maxLength"},
    "number": COMMON | {"format", "minimum", "maximum"},
    "integer": COMMON | {"format", "minimum", "maximum"},
    "boolean": COMMON,
    "array": COMMON | {"items", "minItems", "maxItems"},
    "object": COMMON | {"properties", "required", "minProperties", "maxProperties"},
}
FORMATS = {"string": {"date-time"}, "number": {"float", "double"}, "integer": {"int32", "int64"}}

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
ANY_ITEM = {
    "anyOf": [TEXT, NUMBER, {"type": "boolean"}, {"type": "object"}, {"type": "array", "items": {"type": "string"}}]
}


def check(node: Any, depth: int = 0) -> None:
    """Gemini's rules, as its refusals tell them."""
    assert type(node) is dict
    assert depth <= MAX_DEPTH + 5  # an array of anything, cut there, still has to tell what that is
    if "anyOf" in node:
        assert node.keys() == {"anyOf"}
        assert len(node["anyOf"]) > 1
        for choice in node["anyOf"]:
            assert "anyOf" not in choice
            check(choice, depth + 1)
        return
    assert node.keys() <= FIELDS[node["type"]]
    assert isinstance(node.get("description", ""), str)
    assert isinstance(node.get("default", ""), str | int | float)
    assert node.get("nullable", True) is True
    assert node.get("format") in FORMATS.get(node["type"], set()) | {None}
    if "enum" in node:
        assert node["enum"]
        assert all(isinstance(value, str) and value for value in node["enum"])
    if node["type"] == "array":
        check(node["items"], depth + 1)
    assert set(node.get("required", [])) <= set(node.get("properties", {}))
    for schema in node.get("properties", {}).values():
        check(schema, depth + 1)


def check_parameters(schema: Any) -> dict[str, Any]:
    parameters = gemini_parameters(schema)
    assert parameters["type"] == "object"
    assert "properties" in parameters
    check(parameters)
    json.dumps(parameters, allow_nan=False)
    return parameters


def reduced(schema: Any, **root: Any) -> Any:
    """What becomes of one argument's schema."""
    return check_parameters({"type": "object", "properties": {"x": schema}, **root})["properties"]["x"]


def test_real_tools() -> None:
    def keeps_its_arguments(tool: dict[str, Any]) -> None:
        parameters = check_parameters(tool["inputSchema"])
        assert list(parameters["properties"]) == list(tool["inputSchema"].get("properties", {}))
        assert parameters.get("required", []) == tool["inputSchema"].get("required", [])

    check_each(LIVEMCP, keeps_its_arguments)


def test_what_fits_stays() -> None:
    schema = {
        "type": "object",
        "description": "All that fits",
        "properties": {
            "s": {"type": "string", "title": "S", "pattern": "^a", "minLength": 1, "maxLength": 9, "default": "ab"},
            "t": {"type": "string", "format": "date-time", "nullable": True},
            "i": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 10},
            "e": {"type": "string", "enum": ["a", "b"]},
            "l": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
            "u": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "o": {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"], "maxProperties": 2},
        },
        "required": ["s"],
    }
    assert check_parameters(schema) == schema


def test_no_parameters() -> None:
    assert check_parameters({"type": "object"}) == {"type": "object", "properties": {}}


@each(
    ("schema", "expected"),
    [
        # null
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [TEXT, {"type": "null"}], "default": None}, {"type": "string", "nullable": True}),
        ({"enum": ["a", None]}, {"type": "string", "enum": ["a"], "nullable": True}),
        ({"type": "null"}, {"type": "string", "nullable": True}),
        ({"type": ["object", "null"], "anyOf": [{"required": ["a"]}]}, {"type": "object", "nullable": True}),
        # alternatives
        ({"type": ["string", "integer"]}, {"anyOf": [TEXT, {"type": "integer"}]}),
        ({"type": ["integer", "number"]}, NUMBER),
        ({"oneOf": [TEXT, NUMBER]}, {"anyOf": [TEXT, NUMBER]}),
        ({"anyOf": [TEXT, {"anyOf": [NUMBER, TEXT]}]}, {"anyOf": [TEXT, NUMBER]}),
        ({"anyOf": [TEXT, {"not": {}}, False]}, TEXT),
        ({"anyOf": [{"const": "a"}, {"const": "b"}]}, {"type": "string", "enum": ["a", "b"]}),
        ({"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}], "type": "string"}, TEXT),
        ({"anyOf": [TEXT, NUMBER], "minimum": 3}, {"anyOf": [TEXT, NUMBER]}),
        (
            {"type": ["string", "integer", "null"], "description": "D", "minLength": 2, "minimum": 3, "title": "T"},
            {
                "anyOf": [
                    {"type": "string", "minLength": 2, "description": "D", "nullable": True},
                    {"type": "integer", "minimum": 3},
                ]
            },
        ),
        (
            {"type": "object", "oneOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]},
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        ),
        # all of
        (
            {"allOf": [{"type": "string"}, {"minLength": 1}], "description": "D"},
            {"type": "string", "minLength": 1, "description": "D"},
        ),
        (
            {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": NUMBER}}]},
            {"type": "object", "properties": {"a": TEXT, "b": NUMBER}, "required": ["a"]},
        ),
        # values
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"const": 3}, {"type": "integer", "description": "One of: 3."}),
        ({"const": True, "description": "D."}, {"type": "boolean", "description": "D. One of: true."}),
        ({"enum": [1, 2.5], "type": "number"}, {"type": "number", "description": "One of: 1, 2.5."}),
        ({"enum": ["", "a"], "type": "string"}, {"type": "string", "description": 'One of: "", "a".'}),
        ({"enum": [], "type": "string"}, TEXT),
        (
            {"enum": ["a", 1]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "description": "One of: 1."}]},
        ),
        ({"enum": ["1"], "type": "integer"}, {"type": "integer"}),
        # limits
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "minimum": 5, "exclusiveMinimum": 0}, {"type": "integer", "minimum": 5}),
        ({"type": "integer", "exclusiveMaximum": 2.5}, {"type": "integer", "maximum": 2}),
        ({"type": "integer", "maximum": 10, "exclusiveMaximum": True}, {"type": "integer", "maximum": 9}),
        (
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "Must be greater than 0. Must be less than 1.",
            },
        ),
        ({"type": "number", "minimum": float("nan"), "maximum": 10**400}, NUMBER),
        ({"type": "string", "minLength": -1, "maxLength": 2**70, "pattern": 5}, TEXT),
        ({"type": "string", "minLength": 2.0}, {"type": "string", "minLength": 2}),
        # formats
        ({"type": "string", "format": "uri"}, {"type": "string", "description": "Format: uri."}),
        ({"type": "integer", "format": "uint8"}, {"type": "integer"}),
        # objects and arrays
        ({"type": "object", "additionalProperties": False, "patternProperties": {"a": TEXT}}, {"type": "object"}),
        (
            {"type": "object", "additionalProperties": TEXT},
            {"type": "object", "description": "Any keys, with values of type string."},
        ),
        (
            {"type": "object", "properties": {"a": TEXT, "never": False}, "required": ["a", "b", "never"]},
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ),
        ({"type": "array"}, {"type": "array", "items": ANY_ITEM}),
        ({"type": "array", "items": {}}, {"type": "array", "items": ANY_ITEM}),
        ({"type": "array", "prefixItems": [TEXT, NUMBER]}, {"type": "array", "items": {"anyOf": [TEXT, NUMBER]}}),
        ({"type": "array", "items": [TEXT, TEXT]}, {"type": "array", "items": TEXT}),
        # no type
        ({"properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        ({"items": TEXT}, {"type": "array", "items": TEXT}),
        ({"minLength": 1}, {"type": "string", "minLength": 1}),
        ({"type": "nonsense"}, {"anyOf": [*ANY_ITEM["anyOf"][:-1], {"type": "array", "items": ANY_ITEM}]}),
    ],
)
def test_one_schema(schema: Any, expected: Any) -> None:
    assert reduced(schema) == expected


@pytest.mark.parametrize("schema", [{}, True])
def test_any_value_may_be_of_any_type(schema: Any) -> None:
    assert [choice["type"] for choice in reduced(schema)["anyOf"]] == ["string", "number", "boolean", "object", "array"]


def test_the_description_of_alternatives_is_with_the_first() -> None:
    schema = {"anyOf": [{"type": "string", "description": "A name."}, NUMBER], "description": "Who."}
    assert reduced(schema) == {"anyOf": [{"type": "string", "description": "Who. A name."}, NUMBER]}


def test_references_are_put_in_place() -> None:
    color = {"type": "string", "enum": ["red"], "description": "A color"}
    assert reduced({"$ref": "#/$defs/Color"}, **{"$defs": {"Color": color}}) == color
    assert reduced({"$ref": "#/$defs/a~1b%20c"}, **{"$defs": {"a/b c": color}}) == color
    beside = {"$ref": "#/$defs/Color", "description": "The border"}
    assert reduced(beside, **{"$defs": {"Color": color}}) == {**color, "description": "The border"}


def test_a_reference_to_nowhere_says_nothing() -> None:
    assert reduced({"$ref": "#/$defs/none", "type": "string"}) == TEXT
    assert reduced({"$ref": "https://example.com/schema.json", "type": "string"}) == TEXT


def test_what_contains_itself_is_cut_to_a_plain_object() -> None:
    tree = {
        "type": "object",
        "description": "A tree",
        "properties": {"name": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
        "required": ["name"],
    }
    assert reduced({"$ref": "#/$defs/Tree"}, **{"$defs": {"Tree": tree}}) == {
        "type": "object",
        "description": "A tree",
        "properties": {
            "name": TEXT,
            "children": {"type": "array", "items": {"type": "object", "description": "A tree"}},
        },
        "required": ["name"],
    }
    assert reduced({"$ref": "#", "description": "Again"}) == {"type": "object", "description": "Again"}


def test_the_top_is_folded() -> None:
    schema = {
        "oneOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": {"type": ["null", "number"]}}}]
    }
    assert check_parameters(schema) == {
        "type": "object",
        "properties": {"a": TEXT, "b": {"type": "number", "nullable": True}},
    }


def test_a_greedy_argument_leaves_room_for_the_others() -> None:
    level = {f"p{i}": {"$ref": "#/$defs/d"} for i in range(9)}
    definitions = {"d": {"anyOf": [{"type": "object", "properties": {**level, f"q{i}": TEXT}} for i in range(9)]}}
    schema = {"properties": {"greedy": {"$ref": "#/$defs/d"}, "a": TEXT, "b": NUMBER}, "$defs": definitions}
    parameters = check_parameters(schema)
    assert parameters["properties"].keys() == {"greedy", "a", "b"}
    assert (parameters["properties"]["a"], parameters["properties"]["b"]) == (TEXT, NUMBER)


def reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def many(schema: Any, **definitions: Any) -> dict[str, Any]:
    return {"properties": {f"p{i}": schema for i in range(500)}, "$defs": definitions}


def nested(levels: int) -> Any:
    return {"properties": {"a": nested(levels - 1)}, "items": nested(0)} if levels else {}


COSTLY = {
    "properties": {
        "properties": {"a": reference("d0")},
        "$defs": {f"d{i}": {"properties": {f"p{k}": reference(f"d{i + 1}") for k in range(8)}} for i in range(30)},
    },
    "allOf": {"$defs": {f"d{i}": {"allOf": [reference(f"d{i + 1}")] * 5} for i in range(30)}, **reference("d0")},
    "anyOf": {
        "properties": {"a": reference("d0")},
        "$defs": {f"d{i}": {"anyOf": [reference(f"d{i + 1}")] * 5 + [{"items": reference("d0")}]} for i in range(30)},
    },
    "folding": many(
        reference("d0"),
        **{
            f"d{i}": {
                "type": "object",
                "anyOf": [reference(f"d{(i + k) % 20}") for k in range(20)],
                "properties": {"a": {}},
            }
            for i in range(20)
        },
    ),
    "long enum": many(reference("d"), d={"enum": [f"word {i}" for i in range(5000)]}),
    "long description": many(reference("d"), d={"description": "x" * 50_000}),
    "long default": many(reference("d"), d={"default": "x" * 50_000, "title": "x" * 50_000, "pattern": "x" * 50_000}),
    "many properties": many(reference("d"), d={"properties": {f"q{i}": TEXT for i in range(2000)}}),
    "many alternatives": {"oneOf": [{"properties": {"k": {"const": i}, f"a{i}": TEXT}} for i in range(1500)]},
    "deep": nested(100),
}


@pytest.mark.long
@pytest.mark.parametrize("schema", COSTLY.values(), ids=COSTLY.keys())
def test_costly_schemas_end_soon_and_small(schema: Any) -> None:
    with calls(5_000_000):  # without limits, for ever
        parameters = check_parameters(schema)
    assert len(json.dumps(parameters)) < 700_000


VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text("ab", max_size=2)
REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/anyOf/0", "#/nowhere", "other.json"])
KINDS = st.sampled_from(["string", "number", "integer", "boolean", "object", "array", "null", "odd"])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    listed = st.lists(inner, max_size=3)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": KINDS | st.lists(KINDS, max_size=3),
        "properties": named,
        "required": st.lists(st.sampled_from("abc"), max_size=3),
        "items": inner | listed,
        "prefixItems": listed,
        "additionalProperties": inner,
        "anyOf": listed,
        "oneOf": listed,
        "allOf": listed,
        "not": inner,
        "if": inner,
        "then": inner,
        "$ref": REFERENCES,
        "$defs": named,
        "enum": st.lists(VALUES, max_size=4),
        "const": VALUES,
        "default": VALUES | listed,
        "nullable": st.booleans(),
        "title": st.text(max_size=3),
        "description": st.text(max_size=3),
        "format": st.sampled_from(["date-time", "uri", "int32", "enum"]),
        **dict.fromkeys(
            ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxItems"), VALUES
        ),
    }
    sensible = st.fixed_dictionaries({}, optional=keywords)
    wrong = st.dictionaries(st.sampled_from(list(keywords)), VALUES | listed, max_size=3)
    return sensible | wrong


ANY_SCHEMA = st.recursive(st.booleans() | st.just({}) | VALUES, schemas, max_leaves=12)


@given(ANY_SCHEMA)
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_schema_becomes_a_valid_one(schema: Any) -> None:
    check_parameters(schema)
