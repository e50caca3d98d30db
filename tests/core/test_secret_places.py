"""Marked values are found through whatever leads to their schema."""

import pytest
from helpers import each

from onetool.core.redaction import SecretPlaces

MARK = {"type": "string", "writeOnly": True}
PASSWORD = {"type": "string", "format": "password"}


@each(
    ("schema", "args", "pointer"),
    [
        ({"properties": {"key": MARK}}, {"key": "x"}, "/key"),
        ({"properties": {"a/b": PASSWORD}}, {"a/b": "x"}, "/a~1b"),
        ({"properties": {"a": {"properties": {"b": MARK}}}}, {"a": {"b": "x"}}, "/a/b"),
        ({"properties": {"a": {"$ref": "#/$defs/m"}}, "$defs": {"m": MARK}}, {"a": "x"}, "/a"),
        ({"properties": {"a": {"$ref": "#/properties/b"}, "b": MARK}}, {"a": "x"}, "/a"),
        ({"properties": {"a": {"$ref": "#m"}}, "$defs": {"m": {**MARK, "$anchor": "m"}}}, {"a": "x"}, "/a"),
        ({"properties": {"a": {"$dynamicRef": "#m"}}, "$defs": {"m": {**MARK, "$dynamicAnchor": "m"}}}, {"a": 1}, "/a"),
        ({"properties": {"a": {"$ref": "urn:m"}}, "$defs": {"m": {**MARK, "$id": "urn:m"}}}, {"a": "x"}, "/a"),
        ({"properties": {"a": {"prefixItems": [{}, MARK]}}}, {"a": ["x", "y"]}, "/a/1"),
        ({"properties": {"a": {"items": PASSWORD}}}, {"a": ["x"]}, "/a/0"),
        ({"properties": {"a": {"contains": MARK}}}, {"a": ["x"]}, "/a/0"),
        ({"dependentSchemas": {"a": {"properties": {"b": MARK}}}}, {"a": 1, "b": "x"}, "/b"),
        ({"allOf": [{"anyOf": [{"oneOf": [{"properties": {"a": MARK}}]}]}]}, {"a": "x"}, "/a"),
        ({"if": {}, "then": {"properties": {"a": MARK}}}, {"a": "x"}, "/a"),
        ({"patternProperties": {"^k": MARK}}, {"key": "x"}, "/key"),
        ({"additionalProperties": MARK}, {"a": "x"}, "/a"),
        ({"unevaluatedProperties": PASSWORD}, {"a": "x"}, "/a"),
        ({"properties": {"a": {"$ref": "#"}, "b": MARK}}, {"a": {"a": {"b": "x"}}}, "/a/a/b"),
        ({"properties": {"key": MARK, "other": {}}}, {"other": "x"}, None),
        ({"properties": {"key": MARK}}, {"key": ""}, None),
        ({"properties": {"a": {"type": "string"}}}, {"a": "writeOnly"}, None),
        ({"$ref": "#"}, {"a": 1}, None),
        ({"properties": {"a": {"$ref": "#/nowhere/0"}}}, {"a": 1}, None),
    ],
)
def test_places(schema, args, pointer):
    assert SecretPlaces(schema).first(args) == pointer


@pytest.mark.long
def test_a_search_that_would_take_too_long_counts_as_found():
    schema = {"additionalProperties": {"allOf": [{"items": {"allOf": [{} for _ in range(200)]}} for _ in range(20)]}}
    assert SecretPlaces(schema).first({"a": [1] * 1000}) == ""
