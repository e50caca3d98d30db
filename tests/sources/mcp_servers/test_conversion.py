"""What a server answered, as plain data: each kind of content, and text that is JSON."""

from base64 import b64encode
from types import SimpleNamespace

import pytest
from mcp_types import CallToolResult

from onetool.core.errors import ToolFailure
from onetool.core.json_data import blob_record, data_in
from onetool.sources.mcp_servers.conversion import answer_of, is_light

HANDLE = "0" * 32
PICTURE = b64encode(b"\x89PNG....").decode()


@pytest.fixture
def kept():
    return []


@pytest.fixture
def keep(kept):
    def keep(text):
        kept.append(text)
        return SimpleNamespace(handle=HANDLE, size=len(text))

    return keep


def result(*content, **more):
    return CallToolResult.model_validate({"content": list(content), **more})


def value_of(result, keep):
    return answer_of(result, keep, "pack").value


def text(words):
    return {"type": "text", "text": words}


@pytest.mark.parametrize("data", [{}, {"a": None, "b": [1, 2.5, "ä🙂"]}, {"result": 3}])
def test_structured_content_is_the_value(keep, kept, data):
    assert value_of(result(text("other words"), structuredContent=data), keep) == data
    picture = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
    assert value_of(result(picture, structuredContent=data), keep) == data
    assert kept == []


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ('{"a": [1, null, "ä"]}', {"a": [1, None, "ä"]}),
        ("  [1, 2]\n", [1, 2]),
        ("{}", {}),
        ("[]", []),
        # A number, a word or a quoted text may as well be what was meant.
        *((words, words) for words in ("12", "007", "1e5", "true", "null", '"quoted"', "", " ", "plain", "NaN")),
        # What begins like JSON need not be any.
        *((words, words) for words in ("{", "[1, 2", "{a: 1}", "[x] done", '{"a": NaN}', '{"a": 1} and more')),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("\ufeff{}", "\ufeff{}"),
        ("[" * 100_000, "[" * 100_000),
        ('["\\ud800"]', '["\\ud800"]'),
        ('{"big": 123456789012345678901234567890}', {"big": 123456789012345678901234567890}),
    ],
)
def test_json_in_text_counts_for_objects_and_lists_only(keep, words, value):
    assert data_in(words) == value
    assert value_of(result(text(words)), keep) == value


def test_several_blocks_are_a_list_and_none_is_nothing(keep):
    assert value_of(result(), keep) is None
    assert value_of(result(text("a"), text('{"b": 1}'), text("")), keep) == ["a", {"b": 1}, ""]


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_pictures_and_sounds_are_kept(keep, kept, kind):
    block = {"type": kind, "data": PICTURE, "mimeType": f"{kind}/x", "annotations": {"priority": 1}}
    record = {"type": kind, "mimeType": f"{kind}/x", "handle": HANDLE, "size": 8}
    assert value_of(result(block), keep) == record
    assert value_of(result(text("look:"), block), keep) == ["look:", record]
    assert kept == [f"data:{kind}/x;base64,{PICTURE}"] * 2


def test_blobs_are_kept_and_embedded_texts_are_values(keep, kept):
    blob = {"uri": "file:///b", "blob": PICTURE, "mimeType": "application/x"}
    record = {"type": "blob", "mimeType": "application/x", "handle": HANDLE, "size": 8, "uri": "file:///b"}
    assert value_of(result({"type": "resource", "resource": blob}), keep) == record
    untyped = {"uri": "file:///b", "blob": PICTURE}
    assert value_of(result({"type": "resource", "resource": untyped}), keep)["mimeType"] == "application/octet-stream"
    assert len(kept) == 2
    note = {"uri": "file:///n", "text": "a note", "mimeType": "text/plain"}
    assert value_of(result({"type": "resource", "resource": note}), keep) == {"type": "resource", **note}
    assert len(kept) == 2


def test_links_are_kept_too(keep, kept):
    link = {"type": "resource_link", "uri": "file:///x", "name": "x", "size": 3}
    assert value_of(result(link), keep) == {**link, "handle": HANDLE}
    assert len(kept) == 1


@pytest.mark.parametrize("size", range(6))
def test_the_size_is_that_of_the_bytes(keep, size):
    assert blob_record("image", b64encode(bytes(size)).decode(), None, keep)["size"] == size


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([text("no paper")], "no paper"),
        ([text("no paper"), text("in tray 2")], "no paper\nin tray 2"),
        ([], "the server reported a failure without a message"),
        ([text(" ")], "the server reported a failure without a message"),
        ([{"type": "image", "data": PICTURE, "mimeType": "image/png"}, text("see above")], "see above"),
        ([text("x" * 100_000)], "x" * 100_000),
    ],
)
def test_an_error_is_one_in_the_servers_words(keep, kept, content, words):
    with pytest.raises(ToolFailure) as caught:
        value_of(result(*content, isError=True, structuredContent={"code": 3}), keep)
    assert str(caught.value) == words
    assert kept == []


def test_only_what_has_to_be_stored_is_heavy():
    picture = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
    assert is_light(result(text("a")))
    assert is_light(result())
    assert is_light(result(picture, structuredContent={}))
    assert not is_light(result(text("a"), picture))


def test_where_nothing_can_be_kept_the_call_fails_with_words():
    def full(_):
        raise ToolFailure("there is no room for more results")

    with pytest.raises(ToolFailure, match="no room"):
        value_of(result({"type": "image", "data": PICTURE, "mimeType": "image/png"}), full)
