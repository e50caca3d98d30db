"""The body of an answer as it comes in: counted, decompressed, and cut off where it grows too large."""

import zlib

from onetool.handlers.http.faults import Garbled, TooLarge

GZIP, ZLIB, RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
KNOWN = frozenset(("gzip", "x-gzip", "deflate", "br", "zstd", "compress", "identity"))
MOST_MEMBERS = 256  # of one gzip stream: many files in a row are one, but each costs time


class Plain:
    """Not compressed: what comes is what there is."""

    def __init__(self, most: int) -> None:
        self._left = self._most = most

    def feed(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise too_large(self._most)
        return data

    def end(self) -> None:
        """Nothing is missing: the parser has counted."""


class Compressed:
    """gzip or deflate. No more than `most` bytes are ever made of it, however little it is."""

    def __init__(self, coding: str, most: int) -> None:
        self._left_in = self._left_out = self._most = most
        self._bits = GZIP if coding == "gzip" else 0  # 0: zlib or raw, as the first byte says
        self._stream = zlib.decompressobj(self._bits) if self._bits else None
        self._members = 1
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        self._left_in -= len(data)
        if self._left_in < 0:
            raise too_large(self._most)
        if self._stream is None:
            self._bits = ZLIB if data[0] & 0x0F == 8 else RAW  # servers mean either by "deflate"
            self._stream = zlib.decompressobj(self._bits)
        self._begun = True
        try:
            return self._inflated(self._stream, data)
        except zlib.error as error:
            raise Garbled(f"the answer can't be decompressed: {error}") from None

    def _inflated(self, stream: "zlib._Decompress", data: bytes) -> bytes:
        found: list[bytes] = []
        while data:
            part = stream.decompress(data, self._left_out + 1)
            self._left_out -= len(part)
            if self._left_out < 0:
                raise too_large(self._most)
            found.append(part)
            data = stream.unused_data
            if not stream.eof:
                break
            if data and self._bits == GZIP:
                self._members += 1
                if self._members > MOST_MEMBERS:
                    raise Garbled(f"the answer is compressed in more than {MOST_MEMBERS} parts")
                stream = self._stream = zlib.decompressobj(GZIP)
            elif data:
                raise Garbled("the answer goes on after the end of what is compressed")
        return b"".join(found)

    def end(self) -> None:
        if self._begun and self._stream is not None and not self._stream.eof:
            raise Garbled("the answer breaks off: what is compressed has no end")


def body_reader(coding: str, most: int) -> Plain | Compressed:
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return Plain(most)
    if coding in ("gzip", "x-gzip"):
        return Compressed("gzip", most)
    if coding == "deflate":
        return Compressed("deflate", most)
    known = all(part.strip() in KNOWN for part in coding.split(","))  # anything else may be what nobody should see
    how = f"as {coding[:40]!r}," if known else "in a way"
    raise Garbled(f"the answer is encoded {how} which was not asked for")


def too_large(most: int) -> TooLarge:
    return TooLarge(f"the answer has more than {most:,} bytes (limits.maxResponseBytes)", "limits.maxResponseBytes")
