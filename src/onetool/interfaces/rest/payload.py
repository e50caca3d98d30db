"""Bodies: strict JSON in, JSON of whatever a tool gave out.

Strict means that there is one way to read it: no key twice, no NaN, no byte order mark, no half of a surrogate pair.
Who sends such a thing has a bug, and would else learn of it from what we had made of it.
"""

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import Mapping
from math import isfinite
from typing import Any
from urllib.parse import unquote_to_bytes

from onetool.core.json_bounds import TooMuch, check_json
from onetool.interfaces.asgi import Message, Receive, Scope
from onetool.interfaces.content_type import check_content_type
from onetool.interfaces.rest.problem import Wrong

EXACT = 2**53  # from here on a float may stand for several integers
LARGE = 64 * 1024  # bytes from which on reading it would hold up others


class Sent:
    """What a client sends in a request. It is not masked in what the client gets back: it has it already."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self._body: list[bytes] = []

    async def receive(self) -> Message:
        message = await self._receive()
        self._body.append(message.get("body", b""))
        return message

    def texts(self) -> list[str]:
        address = self._scope["raw_path"] + b"?" + self._scope["query_string"]
        return [unquote_to_bytes(address).decode(errors="replace"), b"".join(self._body).decode(errors="replace")]


async def json_body(headers: Mapping[bytes, bytes], receive: Receive, empty: Any = ..., whole: bool = False) -> Any:
    """The body as data; `empty` is what no body at all means, where it means something.

    With `whole` a number such as 60.0 is the integer that it is to JSON Schema.
    """
    check_content_type(headers.get(b"content-type"))
    data = await _all(receive)
    if not data and empty is not ...:
        return empty
    return read(data, whole) if len(data) < LARGE else await asyncio.to_thread(read, data, whole)


def read(data: bytes, whole: bool = False) -> Any:
    """JSON as data; Wrong says what is not right about it, and where."""
    if data.startswith(BOM_UTF8):
        raise _not_json("it begins with a byte order mark")
    try:
        check_json(data)
        value = (_whole_decoder if whole else _decoder).decode(data.decode("utf-8"))
        if b"\\ud" in data or b"\\uD" in data:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise _not_json(f"byte {error.start} is not UTF-8") from None
    except UnicodeEncodeError:
        raise _not_json("half of a surrogate pair in a text") from None
    except RecursionError:
        raise _not_json("it is nested too deep") from None
    except TooMuch as error:
        raise _not_json(f"it {error}") from None
    except ValueError as error:
        raise _not_json(str(error)) from None
    return value


async def _all(receive: Receive) -> bytes:
    part = await receive()
    parts = [part.get("body", b"")]
    while part.get("more_body"):
        part = await receive()
        parts.append(part.get("body", b""))
    if part["type"] == "http.disconnect":
        raise Wrong(400, "incomplete", "The client went away in the middle of its request.")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _not_json(what: str) -> Wrong:
    return Wrong(400, "bad_json", f"The body is not JSON that can be read: {what}.", part="body", pointer="")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice[:100]!r} is there twice")
    return found


def _number(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def _whole(text: str) -> float:
    value = _number(text)
    return int(value) if value.is_integer() and abs(value) < EXACT else value


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_constant)
_whole_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=_whole, parse_constant=_constant)
