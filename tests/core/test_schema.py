"""Schemas: compiled once, closed unless they say open, in words that help, and never a way to hurt us."""

import threading
from contextlib import suppress
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from helpers import calls, each
from hypothesis import given
from hypothesis import strategies as st

from onetool.core.errors import SchemaError
from onetool.core.schema import CompiledSchema

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
        "colour": {"enum": ["red", "green"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "home": {
            "anyOf": [
                {"type": "null"},
                {"type": "object", "properties": {"zip": {"type": "integer"}}, "required": ["zip"]},
            ]
        },
        "password": {"type": "string", "minLength": 20},
    },
    "required": ["name"],
}


def told(schema, value, closed=True):
    return [str(problem) for problem in CompiledSchema(schema, closed=closed).check(value)]


def test_every_wrong_argument_is_told_with_path_expectation_and_what_came():
    value = {"age": -1, "colour": "blue", "tags": ["a", 5], "home": {"zip": "x"}, "nme": "Ann"}
    assert sorted(told(PERSON, value)) == sorted(
        [
            "name: expected a value (required), got nothing",
            "age: expected at least 0, got the number -1",
            "colour: expected one of 'red', 'green', got the string 'blue'",
            "tags[1]: expected a string, got the number 5",
            "home.zip: expected a whole number, got the string 'x'",
            "nme: unknown argument (did you mean name?)",
        ]
    )


def test_pointers_are_there_for_programs():
    (problem,) = CompiledSchema(PERSON).check({"name": "Ann", "tags": ["a", 5]})
    assert (problem.path, problem.pointer) == ("tags[1]", "/tags/1")


@each(
    ("schema", "value", "words"),
    [
        ({"type": ["string", "null"]}, 5, "the number 5"),
        ({"const": "x"}, "y", "expected 'x'"),
        ({"type": "integer", "exclusiveMinimum": 3}, 3, "more than 3"),
        ({"type": "integer", "exclusiveMaximum": 3}, 3, "less than 3"),
        ({"type": "integer", "maximum": 3}, 4, "at most 3"),
        ({"type": "integer", "multipleOf": 3}, 4, "a multiple of 3"),
        ({"type": "string", "maxLength": 1}, "ab", "at most 1 characters"),
        ({"type": "string", "pattern": "^a$"}, "b", "text that matches ^a$"),
        ({"type": "array", "minItems": 1}, [], "at least 1 items"),
        ({"type": "array", "maxItems": 1}, [1, 2], "at most 1 items"),
        ({"type": "array", "uniqueItems": True}, [1, 1], "items that differ"),
        ({"type": "array", "contains": {"type": "string"}}, [1], "at least one matching item"),
        ({"type": "object", "minProperties": 1}, {}, "at least 1 properties"),
        ({"type": "object", "maxProperties": 0}, {"a": 1}, "at most 0 properties"),
        ({"not": {"type": "string"}}, "x", "anything but"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1.5, "a string or a whole number"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, 5, "exactly one"),
        ({"type": "object", "propertyNames": {"maxLength": 1}}, {"ab": 1}, "property names"),
        (False, 1, "no value"),
        ({"enum": list(range(50))}, 99, "and 38 more"),
        ({"type": "integer"}, "x" * 500, "…"),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, {"a": 1}, "b: expected a value (required)"),
    ],
)
def test_what_is_wrong_in_words(schema, value, words):
    outer = {"type": "object", "properties": {"x": schema}}
    (problem,) = told(outer, {"x": value})
    assert problem.startswith("x")
    assert words in problem
    assert len(problem) < 200


def test_a_secret_is_masked_in_the_complaint_about_it():
    (problem,) = told(PERSON, {"name": "Ann", "password": "hunter2"})
    assert problem == "password: expected at least 20 characters, got ***"


@each("name", ["password", "api_key", "apiKey", "API-KEY", "accessToken", "client_secret", "authorization"])
def test_names_that_are_secret_by_themselves(name):
    from onetool.core.redaction import secret_names

    assert secret_names({"properties": {name: {}, "max_tokens": {}, "tokenizer": {}, "keyboard": {}}}) == {name}


def test_the_schema_can_say_that_an_argument_is_secret():
    from onetool.core.redaction import secret_names

    assert secret_names({"properties": {"a": {"writeOnly": True}, "b": {"format": "password"}, "c": {}}}) == {"a", "b"}


# Closed to unknown arguments unless the schema says otherwise


