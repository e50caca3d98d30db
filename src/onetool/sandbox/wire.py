"""Protobuf, as much of it as Monty's protocol uses. It reads unchecked bytes."""

from collections.abc import Iterator

from onetool.sandbox import ProtocolError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # wire types: how the content of a field is written
LONGER = "a field that is longer than its message"
LONGEST_VARINT = 63  # bits to shift by: ten bytes hold 64 bits

_ONE_BYTE = [bytes((number,)) for number in range(128)]


def varint(number: int) -> bytes:
    if number < 128:
        return _ONE_BYTE[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def header(tag: int, size: int) -> bytes:
    """What stands before a content of this size. Large contents are joined with it only once: a copy takes its time."""
    return varint(tag << 3 | LENGTH) + varint(size)


def message(tag: int, content: bytes) -> bytes:
    """A field that holds bytes, a text or a message."""
    size = len(content)
    if tag < 16 and size < 128:
        return _ONE_BYTE[tag << 3 | LENGTH] + _ONE_BYTE[size] + content
    return varint(tag << 3 | LENGTH) + varint(size) + content


def text(tag: int, content: str) -> bytes:
    """A text field. Halves of surrogate pairs, which UTF-8 does not have, become question marks."""
    return message(tag, content.encode(errors="replace"))


def number(tag: int, value: int) -> bytes:
    """A field that holds an unsigned number."""
    return varint(tag << 3) + varint(value)


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """The number at `pos`, and where it ends. IndexError where the data end first."""
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
        shift += 7
        if shift > LONGEST_VARINT:
            raise ProtocolError("a number without an end")


def fields(data: bytes, pos: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Each field of the message in data[pos:end]: its tag, then a number and 0, or the start and end of its content."""
    while pos < end:
        key, pos = read_varint(data, pos)
        kind = key & 7
        if kind == VARINT:
            value, pos = read_varint(data, pos)
            yield key >> 3, value, 0
            continue
        if kind == LENGTH:
            size, pos = read_varint(data, pos)
        elif kind == FIXED64:
            size = 8
        elif kind == FIXED32:
            size = 4
        else:
            raise ProtocolError(f"a field of wire type {kind}")
        if pos + size > end:
            raise ProtocolError(LONGER)
        yield key >> 3, pos, pos + size
        pos += size
    if pos != end:
        raise ProtocolError(LONGER)


def read_text(data: bytes, start: int, end: int) -> str:
    return data[start:end].decode()


def first_text(data: bytes, start: int, end: int) -> str:
    """Field 1 of a message, where that is a text."""
    return next((read_text(data, at, stop) for tag, at, stop in fields(data, start, end) if tag == 1), "")


def read_numbers(data: bytes, start: int, end: int) -> dict[int, int]:
    """The number fields of a message by tag. Negative ones are written in 64 bits."""
    found = {tag: value for tag, value, stop in fields(data, start, end) if not stop}
    return {tag: signed(value) for tag, value in found.items()}


def signed(value: int) -> int:
    """An int32 or int64, which varints carry as two's complement."""
    return value - (1 << 64) if value >> 63 else value
