"""The part of Protobuf that Monty's protocol uses, and plain data encoded with it as a list of nodes.

Children come before their parents. The readers accept untrusted bytes.
"""

from collections.abc import Iterator
from os import urandom
from struct import Struct
from typing import Any, NamedTuple

from onetool.sandbox import ProtocolError, TooLargeError

VARINT, LENGTH = 0, 2  # wire types: the encodings of a field
FIXED = {1: 8, 5: 4}  # the bytes of numbers of fixed size, by wire type
LONGER = "a field that is longer than its message"
MAX_SHIFT = 63  # bits to shift by: ten bytes contain 64 bits

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
    """Return the header of a field of this size. The caller joins it with large contents, to copy them only once."""
    if tag < 16 and size < 128:
        return bytes((tag << 3 | LENGTH, size))
    return varint(tag << 3 | LENGTH) + varint(size)


def message(tag: int, content: bytes) -> bytes:
    """Return a field that contains bytes, a string or a message."""
    size = len(content)
    if tag < 16 and size < 128:
        return _ONE_BYTE[tag << 3 | LENGTH] + _ONE_BYTE[size] + content
    return varint(tag << 3 | LENGTH) + varint(size) + content


def text(tag: int, content: str) -> bytes:
    """Return a string field. Lone surrogates, which UTF-8 can't encode, become question marks."""
    return message(tag, content.encode(errors="replace"))


def number(tag: int, value: int) -> bytes:
    """Return a field that contains an unsigned number."""
    if tag < 16 and value < 128:
        return bytes((tag << 3, value))
    return varint(tag << 3) + varint(value)


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the number at `pos` and the position after it. Raise IndexError if the data ends first."""
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
        shift += 7
        if shift > MAX_SHIFT:
            raise ProtocolError("a number without an end")


def fields(data: bytes, pos: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield each field of the message in data[pos:end]: its tag, then a number and 0, or the bounds of its content.

    Most numbers are one byte, which is read in place.
    """
    while pos < end:
        key = data[pos]
        pos += 1
        if key > 127:
            key, pos = read_varint(data, pos - 1)
        if key & 5:  # neither VARINT nor LENGTH
            size = FIXED.get(key & 7)
            if size is None:
                raise ProtocolError(f"a field of wire type {key & 7}")
        else:
            size = data[pos]
            pos += 1
            if size > 127:
                size, pos = read_varint(data, pos - 1)
            if not key & LENGTH:
                yield key >> 3, size, 0
                continue
        start = pos
        pos += size
        if pos > end:
            raise ProtocolError(LONGER)
        yield key >> 3, start, pos
    if pos != end:
        raise ProtocolError(LONGER)


def first_text(data: bytes, start: int, end: int) -> str:
    """Return field 1 of a message, if it is a string."""
    return next((data[at:stop].decode() for tag, at, stop in fields(data, start, end) if tag == 1), "")


def read_numbers(data: bytes, start: int, end: int) -> dict[int, int]:
    """Return the number fields of a message by tag. Negative numbers are encoded in 64 bits."""
    return {tag: signed(value) for tag, value, stop in fields(data, start, end) if not stop}


def signed(value: int) -> int:
    """Return an int32 or int64, which varints encode as two's complement."""
    return value - (1 << 64) if value >> 63 else value


# Plain data

MAX_DEPTH = 300  # levels of a value; each takes two of Python's thousand stack frames
MAX_BYTES = 200 * 1024 * 1024  # of one message; a worker accepts at most 256 MiB
HOST = 3  # TYPE_ORIGIN_HOST: a host class
_double = Struct("<d").pack

# Indexes below this are always written in three bytes, so that all pairs have one format.
THREE_BYTES = 1 << 21
LONG = 1000  # characters of a string
SMALL = 8192  # smaller integers are sent once


class Function(NamedTuple):
    """A host function that code can call by this name."""

    name: str


class HostObject:
    """A host object without attributes: the host answers every lookup in it, by its ID."""

    def __init__(self, class_name: str) -> None:
        self.id = urandom(16)
        class_id = message(2, message(1, urandom(16)))
        self.class_node = message(2, message(23, text(1, class_name) + class_id + number(3, HOST)))
        self.fields = message(2, message(1, self.id)) + message(3, b"")  # without the index of its class