@pytest.mark.parametrize("extra", [{"additionalProperties": True}, {"additionalProperties": {"type": "integer"}}])
def test_a_schema_that_says_open_is_open(extra):
    assert told({"type": "object", "properties": {}, **extra}, {"any": 1}) == []


@pytest.mark.parametrize(
    "borrowed",
    [
        {"$ref": "#/$defs/base"},
        {"allOf": [{"$ref": "#/$defs/base"}]},
        {"anyOf": [{"$ref": "#/$defs/base"}, {"type": "object", "properties": {"c": {}}}]},
    ],
    ids=str,
)
def test_borrowed_properties_are_known_and_others_are_not(borrowed):
    schema = {"type": "object", "$defs": {"base": {"properties": {"a": {}}}}, "properties": {"b": {}}, **borrowed}
    assert told(schema, {"a": 1, "b": 2}) == []
    assert "unknown argument" in told(schema, {"a": 1, "zzz": 2})[0]


def test_without_properties_nothing_is_taken():
    assert told({"type": "object"}, {"a": 1}) == ["a: unknown argument (it takes no arguments)"]


def test_inner_objects_stay_as_json_schema_says():
    assert told({"type": "object", "properties": {"o": {"type": "object"}}}, {"o": {"any": 1}}) == []


# Older spellings


@pytest.mark.parametrize(
    ("schema", "bad"),
    [
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, 0),
        ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}, ["a", "b"]),
        ({"type": "array", "items": [{"type": "string"}], "additionalItems": False}, ["a", "b"]),
    ],
    ids=str,
)
def test_keywords_of_older_drafts_keep_their_meaning(schema, bad):
    assert told({"type": "object", "properties": {"x": schema}}, {"x": bad})


def test_all_real_schemas_compile(live_tools):
    for tool in live_tools:
        CompiledSchema(tool["inputSchema"], closed=True)
    assert len(live_tools) == 527


# Hostile schemas


def _doubling(levels):
    refs = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(levels)}
    return {
        "type": "object",
        "$defs": refs | {f"a{levels}": {"type": "string"}},
        "properties": {"x": {"$ref": "#/$defs/a0"}},
    }


def _nested(levels, word="anyOf"):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {word: [schema, schema]}
    return {"type": "object", "properties": {"x": schema}}


def _deep(levels):
    schema = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def _shared(levels):
    schema = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema, "b": schema}}
    return schema


HOSTILE = {  # what is large is made where it is used: every worker of pytest reads this file
    "doubling references": _doubling(30),
    "long chain of references": lambda: _doubling(3_000),
    "nested anyOf": lambda: _nested(18),
    "nested oneOf": lambda: _nested(18, "oneOf"),
    "nested allOf": lambda: _nested(18, "allOf"),
    "points to itself": {"$ref": "#"},
    "alternatives that point to itself": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "two that point to each other": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    },
    "deep": lambda: _deep(5_000),
    "bottomless": lambda: _deep(200_000),
    "huge": lambda: {"enum": ["x" * 100] * 10_000},
    "wide": lambda: {"properties": {f"p{n}": {"anyOf": [{}, {}]} for n in range(20_000)}},
    "huge pattern": {"properties": {"x": {"pattern": "((a{1000}){1000}){1000}"}}},
    "many patterns": lambda: {"properties": {f"p{n}": {"pattern": rf"(\pL{{4}}|x){n}"} for n in range(5_000)}},
    "older spelling of a list": {
        **_doubling(28),
        "properties": {"a": {"type": "array", "items": [{"$ref": "#/$defs/a0"}]}},
    },
    "older spelling of dependencies": {
        **_doubling(28),
        "properties": {},
        "dependencies": {"a": {"$ref": "#/$defs/a0"}},
    },
    "shared parts": lambda: {"properties": {"x": _shared(40)}},
    "many numbers to compare with": lambda: {"properties": {"x": {"items": {"enum": [n / 7 for n in range(20_000)]}}}},
    "not an index": {"allOf": [{}], "$ref": "#/allOf/²"},
    "points to nothing": {"properties": {"x": {"$ref": "#/$defs/none"}}},
    "anchor to nothing": {"properties": {"x": {"$ref": "#none"}}},
    "a file": {"properties": {"x": {"$ref": "file:///etc/passwd"}}},
    "another file": {"$ref": "other.json"},
    "inner $id": {"properties": {"x": {"$id": "http://127.0.0.1/x", "$ref": "#/y"}}},
    "not JSON": {"enum": [object()]},
}


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused_with_little_work(name):
    hostile = HOSTILE[name]
    schema = {"type": "object", **(hostile() if callable(hostile) else hostile)}
    with calls(4_000_000), pytest.raises(SchemaError):
        CompiledSchema(schema)


