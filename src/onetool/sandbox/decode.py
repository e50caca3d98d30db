"""Decodes values from the sandbox: converts a list of nodes to plain data in one pass.

The values are untrusted. So nothing here hashes, compares or prints a value before it is known to be small, and
everything is Python code: other threads, the deadline and Ctrl-C get their turn every few milliseconds.

- A key becomes a string before it is hashed, because Python's hash of strings is keyed. A set becomes a list.
- A node may have many parents: forty times `x = [x, x]` is forty nodes with 2^40 leaves. The weight of each node with
  its children is checked before its value is built.
- Depth is computed without recursion. An integer is read only if it is short.
"""

import re
import struct
from binascii import b2a_base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from typing import Any, cast

from onetool.sandbox import NeverAwaitedError, ProtocolError, TooLargeError, TooManyDigitsError
from onetool.sandbox.wire import fields, first_text, read_numbers, read_varint, signed

MAX_DEPTH = 60  # levels; readers of the value have the same limit
MAX_NUMBER_BITS = 14_280  # bits, in whole bytes: the 4,300 digits that Python prints at most
PER_PART = 2  # minimum bytes of a part: a digit and a comma
MAX_PARTS = 1_000_000  # whatever the budget, since even lists of empty values take memory and time
SPARE_NODES = 10_000  # besides the parts of a value: the classes of its objects
FEW = 32  # bytes of indexes
LARGE = 65_536  # bytes of a string; larger ones are not copied before they are decoded
MAX_KEY_BYTES = 65_536  # bytes of a tuple or an object used as a key
MAX_INDEX_BYTES = 5  # bytes
CHECK_BYTES = 65_536  # bytes to read between two calls of `check`

# The first byte of a node: its tag in the schema and its wire type.
NONE, BOOL, INT, FLOAT, STR, DICT = 0x12, 0x20, 0x28, 0x39, 0x42, 0x72
BIG_INTEGER = 6
LISTS = frozenset((0x5A, 0x62, 0x7A))  # list, tuple and set
NODE = 0x12  # `repeated MontyNode nodes = 2` of an arena

FUTURE = re.compile(r"<coroutine [^<>]+>|<gather\(\d+\)>")  # the sandbox's repr of values that were not awaited
HEX_UUID = re.compile(r"([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")
# Errors from reading beyond the end, or from text that is not UTF-8
MALFORMED = (LookupError, OverflowError, struct.error, UnicodeDecodeError)

read_float = struct.Struct("<d").unpack_from
Check = Callable[[], None]
"""Called now and then while a value is read. Raises to stop."""


