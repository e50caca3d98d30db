"""Values that are more than data: pictures, sounds, things to read. A tool returns one, or a list of them.

Each is a plain dict, in the form in which MCP clients get it; in code, on the command line and over REST it is data
like any other.
"""

from typing import Any


def text(words: str) -> dict[str, Any]:
    """A piece of text between other content."""
    return {"type": "text", "text": words}


def image(data: bytes, mime_type: str = "image/png") -> dict[str, Any]:
    """A picture."""
    return {"type": "image", "data": _base64(data), "mimeType": mime_type}


def audio(data: bytes, mime_type: str = "audio/wav") -> dict[str, Any]:
    """A sound."""
    return {"type": "audio", "data": _base64(data), "mimeType": mime_type}


def embedded(uri: str, content: str | bytes, mime_type: str | None = None) -> dict[str, Any]:
    """A resource with its content: a file's text, say, under its address."""
    if isinstance(content, bytes):
        inside = {"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": _base64(content)}
    else:
        inside = {"uri": uri, "mimeType": mime_type or "text/plain", "text": content}
    return {"type": "resource", "resource": inside}


def link(uri: str, name: str, description: str | None = None, mime_type: str | None = None) -> dict[str, Any]:
    """Where a resource is, for the client to read if it wants to."""
    more = {"description": description, "mimeType": mime_type}
    return {"type": "resource_link", "uri": uri, "name": name, **{k: v for k, v in more.items() if v is not None}}


def _base64(data: bytes) -> str:
    from base64 import b64encode

    return b64encode(data).decode()
