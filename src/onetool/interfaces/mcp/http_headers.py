"""HTTP headers of MCP messages, which must match the body, and HTTP errors as JSON-RPC."""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from onetool.core.mcp_protocol import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    PROTOCOL_VERSION,
    UNSUPPORTED_VERSION,
    Id,
    JsonRpcError,
    error_response,
)
from onetool.core.trace import request_id
from onetool.http.asgi import DUPLICATE, Head, HttpError, encode

VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"
SESSION = b"mcp-session-id"
PARAM = "mcp-param-"
LAST_EVENT = b"last-event-id"

# The member of params that Mcp-Name repeats, by method.
_NAMES = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_BEGIN, _END = "=?base64?", "?="


def check_single(head: Head) -> None:
    """Raise JsonRpcError if an MCP header was sent twice."""
    for name, value in head.items():
        if value is DUPLICATE and name.startswith(b"mcp-"):
            raise JsonRpcError(HEADER_MISMATCH, f"the header {name.decode('latin-1')} was sent twice")


def check_headers(head: Head, method: str, params: Mapping[str, Any], required: bool = True) -> None:
    """Check that the headers repeat the method, the protocol version and the name. Raises JsonRpcError.

    Clients with a session need not send them (`required` is false), but what they send must be right.
    """
    if required or METHOD in head:
        _check_same(head, METHOD, method, "the body's method")
    meta = params.get("_meta")
    if required and isinstance(meta, dict) and isinstance(version := meta.get(PROTOCOL_VERSION), str):
        sent = head.get(VERSION)
        if sent is None:
            raise JsonRpcError(HEADER_MISMATCH, f"the header {VERSION.decode()} is missing")
        if (text := sent.decode("latin-1")) != version:
            words = f"the header {VERSION.decode()} says {text:.40}, the body {version:.40}"
            raise JsonRpcError(HEADER_MISMATCH, words)
    if (member := _NAMES.get(method)) is not None and (required or NAME in head):
        _check_same(head, NAME, params.get(member), f"params.{member}")


def check_arguments(head: Head, marks: Mapping[str, str], args: Any) -> None:
    """Check arguments against their headers. `marks` has the headers' names by argument (`MenuEntry.headers`)."""
    for argument, mark in marks.items():
        value = args.get(argument) if isinstance(args, dict) else None
        name = f"{PARAM}{mark.lower()}".encode("latin-1", "replace")
        if value is not None or name in head:
            text = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            _check_same(head, name, text, f"arguments.{argument}")


def _check_same(head: Head, name: bytes, value: Any, what: str) -> None:
    if (found := head.get(name)) is None:
        raise JsonRpcError(HEADER_MISMATCH, f"the header {name.decode('latin-1')} is missing: it must repeat {what}")
    sent = found.decode("latin-1").strip(" \t")
    if sent == value and not value.startswith(_BEGIN):  # true for most headers
        return
    decoded = _decoded(sent)
    if decoded is None:
        raise JsonRpcError(HEADER_MISMATCH, f"the header {name.decode('latin-1')} is not valid Base64")
    if decoded != value:
        raise JsonRpcError(HEADER_MISMATCH, f"the header {name.decode('latin-1')} and {what} differ")


def _decoded(text: str) -> str | None:
    """Decode a header value, in which non-ASCII text is =?base64?…?=. Return None for invalid Base64."""
    if not (text.startswith(_BEGIN) and text.endswith(_END) and len(text) >= len(_BEGIN) + len(_END)):
        return text
    inside = text[len(_BEGIN) : -len(_END)]
    try:
        data = b64decode(inside, validate=True)
        return data.decode() if b64encode(data).decode() == inside else None
    except ValueError:  # not Base64, not ASCII, or not UTF-8 text
        return None


# Bodies and HTTP errors

HTTP_STATUS = {  # of JSON-RPC errors, by code; 200 for all others
    **dict.fromkeys((PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS), 400),
    **dict.fromkeys((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), 400),
    METHOD_NOT_FOUND: 404,
}
ACCEPTS_REPLY = re.compile(rb"application/(json|\*)|text/event-stream|\*/\*")


def as_json_rpc(refused: HttpError, id: Id | None = None) -> bytes:
    """Encode an HTTP error as a JSON-RPC error, which MCP clients show."""
    data = {"reason": refused.code} | ({} if (request := request_id()) is None else {"request_id": request})
    code = INTERNAL_ERROR if refused.status >= 500 else INVALID_REQUEST  # with 503, the same request may succeed later
    return encode(error_response(id, JsonRpcError(code, str(refused), data)))
