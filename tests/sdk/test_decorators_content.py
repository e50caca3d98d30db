"""Content that a tool can give: plain data in the form in which clients get it."""

from base64 import b64decode

import msgspec
import pytest
from helpers import each

from onetool.core.json_data import plain
from onetool.sdk import audio, embedded, image, link, text


def test_each_kind():
    assert text("words") == {"type": "text", "text": "words"}
    assert image(b"\x00\xff") == {"type": "image", "data": "AP8=", "mimeType": "image/png"}
    assert image(b"", mime_type="image/jpeg") == {"type": "image", "data": "", "mimeType": "image/jpeg"}
    assert audio(b"\x00\xff") == {"type": "audio", "data": "AP8=", "mimeType": "audio/wav"}
    assert audio(b"x", "audio/ogg")["mimeType"] == "audio/ogg"


@pytest.mark.parametrize("make", [image, audio])
def test_text_where_bytes_are_wanted_is_told(make):
    with pytest.raises(TypeError, match=rf"{make.__name__}\(\) takes bytes, not str"):
        make("picture.png")


def test_a_resource_with_its_content():
    assert embedded("file:///a", "words") == {
        "type": "resource",
        "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "words"},
    }
    inside = embedded("file:///a", b"\x00\xff")["resource"]
    assert (inside["mimeType"], b64decode(inside["blob"])) == ("application/octet-stream", b"\x00\xff")
    assert "text" not in inside
    assert embedded("file:///a", "{}", mime_type="application/json")["resource"]["mimeType"] == "application/json"


def test_a_link_says_only_what_is_known():
    assert link("file:///a", "a") == {"type": "resource_link", "uri": "file:///a", "name": "a"}
    assert link("file:///a", "a", "A file", "text/plain") == {
        "type": "resource_link",
        "uri": "file:///a",
        "name": "a",
        "description": "A file",
        "mimeType": "text/plain",
    }


@each("block", [text("t"), image(b"i"), audio(b"a"), embedded("a:b", b"c"), link("a:b", "c")])
def test_it_is_data_like_any_other(block):
    assert plain([block]) == [block]
    assert msgspec.json.decode(msgspec.json.encode(block)) == block
