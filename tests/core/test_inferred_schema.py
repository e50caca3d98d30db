"""What is learnt from a tool's values: a schema that they fit, within bounds whatever comes, and never a value."""

import json
import random
import string
import threading
from uuid import UUID

import msgspec
import pytest
from helpers import calls, each, examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onetool.core.inferred_schema import (
    ALIKE,
    MAX_DEPTH,
    MAX_FIELD_NAME,
    MAX_FIELDS,
    MAX_ITEMS,
    MAX_RESULTS,
    MAX_SHAPE_PARTS,
    ObservedValues,
    is_name,
)
from onetool.core.schema import CompiledSchema

ISSUE = {"id": 7, "title": "It broke", "labels": [{"name": "bug"}], "closed_at": None}


def seen(*values):
    found = ObservedValues()
    for value in values:
        found.note(value)
    return found


def loaded(data):
    found = ObservedValues()
    found.add(data)
    return found


def schema(*values):
    return seen(*values).schema()


def text(*values):
    return json.dumps(schema(*values))


# What is learnt


def test_an_object_is_told_by_its_fields():
    assert schema(ISSUE) == {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "title": {"type": "string"},
            "labels": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            },
            "closed_at": {"type": "null"},
        },
        "required": ["id", "title", "labels", "closed_at"],
    }


def test_keys_that_differ_between_results_are_a_map():
    assert schema({"a": 1, "b": 2}, {"a": 3, "c": 4}) == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert schema({"at": {"x": 1}}, {"at": {"y": "z"}})["properties"]["at"] == {
        "type": "object",
        "additionalProperties": {"type": ["string", "integer"]},
    }
    assert "additionalProperties" in schema({"a": 1}, {})
    assert schema("none", {"a": 1})["required"] == ["a"]  # a text is not an object without it


def test_what_not_all_items_have_is_not_required():
    assert schema([{"a": 1, "b": 2}, {"a": 3}])["items"]["required"] == ["a"]
    assert schema([{"a": 1, "b": 2}], [{"a": 1, "c": 2}])["items"]["required"] == ["a"]
    assert "additionalProperties" in schema([{"ann": 1}, {"bob": 1}])["items"]


@each(
    ("values", "told"),
    [
        (["x"], {"type": "string"}),
        ([True], {"type": "boolean"}),
        ([None], {"type": "null"}),
        ([1, 2], {"type": "integer"}),
        ([1, 2.5], {"type": "number"}),
        ([2.5, None], {"type": ["number", "null"]}),
        (["x", {}], {"type": ["object", "string"]}),
        ([[]], {"type": "array"}),
        ([[1], ["x"], []], {"type": "array", "items": {"type": ["string", "integer"]}}),
        ([[1, None]], {"type": "array", "items": {"type": ["integer", "null"]}}),
        (["x", 1, True], {"type": ["string", "integer", "boolean"]}),
        (["x", 1, True, []], None),  # anything at all: nothing is worth saying
    ],
)
def test_types_and_unions(values, told):
    assert schema(*values) == told


def test_before_the_first_result_there_is_nothing_to_say():
    assert (ObservedValues().schema(), ObservedValues().results) == (None, 0)


def test_fields_stay_in_the_order_in_which_they_came():
    assert [*schema([{"z": 1, "a": 2}], [{"b": 1, "a": 2}])["items"]["properties"]] == ["z", "a", "b"]


def test_whether_it_changed_is_told():
    found = ObservedValues()
    assert [found.note(value) for value in ({"a": 1}, {"a": 2}, {"a": None}, {"a": 3}, {}, {})] == [
        True, False, True, False, True, False,
    ]  # fmt: skip
    assert found.results == 6


def test_nobody_can_change_what_it_gives():
    with pytest.raises(TypeError):
        schema(ISSUE)["properties"]["id"] = {}


# Maps


def test_many_different_keys_are_a_map():
    values = [{f"key_{letter}": {"n": 1} for letter in string.ascii_letters[: MAX_FIELDS + 1]}]
    assert schema(*values) == {
        "type": "object",
        "additionalProperties": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    }
    assert not any("key_" in json.dumps(part) for part in (schema(*values), seen(*values).dump()))


def test_entries_that_come_and_go_are_a_map():
    rates = [dict.fromkeys(names.split(), 1.5) for names in ("usd eur gbp chf", "dkk pln czk huf usd", "jpy usd")]
    assert schema(*rates) == {"type": "object", "additionalProperties": {"type": "number"}}
    always = dict.fromkeys(["usd", "eur", "gbp", "chf", "sek", "nok", "dkk", "pln", "czk"], 1.5)
    assert schema(always, always)["required"] == [*always]


