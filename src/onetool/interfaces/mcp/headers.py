"""HTTP headers that repeat what the body says, so that those in between need not read it. They must agree with it."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from onetool.interfaces.mcp.menus.entry import Entry
from onetool.interfaces.mcp.wire import HEADER_MISMATCH, Fault, Message

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
    """Those that matter here, by their names in lower case. One of MCP's own that comes twice is refused."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        if raw_name in _OTHERS:
            found[raw_name.decode()] = raw_value.decode("latin-1")
        elif raw_name.startswith(b"mcp-"):
            name = raw_name.decode("latin-1")
            if name in found:
                raise Fault(HEADER_MISMATCH, f"the header {name} came twice")
            found[name] = raw_value.decode("latin-1").strip(" \t")
    return found


def check_method(headers: Headers, message: Message) -> None:
    _same(headers, METHOD, message["method"], "the body's method")


def check_version(headers: Headers, version: Any) -> None:
    """Against what the body's _meta says."""
    if VERSION not in headers:
        raise Fault(HEADER_MISMATCH, f"the header {VERSION} is missing")
    if headers[VERSION] != version:
        raise Fault(HEADER_MISMATCH, f"the header {VERSION} says {headers[VERSION]:.40}, the body {version!s:.40}")


def check_name(headers: Headers, message: Message) -> str:
    """The name of what is wanted, where a method has one."""
    member = _NAMES.get(message["method"])
    if member is None:
        return ""
    name = message.get("params", {}).get(member)
    _same(headers, NAME, name, f"params.{member}")
    return name


def check_present(headers: Headers, message: Any) -> None:
    """Those that a client with a session need not send, where it does."""
    if isinstance(message, dict) and isinstance(message.get("method"), str):
        if METHOD in headers:
            check_method(headers, message)
        if NAME in headers and isinstance(message.get("params", {}), dict):
            check_name(headers, message)


def check_arguments(headers: Headers, entry: Entry, args: Any) -> None:
    """Those arguments of a tool that its schema marks with `x-mcp-header`."""
    for argument, mark in entry.headers.items():
        value = args.get(argument) if isinstance(args, dict) else None
        name = f"{PARAM}{mark.lower()}"
        if value is not None or name in headers:
            _same(headers, name, None if value is None else _written(value), f"arguments.{argument}")


def _same(headers: Headers, name: str, value: Any, what: str) -> None:
    if name not in headers:
        raise Fault(HEADER_MISMATCH, f"the header {name} is missing: it must repeat {what}")
    said = _decoded(headers[name])
    if said is None:
        raise Fault(HEADER_MISMATCH, f"the header {name} is not valid Base64")
    if said != value:
        raise Fault(HEADER_MISMATCH, f"the header {name} and {what} differ")


def _written(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _decoded(text: str) -> str | None:
    """A value that is no plain ASCII comes as =?base64?…?=, spelled in the one right way."""
    if not (text.startswith(_BEGIN) and text.endswith(_END) and len(text) >= len(_BEGIN) + len(_END)):
        return text
    inside = text[len(_BEGIN) : -len(_END)]
    try:
        data = b64decode(inside, validate=True)
        return data.decode() if b64encode(data).decode() == inside else None
    except ValueError:  # no Base64, not even of ASCII, or no text in it
        return None
