"""A single value in YAML, written so that no reader takes it for something else.

Readers differ: for one of YAML 1.1 `no` is false, `010` is eight and `1:30` is ninety. So a text stands without
quotes only if it is plainly one: it begins with a letter and has nothing in it that means something somewhere.
"""

import re
from base64 import b64encode
from collections.abc import Callable
from json.encoder import encode_basestring
from math import isfinite
from types import NoneType
from typing import Any

# Letters first; then also marks that mean nothing inside. A colon needs a letter after it, `#` no space before it.
_INSIDE = r"[A-Za-z0-9_ ./()+@$%^*!;<>=~&'\"|\\`\w-]*+"
_PLAIN = re.compile(rf"[^\W\d]{_INSIDE}(?:(?<! )(?::(?=[\w/:\\])|#){_INSIDE})*+(?<! )")
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_LONGEST_WORD = 5
# What may not stand in a YAML text as it is, or is taken for the end of a line.
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_HALF = re.compile(r"[\ud800-\udfff]")
_NOT_LITERAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def text_of(text: str) -> str:
    """A text, in quotes if it needs them."""
    if _PLAIN.fullmatch(text) and (len(text) > _LONGEST_WORD or text.lower() not in _WORDS):
        return text
    return quoted(text)


def quoted(text: str) -> str:
    """A text in double quotes: a JSON string is a YAML string, but for a few characters.

    Half of a surrogate pair can't be written in YAML at all; it is shown as the sign for that.
    """
    line = encode_basestring(text)
    if line.isascii() and "\x7f" not in line:
        return line
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", _HALF.sub("\ufffd", line))


def literal(text: str) -> str | None:
    """The mark of a text that stands line by line below it (`|`, or `|-` without a break at its end), or None.

    A text that begins with a space, or ends with several breaks, would need more marks than are easily read.
    """
    if "\n" not in text or text[0] in " \t\n" or text.endswith("\n\n") or _NOT_LITERAL.search(text):
        return None
    return "|" if text.endswith("\n") else "|-"


def _int(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # thousands of digits: Python neither writes nor reads so many, but for hexadecimal ones
        return hex(value)


def _float(value: float) -> str:
    """With a point always: for YAML 1.1 `1e+16` is text."""
    text = repr(value)
    if "." in text:
        return text
    return text.replace("e", ".0e") if isfinite(value) else text.replace("nan", ".nan").replace("inf", ".inf")


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _none(_: None) -> str:
    return "null"


def _bytes(value: bytes) -> str:
    return f'!!binary "{b64encode(value).decode()}"'


SCALARS: dict[type, Callable[[Any], str]] = {int: _int, float: _float, bool: _bool, NoneType: _none, bytes: _bytes}
"""How to write whatever is no text."""