def test_many_objects_of_one_form_are_a_map():
    servers = {f"server_{letter}": {"port": 1, "host": "x"} for letter in string.ascii_lowercase[:ALIKE]}
    assert schema(servers)["additionalProperties"]["required"] == ["port", "host"]
    mixed = servers | {"total": 8}
    assert [*schema(mixed)["properties"]] == [*mixed]
    different = {name: {f"{name}_{letter}": 1 for letter in "abc"} for name in servers}
    assert [*schema(different)["properties"]] == [*different]


# Nothing of anybody's data in it

DATA = [
    "ann@example.com", "2024-01-01", "12345", "7", "3f2a9c1d", "deadbeefcafe", str(UUID(int=2**127 + 5)),
    "dQw4w9WgXcQ", "https://example.com/x", "/etc/passwd", "a b", "", "x" * (MAX_FIELD_NAME + 1), "user_10293",
    "AKIAIOSFODNN7EXAMPLE", "sk_live_4eC39HqLyjWDarjtT1zdp7dc", "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV", "line\nbreak", "nul\0", "right‮left", "example.com", "10.0.0.1", "fy2024",
    "qwrtzpsdfghjklmn", "\ud800", "Ann Smith",
]  # fmt: skip
NAMES = [
    "id", "ID", "_id", "node_id", "createdAt", "isEnabled", "nextPageToken", "html_url", "sha256", "md5Checksum",
    "ipv4Address", "line1", "x1", "p99", "s3_key", "base64Data", "oauth2", "i18n", "@type", "$ref", "_links",
    "content-type", "x-request-id", "is-referenced-by-count", "xmlns", "https", "XMLHttpRequest", "stargazers_count",
    "标题", "prénom", "feedback", "URLs", "userIDs", "iOSVersion", "length",
]  # fmt: skip


@each("key", DATA)
def test_a_key_that_could_be_data_makes_a_map(key):
    assert schema({key: 1}) == {"type": "object", "additionalProperties": {"type": "integer"}}
    found = seen({"alice": 1}, {"bob": 2, key: 3})  # nor do its neighbours stay
    assert found.schema() == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert "alice" not in json.dumps(found.dump())


@each("key", NAMES)
def test_a_key_that_is_a_name_stays(key):
    assert [*schema({key: 1})["properties"]] == [key]


def test_the_names_of_real_servers_are_names(live_tools):
    names = {name for tool in live_tools for name in tool["inputSchema"].get("properties", ())}
    assert len(names) > 500
    assert [name for name in names if not is_name(name)] == []


def test_tokens_made_by_chance_are_no_names():
    chance = random.Random(1)
    alphabet = string.ascii_letters + string.digits
    taken = sum(is_name("".join(chance.choices(alphabet, k=22))) for _ in range(5_000))
    assert taken < 100  # in a hundred, two; and of several in one object one is enough


def test_no_value_is_in_it():
    secret = "correct horse battery staple"
    found = seen({"password": secret, "list": [secret, {"x": secret}], secret: secret}, secret)
    assert secret not in json.dumps([found.schema(), found.dump()])


# Bounds


def test_of_a_long_list_only_the_beginning_is_looked_at():
    assert schema([1] * MAX_ITEMS + ["x"]) == {"type": "array", "items": {"type": "integer"}}


def test_what_is_deep_is_not_looked_at():
    value = 1
    for _ in range(MAX_DEPTH + 10):
        value = {"in": value}
    found = schema(value)
    for _ in range(MAX_DEPTH):
        found = found["properties"]["in"]
    assert found == {"type": "object"}


def test_a_large_object_is_a_map():
    assert schema({f"n{'abcdefghij'[n // 10]}{'abcdefghij'[n % 10]}": n for n in range(MAX_FIELDS + 1)}) == {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }


def parts(told):
    return 1 + sum(map(parts, told.get("properties", {}).values())) + sum(
        parts(told[word]) for word in ("items", "additionalProperties") if word in told
    )  # fmt: skip


def test_what_varies_beyond_all_bounds_is_known_less_deep():
    letters = string.ascii_lowercase[: MAX_FIELDS - 1]
    value = {f"a_{a}": {f"b_{b}": {f"c_{c}": 1 for c in letters} for b in letters} | {"n": 1} for a in letters}
    found = seen(*[value | {"n": 1}] * 3)
    assert found.schema()["properties"]["a_a"] == {"type": "object"}
    assert [found.note(value | {"n": 1}) for _ in range(3)] == [False] * 3  # and does not come and go
    assert loaded(found.dump()).schema() == found.schema()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcdef") | st.text(), inner, max_size=4)
    ),
    max_leaves=20,
)
names = st.sampled_from([f"{a}_{b}" for a in "abcdefghij" for b in "abcdefghij"])
wide_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=1),
    lambda inner: st.lists(inner) | st.dictionaries(names, inner, max_size=100) | st.dictionaries(st.text(), inner),
    max_leaves=300,
)


