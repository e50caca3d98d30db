"""A picture of a window with few colours, made small: a palette of 256 in place of three bytes for each point."""

import struct
import zlib
from collections import Counter

FREQUENT = 150  # colours that are taken as they are
UNLIKE = 700  # squares of differences: a colour that the palette must not lose, such as that of one red star
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def small_png(data: bytes) -> bytes:
    """The same picture, or one that nobody can tell from it by eye."""
    width, height, rows, size = _decoded(data)
    points = [tuple(row[at : at + 3]) for row in rows for at in range(0, width * size, size)]
    palette, index = _palette(Counter(points))
    body = bytearray()
    for top in range(height):
        body.append(0)
        body += bytes(index[point] for point in points[top * width : (top + 1) * width])
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colours = bytes(part for colour in palette for part in colour)
    chunks = ((b"IHDR", header), (b"PLTE", colours), (b"IDAT", zlib.compress(bytes(body), 9)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)


def _palette(counted):
    """The most frequent colours and the most unlike ones, and for each colour the number of the nearest of them."""
    ranked = [colour for colour, _ in counted.most_common()]
    palette = ranked[:FREQUENT]
    for colour in ranked[FREQUENT:]:
        if len(palette) < 256 and all(_distance(colour, other) > UNLIKE for other in palette):
            palette.append(colour)
    index = {colour: number for number, colour in enumerate(palette)}
    near = {}
    for colour in counted.keys() - index.keys():
        coarse = tuple(part & 0xF8 for part in colour)
        if coarse not in near:
            near[coarse] = min(range(len(palette)), key=lambda number: _distance(palette[number], colour))
        index[colour] = near[coarse]
    return palette, index


def _distance(one, other):
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _decoded(data: bytes):
    """Width, height, rows of bytes, and bytes for a point. Chromium writes 8 bits a channel, not interlaced."""
    at, packed, width, height, size = len(SIGNATURE), b"", 0, 0, 0
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        content = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, _, colours = struct.unpack(">IIBB", content[:10])
            size = {2: 3, 6: 4}[colours]
        elif kind == b"IDAT":
            packed += content
        at += 12 + length
    raw, step = zlib.decompress(packed), width * size
    rows, above = [], bytearray(step)
    for top in range(height):
        start = top * (step + 1)
        above = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + step]), above, size)
        rows.append(above)
    return width, height, rows, size


def _unfiltered(kind, row, above, size):
    if kind == 2:
        return bytearray((a + b) & 255 for a, b in zip(row, above, strict=True))
    for at in range(len(row) if kind else 0):
        left = row[at - size] if at >= size else 0
        up, corner = above[at], above[at - size] if at >= size else 0
        guess = {1: left, 3: (left + up) // 2}[kind] if kind != 4 else _paeth(left, up, corner)
        row[at] = (row[at] + guess) & 255
    return row


def _paeth(left, up, corner):
    by_left, by_up, by_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    if by_left <= by_up and by_left <= by_corner:
        return left
    return up if by_up <= by_corner else corner
