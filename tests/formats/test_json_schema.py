"""Parameters for OpenAI, Ollama and Anthropic: a plain object at the top, and nothing that they refuse below."""

import json
from typing import Any

import pytest
from helpers import each

from onetool.formats.json_schema import plain_parameters, thaw

REFUSED_AT_THE_TOP = {"anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref"}

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def members(schema: Any) -> tuple[dict[str, Any], list[str]]:
    plain = plain_parameters(schema)
    assert plain["type"] == "object"
    assert not REFUSED_AT_THE_TOP & plain.keys()
    return plain["properties"], plain.get("required", [])


def test_a_plain_schema_stays() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [TEXT, NUMBER]}}, "additionalProperties": False}
    assert plain_parameters(schema) == schema


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_alternatives_are_united_and_require_what_all_require(word: str) -> None:
    schema = {
        "type": "object",
        word: [
            {"properties": {"a": TEXT, "b": TEXT}, "required": ["a", "b"]},
            {"properties": {"a": TEXT, "c": NUMBER}, "required": ["a", "c"]},
        ],
    }
    assert members(schema) == ({"a": TEXT, "b": TEXT, "c": NUMBER}, ["a"])


def test_all_of_requires_everything() -> None:
    schema = {
        "properties": {"a": TEXT},
        "required": ["a"],
        "allOf": [{"properties": {"b": TEXT}, "required": ["b"]}, {"properties": {"c": NUMBER}}],
    }
    assert members(schema) == ({"a": TEXT, "b": TEXT, "c": NUMBER}, ["a", "b"])


def test_alternatives_that_only_require() -> None:
    schema = {"properties": {"a": TEXT, "b": TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert members(schema) == ({"a": TEXT, "b": TEXT}, [])


def test_references_at_the_top_are_followed_and_others_stay() -> None:
    point = {"type": "object", "description": "A point", "properties": {"next": {"$ref": "#/$defs/Point"}, "x": NUMBER}}
    schema = {"$ref": "#/$defs/Point", "$defs": {"Point": point}}
    plain = plain_parameters(schema)
    assert plain == {**point, "$defs": {"Point": point}}


def test_a_property_of_several_alternatives() -> None:
    schema = {"oneOf": [{"properties": {"a": TEXT}}, {"properties": {"a": NUMBER}}, {"properties": {"a": TEXT}}]}
    assert members(schema)[0] == {"a": {"anyOf": [TEXT, NUMBER]}}


def test_the_word_that_tells_alternatives_apart_becomes_an_enum() -> None:
    schema = {"oneOf": [{"properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in ("dog", "cat")]}
    assert members(schema) == ({"kind": {"type": "string", "enum": ["dog", "cat"]}}, ["kind"])


def test_alternatives_that_are_no_objects_do_not_count() -> None:
    schema = {"anyOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"type": "null"}, False, {"not": {}}]}
    assert members(schema) == ({"a": TEXT}, ["a"])


def test_a_property_told_twice_is_told_by_the_first_that_says_something() -> None:
    schema = {"properties": {"a": True, "b": TEXT}, "allOf": [{"properties": {"a": NUMBER, "b": NUMBER}}]}
    assert members(schema)[0] == {"a": NUMBER, "b": TEXT}


def test_conditional_properties_are_shown_and_not_required() -> None:
    schema = {"if": {"required": ["a"]}, "then": {"properties": {"b": TEXT}, "required": ["b"]}}
    assert members(schema) == ({"b": TEXT}, [])


@each(
    ("array", "mended"),
    [
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": ["array", "null"]}, {"type": ["array", "null"], "items": {}}),
        ({"type": "array", "items": True}, {"type": "array", "items": {}}),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": TEXT}),
        ({"type": "array", "items": [TEXT]}, {"type": "array", "items": {}, "prefixItems": [TEXT]}),
        (
            {"type": "array", "items": [TEXT, {"type": "array"}], "additionalItems": NUMBER},
            {"type": "array", "items": NUMBER, "prefixItems": [TEXT, {"type": "array", "items": {}}]},
        ),
    ],
)
def test_arrays_have_items(array: Any, mended: Any) -> None:
    below = {"a": {"properties": {"b": {"anyOf": [array]}}}}
    assert members({"properties": below})[0] == {"a": {"properties": {"b": {"anyOf": [mended]}}}}
    assert plain_parameters({"$defs": {"x": array}})["$defs"]["x"] == mended


def test_values_are_not_taken_for_schemas() -> None:
    schema = {"default": {"type": "array"}, "enum": [{"type": "array"}], "examples": [{"type": "array"}]}
    assert members({"properties": {"a": schema, "items": TEXT, "$ref": TEXT}})[0] == {
        "a": schema,
        "items": TEXT,
        "$ref": TEXT,
    }


def test_properties_are_objects() -> None:
    assert members({"properties": {"a": True, "b": False}})[0] == {"a": {}, "b": {"not": {}}}


def test_a_reference_that_leads_nowhere_is_dropped() -> None:
    into_what_is_folded = {"$ref": "#/anyOf/0/properties/a", "description": "Like a"}
    schema = {"anyOf": [{"properties": {"a": TEXT, "b": into_what_is_folded, "c": {"$ref": "other.json"}}}]}
    assert members(schema)[0] == {"a": TEXT, "b": {"description": "Like a"}, "c": {}}


@each(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#/anyOf/0"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"oneOf": [{"$ref": "#/$defs/a"}]}}},
        {
            "$ref": "#/anyOf/99999999999999999999",
            "anyOf": [1, None, "x"],
            "allOf": 3,
            "properties": [],
            "required": "a",
        },
    ],
)
def test_schemas_that_contain_themselves_or_make_no_sense(schema: Any) -> None:
    assert members(schema) == ({}, [])


def test_doubling_references_end_soon() -> None:
    levels = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2, "allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2,
                        "properties": {f"p{i}": TEXT}} for i in range(40)}  # fmt: skip
    schema = {"$ref": "#/$defs/d0", "$defs": levels}
    assert set(members(schema)[0]) >= {f"p{i}" for i in range(16)}
    assert len(json.dumps(plain_parameters(schema))) < 2 * len(json.dumps(schema))


def test_deep_schemas_are_copied() -> None:
    deep: Any = {"type": "array"}
    for _ in range(5000):
        deep = {"properties": {"a": deep}}
    plain = plain_parameters(deep)
    for _ in range(5000):
        plain = plain["properties"]["a"]
    assert plain == {"type": "array", "items": {}}


def test_thaw_copies() -> None:
    value = {"a": [1, {"b": (2, 3)}]}
    assert thaw(value) == {"a": [1, {"b": [2, 3]}]}
    assert thaw(value)["a"] is not value["a"]
    assert thaw("text") == "text"
