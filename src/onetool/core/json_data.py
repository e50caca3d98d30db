"""JSON data: converting handlers' values to plain data, freezing shared data, and limiting untrusted JSON. Parsing even
a small amount of JSON can take a long time: 4 MiB can hold 1.4 million empty lists, and nothing else in the process
runs meanwhile.

Callers that read untrusted JSON call `check_json` first. The strict decoder is for hand-written JSON: it refuses input
that Python's decoder accepts but other programs refuse or read differently.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from inspect import iscoroutine
from math import isfinite
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Self, cast

import msgspec

from onetool.core.errors import ToolFailure, describe_error
from onetool.core.text import lazy_pattern

if TYPE_CHECKING:
    from json import JSONDecoder

Block = dict[str, Any]


class ServerAnswer(NamedTuple):
    """The response from an MCP server: content blocks, and optional structured content, metadata and error."""

    content: list[Block]
    structured: Any = None
    meta: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None  # the JSON-RPC error; the content is its message


class AnsweredValue(msgspec.Struct, frozen=True):
    """A value with the server's original response, returned by handlers of MCP servers' tools."""

    value: Any
    sent: ServerAnswer


class ServerFailure(ToolFailure):
    """An error response from an MCP server. `sent` is the original response."""

    def __init__(self, message: str, sent: ServerAnswer) -> None:
        super().__init__(message)
        self.sent = sent


def protocol_failure(message: str, error: Mapping[str, Any]) -> ServerFailure:
    """Return the failure for a server's JSON-RPC error."""
    return ServerFailure(message, ServerAnswer([{"type": "text", "text": error["message"]}], error=error))


# Stored bytes

StoreBlob = Callable[[str], Any]
"""Store a text, and return a record with its `handle`."""

_MIME = lazy_pattern(r"[\w.+-]{1,60}/[\w.+-]{1,60}")


def blob_record(kind: str, data: str, mime: str | None, keep: StoreBlob) -> dict[str, Any]:
    """Store Base64 `data` as a data: URL and return a record with the handle."""
    mime = mime if mime and _MIME.fullmatch(mime) else "application/octet-stream"
    kept = keep(f"data:{mime};base64,{data}")
    size = len(data) * 3 // 4 - data[-2:].count("=")
    return {"type": kind, "mimeType": mime, "handle": kept.handle, "size": size}


# Frozen data


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("a tool's definition can't be changed; make a copy: copy.deepcopy(value)")


