"""The HTTP side of an MCP message: headers that must agree with the body, the body, and HTTP errors as JSON-RPC."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from onetool.core.mcp_protocol import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Id,
    JsonRpcError,
    Message,
    error_response,
)
from onetool.http.asgi import HttpError, Receive, check_content_type, encode, read_body
from onetool.interfaces.mcp.menus import MenuEntry

VERSION = "mcp-protocol-version"
METHOD = "mcp-method"
NAME = "mcp-name"
SESSION = "mcp-session-id"
PARAM = "mcp-param-"

# Which member of params a method's Mcp-Name repeats.
_NAMES = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_BEGIN, _END = "=?base64?", "?="

_OTHERS = frozenset({b"content-type", b"accept", b"last-event-id"})

Headers = Mapping[str, str]


def headers_of(scope: Mapping[str, Any]) -> Headers:
    """The headers that MCP uses, by lower-case names. A duplicate MCP header is refused."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        if raw_name in _OTHERS:
            found[raw_name.decode()] = raw_value.decode("latin-1")
        elif raw_name.startswith(b"mcp-"):
            name = raw_name.decode("latin-1")
            if name in found:
                raise JsonRpcError(HEADER_MISMATCH, f"the header {name} came twice")
            found[name] = raw_value.decode("latin-1").strip(" \t")
    return found


def check_method(headers: Headers, message: Message) -> None:
    _same(headers, METHOD, message["method"], "the body's method")


def check_version(headers: Headers, version: Any) -> None:
    """Against what the body's _meta says."""
    if VERSION not in headers:
        raise JsonRpcError(HEADER_MISMATCH, f"the header {VERSION} is missing")
    if headers[VERSION] != version:
        raise JsonRpcError(
            HEADER_MISMATCH, f"the header {VERSION} says {headers[VERSION]:.40}, the body {version!s:.40}"
        )


def check_name(headers: Headers, message: Message) -> str:
    """Check Mcp-Name, and return the name of the tool, prompt, resource or task; "" for other methods."""
    member = _NAMES.get(message["method"])
    if member is None:
        return ""
    name = message.get("params", {}).get(member)
    _same(headers, NAME, name, f"params.{member}")
    return name


def check_present(headers: Headers, message: Any) -> None:
    """Check the headers that are optional for clients with a session."""
    if isinstance(message, dict) and isinstance(message.get("method"), str):
        if METHOD in headers:
            check_method(headers, message)
        if NAME in headers and isinstance(message.get("params", {}), dict):
            check_name(headers, message)


def check_arguments(headers: Headers, entry: MenuEntry, args: Any) -> None:
    """Check the arguments that the schema marks with `x-mcp-header` against their headers."""
    for argument, mark in entry.headers.items():
        value = args.get(argument) if isinstance(args, dict) else None
        name = f"{PARAM}{mark.lower()}"
        if value is not None or name in headers:
            _same(headers, name, None if value is None else _written(value), f"arguments.{argument}")


def _same(headers: Headers, name: str, value: Any, what: str) -> None:
    if name not in headers:
        raise JsonRpcError(HEADER_MISMATCH, f"the header {name} is missing: it must repeat {what}")
    if headers[name] == value and not value.startswith(_BEGIN):  # most of them
        return
    said = _decoded(headers[name])
    if said is None:
        raise JsonRpcError(HEADER_MISMATCH, f"the header {name} is not valid Base64")
    if said != value:
        raise JsonRpcError(HEADER_MISMATCH, f"the header {name} and {what} differ")


def _written(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _decoded(text: str) -> str | None:
    """Decode a header value: text that is not ASCII comes as =?base64?…?=. None if it is not valid Base64."""
    if not (text.startswith(_BEGIN) and text.endswith(_END) and len(text) >= len(_BEGIN) + len(_END)):
        return text
    inside = text[len(_BEGIN) : -len(_END)]
    try:
        data = b64decode(inside, validate=True)
        return data.decode() if b64encode(data).decode() == inside else None
    except ValueError:  # no Base64, not even of ASCII, or no text in it
        return None


# Bodies and HTTP errors


HTTP_STATUS = {  # of a response that is an error of JSON-RPC; 200 for all others
    **dict.fromkeys((PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS), 400),
    **dict.fromkeys((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), 400),
    METHOD_NOT_FOUND: 404,
}
_RESPONSE_TYPES = ("application/json", "text/event-stream", "*/*", "application/*")


async def read_message(headers: Headers, receive: Receive) -> bytes:
    """The body. Refuses a wrong type, also of the response that the client accepts."""
    check_content_type(headers.get("content-type", "").encode("latin-1"))
    accepted = headers.get("accept", "*/*")
    if _RESPONSE_TYPES[0] not in accepted and not any(one in accepted for one in _RESPONSE_TYPES):
        raise HttpError(
            406,
            "not_acceptable",
            "an answer is application/json or text/event-stream, which the header accept does not allow",
        )
    body = await read_body(receive)
    if body is None:
        raise JsonRpcError(PARSE_ERROR, "the client went away in the middle of its message")
    return body


def as_json_rpc(refused: HttpError, id: Id | None = None) -> bytes:
    """An HTTP error as a JSON-RPC error, which MCP clients show."""
    return encode(error_response(id, JsonRpcError(INVALID_REQUEST, str(refused), {"reason": refused.code})))


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
