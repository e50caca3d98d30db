"""Tools as the index keeps them: what was packed comes back, and what was not says so."""

import zlib
from typing import Any

import msgspec
import pytest

from onetool.sources.bundles.model import COMMON, Tool, pack_tool, unpack_tool

AT = "2026-11-15T16:00:00.000Z"


def tool(**content: Any) -> Tool:
    place: Any = {"id": "1", "bundle_id": "2", "slug": "a", "version": "1.0", "created_at": AT, "modified_at": AT}
    return Tool(type="http", **place, **content)


@pytest.mark.parametrize(
    "one",
    [
        tool(),
        tool(description="地图 😀 \0", tags=("x",), arg_schema={"properties": {"a": {"default": None}}}),
        tool(description="long " * 2_000, http_impl={"request": {"urlTemplate": "https://api.example.com/${id}"}}),
    ],
)
def test_a_tool_comes_back_as_it_was_in_less_room(one: Tool) -> None:
    packed = pack_tool(one)
    assert unpack_tool(packed) == one
    assert len(packed) * 2 < len(msgspec.json.encode(one))
    assert pack_tool(unpack_tool(packed)) == packed


@pytest.mark.parametrize("harm", [b"", b"{}", b"\xff\xff", pack_tool(tool())[:-9]])
def test_what_is_damaged_is_no_tool(harm: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        unpack_tool(harm)


def test_what_was_packed_with_a_larger_window_is_read() -> None:
    far = "".join(map(chr, range(0x4E00, 0x7000)))
    one = tool(arg_schema={"title": far, "description": far})
    packing = zlib.compressobj(wbits=-15, zdict=COMMON)
    before = packing.compress(msgspec.json.encode(one)) + packing.flush()
    assert len(before) < len(pack_tool(one))
    assert unpack_tool(before) == unpack_tool(pack_tool(one)) == one