@pytest.mark.long
def test_a_large_web_of_definitions_is_judged_quickly():
    names = [f"d{n}" for n in range(60)]
    one = {"type": "object", "properties": {other: {"$ref": f"#/$defs/{other}"} for other in names[:30]}}
    with calls(5_000_000):
        CompiledSchema(
            {
                "type": "object",
                "$defs": {name: deepcopy(one) for name in names},
                "properties": {"x": {"$ref": "#/$defs/d0"}},
            }
        )


def test_no_reference_is_fetched_from_a_network():
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/schema.json"
        for schema in ({"$ref": url}, {"$schema": url}, {"$id": url, "$ref": "#/$defs/a", "$defs": {"a": {}}}):
            with suppress(SchemaError):
                CompiledSchema({"type": "object", **schema}).check({})
    finally:
        server.shutdown()
        server.server_close()
    assert asked == []


def test_a_reference_in_data_is_data():
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}}, "default": {"$ref": "http://example.com"}}
    assert told(schema, {"$ref": "http://example.com"}) == []


RECURSIVE = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/node"}},
    "$defs": {
        "node": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": "a"}, "next": {"$ref": "#/$defs/node"}},
                    "required": ["kind"],
                },
                {
                    "type": "object",
                    "properties": {"kind": {"const": "b"}, "next": {"$ref": "#/$defs/node"}},
                    "required": ["kind"],
                },
            ]
        }
    },
}


def _chain(length, last):
    value = {"kind": last}
    for _ in range(length):
        value = {"kind": "a", "next": value}
    return {"tree": value}


def test_a_recursive_schema_takes_deep_values_and_refuses_wrong_ones_quickly():
    compiled = CompiledSchema(RECURSIVE, closed=True)
    with calls(10_000):
        assert compiled.check(_chain(60, "b")) == []
        assert compiled.check(_chain(3, "c"))
        assert "too deep" in compiled.check(_chain(60, "c"))[0].got


def test_a_large_wrong_value_is_refused_quickly():
    schema = {"type": "object", "properties": {"x": {"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}
    with calls(20_000):
        problems = CompiledSchema(schema).check({"x": list(range(500_000))})
        assert (len(problems), problems[0].path) == (20, "x[0]")


EXPENSIVE = {
    "many required names": ({"items": {"required": [f"n{n}" for n in range(1_000)]}}, [{}] * 1_900),
    "many options": ({"items": {"enum": [f"option {n}" for n in range(9_000)]}}, ["none of them"] * 1_900),
    "many numbers to compare with": ({"items": {"enum": [n / 7 for n in range(900)]}}, [0.1] * 100_000),
    "patterns that backtrack": ({"items": {"pattern": "^(?:(?=a)(?:a|a)*(?=b)b|.*)$"}}, ["a" * 14 + "c"] * 10_000),
    "wrong at the end": ({"items": {"type": "integer"}}, [*range(200_000), "x"]),
}


@each("name", EXPENSIVE)
def test_a_costly_schema_and_a_large_value_do_not_multiply(name):
    schema, value = EXPENSIVE[name]
    compiled = CompiledSchema({"type": "object", "properties": {"x": schema}})
    with calls(100_000):
        compiled.check({"x": value})


def test_an_unknown_argument_with_a_huge_name_is_told_in_short():
    with calls(20_000):
        (problem,) = told(PERSON, {"name": "Ann", "x" * 5_000_000: 1})
        assert len(problem) < 500


def test_a_catastrophic_pattern_does_not_hang():
    schema = {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}, "y": {"pattern": r"^(a+)+\1$"}},
    }
    with calls(10_000):
        assert CompiledSchema(schema).check({"x": "a" * 5_000 + "b", "y": "a" * 5_000 + "b"})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_any_value_gets_an_answer(value):
    for problem in CompiledSchema(PERSON, closed=True).check(value):
        assert str(problem)


@given(
    st.dictionaries(
        st.sampled_from(
            ["type", "properties", "anyOf", "$ref", "items", "enum", "required", "minimum", "pattern", "if", "$defs"]
        ),
        json_values,
    )
)
def test_any_schema_is_taken_or_refused(schema):
    with suppress(SchemaError):
        CompiledSchema(schema).check({"a": 1})