class Values:
    """The values in one message: `read` its arena, then `take` each root once."""

    __slots__ = (
        "_budget", "_check", "_depths", "_held", "_is_shared", "_keys_budget", "_max_nodes", "_part", "_values",
        "_weights",
    )  # fmt: skip

    def __init__(self, budget: int, check: Check | None = None) -> None:
        self._budget = self._keys_budget = budget  # bytes, of all roots together; of all keys that are not text
        self._check = check
        self._part = max(PER_PART, budget // MAX_PARTS)
        self._max_nodes = budget // self._part + SPARE_NODES
        self._values: list[Any] = []
        self._weights: list[int] = []  # of each node with its children, in bytes
        self._depths: dict[int, int] = {}  # levels of each node with children
        self._held: set[int] = set()  # nodes with children that have a parent already
        self._is_shared = False

    def take(self, index: int) -> Any:
        """Return a root value of the message. No list or dict occurs twice in it."""
        self._budget -= self._weights[index]
        if self._budget < 0:
            raise TooLargeError
        if index not in self._depths:  # no children
            return self._values[index]
        (value,), _ = self._held_values([index])
        return _copy(value) if self._is_shared else value

    def read(self, data: bytes, pos: int, end: int) -> None:
        """Read all nodes. Parents come after their children.

        This function is long on purpose: one call per node would cost too much.
        """
        budget, part = self._budget, self._part
        add, weigh = self._values.append, self._weights.append
        check_at = 0
        if pos < end and data[pos] == 0x08:  # the sender's count of nodes, which is not trusted
            _, pos = read_varint(data, pos + 1)
        while pos < end:
            if data[pos] != NODE:
                raise ProtocolError("an arena with other fields than nodes")
            size, start = data[pos + 1], pos + 2
            if size > 127:
                size, start = read_varint(data, pos + 1)
            if size < 2:  # each kind takes at least two bytes; shorter nodes would weigh nothing
                raise ProtocolError("a node without content")
            pos = start + size
            kind = data[start]
            if kind == STR:
                body = start + 2 if size < 130 else read_varint(data, start + 1)[1]
                if pos - body > budget:
                    raise TooLargeError
                add(data[body:pos].decode() if size < LARGE else str(memoryview(data)[body:pos], "utf-8"))
                weigh(part + pos - body)
            elif kind == INT:
                number = data[start + 1]
                if size == 3:
                    number = number & 127 | data[start + 2] << 7
                elif size == 4:
                    number = number & 127 | (data[start + 2] & 127) << 7 | data[start + 3] << 14
                elif size > 4:
                    number, _ = read_varint(data, start + 1)
                add(number >> 1 ^ -(number & 1))
                weigh(part + size)
            elif kind == DICT or kind in LISTS:
                body = start + 2 if size < 130 else read_varint(data, start + 1)[1]
                (self._dict if kind == DICT else self._list)(data, body, pos)
            elif kind == FLOAT:
                add(read_float(data, start + 1)[0])
                weigh(part + 8)
            elif kind == BOOL or (kind == NONE and size == 2):
                add(data[start + 1] != 0 if kind == BOOL else None)
                weigh(part)
            else:
                self._other(data, start, pos)
            if pos > check_at:
                check_at = pos + CHECK_BYTES
                if len(self._values) > self._max_nodes:
                    raise TooLargeError
                if self._check is not None:
                    self._check()
        if pos > end:
            raise ProtocolError("a node that is longer than its arena")

    def _dict(self, data: bytes, pos: int, end: int) -> None:
        values, weights, depths, held_before = self._values, self._weights, self._depths, self._held
        weight, depth, budget = self._part, 1, self._budget
        result: dict[str, Any] = {}
        while pos < end:
            # A pair is: 10, its length, 8, the key's index, 16, the value's index. An index takes one to five bytes.
            length = data[pos + 1]
            if length == 8 and data[pos + 3] > 127 < data[pos + 4]:
                key = data[pos + 3] & 127 | (data[pos + 4] & 127) << 7 | data[pos + 5] << 14
                held = data[pos + 7] & 127 | (data[pos + 8] & 127) << 7 | data[pos + 9] << 14
            elif length == 6 and data[pos + 3] > 127 > data[pos + 4]:
                key = data[pos + 3] & 127 | data[pos + 4] << 7
                held = data[pos + 6] & 127 | data[pos + 7] << 7
            elif length == 4 and data[pos + 4] == 16:  # not if an omitted 0 and a long index have this length
                key, held = data[pos + 3], data[pos + 5]
            else:
                key, held = read_pair(data, pos + 2, pos + 2 + length)
            pos += 2 + length
            weight += weights[key] + weights[held]
            if weight > budget:  # before the value is built
                raise TooLargeError
            name = values[key]
            if type(name) is not str:
                depth = max(depth, depths.get(key, 0) + 1)
                name = self._key(name, weights[key])
                weight += len(name)  # nested keys: each level writes out the previous one with its escapes
            if held in depths:
                depth = max(depth, depths[held] + 1)
                self._is_shared = self._is_shared or held in held_before
                held_before.add(held)
            result[name] = values[held]
        if pos != end:
            raise ProtocolError("a dict with other fields than pairs")
        self._add(result, depth, weight)

    def _key(self, key: Any, weight: int) -> str:
        """Return a key that isn't a string, as JSON. The time grows with its weight, in each dict with this key.

        Lists and dicts are converted in one step, which blocks the process.
        """
        self._keys_budget -= weight
        if self._keys_budget < 0 or (isinstance(key, list | dict) and weight > MAX_KEY_BYTES):
            raise TooLargeError
        if key is None or isinstance(key, bool):
            return {None: "null", True: "true", False: "false"}[key]
        return str(key)

    def _check_count(self, size: int) -> None:
        """Refuse more indexes than the budget allows before they are read. Each takes at most five bytes."""
        if size // MAX_INDEX_BYTES * self._part > self._budget:
            raise TooLargeError

    def _list(self, data: bytes, start: int, end: int) -> None:
        self._check_count(end - start)
        indexes: list[int] = []
        if start < end and data[start] == 10 and data[start + 1] < 128:  # one packed field of fewer than 128 bytes
            indexes = read_indexes(data[start + 2 : end])
        else:
            for tag, at, stop in fields(data, start, end):
                if tag == 1:
                    indexes += read_indexes(data[at:stop]) if stop else [at]
        weight = self._part + sum(map(self._weights.__getitem__, indexes))
        if weight > self._budget:
            raise TooLargeError
        self._add(*self._held_values(indexes), weight)

    def _attributes(self, names: list[str], indexes: list[int]) -> None:
        weight = self._part + sum(map(self._weights.__getitem__, indexes)) + sum(map(len, names))
        if weight > self._budget:
            raise TooLargeError
        values, depth = self._held_values(indexes)
        self._add(dict(zip(names, values, strict=False)), depth, weight)

    def _held_values(self, indexes: list[int]) -> tuple[list[Any], int]:
        """Return the values of child nodes for their parent, and its depth."""
        depth, depths = 1, self._depths
        if not depths.keys().isdisjoint(indexes):
            inside = [index for index in indexes if index in depths]
            depth += max(map(depths.__getitem__, inside))
            if not self._held.isdisjoint(inside) or len(inside) > len(set(inside)):
                self._is_shared = True  # two parents have the same list or dict, until `take` copies it
            self._held.update(inside)
        return list(map(self._values.__getitem__, indexes)), depth

    def _add(self, value: Any, depth: int, weight: int) -> None:
        """Add a node with children."""
        if depth > MAX_DEPTH:
            raise TooLargeError
        self._depths[len(self._values)] = depth
        self._values.append(value)
        self._weights.append(weight)

    def _other(self, data: bytes, pos: int, end: int) -> None:
        """Add a node of a type that JSON lacks: long integers, bytes, dates, objects of the code, exceptions."""
        key, pos = read_varint(data, pos)
        tag = key >> 3
        size, start = read_varint(data, pos)
        if key & 7 != 2 or start + size != end:
            raise ProtocolError(f"a node whose content, field {tag}, is not what the node holds")
        if tag == 16:  # frozen_set
            self._list(data, start, end)
        elif tag == 13:  # named_tuple
            self._check_count(size)
            names, indexes = list[str](), list[int]()
            for part, at, stop in fields(data, start, end):
                if part == 2:
                    names.append(data[at:stop].decode())
                elif part == 3:
                    indexes += read_indexes(data[at:stop]) if stop else [at]
            self._attributes(names, indexes)
        elif tag == 24:
            self._object(data, start, end)
        elif size > self._budget and tag != BIG_INTEGER:  # which has its own error for its length
            raise TooLargeError
        else:
            read = SCALARS.get(tag)
            if read is None:
                raise ProtocolError(f"a node of kind {tag}, which is unknown here")
            try:
                value = read(data, start, end)
            except (TooManyDigitsError, NeverAwaitedError):
                raise
            except (ValueError, OverflowError) as error:  # an invalid date, or not UTF-8
                raise ProtocolError(f"an invalid node of kind {tag}: {error}") from None
            self._values.append(value)
            self._weights.append(self._part + _size(value))

    def _object(self, data: bytes, start: int, end: int) -> None:
        """Add an object of a class as its attributes."""
        names, indexes = list[Any](), list[int]()
        for tag, at, stop in fields(data, start, end):
            if tag == 3:
                pairs = [read_pair(data, here, there) for _, here, there in fields(data, at, stop)]
                names = [self._values[key] for key, _ in pairs]
                indexes = [value for _, value in pairs]
        if any(type(name) is not str for name in names):
            raise ProtocolError("an attribute whose name is not text")
        self._attributes(names, indexes)


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if type(value) is list else value


def _size(value: Any) -> int:
    """Return the size of a value as text, in bytes. Each digit of a longer integer takes longer to write."""
    if not isinstance(value, int):
        return len(str(value))
    bits = value.bit_length()
    return bits // 3 + (bits // 128) ** 2


def read_pair(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the two numbers of a `NodePair` message."""
    if end - start == 4 and data[start] == 8 and data[start + 1] < 128 and data[start + 2] == 16:
        return data[start + 1], data[start + 3]  # one byte each, as in most calls
    pair = {tag: value for tag, value, _ in fields(data, start, end)}
    return pair.get(1, 0), pair.get(2, 0)


def read_indexes(packed: bytes) -> list[int]:
    """Return packed numbers. A long run of numbers of the same width, the usual case, is read at once."""
    if packed.isascii():  # every number is one byte
        return list(packed)
    found: list[int] = []
    if len(packed) < FEW:  # not worth a pattern
        number = shift = 0
        for byte in packed:
            if byte < 128:
                found.append(number | byte << shift)
                number = shift = 0
            else:
                number |= (byte & 127) << shift
                shift += 7
        if shift:
            raise ProtocolError("an index that is cut off")
        return found
    pos = 0
    while pos < len(packed):
        last = pos
        while packed[last] > 127:
            last += 1
        width = last + 1 - pos
        if width > MAX_INDEX_BYTES:
            raise ProtocolError("an index of more than five bytes")
        run = cast(re.Match[bytes], re.compile(rb"(?:[\x80-\xff]{%d}[\0-\x7f])+" % (width - 1)).match(packed, pos))
        numbers = run[0]
        if width == 1:
            found += numbers
        elif width == 2:
            found += [low & 127 | high << 7 for low, high in zip(numbers[::2], numbers[1::2], strict=True)]
        elif width == 3:
            parts = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
            found += [low & 127 | (middle & 127) << 7 | high << 14 for low, middle, high in parts]
        else:
            found += [read_varint(numbers, at)[0] for at in range(0, len(numbers), width)]
        pos = run.end()
    return found


def _big_integer(data: bytes, start: int, end: int) -> int:
    negative = magnitude = 0
    for tag, at, stop in fields(data, start, end):
        if tag == 1:
            negative = at
        elif (stop - at) * 8 > MAX_NUMBER_BITS:
            raise TooManyDigitsError
        else:
            magnitude = int.from_bytes(data[at:stop], "big")
    return -magnitude if negative else magnitude


def _uuid(data: bytes, start: int, end: int) -> str:
    digits = next((data[at:stop].hex() for _, at, stop in fields(data, start, end)), "")
    return re.sub(HEX_UUID, r"\1-\2-\3-\4-\5", digits)


def _zone(
    data: bytes, start: int, end: int, offset_tag: int, name_tag: int, offset: timedelta | None = None
) -> timezone | None:
    name: str | None = None
    for tag, at, stop in fields(data, start, end):
        if tag == offset_tag and not stop:
            offset = timedelta(seconds=signed(at))
        elif tag == name_tag and stop:
            name = data[at:stop].decode()
    if offset is None:
        return None
    return timezone(offset) if name is None else timezone(offset, name)


def _numbers(data: bytes, start: int, end: int, count: int) -> list[int]:
    """Return the number fields 1 to `count` of a message."""
    found = read_numbers(data, start, end)
    return [found.get(tag, 0) for tag in range(1, count + 1)]


def _datetime(data: bytes, start: int, end: int) -> str:
    return datetime(*_numbers(data, start, end, 7), tzinfo=_zone(data, start, end, 8, 9)).isoformat()


def _time(data: bytes, start: int, end: int) -> str:
    return time(*_numbers(data, start, end, 4), tzinfo=_zone(data, start, end, 5, 6)).isoformat()


def _exception(data: bytes, start: int, end: int) -> str:
    texts = {tag: data[at:stop].decode() for tag, at, stop in fields(data, start, end)}
    return f"{texts.get(1, '').rpartition('.')[2]}: {texts.get(2, '')}"


def _repr(data: bytes, start: int, end: int) -> str:
    text = data[start:end].decode()
    if FUTURE.fullmatch(text):
        raise NeverAwaitedError
    return text


def _decoded_text(data: bytes, start: int, end: int) -> str:
    return data[start:end].decode()


def _complex(data: bytes, start: int, end: int) -> str:
    part = {tag: read_float(data, at)[0] for tag, at, _ in fields(data, start, end)}
    return str(complex(part.get(1, 0.0), part.get(2, 0.0)))


# Nodes without children, by tag
SCALARS: dict[int, Callable[[bytes, int, int], Any]] = {
    1: lambda *_: "Ellipsis",
    3: lambda *_: "NotImplemented",
    BIG_INTEGER: _big_integer,
    9: lambda data, start, end: b2a_base64(data[start:end], newline=False).decode(),
    10: _uuid,
    17: lambda data, start, end: date(*_numbers(data, start, end, 3)).isoformat(),
    18: _time,
    19: _datetime,
    20: lambda data, start, end: timedelta(*_numbers(data, start, end, 3)).total_seconds(),
    21: lambda data, start, end: str(_zone(data, start, end, 1, 2, timedelta(0))),  # an offset of 0 is omitted
    22: _exception,
    23: lambda *at: f"<class '{first_text(*at)}'>",
    25: first_text,  # function
    26: lambda *at: f"<built-in function {_decoded_text(*at)}>",
    27: _decoded_text,  # path
    28: first_text,  # file_handle
    29: _repr,
    30: _decoded_text,  # cycle
    31: _complex,
    32: first_text,  # module
    33: _decoded_text,  # decimal
}
