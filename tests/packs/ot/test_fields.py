"""What the objects of a schema are made of, in a line."""

from time import perf_counter

import pytest

from onetool.packs.ot.fields import LONGEST, fields

POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "name": {"type": "string"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (POINT, "{x: int, name?: str}"),
        ({"type": "array", "items": POINT}, "list[{x: int, name?: str}]"),
        ({"anyOf": [{"type": "null"}, POINT]}, "{x: int, name?: str}"),
        (
            {"oneOf": [{"type": "array", "items": {"$ref": "#/$defs/P"}}, {"type": "null"}]},
            "list[{x: int, name?: str}]",
        ),
        ({"$ref": "#/$defs/P"}, "{x: int, name?: str}"),
        ({"properties": {"at": {"$ref": "#/definitions/P"}}}, "{at?: dict}"),
        ({"type": "string"}, ""),
        ({"type": "object"}, ""),
        ({"type": "object", "properties": {}}, ""),
        ({"type": "array", "items": {"type": "string"}}, ""),
        ({"type": "array", "items": True}, ""),
        (True, ""),
        (None, ""),
        ({"$ref": "#/$defs/none"}, ""),
        ({"$ref": "https://example.com/P"}, ""),
        ({"$ref": "#/$defs/Loop"}, ""),
        ({"$ref": "#/$defs/Rows"}, ""),
    ],
)
def test_what_is_told(schema, told):
    root = {
        "$defs": {
            "P": POINT,
            "Loop": {"$ref": "#/$defs/Loop"},
            "Rows": {"type": "array", "items": {"$ref": "#/$defs/Rows"}},
        },
        "definitions": {"P": POINT},
    }
    assert fields(schema, root) == told


def test_many_fields_are_cut():
    schema = {"type": "object", "properties": {f"field_{number}": {"type": "string"} for number in range(1000)}}
    assert len(fields(schema, schema)) == LONGEST


def test_a_schema_that_multiplies_takes_no_time():
    root = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 100}}}
    start = perf_counter()
    assert fields({"$ref": "#/$defs/A"}, root) == ""
    assert perf_counter() - start < 1
