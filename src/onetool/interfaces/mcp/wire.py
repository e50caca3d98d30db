"""JSON-RPC 2.0 on the wire: bytes to messages and back, and faults that go to the other side as errors."""

import json
from contextlib import suppress
from math import isfinite
from typing import Any

import msgspec

from onetool.core.json_bounds import TooMuch, check_json

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
NOT_FOUND_BEFORE = -32002  # a resource that is not there, in revisions before 2026-07-28

Message = dict[str, Any]
Id = str | int

_decoder = msgspec.json.Decoder()


class Fault(Exception):  # noqa: N818 - what the other side did wrong, or what we can't do for it
    """Goes back as a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def error(self) -> dict[str, Any]:
        told: dict[str, Any] = {"code": self.code, "message": str(self)}
        return told if self.data is None else {**told, "data": self.data}


def decode(data: bytes) -> Any:
    try:
        check_json(data)
        return _decoder.decode(data)
    except TooMuch as error:
        raise Fault(INVALID_REQUEST, f"the message {error}") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        # Half of a surrogate pair, from a client that cut a text: strange, but JSON, and somebody waits for an answer.
        if b"\\u" in data:
            with suppress(ValueError, RecursionError):
                return json.loads(data.decode(), parse_constant=_finite, parse_float=_finite)
        raise Fault(PARSE_ERROR, f"not JSON: {error}") from None


def checked(message: Any) -> Message:
    """One JSON-RPC message; INVALID_REQUEST where it is none."""
    if not isinstance(message, dict):
        raise Fault(INVALID_REQUEST, f"expected one JSON-RPC message, an object, got {_kind(message)}")
    if message.get("jsonrpc") != "2.0":
        raise Fault(INVALID_REQUEST, 'expected "jsonrpc": "2.0"')
    if "id" in message and not is_id(message["id"]) and not (message["id"] is None and "error" in message):
        raise Fault(INVALID_REQUEST, f"id: expected a text or a whole number, got {_kind(message['id'])}")
    if "method" in message:
        if not isinstance(message["method"], str):
            raise Fault(INVALID_REQUEST, f"method: expected a text, got {_kind(message['method'])}")
        if not isinstance(message.get("params", {}), dict):
            raise Fault(INVALID_PARAMS, f"params: expected an object, got {_kind(message['params'])}")
    elif "id" not in message or not ("result" in message or "error" in message):
        raise Fault(INVALID_REQUEST, "expected a request, a notification or a response: there is no method")
    return message


def is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def id_of(message: Any) -> Id | None:
    """The id to answer with, of a message that may be anything."""
    found = message.get("id") if isinstance(message, dict) else None
    return found if is_id(found) else None


def answer(id: Id, result: Any) -> Message:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def refusal(id: Id | None, fault: Fault) -> Message:
    return {"jsonrpc": "2.0", "id": id, "error": fault.error()}


def notification(method: str, params: Any = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def _finite(number: str) -> float:
    if not isfinite(value := float(number)):
        raise ValueError(f"out of range: {number}")
    return value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
