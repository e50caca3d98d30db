"""What is told of a tool's last value: a schema that it fits, within bounds whatever comes, and never a value."""

import json

import pytest
from helpers import each, examples
from hypothesis import given, settings
from hypothesis import strategies as st

from onetool.core.inferred_schema import MAX_CALLERS, MAX_FIELDS, LastResults, is_name, joined, schema_of
from onetool.core.principal import Principal, current_principal
from onetool.core.schema import CompiledSchema

ISSUE = {"id": 7, "title": "It broke", "labels": [{"name": "bug"}], "by": {"login": {"name": "x"}}, "closed_at": None}


def test_an_object_is_told_by_its_fields_two_levels_deep():
    assert schema_of(ISSUE) == {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "title": {"type": "string"},
            "labels": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            },
            "by": {"type": "object", "properties": {"login": {"type": "object"}}, "required": ["login"]},
            "closed_at": {"type": "null"},
        },
        "required": [*ISSUE],
    }


@each(
    ("value", "schema"),
    [
        ([], {"type": "array"}),
        ([1, 2.5], {"type": "array", "items": {"type": "number"}}),
        ([1, None], {"type": "array", "items": {"type": ["integer", "null"]}}),
        (
            [{"id": 1}, {"id": 2, "tag": "x"}],
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"id": {"type": "integer"}, "tag": {"type": "string"}},
                    "required": ["id"],
                },
            },
        ),
        (
            [{"a": 1}, {"b": 2}],
            {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}},
        ),
        ({"ann@example.com": 2}, {"type": "object", "additionalProperties": {"type": "integer"}}),
        ({"550e8400e29b": 1, "n": 2}, {"type": "object", "additionalProperties": {"type": "integer"}}),
        (
            {f"a{chr(97 + n)}": n for n in range(MAX_FIELDS + 1)},
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        (object(), {}),
    ],
)
def test_values(value, schema):
    assert schema_of(value) == schema


def test_what_is_joined_covers_all():
    assert joined([]) == {}
    assert joined([{"type": "integer"}, {"type": "string"}, {}]) == {"type": ["integer", "string"]}


@each("key", ["id", "created_at", "@type", "$ref", "total-count", "größe", "x1"])
def test_names(key):
    assert is_name(key)


@each("key", ["", "a b", "1", "a.b", "ann@example.com", "2026-11-19", "usr_12345", "deadbeefcafe", "x" * 65, "a\nb"])
def test_what_is_data(key):
    assert not is_name(key)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-1, 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | st.just("id"), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=examples(300))
@given(JSON)
def test_a_value_fits_its_schema(value):
    assert CompiledSchema(schema_of(value)).check(value) == []


def test_huge_values_are_looked_at_in_part():
    value = 1
    for _ in range(6):
        value = [{f"k{chr(97 + n)}": value for n in range(MAX_FIELDS)}] * 20
    assert len(json.dumps(schema_of(value))) < 50_000


# Whose results they are


def shown_to(results, name):
    token = current_principal.set(Principal(owner=name))
    try:
        return results.schema()
    finally:
        current_principal.reset(token)


@pytest.mark.attack("other callers")
def test_a_caller_sees_only_its_own_results():
    results, ann = LastResults(), Principal(owner="ann").lasting_owner
    results.note(ann, {"secret_project": 1})
    assert "secret_project" in shown_to(results, "ann")["properties"]
    assert shown_to(results, "bob") is None


def test_the_first_callers_are_forgotten():
    results = LastResults()
    for number in range(MAX_CALLERS + 5):
        results.note(Principal(owner=f"c{number}").lasting_owner, {"a": number})
    assert shown_to(results, "c0") is None
    assert shown_to(results, f"c{MAX_CALLERS + 4}") is not None


def test_not_every_result_is_looked_at():
    results = LastResults()
    assert results.learns_from("ann")
    results.note("ann", 1)
    assert not results.learns_from("ann")
    assert results.learns_from("bob")
