"""Makes lists light: `fields` picks keys of each row, an ETag says that nothing has changed, and gzip packs the rest.

Only lists are packed. They hold nothing that a stranger's page could have put beside a secret, so that the size of a
packed list tells nothing (BREACH).
"""

import gzip
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from onetool.core.text import did_you_mean
from onetool.interfaces.rest.request import RestResponse, is_known, read_weights
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.validation import SHOWN

SMALL = 1024  # bytes that are not worth packing
LEVEL = 6


def _keys(shape: type) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(shape)]


BUNDLE_FIELDS = tuple(key for key in _keys(Bundle) if key != "schemaVersion")
TOOL_FIELDS = (*_keys(Tool), *sorted(SHOWN - {"warnings", "signature"}))


def read_fields(known: Collection[str]) -> Callable[[str], list[str]]:
    """The reader of the query parameter `fields`."""

    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        if not names:
            raise ValueError(f"names no field; there are {', '.join(known)}")
        for name in names:
            if name not in known:
                near = did_you_mean(name, known) or f"there are {', '.join(known)}"
                raise ValueError(f"names {name[:100]!r}, which is no field; {near}")
        return names

    return read


def picked(rows: list[dict[str, Any]], fields: Collection[str] | None) -> list[dict[str, Any]]:
    """The rows with these keys alone; None is all. A key that a row does without is left out."""
    if fields is None:
        return rows
    return [{key: row[key] for key in fields if key in row} for row in rows]


def list_response(headers: Mapping[bytes, bytes], body: bytes) -> RestResponse:
    """One page. Its ETag is weak, as the same page may come packed or not. Called in a thread: packing takes time."""
    tag = sha256(body).hexdigest()[:24]
    sent: list[tuple[bytes, bytes]] = [(b"etag", f'W/"{tag}"'.encode()), (b"vary", b"accept-encoding")]
    if is_known(headers, tag):
        return RestResponse(304, headers=tuple(sent))
    if len(body) > SMALL and takes_gzip(headers.get(b"accept-encoding", b"")):
        body = gzip.compress(body, LEVEL, mtime=0)
        sent.append((b"content-encoding", b"gzip"))
    return RestResponse(200, body, tuple(sent))


def takes_gzip(accepted: bytes) -> bool:
    """Whether Accept-Encoding allows gzip: by its name, or by `*` where it is not named."""
    found = read_weights(accepted.decode("latin-1").lower())
    return found.get("gzip", found.get("*", 0.0)) > 0
