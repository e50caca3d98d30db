"""Long lists in pages."""

from collections.abc import Sequence
from typing import Any

from onetool.interfaces.mcp.request import Request
from onetool.interfaces.mcp.wire import INVALID_PARAMS, Fault

SIZE = 1000  # everything at once, but for catalogues that would choke a client


def page(name: str, items: Sequence[Any], request: Request) -> dict[str, Any]:
    cursor = request.param("cursor", str, None)
    start = 0
    if cursor is not None:
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10 and 0 < int(cursor) < len(items)):
            raise Fault(INVALID_PARAMS, "params.cursor is not one of ours: begin again without it")
        start = int(cursor)
    end = start + SIZE
    if start == 0 and end >= len(items):
        return {name: items}
    return {name: items[start:end]} | ({"nextCursor": str(end)} if end < len(items) else {})
