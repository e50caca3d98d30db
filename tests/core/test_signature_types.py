"""A schema as a type hint, and what its objects are made of, in a line."""

from helpers import calls, each

from onetool.core.type_names import MAX_TYPE_TEXT, is_vague, type_name, type_with_fields, types_of

POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "name": {"type": "string"}}, "required": ["x"]}


@each(
    ("schema", "told"),
    [
        (POINT, "{x: int, name?: str}"),
        ({"type": "array", "items": POINT}, "list[{x: int, name?: str}]"),
        ({"anyOf": [{"type": "null"}, POINT]}, "None | {x: int, name?: str}"),
        ({**POINT, "type": ["object", "null"]}, "{x: int, name?: str} | None"),
        ({"allOf": [POINT]}, "{x: int, name?: str}"),
        (
            {"oneOf": [{"type": "array", "items": {"$ref": "#/$defs/P"}}, {"type": "null"}]},
            "list[{x: int, name?: str}] | None",
        ),
        ({"$ref": "#/$defs/P"}, "{x: int, name?: str}"),
        ({"properties": {"at": {"$ref": "#/definitions/P"}}}, "{at?: {x: int, name?: str}}"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "dict[str, float]"),
        ({"type": "object", "additionalProperties": POINT}, "dict[str, {x: int, name?: str}]"),
        ({"type": "object", "additionalProperties": True}, ""),
        ({"properties": {"tree": {"$ref": "#/$defs/Tree"}}}, "{tree?: {of?: {of?: dict}}}"),
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
            "Tree": {"type": "object", "properties": {"of": {"$ref": "#/$defs/Tree"}}},
            "Loop": {"$ref": "#/$defs/Loop"},
            "Rows": {"type": "array", "items": {"$ref": "#/$defs/Rows"}},
        },
        "definitions": {"P": POINT},
    }
    assert type_with_fields(schema, root) == told


@each(
    ("schema", "told"),
    [
        (POINT, "dict"),
        ({"$ref": "#/$defs/Mode"}, "Literal['a', 'b']"),
        ({"$ref": "#/definitions/Old"}, "Literal['a', 'b']"),
        ({"anyOf": [{"$ref": "#/$defs/Mode"}, {"type": "null"}]}, "Literal['a', 'b'] | None"),
        ({"allOf": [{"$ref": "#/$defs/Mode"}]}, "Literal['a', 'b']"),
        ({"type": "array", "items": {"$ref": "#/$defs/Mode"}}, "list[Literal['a', 'b']]"),
        ({"$ref": "#/$defs/none"}, "dict"),
        ({"const": 5}, "Literal[5]"),
        ({"anyOf": [{"const": "a", "type": "string"}, {"const": "b"}, {"type": "null"}]}, "Literal['a', 'b'] | None"),
        ({"oneOf": [{"const": letter} for letter in "abcdefghi"]}, "str"),
        ({"enum": [*range(9)]}, "int"),
        ({"enum": [*"abcdefghi", None]}, "str | None"),
        ({"enum": ["x" * 300]}, "str"),
        ({"type": "object", "additionalProperties": POINT}, "dict"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": "array", "items": True}, "list[Any]"),
        ({"type": "strange"}, "Any"),
        ({}, "Any"),
        (True, "Any"),
    ],
)
def test_type_hints(schema, told):
    root = {"$defs": {"Mode": {"enum": ["a", "b"]}}, "definitions": {"Old": {"$ref": "#/$defs/Mode"}}}
    assert type_name(schema, root) == told


def test_where_room_is_short_the_outer_fields_are_told_first():
    inner = {"type": "object", "properties": {f"inner_{number}": {"type": "string"} for number in range(50)}}
    schema = {"type": "object", "properties": {"first": inner, "last": {"type": "string"}}}
    assert type_with_fields(schema, schema) == "{first?: dict, last?: str}"


def test_many_fields_are_cut():
    schema = {"type": "object", "properties": {f"field_{number}": {"type": "string"} for number in range(1000)}}
    assert len(type_with_fields(schema, schema)) == MAX_TYPE_TEXT


def test_a_schema_that_multiplies_takes_no_time():
    wide = {"type": "object", "properties": {f"p{number}": {"$ref": "#/$defs/B"} for number in range(300)}}
    root = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 100}, "B": wide}}
    with calls(1_000_000):
        assert type_with_fields({"$ref": "#/$defs/A"}, root) == ""
        assert type_name({"$ref": "#/$defs/A"}, root) == "Any"
        assert len(type_with_fields({"$ref": "#/$defs/B"}, root)) == MAX_TYPE_TEXT


def test_a_definition_with_many_references_to_itself_takes_no_time():
    arms = [{"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": number} for number in range(1000)]
    nested = {"type": "object", "additionalProperties": {"$ref": "#/$defs/a"}, "$defs": {"a": {"anyOf": arms}}}
    arms = [{"$ref": "#/$defs/a", "title": str(number)} for number in range(1000)]
    direct = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [*arms, {"type": "string"}]}}}
    with calls(100_000):
        assert is_vague(nested, nested)
        assert types_of(direct, direct) == set(), "only the first parts are looked at"
