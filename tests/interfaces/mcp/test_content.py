"""Values of tools as content: what is meant to be shown as what it is, and what is data."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from helpers import each

from onetool.core.call import ToolError, ToolResult
from onetool.core.errors import ToolFailure
from onetool.interfaces.mcp.content import blocks_of, for_revision, from_result, is_block
from onetool.sdk import audio, embedded, image, link, text
from onetool.services.results import StoredResult

EVERY = [text("t"), image(b"i"), audio(b"a"), embedded("a://b", "t"), embedded("a://b", b"b"), link("a://b", "n")]


def result(data=None, **error):
    return ToolResult(ok=not error, data=data, error=ToolError(**error) if error else None, meta={})


def no_media(handle):
    raise ToolFailure(f"there is nothing behind {handle}")


def given_to_client(value, inline=100, promise=None, stored=None, link=False):
    def store(words, *_):
        if stored is None:
            raise ToolFailure("the disk is full")
        return stored

    config = SimpleNamespace(results=SimpleNamespace(inline_bytes=inline, max_preview=inline // 2, link=link))
    runtime = SimpleNamespace(config=config, store_result=store, read_result=no_media)
    return asyncio.run(from_result(value, runtime, False, "read {} from {}".format, promise))


@each("block", EVERY)
def test_what_the_sdk_makes_is_content(block):
    assert is_block(block)
    assert is_block({**block, "annotations": {"audience": ["user"]}, "_meta": {}})
    assert given_to_client(result(block))["content"] == [block]
    assert given_to_client(result([block, block]))["content"] == [block, block]


@each(
    "value",
    [
        {"type": "text"},
        {"text": "t"},
        {"type": "text", "text": "t", "size": 3},
        {"type": "image", "data": "x"},
        {"type": "user", "text": "t"},
        {"type": ["text"], "text": "t"},
        {"type": None},
        [],
        {},
        [text("t"), 1],
        [text("t"), {"type": "text"}],
        "text",
        None,
        7,
    ],
)
def test_what_only_looks_like_it_is_data(value):
    assert blocks_of(value, no_media) is None
    (block,) = given_to_client(result(value))["content"]
    assert block["text"] == (value if isinstance(value, str) else json.dumps(value, separators=(",", ":")))


def test_what_is_promised_comes_as_data_whole_however_large():
    data = {"x": "y" * 1000}
    told = given_to_client(result(data), promise="object")
    assert told["structuredContent"] == data
    assert json.loads(told["content"][0]["text"]) == data


def test_content_that_was_promised_comes_as_both():
    block = text("t")
    told = given_to_client(result(block), promise="object")
    assert told == {"content": [block], "structuredContent": block}


@each("value", [5, 0.5, True, None, [1, 2], [{"a": 1}], []])
def test_what_is_no_object_comes_in_a_wrapper(value):
    told = given_to_client(result(value), promise="wrapper")
    assert told["structuredContent"] == {"result": value}
    assert json.loads(told["content"][0]["text"]) == value


def test_what_is_too_large_for_a_wrapper_is_stored_and_its_handle_is_told():
    stored = StoredResult(handle="h" * 32, size=1004, lines=1)
    told = given_to_client(result(["y" * 1000]), promise="wrapper", stored=stored)
    assert "was stored" in told["content"][0]["text"]
    assert told["structuredContent"] == {"handle": "h" * 32}


@pytest.mark.parametrize("promise", [None, "open"])
@pytest.mark.parametrize("value", [image(b"i"), [image(b"i")], [[image(b"i")]], {"one": {"two": [image(b"i")]}}])
def test_pictures_come_once(value, promise):
    assert given_to_client(result(value), promise=promise) == {"content": [image(b"i")]}


def test_data_between_pictures_comes_as_text():
    told = given_to_client(result([image(b"i"), 7, {"a": [1]}, ["b", text("c")], None]))
    assert told == {"content": [image(b"i"), text("7"), text('{"a":[1]}'), text("b"), text("c"), text("null")]}


def test_texts_in_lists_are_content():
    assert blocks_of([[text("a")], ["b", text("c")]], no_media) == [text("a"), text("b"), text("c")]
    assert blocks_of([["a"], "b"], no_media) is None


def test_a_picture_that_is_nested_deeper_than_anybody_writes_is_data():
    value = image(b"i")
    for _ in range(500):
        value = [value]
    assert blocks_of(value, no_media) is None


def test_what_is_too_large_is_stored_and_linked_if_wanted():
    stored = StoredResult(handle="abcdefghij", size=2000, lines=1)
    (words,) = given_to_client(result("x" * 2000), stored=stored)["content"]
    assert words["text"].endswith("\nRead on with: read abcdefghij from 1")
    same, where = given_to_client(result("x" * 2000), stored=stored, link=True)["content"]
    assert same == words
    assert where == {
        "type": "resource_link",
        "uri": "ot://results/abcdefghij",
        "name": "result-abcdefgh",
        "description": "the whole result",
        "mimeType": "text/plain",
        "size": 2000,
    }


def test_what_is_too_large_and_can_not_be_stored_says_why():
    told = given_to_client(result("x" * 2000))
    assert told["isError"] is True
    assert "the disk is full" in told["content"][0]["text"]


def test_an_error_is_told_in_words():
    told = given_to_client(result(code="execution_error", message="closed", hints=("come back",)))
    assert told == {"content": [{"type": "text", "text": "Error: closed\n  come back"}], "isError": True}


def test_before_there_were_links_they_are_told_in_words():
    told = {"content": [text("t"), link("a://b", "n")]}
    for revision in ("2026-07-28", "2025-11-25", "2025-06-18"):
        assert for_revision(told, revision) == told
    for revision in ("2025-03-26", "2024-11-05"):
        assert for_revision(told, revision)["content"] == [text("t"), text("n: a://b")]
    assert for_revision({"content": [text("t")], "isError": True}, "2024-11-05")["isError"] is True


@each(
    "value",
    [
        {"type": "text", "text": None},
        {"type": "text", "text": "x", "annotations": 5},
        {"type": "image", "data": 5, "mimeType": "image/png"},
        {"type": "resource", "resource": {}},
        {"type": "resource", "resource": {"uri": "x:y", "text": "t", "blob": "b"}},
        {"type": "resource_link", "uri": "x:y", "name": "n", "size": "large"},
    ],
)
def test_what_only_looks_like_content_is_data(value):
    assert blocks_of(value, no_media) is None
