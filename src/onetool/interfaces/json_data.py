"""JSON at the edges of the program: which Content-Type a request needs, and an encoder that takes any data.

Only bodies that say that they are JSON are accepted. A web page can send text, forms and bodies without a type to any
other origin without asking, with whatever JSON in them; JSON it can't.
"""

import json
from math import isfinite
from typing import Any

import msgspec

from onetool.interfaces.asgi import JSON, HttpError

MOST_BITS = 14_000  # of a number: Python writes no longer ones in tens

_encoder = msgspec.json.Encoder()


def encode(message: Any) -> bytes:
    try:
        return _encoder.encode(message)
    except (ValueError, OverflowError, RecursionError, TypeError):
        # Half of a surrogate pair, a number of any length, odd keys: rare, and worth the slower way.
        return json.dumps(_with_json_numbers(message), default=str, skipkeys=True).encode()


def _with_json_numbers(value: Any) -> Any:
    """The same data with null for NaN and infinity, and hexadecimal text for huge integers."""
    if isinstance(value, dict):
        return {key: _with_json_numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_json_numbers(one) for one in value]
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return hex(value)
    return None if isinstance(value, float) and not isfinite(value) else value


# Content-Type


_COMMON_TYPES = (JSON, b"application/json; charset=utf-8")  # answered without a closer look
LONGEST_SHOWN = 100  # characters of it that an answer repeats


def check_content_type(content_type: bytes | None) -> None:
    if content_type in _COMMON_TYPES or (content_type is not None and _is_json(content_type)):
        return
    came = "there is none" if content_type is None else f"not {content_type[:LONGEST_SHOWN].decode('latin-1')!r}"
    message = f"A body must be JSON in UTF-8, and say so: send `Content-Type: application/json`; {came}."
    raise HttpError(415, "unsupported_media_type", message)


def _is_json(content_type: bytes) -> bool:
    name, *parameters = (part.strip().lower() for part in content_type.split(b";"))
    charsets = [one[8:].strip(b'"') for one in parameters if one.startswith(b"charset=")]
    return name == JSON and all(one in (b"utf-8", b"utf8") for one in charsets)