class FrozenDict(dict[str, Any]):
    __setitem__ = __delitem__ = __ior__ = _refuse  # pyright: ignore[reportAssignmentType]
    update = setdefault = pop = popitem = clear = _refuse  # pyright: ignore[reportAssignmentType]

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: deepcopy(value, memo) for key, value in self.items()}

    def copy(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (deepcopy(self),)


class FrozenList(list[Any]):
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # pyright: ignore[reportAssignmentType]
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse  # pyright: ignore[reportAssignmentType]

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [deepcopy(value, memo) for value in self]

    def copy(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (deepcopy(self),)


_LEAVES = frozenset((str, bool, int, float, type(None), FrozenDict, FrozenList))


def freeze(value: Any) -> Any:
    """Return the same data in immutable containers. Frozen parts are reused."""
    kind = cast(type[Any], type(value))
    if kind in _LEAVES:  # the usual case, and faster to test than a mapping
        return value
    if kind is dict:
        items = cast(dict[str, Any], value).items()
        return FrozenDict({key: item if type(item) in _LEAVES else freeze(item) for key, item in items})
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, Mapping):
        items = cast(Mapping[str, Any], value).items()
        return FrozenDict({key: freeze(item) for key, item in items})
    if isinstance(value, list | tuple):
        return FrozenList([freeze(item) for item in cast(list[Any], value)])
    return value


# Bounds for JSON from outside

MAX_PARTS = 500_000  # list items and object members in one document
MAX_DIGITS = 1_000  # of a number
CHUNK = 64 * 1024  # bytes that are scanned at once

_SIGNS = (b",", b"[", b"{")  # each part follows one of these
_STRIDE = MAX_DIGITS // 2
_DIGITS_IN_A_ROW = lazy_pattern(rb"[0-9]{2}")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_TOO_LONG = b"0" * (MAX_DIGITS + 1)
_ESCAPED = lazy_pattern(rb"\\*+.?", re.DOTALL)


class JsonTooCostlyError(ValueError):
    """JSON that would take too long to parse or walk. The message continues a sentence about the JSON."""


def check_json(data: bytes) -> None:
    """Raise JsonTooCostlyError for JSON with too many parts or digits. The syntax isn't checked."""
    if len(data) <= MAX_DIGITS:
        return
    many = len(data) > MAX_PARTS and _parts(data) > MAX_PARTS
    if not many and not _long_number(data):
        return
    bare = b"".join(_without_texts(data))
    if _parts(bare) - bare.count(b"[]") - bare.count(b"{}") > MAX_PARTS:  # those are empty
        raise JsonTooCostlyError(f"has more than {MAX_PARTS:,} parts")
    if _long_number(bare):
        raise JsonTooCostlyError(f"has a number of more than {MAX_DIGITS:,} digits")


def data_in(text: str) -> Any:
    """Decode a string with a JSON object or list.

    Return other strings unchanged, even numbers, because they may be zip codes.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        check_json(data := text.encode())
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, JsonTooCostlyError, RecursionError, UnicodeError):
        return text


def _parts(data: bytes) -> int:
    return sum(map(data.count, _SIGNS))


def _long_number(data: bytes) -> bool:
    """Return whether a number has too many digits: two adjacent samples of every 500th byte are then digits."""
    return _DIGITS_IN_A_ROW.search(data[::_STRIDE]) is not None and _TOO_LONG in data.translate(_ZEROS)


def _without_texts(data: bytes) -> Iterator[bytes]:
    """Yield the pieces of the JSON outside of string literals."""
    start, in_text = 0, False
    while start < len(data):
        end = start + CHUNK
        if data[end - 1 : end] == b"\\" and (rest := _ESCAPED.match(data, end)):
            end = rest.end()  # keep an escaped character with its backslash
        pieces = data[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b" ".join(pieces[in_text::2])
        in_text ^= len(pieces) % 2 == 0
        start = end


# Converting to plain data

MAX_PLAIN_PARTS = 5_000_000  # forty times `x = [x, x]` is small, but a copy exceeds any memory

_HOLDERS = frozenset((list, tuple, dict))
_PLAIN: tuple[Any, ...] = (str, int, float, list, dict)


def plain(value: Any) -> Any:
    """Convert a value, or the value in a server's answer, to plain JSON data. Raises ToolFailure."""
    if type(value) is AnsweredValue:
        return AnsweredValue(plain(value.value), value.sent)
    if type(value) in _HOLDERS and _is_endless(value):
        raise ToolFailure(f"returned more than {MAX_PLAIN_PARTS:,} parts", reason="output_invalid")
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_convert_unknown)
    except RecursionError:
        raise ToolFailure("returned data that is nested too deep or contains itself", reason="output_invalid") from None
    except BaseException as error:  # noqa: BLE001 - a model may raise anything while it is asked for its data
        raise ToolFailure(
            f"returned something that is not data: {describe_error(error)}", reason="output_invalid"
        ) from None


def _convert_unknown(value: Any) -> Any:
    """Convert types unknown to the encoder: subclasses of plain types, paths, and models with `model_dump`."""
    if iscoroutine(value):
        value.close()
        raise TypeError("something that was not awaited: write `await` before the call")
    for plain_type in _PLAIN:
        if isinstance(value, plain_type):
            return plain_type(value)
    if isinstance(value, PathLike):
        return fspath(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if hasattr(type(value), "model_dump"):  # pyright: ignore[reportUnknownArgumentType] - ask the class: a mock has every attribute
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} can't be converted to JSON; return text, numbers, lists or dicts")


def _is_endless(value: Any) -> bool:
    """Return whether a value has too many parts when written out, where shared parts count each time.

    Each list and dict is visited once, so this takes time in proportion to the value in memory, not to the output.
    """
    weights: dict[int, int] = {}
    waiting: list[Any] = [value]
    while waiting:
        one: Any = waiting[-1]
        parts = cast(Iterable[Any], one.values() if hasattr(one, "values") else one)
        inside = [part for part in parts if type(part) in _HOLDERS]
        if inside and id(one) not in weights:
            weights[id(one)] = 0  # until the parts have been weighed; stays 0 in a cycle
            waiting += [part for part in inside if id(part) not in weights]
            continue
        waiting.pop()
        weights[id(one)] = len(one) + sum(weights[id(part)] for part in inside)
        if weights[id(one)] > MAX_PLAIN_PARTS:
            return True
    return False


