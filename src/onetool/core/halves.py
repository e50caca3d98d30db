"""Texts with halves of characters in them (lone surrogates): Python has such texts, and no JSON may.

They come from programs that cut a text in its middle, from a terminal's bytes, and out of JSON that was read leniently.
"""

from collections.abc import Mapping
from typing import Any, cast


def mended(text: str) -> str:
    """The text with U+FFFD for each half. Two halves that belong together become the character that they are."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def all_mended(value: Any) -> Any:
    """The same data with all of its texts mended, keys too; lists and objects in it become plain ones."""
    if isinstance(value, str):
        return mended(value)
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return {mended(key) if isinstance(key, str) else key: all_mended(one) for key, one in items}
    if isinstance(value, list | tuple):
        return [all_mended(one) for one in cast(list[Any], value)]
    return value
