"""One MCP request on its way through the server, and lists that are returned in pages."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.core.mcp_protocol import INVALID_PARAMS, Id, JsonRpcError, is_id
from onetool.interfaces.mcp.client import RemoteClient, ReplyChannel

if TYPE_CHECKING:
    from onetool.interfaces.mcp.menus import MenuEntry


MAX_TOKEN = 256
_WORDS = {str: "a text", dict: "an object", int: "a whole number"}


class McpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request: its method and params, its client, and the channel to it."""

    id: Id
    method: str
    params: Mapping[str, Any]
    client: RemoteClient
    channel: ReplyChannel
    watched: set[str] | None = None  # resources that its session wants to hear of, if it has one
    entry: "MenuEntry | None" = None  # the menu entry that it calls, if it was looked up already

    def param(self, name: str, kind: type = str, default: Any = ...) -> Any:
        """Return a member of params, of the type that is wanted. Raises JsonRpcError."""
        value = self.params.get(name, default)
        if value is ...:
            raise JsonRpcError(INVALID_PARAMS, f"params.{name} is missing: {self.method} needs it")
        if value is not default and not isinstance(value, kind):
            raise JsonRpcError(INVALID_PARAMS, f"params.{name}: expected {_WORDS[kind]}")
        return value

    @property
    def progress_token(self) -> str | int | None:
        """The progress token; None if it is not an id or too long to be repeated."""
        meta = self.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        return token if token is not None and is_id(token) and len(str(token)) <= MAX_TOKEN else None


# Pages

PAGE_SIZE = 1000  # everything at once, but for catalogues that would choke a client


def page(name: str, items: Sequence[Any], request: McpRequest) -> dict[str, Any]:
    cursor = request.param("cursor", str, None)
    start = 0
    if cursor is not None:
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10 and 0 < int(cursor) < len(items)):
            raise JsonRpcError(INVALID_PARAMS, "params.cursor is not one of ours: begin again without it")
        start = int(cursor)
    end = start + PAGE_SIZE
    if start == 0 and end >= len(items):
        return {name: items}
    return {name: items[start:end]} | ({"nextCursor": str(end)} if end < len(items) else {})
