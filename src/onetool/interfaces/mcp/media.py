"""What a server gave that is no data: put back as what it was, for a client to show it.

Pictures, sounds and blobs stand in a value as records with a handle; an embedded text with the address that it has.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, TypeGuard

from onetool.core.errors import ToolFailure

KINDS = ("image", "audio", "blob", "resource_link")
EMBEDDED = {"type", "uri", "text", "mimeType", "_meta"}
MANY = 1_000  # items that are not looked at on the event loop
_HANDLE = re.compile(r"[0-9a-f]{32}")
_DATA_URL = re.compile(r"data:([^;,]{1,200});base64,([A-Za-z0-9+/=]*)")

Block = dict[str, Any]
Read = Callable[[str], str]
"""The text behind a handle, for whoever made the call that is running."""


async def restored(value: Any, read: Read, as_text: Callable[[Any], str]) -> list[Block] | None:
    """A value that is, or lists, such records: as content. None for all others, which are most."""
    items = value if isinstance(value, list) else [value]
    is_media = _has_media(items) if len(items) < MANY else await asyncio.to_thread(_has_media, items)
    if not is_media:
        return None
    return await asyncio.to_thread(lambda: [_block(item, read, as_text) for item in items])


def _has_media(items: list[Any]) -> bool:
    return any(_is_record(item) or _is_embedded(item) for item in items if isinstance(item, dict) and "type" in item)


def media_in(text: str) -> tuple[str, str] | None:
    """The type and the base64 of a stored text that stands for bytes."""
    found = _DATA_URL.fullmatch(text) if text.startswith("data:") else None
    return None if found is None else (found[1], found[2])


def _is_record(item: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(item, dict) or item.get("type") not in KINDS:
        return False
    return isinstance(handle := item.get("handle"), str) and _HANDLE.fullmatch(handle) is not None


def _is_embedded(item: Any) -> TypeGuard[dict[str, Any]]:
    """A text with an address, and nothing else: other data may be of a type that is called so, too."""
    if not isinstance(item, dict) or item.get("type") != "resource" or not {"uri", "text"} <= item.keys() <= EMBEDDED:
        return False
    return all(isinstance(part, str) for key, part in item.items() if key != "_meta")


def _block(item: Any, read: Read, as_text: Callable[[Any], str]) -> Block:
    if _is_embedded(item):
        return {"type": "resource", "resource": {key: part for key, part in item.items() if key != "type"}}
    if not _is_record(item):
        return {"type": "text", "text": item if isinstance(item, str) else as_text(item)}
    text: Block = {"type": "text", "text": as_text(item)}
    if item["type"] == "resource_link":
        return {key: part for key, part in item.items() if key != "handle"}
    try:
        media = media_in(read(item["handle"]))
    except ToolFailure:  # it has expired meanwhile
        return text
    if media is None:
        return text
    mime, data = media
    if item["type"] == "blob":
        uri = str(item.get("uri") or f"ot://results/{item['handle']}")
        return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "blob": data}}
    return {"type": item["type"], "data": data, "mimeType": mime}
