"""Query strings: a Struct per route has the parameters, their types, defaults and descriptions."""

import re
from collections.abc import Collection
from functools import cache
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Meta, inspect

from onetool.app.operations.fields import SPLIT, Query
from onetool.core.text import did_you_mean
from onetool.http.definition import below
from onetool.interfaces.rest.problem import RestError, bad_parameter
from onetool.sources.bundles.errors import InvalidError, invalid_at
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.validation import SHOWN, converted

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_NUMBER = re.compile(r"0|-?[1-9][0-9]*")
MAX_DIGITS = 20  # of a number that is read; one with more is too large for any parameter
_TRUTH = {"true": True, "1": True, "false": False, "0": False}

Q = TypeVar("Q", bound=Query)


def percent_decoded(raw: bytes) -> str:
    """Decode percent-encoded UTF-8. Raises ValueError."""
    if b"%" in raw:
        if _BROKEN.search(raw):
            raise ValueError("a % must be followed by two hexadecimal digits")
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def read_query(raw: bytes, shape: type[Q] | None) -> Q | None:
    """Read a query string into the Struct of its route. Raises RestError."""
    given: dict[str, list[str]] = {}
    for piece in raw.split(b"&") if raw else ():
        if piece:
            name, _, value = piece.replace(b"+", b" ").partition(b"=")
            given.setdefault(_decoded(name, "?"), []).append(_decoded(value, name.decode("latin-1")))
    known = {} if shape is None else query_fields(shape)
    for name in given:
        if name not in known:
            default = f"use one of {', '.join(known)}" if known else "this route has no parameters"
            message = f"Unknown query parameter {name[:100]!r}; {did_you_mean(name, known) or default}"
            raise RestError(400, "unknown_parameter", message, part="query", pointer=below("", name[:100]))
    if shape is None:
        return None
    try:
        return converted({name: _value(name, known[name].type, texts) for name, texts in given.items()}, shape)
    except InvalidError as error:
        raise bad_parameter(error) from None


@cache
def query_fields(shape: type[Query]) -> dict[str, inspect.Field]:
    """Return the parameters of a query by name."""
    info = inspect.type_info(shape)
    return {one.encode_name: one for one in info.fields} if isinstance(info, inspect.StructType) else {}


def _decoded(raw: bytes, name: str) -> str:
    try:
        return percent_decoded(raw)
    except ValueError as error:
        raise bad_parameter(invalid_at(below("", name[:100]), f"it can't be read: {error}")) from None


def _value(name: str, kind: inspect.Type, texts: list[str]) -> Any:
    """Return the data for texts. A text that its type can't read stays a text, which `converted` refuses."""
    splits = False
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        if isinstance(kind, inspect.Metadata):
            splits |= bool((kind.extra or {}).get("split"))
            kind = kind.type
        else:
            kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    if isinstance(kind, inspect.VarTupleType):
        parts = [part for text in texts for part in (text.split(",") if splits else [text])]
        return tuple(dict.fromkeys(parts))
    if len(texts) > 1:
        raise invalid_at(f"/{name}", "it must not be repeated")
    if isinstance(kind, inspect.BoolType):
        return _TRUTH.get(texts[0], texts[0])
    return int(texts[0][:MAX_DIGITS]) if isinstance(kind, inspect.IntType) and _NUMBER.fullmatch(texts[0]) else texts[0]


# `fields` picks keys of each row


def _keys(shape: type) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(shape)]


BUNDLE_FIELDS = tuple(key for key in _keys(Bundle) if key != "schemaVersion")
TOOL_FIELDS = (*_keys(Tool), *sorted(SHOWN - {"warnings", "signature"}))


def fields_of(known: Collection[str]) -> Meta:
    """Describe the parameter `fields` of rows with these keys."""
    return Meta(
        description="Return only these keys of each row: `fields=slug,version`. Missing keys are left out.",
        examples=[["id", "slug"]],
        extra=SPLIT,
        extra_json_schema={"items": {"enum": list(known)}, "minItems": 1},
    )


def check_fields(names: Collection[str] | None, known: Collection[str]) -> None:
    """Raise InvalidError if a row has no such key."""
    for name in names or ():
        if name not in known:
            near = did_you_mean(name, known) or f"use {', '.join(known)}"
            raise invalid_at("/fields", f"{name[:100]!r} is not a field; {near}")


def picked(rows: list[dict[str, Any]], fields: Collection[str] | None) -> list[dict[str, Any]]:
    """Keep only these keys of the rows; None keeps all. Missing keys are left out."""
    if fields is None:
        return rows
    return [{key: row[key] for key in fields if key in row} for row in rows]