# Strict JSON

_WORDS = {
    "duplicate": "has the key {!r} twice; remove one of them",
    "constant": "has {}, which is not valid JSON",
    "range": "has {}, which is too large for a number",
}


class StrictJsonError(ValueError):
    """JSON that the strict decoder refuses. `text` is the key or number. The message continues a sentence about the
    JSON.
    """

    def __init__(self, kind: Literal["duplicate", "constant", "range"], text: str) -> None:
        super().__init__(_WORDS[kind].format(text))
        self.kind = kind
        self.text = text


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, refusing duplicate keys. Used as `object_pairs_hook`."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        raise StrictJsonError("duplicate", next(key for key, _ in pairs if key in seen or seen.add(key)))
    return found


def finite(text: str) -> float:
    """Refuse 1e999, which would become infinity. Used as `parse_float`."""
    if not isfinite(value := float(text)):
        raise StrictJsonError("range", text)
    return value


def no_constant(text: str) -> NoReturn:
    """Refuse NaN, Infinity and -Infinity. Used as `parse_constant`."""
    raise StrictJsonError("constant", text)


def strict_decoder(parse_float: Callable[[str], float] = finite) -> "JSONDecoder":
    from json import JSONDecoder  # rarely needed

    return JSONDecoder(object_pairs_hook=unique, parse_float=parse_float, parse_constant=no_constant)


# Sizes, and JSON to compare

_NO_DATA = 4  # bytes of `null`, for values that JSON can't represent
_DIGITS_PER_BIT = 0.30103


def size_of(value: Any) -> int:
    """Return the size of a string in UTF-8, or of any other value as JSON, in bytes."""
    if type(value) is str:
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    try:
        return len(_encode(value))
    except UnicodeEncodeError:  # a lone surrogate, perhaps among half a million parts: too slow part by part
        import json

        with suppress(Exception):  # as below
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return len(text.encode("utf-8", "replace"))
        return _sum_of_parts(value)
    except Exception:  # noqa: BLE001 - numbers of any length, objects of any kind
        return _sum_of_parts(value)


def _plain_mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise TypeError


_encode = msgspec.json.Encoder(enc_hook=_plain_mapping).encode
_encode_sorted = msgspec.json.Encoder(enc_hook=_plain_mapping, order="deterministic").encode


def _sum_of_parts(value: Any) -> int:
    """Return the size of a value that the encoder refuses, part by part. Stops at cycles."""
    with suppress(Exception):
        value = msgspec.to_builtins(value)  # errors are structs
    try:
        total, met, left = 0, dict[int, Any](), [value]
        while left:
            one: Any = left.pop()
            if not isinstance(one, Mapping | list | tuple | set | frozenset) or id(cast(object, one)) in met:
                total += _leaf(one)
                continue
            parts = cast(Collection[Any], one)
            met[id(parts)] = parts  # keep a reference, so that the ID is not reused
            total += 2 + max(0, len(parts) - 1)  # brackets and commas
            left.extend(parts)
            if isinstance(one, Mapping):
                total += len(parts)  # colons
                left.extend(cast(Mapping[Any, Any], one).values())
    except Exception:  # noqa: BLE001 - it may even change while it is looked at
        return _NO_DATA
    return total


def _leaf(value: Any) -> int:
    if isinstance(value, str):
        return len(_encode(value.encode("utf-8", "replace").decode()))
    try:
        return len(_encode(value))
    except Exception:  # noqa: BLE001 - no data, or a number that Python does not write out
        if isinstance(value, int):
            return int(value.bit_length() * _DIGITS_PER_BIT) + 1 + (value < 0)
        return _NO_DATA


def sorted_json(value: Any) -> tuple[bytes, int]:
    """Return JSON with sorted keys, equal for equal values, and the result of `size_of`. The JSON is empty if the value
    has no JSON form.
    """
    try:
        data = _encode_sorted(value)
    except Exception:  # noqa: BLE001 - half surrogates, numbers of any length, objects of any kind
        import json

        try:
            data = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_named_type).encode()
        except Exception:  # noqa: BLE001 - it contains itself, or is nested too deep
            data = b""
        return data, size_of(value)
    return data, size_of(value) if type(value) is str else len(data)


def _named_type(value: Any) -> Any:
    return dict(cast(Mapping[Any, Any], value)) if isinstance(value, Mapping) else f"<{type(value).__name__}>"
