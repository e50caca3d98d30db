"""The file that vectors of tools are ready from. A vector is found by a digest of the texts that it was made of.

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

    Halves = np.ndarray[tuple[int, ...], np.dtype[np.float16]]

NAME = "meanings.cache"
DIGEST_BYTES, CHECK_BYTES = 16, 4
MOST_BYTES = 1 << 30


def digest_of(texts: Iterable[str]) -> bytes:
    return sha256("\0".join(texts).encode(errors="backslashreplace")).digest()[:DIGEST_BYTES]


class VectorCache:
    """`table` tells tables apart."""

    def __init__(self, file: Path, table: bytes, dimensions: int) -> None:
        self._file = file
        self._head = f"onetool meanings 1 {sys.byteorder} {table.hex()} {dimensions}\n".encode()
        self._dimensions = dimensions

    def read(self) -> "Mapping[bytes, Halves]":
        import numpy as np

        try:
            with os.fdopen(open_no_link(self._file, os.O_RDONLY), "rb") as stream:
                data = stream.read(MOST_BYTES)
        except OSError:
            return {}
        body = memoryview(data)[len(self._head) + CHECK_BYTES :]
        size, odd = divmod(len(body), DIGEST_BYTES + 2 * self._dimensions)
        if odd or not data.startswith(self._head + crc32(body).to_bytes(CHECK_BYTES, "big")):
            return {}
        digests = bytes(body[: size * DIGEST_BYTES])
        vectors = np.frombuffer(body[size * DIGEST_BYTES :], np.float16).reshape(size, self._dimensions)
        return {digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES]: vectors[at] for at in range(size)}

    def write(self, vectors: "Mapping[bytes, Halves]") -> None:
        """Where it can't be written, the next process makes them again."""
        body = b"".join((*vectors, *(vector.tobytes() for vector in vectors.values())))
        try:
            replace_file(self._file, b"".join((self._head, crc32(body).to_bytes(CHECK_BYTES, "big"), body)), sync=False)
        except OSError:
            return
