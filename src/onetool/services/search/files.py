"""Arrays in a cache file. Missing, damaged and unrelated files are ignored.

The format is that of `numpy.savez`. The file is read, not mapped: truncating a mapped file would crash the process.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np

from onetool.core.os_files import read_cache, write_cache

Arrays = Mapping[str, np.ndarray]
MAX_BYTES = 1 << 30


def write_arrays(file: Path, head: str, arrays: Arrays) -> None:
    """Write the file. If that fails, the next process computes the content again."""
    stream = BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    with suppress(OSError):
        write_cache(file, _line(head), stream.getbuffer())


def read_arrays(file: Path, head: str, names: Iterable[str]) -> Arrays | None:
    """Return the arrays of these names, or None if the file can't be used."""
    body = read_cache(file, _line(head), MAX_BYTES)
    if body is None:
        return None
    try:
        with np.load(BytesIO(body), allow_pickle=False) as found:
            # `savez` compresses nothing.
            is_whole = sum(member.file_size for member in found.zip.infolist()) <= len(body)
            arrays = {name: found[name] for name in names} if is_whole else {}
    except Exception:  # noqa: BLE001 - numpy raises many kinds
        return None
    return arrays if is_whole and all(isinstance(array, np.ndarray) for array in arrays.values()) else None


def _line(head: str) -> bytes:
    return f"onetool {head}\n".encode()


def text_array(texts: Iterable[str]) -> np.ndarray:
    """Return strings without line breaks as an array."""
    return np.frombuffer("\n".join(texts).encode("utf-8", "surrogatepass"), np.uint8)


def texts_in(data: np.ndarray) -> list[str]:
    return data.tobytes().decode("utf-8", "surrogatepass").split("\n") if len(data) else []
