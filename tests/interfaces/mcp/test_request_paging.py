"""Long lists in pages: everything once, in order, and no cursor but our own."""

import pytest
from helpers import each
from hypothesis import given
from hypothesis import strategies as st

from onetool.core.mcp_protocol import JsonRpcError
from onetool.interfaces.mcp.client import PAGE_SIZE, McpRequest, RemoteClient, page


def request(**params):
    return McpRequest(id=1, method="tools/list", params=params, client=RemoteClient(), channel=None)


@given(st.integers(0, 5 * PAGE_SIZE + 1))
def test_every_item_comes_once_and_in_order(count):
    items, found, cursor = range(count), [], {}
    while True:
        got = page("items", items, request(**cursor))
        found += got["items"]
        if "nextCursor" not in got:
            break
        assert len(got["items"]) == PAGE_SIZE
        cursor = {"cursor": got["nextCursor"]}
    assert found == list(items)


@each(("count", "pages"), [(0, 1), (1, 1), (PAGE_SIZE, 1), (PAGE_SIZE + 1, 2), (2 * PAGE_SIZE, 2)])
def test_a_page_is_only_begun_when_there_is_something_on_it(count, pages):
    got, number = page("items", range(count), request()), 1
    while "nextCursor" in got:
        got, number = page("items", range(count), request(cursor=got["nextCursor"])), number + 1
    assert number == pages


@given(st.text())
def test_a_cursor_is_ours_or_refused(cursor):
    try:
        got = page("items", range(3 * PAGE_SIZE), request(cursor=cursor))
    except JsonRpcError as fault:
        assert str(fault).startswith("params.cursor is not one of ours")  # noqa: PT017
    else:
        assert cursor.isdecimal()
        assert got["items"][0] == int(cursor)


@each("cursor", [None, 5, True, ["1000"], {}])
def test_a_cursor_is_a_text(cursor):
    if cursor is None:  # as good as none
        assert page("items", range(3), request(cursor=None)) == {"items": range(3)}
        return
    with pytest.raises(JsonRpcError, match=r"params\.cursor: expected a string"):
        page("items", range(3), request(cursor=cursor))


def test_a_list_that_became_shorter_ends_old_cursors():
    cursor = page("items", range(3 * PAGE_SIZE), request())["nextCursor"]
    with pytest.raises(JsonRpcError, match="begin again without it"):
        page("items", range(5), request(cursor=cursor))