def as_looked_at(value, levels=MAX_DEPTH):
    """The part of a value that is looked at."""
    if isinstance(value, dict):
        return {key: as_looked_at(one, levels - 1) for key, one in [*value.items()][:MAX_FIELDS]} if levels else {}
    if isinstance(value, list):
        return [as_looked_at(one, levels - 1) for one in value[:MAX_ITEMS]] if levels else []
    return value


@given(st.lists(json_values, min_size=1, max_size=MAX_RESULTS))
@example([{"": 1}, {"a": []}])
def test_every_value_fits_the_schema(values):
    found = schema(*values)
    if found is not None:
        compiled = CompiledSchema(found)
        for value in values:
            assert compiled.check(as_looked_at(value)) == [], (found, value)


@given(st.lists(json_values, max_size=MAX_RESULTS), st.randoms(use_true_random=False))
def test_the_order_of_results_does_not_matter(values, chance):
    other = chance.sample(values, len(values))
    assert schema(*values) == schema(*other)


@given(st.lists(json_values, max_size=10), st.lists(json_values, max_size=10))
def test_what_was_kept_goes_on_where_it_was(before, after):
    found = loaded(json.loads(json.dumps(seen(*before).dump())))
    assert (found.schema(), found.results) == (schema(*before), len(before))
    for value in after:
        found.note(value)
    assert (found.schema(), found.dump()["results"]) == (schema(*before, *after), len(before) + len(after))


@pytest.mark.long
@settings(max_examples=examples(40))
@given(st.lists(wide_values, min_size=1, max_size=MAX_RESULTS))
def test_it_is_bounded_whatever_comes(values):
    found = seen(*values)
    told = found.schema()
    assert told is None or parts(told) <= MAX_SHAPE_PARTS
    assert len(json.dumps(told)) < 50_000
    assert len(msgspec.json.encode(found.dump())) < 60_000
    assert loaded(found.dump()).schema() == told


# Cost


def test_only_the_first_results_are_looked_at():
    found = seen(*[{"a": 1}] * MAX_RESULTS)
    assert not found.note({"b": 1})
    assert (found.results, found.is_full) == (MAX_RESULTS, True)
    assert [*found.schema()["properties"]] == ["a"]


def test_a_huge_result_takes_no_time():
    value = [{f"k{a}": [{"x": [[{"deep": 1}] * 100] * 100}] * 100 for a in string.ascii_letters}] * 10_000
    with calls(100_000):
        seen(value, value)


def test_threads_lose_nothing():
    found = ObservedValues()
    keys = [f"k_{letter}" for letter in string.ascii_letters[: MAX_FIELDS - 1]]

    def work(part):
        for key in part:
            found.note([{key: 1, "n": None}])

    threads = [threading.Thread(target=work, args=(keys[start::8],)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found.dump()["shape"]["items"]["fields"].keys() == {*keys, "n"}


# What was kept


@each(
    "rubbish",
    [
        None, 5, "x", [], {}, {"results": 1}, {"results": -1, "levels": 6, "shape": {}},
        {"results": 1, "levels": 99, "shape": {}}, {"results": 1, "levels": 6, "shape": {"kinds": ["secret"]}},
        {"results": 1, "levels": 6, "shape": {"kinds": ["object"], "fields": {"ann@example.com": {}}}},
        {"results": 1, "levels": 6, "shape": {"kinds": ["object"], "required": ["a"]}},
        {"results": 1, "levels": 0, "shape": {}}, {"results": 1, "levels": 1, "shape": {"items": {"items": {}}}},
        {"results": 1, "levels": 6, "shape": {"fields": {f"{a}{b}": {} for a in "stuvwxyz" for b in "abcdefghi"}}},
    ],
)  # fmt: skip
def test_rubbish_is_nothing(rubbish):
    found = loaded(rubbish)
    assert (found.schema(), found.results) == (None, 0)
    assert found.note("x")


def test_rubbish_without_end_is_nothing():
    deep = {}
    for _ in range(100_000):
        deep = {"items": deep}
    assert loaded({"results": 1, "levels": 6, "shape": deep}).results == 0


@given(json_values)
def test_no_rubbish_hurts(rubbish):
    loaded(rubbish)
    loaded({"results": 1, "levels": 6, "shape": rubbish})
