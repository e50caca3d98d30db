"""Encodes plain data for the sandbox as a list of nodes, children before parents."""

from os import urandom
from struct import Struct
from typing import Any, NamedTuple

from onetool.sandbox import TooLargeError, wire

DEEPEST = 300  # levels of a value; each takes two frames of Python, which has a thousand
MOST_BYTES = 200 * 1024 * 1024  # of one message; a worker takes no more than 256 MiB
HOST = 3  # TYPE_ORIGIN_HOST: a class of ours
_double = Struct("<d").pack

# Numbers of nodes below this are written in three bytes, whether they need them or not: one format for all pairs.
THREE_BYTES = 1 << 21
LONG = 1000  # characters of a text
SMALL = 8192  # whole numbers below are sent once


class Function(NamedTuple):
    """A function of ours that code can call by this name."""

    name: str


class HostObject:
    """An object of ours without attributes: what code asks of it comes to us, with its id."""

    def __init__(self, class_name: str) -> None:
        self.id = urandom(16)
        class_id = wire.message(2, wire.message(1, urandom(16)))
        self._class = wire.message(2, wire.message(23, wire.text(1, class_name) + class_id + wire.number(3, HOST)))
        self._rest = wire.message(2, wire.message(1, self.id)) + wire.message(3, b"")

    def nodes(self, index: int) -> tuple[bytes, bytes]:
        """Its class, which becomes node `index`, and itself."""
        return self._class, wire.message(2, wire.message(24, wire.number(1, index) + self._rest))


class Arena:
    """The values that one message carries. Texts and small values are sent once, however often they occur."""

    __slots__ = ("_integers", "_nodes", "_singles", "_texts")

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._texts: dict[str, int] = {}
        self._integers: dict[
            int, int
        ] = {}  # small ones only: Python's hash of a number can be chosen, so that all collide
        self._singles: dict[bool | None, int] = {}

    def field(self, tag: int, *before: bytes, within: int = 0) -> bytes:
        """The arena as a field of a message, after its other fields; `within` is the tag of that message."""
        count = wire.number(1, len(self._nodes))
        size = len(count) + sum(map(len, self._nodes))
        if size > MOST_BYTES:
            raise TooLargeError("larger than what one message may hold")
        head = (*before, wire.header(tag, size), count)
        outer = wire.header(within, sum(map(len, head)) - len(count) + size) if within else b""
        return b"".join((outer, *head, *self._nodes))

    def add(self, value: Any, depth: int = 0) -> int:
        """The index of the value's node. TooLargeError where it is nested too deep, TypeError where it is not plain."""
        kind, nodes = type(value), self._nodes
        if kind is str:
            known = (
                self._texts.get(value) if len(value) < LONG else None
            )  # hashing a long one takes longer than sending it
            return self._text(value) if known is None else known
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
            nodes.append(wire.message(2, wire.message(25, wire.text(1, value.name))))
        elif kind is HostObject:
            nodes += value.nodes(len(nodes))
        else:
            raise TypeError(f"{kind.__name__} is no plain data")
        return len(nodes) - 1

    def _text(self, value: str) -> int:
        """The node of a text that is not there yet."""
        index = len(self._nodes)
        if len(value) < LONG:
            self._texts[value] = index
        raw = value.encode(errors="replace")
        size = len(raw)
        if size < 126:
            self._nodes.append(b"\x12%c\x42%c%b" % (size + 2, size, raw))
        else:
            inner = wire.header(8, size)
            self._nodes.append(b"".join((wire.header(2, len(inner) + size), inner, raw)))
        return index

    def _dict(self, value: dict[Any, Any], depth: int) -> None:
        if depth > DEEPEST:
            raise TooLargeError("nested too deep")
        add, texts, pairs = self.add, self._texts, list[bytes]()
        for key, part in value.items():
            # Most keys are texts that were seen before, as in the rows of a table.
            name = texts.get(key) if type(key) is str else None  # hashed already: it is a key
            if name is None:
                name = add(key, depth + 1)
            held = add(part, depth + 1)
            if name < 128 > held:
                pairs.append(b"\n\x04\x08%c\x10%c" % (name, held))
            elif name < 128 and held < THREE_BYTES:
                pairs.append(b"\n\x06\x08%c\x10%c%c%c" % (name, held & 127 | 128, held >> 7 & 127 | 128, held >> 14))
            else:
                pairs.append(_pair(name, held))
        self._nodes.append(wire.message(2, wire.message(14, b"".join(pairs))))

    def _list(self, value: list[Any] | tuple[Any, ...], depth: int, tag: int) -> None:
        if depth > DEEPEST:
            raise TooLargeError("nested too deep")
        add, indexes = self.add, list[int]()
        for part in value:  # no comprehension: it would take a second frame for each level
            indexes.append(add(part, depth + 1))
        packed = _packed(indexes)
        self._nodes.append(wire.message(2, wire.message(tag, wire.message(1, packed) if packed else b"")))


def _integer(value: int) -> bytes:
    """The node of a whole number. Small ones, which are most, are written in place."""
    if 0 <= value < 64:
        return b"\x12\x02\x28%c" % (value << 1)
    if 0 <= value < SMALL:
        return b"\x12\x03\x28%c%c" % (value << 1 & 127 | 128, value >> 6)
    if 0 <= value < 1 << 20:
        return b"\x12\x04\x28%c%c%c" % (value << 1 & 127 | 128, value >> 6 & 127 | 128, value >> 13)
    if -(1 << 63) <= value < 1 << 63:
        body = b"\x28" + wire.varint(value << 1 if value >= 0 else (-value << 1) - 1)
    else:
        magnitude = abs(value).to_bytes((abs(value).bit_length() + 7) // 8)
        body = wire.message(6, (b"\x08\x01" if value < 0 else b"") + wire.message(2, magnitude))
    return wire.message(2, body)


def _pair(key: int, value: int) -> bytes:
    return wire.message(1, wire.number(1, key) + wire.number(2, value))


def _packed(indexes: list[int]) -> bytes:
    most = max(indexes, default=0)
    if most < 128:
        return bytes(indexes)
    if most < THREE_BYTES:
        return bytes([byte for n in indexes for byte in (n & 127 | 128, n >> 7 & 127 | 128, n >> 14)])
    return b"".join(map(wire.varint, indexes))
