"""MCP on the wire: protocol revisions, JSON-RPC messages, and errors for the client.

Until revision 2025-11-25 a client opens with `initialize` and has a session. Since 2026-07-28, requests are independent
and carry the former session state in `_meta`.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, Required, TypedDict, cast

import msgspec

from onetool.core.json_data import MAX_DIGITS, JsonTooCostlyError, check_json, finite, no_constant
from onetool.core.mismatch import described

STATELESS_REVISIONS = ("2026-07-28",)
SESSION_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # newest first

DEFAULT_REVISION = "2025-03-26"  # assumed for HTTP clients that send none

META = "io.modelcontextprotocol/"
PROTOCOL_VERSION = f"{META}protocolVersion"
CLIENT_CAPABILITIES = f"{META}clientCapabilities"
LOG_LEVEL = f"{META}logLevel"
SERVER_INFO = f"{META}serverInfo"
SUBSCRIPTION_ID = f"{META}subscriptionId"
TASKS = f"{META}tasks"  # an extension

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def negotiated_revision(wanted: str) -> str:
    """Return the revision for `initialize`: the requested one if supported, else the newest."""
    return wanted if wanted in SESSION_REVISIONS else SESSION_REVISIONS[0]


# JSON-RPC 2.0

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
TASK_GONE = "the replica that ran this task is gone; the outcome of the task is unknown"
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
PAGE_REQUIRED = -32042  # the user has to open a page first
RESOURCE_NOT_FOUND = -32002  # in revisions before 2026-07-28

Message = dict[str, Any]
Id = str | int

AWAY = {"reason": "database_away"}
"""The error data while the database is unavailable. Over HTTP, such an error is 503 with Retry-After."""

_decoder = msgspec.json.Decoder()


class _TypedMessage(TypedDict, total=False):
    jsonrpc: Required[Literal["2.0"]]
    id: str | int
    method: str
    params: dict[str, Any]
    result: Any
    error: Any


_decode_typed: Callable[[bytes], Any] = msgspec.json.Decoder(_TypedMessage).decode


class JsonRpcError(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        return error if self.data is None else {**error, "data": self.data}


def unsupported_version(requested: str, supported: Sequence[str]) -> JsonRpcError:
    data = {"supported": list(supported), "requested": requested}
    return JsonRpcError(UNSUPPORTED_VERSION, f"protocol version {requested:.40} is not supported here", data)


def decode_message(data: bytes) -> tuple[Any, JsonRpcError | None]:
    """Decode and check a message. Return the message, and the error if any."""
    try:
        if len(data) > MAX_DIGITS:
            check_json(data)
        found: Message = _decode_typed(data)
        if "method" in found or ("id" in found and ("result" in found or "error" in found)):
            return found, None
    except (ValueError, RecursionError):  # the slower check below explains the error
        pass
    message: Any = None
    try:
        message = decode(data)
        return check_message(message), None
    except JsonRpcError as error:
        return message, error


def decode(data: bytes) -> Any:
    try:
        check_json(data)
        return _decoder.decode(data)
    except JsonTooCostlyError as error:
        raise JsonRpcError(INVALID_REQUEST, f"the message {error}") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        # A lone surrogate, from a client that truncated a string: unusual, but valid JSON, so the client gets an
        # answer.
        if b"\\u" in data:
            with suppress(ValueError, RecursionError):
                return json.loads(data.decode(), parse_constant=no_constant, parse_float=finite)
        raise JsonRpcError(PARSE_ERROR, f"not JSON: {error}") from None


def check_message(message: Any) -> Message:
    """Check that the data is one JSON-RPC message. Raises JsonRpcError."""
    if isinstance(message, list):
        raise JsonRpcError(INVALID_REQUEST, "JSON-RPC batches are not supported: send one message at a time")
    if not isinstance(message, dict):
        raise JsonRpcError(INVALID_REQUEST, f"expected one JSON-RPC message, an object, got {described(message)}")
    found = cast(Message, message)
    if found.get("jsonrpc") != "2.0":
        raise JsonRpcError(INVALID_REQUEST, 'expected "jsonrpc": "2.0"')
    if "id" in found and not is_id(found["id"]) and not (found["id"] is None and "error" in found):
        raise JsonRpcError(INVALID_REQUEST, f"id: expected a string or an integer, got {described(found['id'])}")
    if "method" in found:
        if not isinstance(found["method"], str):
            raise JsonRpcError(INVALID_REQUEST, f"method: expected a string, got {described(found['method'])}")
        if not isinstance(found.get("params", {}), dict):
            raise JsonRpcError(INVALID_PARAMS, f"params: expected an object, got {described(found['params'])}")
    elif "id" not in found or not ("result" in found or "error" in found):
        raise JsonRpcError(INVALID_REQUEST, "expected a request, a notification or a response: `method` is missing")
    return found


def is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def id_of(message: Any) -> Id | None:
    """Return the ID for the answer to a message that may be invalid."""
    found = cast(Message, message).get("id") if isinstance(message, dict) else None
    return found if is_id(found) else None


def error_response(id: Id | None, error: JsonRpcError) -> Message:
    return {"jsonrpc": "2.0", "id": id, "error": error.error()}


def notification(method: str, params: Any = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}
