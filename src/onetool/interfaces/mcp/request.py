"""One request, on its way through the server."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.interfaces.mcp.caller import Link
from onetool.interfaces.mcp.client import Client
from onetool.interfaces.mcp.wire import INVALID_PARAMS, Fault, Id, is_id

if TYPE_CHECKING:
    from onetool.interfaces.mcp.menus.entry import Entry

LONGEST_TOKEN = 256
_WORDS = {str: "a text", dict: "an object", int: "a whole number"}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted, by whom, and the way back while it is being answered."""

    id: Id
    method: str
    params: Mapping[str, Any]
    client: Client
    link: Link
    watched: set[str] | None = None  # resources that its session wants to hear of, if it has one
    entry: "Entry | None" = None  # of the menu, that it calls: where somebody had to look already

    def param(self, name: str, kind: type = str, default: Any = ...) -> Any:
        """A member of params, of the type that is wanted."""
        value = self.params.get(name, default)
        if value is ...:
            raise Fault(INVALID_PARAMS, f"params.{name} is missing: {self.method} needs it")
        if value is not default and not isinstance(value, kind):
            raise Fault(INVALID_PARAMS, f"params.{name}: expected {_WORDS[kind]}")
        return value

    @property
    def progress_token(self) -> str | int | None:
        """What to tell progress under; none where it is nothing that could come back again and again."""
        meta = self.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        return token if is_id(token) and len(str(token)) <= LONGEST_TOKEN else None
