"""The file that vectors of tools are ready from. A vector is found by a digest of what it was made of: the texts of a
tool, or, where that tells as much, its name and its JSON, so that no tool is made only to find its vector.

It is a cache: one that is missing, damaged, of another table or layout is as good as none. Vectors are kept in half
precision, and so are those that are made: what a query finds does not depend on whether there was a file.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from onetool.core.os_files import open_no_link, replace_file

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    Halves = np.ndarray[tuple[int, ...], np.dtype[np.float16]]

NAME = "meanings.cache"
DIGEST_BYTES, CHECK_BYTES = 16, 4
MOST_BYTES = 1 << 30
AT_ONCE = 4_096  # vectors that are made smaller together


def digest_of(texts: Iterable[str]) -> bytes:
    return sha256("\0".join(texts).encode(errors="backslashreplace")).digest()[:DIGEST_BYTES]


class VectorCache:
    """`table` tells tables apart."""

    def __init__(self, file: Path, table: bytes, dimensions: int) -> None:
        self._file = file
        self._head = f"onetool meanings 2 {sys.byteorder} {table.hex()} {dimensions}\n".encode()
        self._dimensions = dimensions

    def read(self) -> "tuple[Mapping[bytes, int], Halves]":
        """The rows of digests, and the vectors."""
        import numpy as np

        none: Halves = np.empty((0, self._dimensions), np.float16)
        try:
            with os.fdopen(open_no_link(self._file, os.O_RDONLY), "rb") as stream:
                data = stream.read(MOST_BYTES)
        except OSError:
            return {}, none
        body = memoryview(data)[len(self._head) + CHECK_BYTES :]
        size, odd = divmod(len(body), DIGEST_BYTES + 2 * self._dimensions)
        if odd or not data.startswith(self._head + _check(body)):
            return {}, none
        digests = bytes(body[: size * DIGEST_BYTES])
        vectors = np.frombuffer(body[size * DIGEST_BYTES :], np.float16).reshape(size, self._dimensions)
        return {digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES]: row for row in range(size)}, vectors

    def write(self, slots: Mapping[bytes, int], vectors: "Floats") -> None:
        """Those vectors whose digests are given. Where it can't be written, the next process makes them again."""
        wanted = list(slots.values())
        parts = (vectors[wanted[at : at + AT_ONCE]] for at in range(0, len(wanted), AT_ONCE))
        body = b"".join((*slots, *(part.astype("float16").tobytes() for part in parts)))
        try:
            replace_file(self._file, b"".join((self._head, _check(body), body)), sync=False)
        except OSError:
            return


def _check(body: bytes | memoryview) -> bytes:
    return crc32(body).to_bytes(CHECK_BYTES, "big")
