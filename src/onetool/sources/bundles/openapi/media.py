"""Media types, and types of schemas: what they mean for a body or an answer."""

import re
from typing import Any

FORM = "application/x-www-form-urlencoded"

_MEDIA = re.compile(r"[a-z0-9!#$&^_.+*-]{1,60}/[a-z0-9!#$&^_.+*-]{1,80}")
_TEXTS = ("application/xml", "application/yaml", "application/x-yaml", "application/javascript", "application/graphql")


def known_media(text: str) -> str:
    """Without its parameters, in lower case; "*/*" for a body is taken to be JSON. Nothing where it is none."""
    media = text.partition(";")[0].strip().lower()
    if not _MEDIA.fullmatch(media):
        return ""
    return "application/json" if media in ("*/*", "application/*", "text/json", "json") else media


def is_json(text: str) -> bool:
    media = known_media(text)
    return media == "application/json" or media.endswith("+json")


def is_xml(text: str) -> bool:
    return known_media(text).endswith("xml")


def is_multipart(text: str) -> bool:
    return known_media(text).startswith("multipart/")


def encoding_of(text: str) -> str:
    """How an answer of this type is read."""
    media = known_media(text)
    if is_json(media):
        return "json"
    if media == "text/event-stream":
        return "sse"
    return "text" if media.startswith("text/") or media.endswith("+xml") or media in _TEXTS else "binary"


def kind_of(schema: dict[str, Any]) -> str | None:
    """The one type that it has, beside null."""
    types = schema.get("type")
    if isinstance(types, list):
        types = next((one for one in types if one != "null"), None)
    if types is None and isinstance(schema.get("properties"), dict):
        return "object"
    if types is None and "items" in schema:
        return "array"
    return types if isinstance(types, str) else None