class Arena:
    """The values in one message. Strings and small values are sent once, however often they occur."""

    __slots__ = ("_integers", "_nodes", "_singles", "_texts")

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._texts: dict[str, int] = {}
        # Small numbers only: hashes of numbers can be chosen so that all collide
        self._integers: dict[int, int] = {}
        self._singles: dict[bool | None, int] = {}

    def field(self, tag: int, *before: bytes, within: int = 0) -> bytes:
        """Return the arena as a field of a message, after its other fields; `within` is the tag of that message."""
        count = number(1, len(self._nodes))
        size = len(count) + sum(map(len, self._nodes))
        if size > MAX_BYTES:
            raise TooLargeError("larger than one message may be")
        head = (*before, header(tag, size), count)
        outer = header(within, sum(map(len, head)) - len(count) + size) if within else b""
        return b"".join((outer, *head, *self._nodes))

    def add(self, value: Any, depth: int = 0) -> int:
        """Return the index of the value's node. Raise TooLargeError if nested too deep, TypeError if not plain data."""
        kind, nodes = type(value), self._nodes
        if kind is str:
            if len(value) < LONG:  # hashing a long string takes longer than sending it
                known = self._texts.setdefault(value, len(nodes))
                if known < len(nodes):
                    return known
            raw = value.encode(errors="replace")
            size = len(raw)
            if size < 126:
                nodes.append(b"\x12%c\x42%c%b" % (size + 2, size, raw))
            else:
                inner = header(8, size)
                nodes.append(b"".join((header(2, len(inner) + size), inner, raw)))
            return len(nodes) - 1
        if kind is int:
            if 0 <= value < SMALL:
                known = self._integers.setdefault(value, len(nodes))
                if known < len(nodes):
                    return known
            nodes.append(_integer(value))
        elif kind is float:
            nodes.append(b"\x12\x09\x39" + _double(value))
        elif kind is dict:
            self._dict(value, depth)
        elif kind is list or kind is tuple:
            self._list(value, depth, 11 if kind is list else 12)
        elif value is None or kind is bool:
            known = self._singles.setdefault(value, len(nodes))
            if known < len(nodes):
                return known
            nodes.append(b"\x12\x02\x12\x00" if value is None else b"\x12\x02\x20%c" % value)
        elif kind is Function:
            nodes.append(message(2, message(25, text(1, value.name))))
        elif kind is HostObject:
            nodes += value.class_node, message(2, message(24, number(1, len(nodes)) + value.fields))
        else:
            raise TypeError(f"{kind.__name__} is not plain data")
        return len(nodes) - 1

    def _dict(self, value: dict[Any, Any], depth: int) -> None:
        if depth > MAX_DEPTH:
            raise TooLargeError("nested too deep")
        add, texts, pairs = self.add, self._texts, list[bytes]()
        for key, part in value.items():
            # Most keys are strings that occurred before, as in the rows of a table.
            name = texts.get(key) if type(key) is str else None  # a key's hash is cached
            if name is None:
                name = add(key, depth + 1)
            held = add(part, depth + 1)
            if name < 128 > held:
                pairs.append(b"\n\x04\x08%c\x10%c" % (name, held))
            elif name < 128 and held < THREE_BYTES:
                pairs.append(b"\n\x06\x08%c\x10%c%c%c" % (name, held & 127 | 128, held >> 7 & 127 | 128, held >> 14))
            else:
                pairs.append(message(1, number(1, name) + number(2, held)))
        self._nodes.append(message(2, message(14, b"".join(pairs))))

    def _list(self, value: list[Any] | tuple[Any, ...], depth: int, tag: int) -> None:
        if depth > MAX_DEPTH:
            raise TooLargeError("nested too deep")
        add, indexes = self.add, list[int]()
        for part in value:  # no comprehension: it would take a second stack frame for each level
            indexes.append(add(part, depth + 1))
        highest = max(indexes, default=0)
        if highest < 128:
            packed = bytes(indexes)
        elif highest < THREE_BYTES:
            packed = bytes([byte for n in indexes for byte in (n & 127 | 128, n >> 7 & 127 | 128, n >> 14)])
        else:
            packed = b"".join(map(varint, indexes))
        self._nodes.append(message(2, message(tag, message(1, packed) if packed else b"")))


def _integer(value: int) -> bytes:
    """Return the node of an integer. Small integers, the usual case, are written in place."""
    if 0 <= value < 64:
        return b"\x12\x02\x28%c" % (value << 1)
    if 0 <= value < SMALL:
        return b"\x12\x03\x28%c%c" % (value << 1 & 127 | 128, value >> 6)
    if 0 <= value < 1 << 20:
        return b"\x12\x04\x28%c%c%c" % (value << 1 & 127 | 128, value >> 6 & 127 | 128, value >> 13)
    if -(1 << 63) <= value < 1 << 63:
        body = b"\x28" + varint(value << 1 if value >= 0 else (-value << 1) - 1)
    else:
        magnitude = abs(value).to_bytes((abs(value).bit_length() + 7) // 8)
        body = message(6, (b"\x08\x01" if value < 0 else b"") + message(2, magnitude))
    return message(2, body)
