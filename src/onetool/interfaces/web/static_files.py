"""`read_folder` reads the files of the page into memory, each with its media type, its ETag and its packed form.

A file is found by its name in a dict, so that no address leads out of the folder.
"""

import gzip
import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

MEDIA_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".ico": b"image/x-icon",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".wasm": b"application/wasm",
    ".woff2": b"font/woff2",
}
UNKNOWN_TYPE = b"application/octet-stream"
PACKED_ALREADY = (".ico", ".png", ".woff2")
SMALLEST_PACKED = 500  # bytes; a shorter file costs more to unpack than it saves
_HASHED = re.compile(r"-[A-Za-z0-9_-]{8,}\.\w+")  # at the end of a name: other content has another name


class StaticFile(NamedTuple):
    """A file as it is sent. `packed` is its gzip form, where that is shorter."""

    body: bytes
    packed: bytes | None
    media_type: bytes
    etag: bytes  # of the content, without quotes
    is_hashed: bool  # its name has a hash of its content


def read_folder(folder: Path) -> dict[str, StaticFile]:
    """All files below the folder, by their path in it (`assets/index-Bx31aZ09.js`). Links are left out."""
    return {path.relative_to(folder).as_posix(): _read(path) for path in _files_in(folder)}


def _files_in(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):  # it follows no links to folders
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _read(path: Path) -> StaticFile:
    body, ending = path.read_bytes(), path.suffix.lower()
    packed = None
    if len(body) >= SMALLEST_PACKED and ending not in PACKED_ALREADY:
        packed = gzip.compress(body, 9, mtime=0)
        packed = packed if len(packed) < len(body) else None
    etag = sha256(body).hexdigest()[:32].encode()
    return StaticFile(body, packed, MEDIA_TYPES.get(ending, UNKNOWN_TYPE), etag, _HASHED.search(path.name) is not None)
