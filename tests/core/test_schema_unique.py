"""`uniqueItems` means what it always did, wherever it stands, and takes linear time."""

import jsonschema_rs
import pytest
from helpers import calls, each
from hypothesis import given
from hypothesis import strategies as st

from onetool.core.errors import SchemaError
from onetool.core.schema import CompiledSchema

UNIQUE = {"type": "array", "uniqueItems": True}
ALIKE = st.sampled_from(
    [0, 0.0, -0.0, 1, 1.0, 1.5, True, False, None, "", "1", "true", 2**64, 2.0**64, 10**30, 1e30, -1e22, 2.0**60, 2**60]
)
ITEMS = st.recursive(
    ALIKE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(ITEMS, max_size=4))
def test_items_are_equal_as_json_schema_has_it(items):
    told = jsonschema_rs.Draft202012Validator(UNIQUE).is_valid(items)
    assert (CompiledSchema(UNIQUE).check(items) == []) is told


@each(
    ("schema", "good", "bad"),
    [
        ({"not": UNIQUE}, [1, 1], [1, 2]),
        ({"anyOf": [UNIQUE, {"maxItems": 2}]}, [1, 1], [1, 1, 1]),
        ({"oneOf": [UNIQUE, {"maxItems": 2}]}, [1, 1], [1, 2]),
        ({"if": UNIQUE, "then": {"maxItems": 1}}, [1, 1], [1, 2]),
        ({"$ref": "#/$defs/u", "$defs": {"u": UNIQUE}}, [1, 2], [1, 1]),
        ({"items": UNIQUE}, [[1], [1]], [[1, 1]]),
        ({"prefixItems": [UNIQUE]}, [[1], [1, 1]], [[1, 1]]),
        ({"contains": UNIQUE}, [[1, 1], [1]], [[1, 1]]),
        ({"uniqueItems": False}, [1, 1], None),
        ({"const": {"uniqueItems": True}}, {"uniqueItems": True}, [1, 1]),
        ({"properties": {"uniqueItems": {"type": "array"}}}, {"uniqueItems": [1, 1]}, {"uniqueItems": 1}),
        (UNIQUE, [{"a": 1, "b": 2}, {"a": 2, "b": 1}], [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]),
        (UNIQUE, ["a", "1:b"], ["a", "a"]),
    ],
)
def test_wherever_it_stands(schema, good, bad):
    assert CompiledSchema(schema).check(good) == []
    assert bad is None or CompiledSchema(schema).check(bad)


def test_what_is_no_truth_value_is_refused():
    with pytest.raises(SchemaError):
        CompiledSchema({"uniqueItems": "yes"})


def nested(depth, value):
    return value if not depth else [[0, 1], [0, nested(depth - 1, value)]]


RECURSIVE = {"uniqueItems": True, "items": {"$ref": "#"}}
# Made where it is used: every worker of pytest reads this file.
HOSTILE = {
    "long numbers": lambda: (UNIQUE, [10**99 + n for n in range(8_000)]),
    "numbers that collide": lambda: (UNIQUE, [(2**61 - 1) * n for n in range(150_000)]),
    "lists of such": lambda: (UNIQUE, [[(2**61 - 1) * n] for n in range(100_000)]),
    "again on each level": lambda: (RECURSIVE, nested(400, [*range(100_000)])),
    "fractions of tiny ones": lambda: ({"items": {"multipleOf": 1e-300}}, [n + 0.5 for n in range(400_000)]),
    "many numbers to be": lambda: (
        {"items": {"anyOf": [*({"const": n} for n in range(20)), {}]}},
        [n + 0.5 for n in range(400_000)],
    ),
    "long ones among others": lambda: (
        {"items": {"not": {"enum": [*range(100)]}}},
        [10**999 + n for n in range(4_000)],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_numbers_that_somebody_chose_do_not_hold_us_up(name):
    schema, value = HOSTILE[name]()
    compiled = CompiledSchema(schema)
    with calls(2_000_000):
        compiled.check(value)


@pytest.mark.long
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"type": "integer", "minimum": 0, "maximum": 10**6}}, lambda: [*range(450_000)]),
        ({"items": {"minimum": 0.5}}, lambda: [n + 0.5 for n in range(100_000)]),
        ({"items": {"enum": [1, 2, 3, 4, 5]}}, lambda: [1, 2, 3, 4] * 20_000),
        (UNIQUE, lambda: [str(n) for n in range(450_000)]),
    ],
)
def test_what_is_large_and_honest_is_taken(schema, value):
    assert CompiledSchema(schema).check(value()) == []


def test_honest_values_are_not_refused_for_numbers_that_they_do_not_have():
    """A column of months beside many texts: no text is ever compared with a number."""
    months = {"enum": list(range(1, 13))}
    rows = {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
    schema = CompiledSchema({"type": "object", "properties": {"month": months, "rows": rows}})
    assert schema.check({"month": 3, "rows": [["text"] * 5] * 20_000}) == []


def test_many_different_kinds_are_not_compared():
    schema = CompiledSchema({"type": "array", "uniqueItems": True})
    assert schema.check([str(number) for number in range(200_000)]) == []
    assert schema.check(list(range(200_000))) == []
    assert schema.check([number / 7 for number in range(40_000)]) == []
    assert schema.check([number / 7 for number in range(60_000)]) != []
    assert schema.check([[number] * 10 for number in range(6_000)]) != []
