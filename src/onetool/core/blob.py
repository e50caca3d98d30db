"""Bytes that a tool gives: stored, and a record with a handle stands for them.

Code that passes one on need not carry it, and a model does not read it by accident. What shows results may put it back.
"""

import re
from collections.abc import Callable
from typing import Any, Protocol


class Kept(Protocol):
    """What was stored."""

    @property
    def handle(self) -> str: ...


Keep = Callable[[str], Kept]

_MIME = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}")


def stored(kind: str, data: str, mime: str | None, keep: Keep) -> dict[str, Any]:
    """A record of what is kept as a data: URL, which says itself what it is. `data` is base64."""
    mime = mime if mime and _MIME.fullmatch(mime) else "application/octet-stream"
    kept = keep(f"data:{mime};base64,{data}")
    size = len(data) * 3 // 4 - data[-2:].count("=")
    return {"type": kind, "mimeType": mime, "handle": kept.handle, "size": size}
