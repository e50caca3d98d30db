"""The file that the search is ready from: what it knew of an index, and at which revision.

It is a cache: one that is missing, damaged, somebody else's or of another index is as good as none.
"""

import os
import sys
from pathlib import Path
from zlib import crc32

import msgspec

from onetool.core.os_files import open_no_link, replace_file
from onetool.sources.bundles.searching import BundleSearch, SavedSearch

NAME = "search.cache"
_HEAD = f"onetool search 2 {sys.byteorder}\n".encode()
_CHECK_BYTES = 4
MOST_BYTES = 1 << 30


class _SearchFile(msgspec.Struct):
    born: int
    revision: int
    search: SavedSearch


_decode = msgspec.msgpack.Decoder(_SearchFile).decode


def read_search(file: Path, born: int) -> tuple[int, BundleSearch] | None:
    """The revision of this index that it is about, and the search; None where there is none of use."""
    try:
        handle = open_no_link(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        with os.fdopen(handle, "rb") as stream:
            data = stream.read(MOST_BYTES)
    except OSError:
        return None
    body = memoryview(data)[len(_HEAD) + _CHECK_BYTES :]
    if not data.startswith(_HEAD + crc32(body).to_bytes(_CHECK_BYTES, "big")):
        return None
    try:
        found = _decode(body)
        return (found.revision, BundleSearch.restored(found.search)) if found.born == born else None
    except (msgspec.DecodeError, ValueError, IndexError):  # written by something else that counts the same
        return None


def write_search(file: Path, born: int, revision: int, search: BundleSearch) -> None:
    """Where it can't be written, the next process reads everything."""
    with search.words.lock:
        body = msgspec.msgpack.encode(_SearchFile(born, revision, search.saved()))
    try:
        replace_file(file, b"".join((_HEAD, crc32(body).to_bytes(_CHECK_BYTES, "big"), body)), sync=False)
    except OSError:
        return
