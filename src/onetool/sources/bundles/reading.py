"""Data from outside -> what a person may give of a bundle or a tool. What is wrong is said with its place."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from onetool.handlers.http.impl import Limits
from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.misfits import unknown_key, wrong_value
from onetool.sources.bundles.model import IMPLS, BundleContent, ToolContent

T = TypeVar("T")

# What the store knows itself. It may come back with what was got from it, and is not looked at.
KEPT = frozenset(("id", "isBuiltIn", "createdAt", "modifiedAt", "softDeletedAt", "schemaVersion", "bundleID", "digest"))
SHOWN = frozenset(("disabledReason", "callCount", "lastCalledAt", "warnings"))

_PATH = re.compile(r"\.([A-Za-z0-9_]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


def read_bundle(data: Any) -> BundleContent:
    return converted(_without(data, KEPT), BundleContent)


def read_tool(data: Any, slug: str, version: str) -> ToolContent:
    """`slug` and `version` are those of the place that it is put to; where it names others, that is a mistake."""
    data = _without(data, KEPT | SHOWN)
    for key, meant in (("slug", slug), ("version", version)):
        if (named := data.pop(key, meant)) != meant:
            raise Invalid(f"{key}: it is put to {meant!r}, but says {named!r} of itself", f"/{key}")
    content = converted(data, ToolContent)
    key, shape = IMPLS[content.type]
    if data.get(key) is None:
        raise Invalid(f"{key} is missing: a tool of type {content.type!r} needs it", f"/{key}")
    for other, _ in IMPLS.values():
        if other != key and data.get(other) is not None:
            raise Invalid(f"{other} belongs to another type of tool; this one's is {content.type!r}", f"/{other}")
    converted(data[key], shape, f"/{key}")
    converted(data.get("limits") or {}, Limits, "/limits")
    return content


def converted(data: Any, shape: type[T], below: str = "") -> T:
    """The shape; Invalid with a pointer to what does not fit it."""
    try:
        return msgspec.convert(data, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        message, _, place = str(error).partition(" - at `")
        path = [name or number or "-" for name, number in _PATH.findall(place)]
        raise _misfit(message, path, below, data, shape) from None


def _misfit(message: str, path: list[str], below: str, data: Any, shape: type) -> Invalid:
    """In our own words where the reader has to choose among some. To a key that nobody knows the pointer leads."""
    pointer = below + "".join(f"/{step}" for step in path)
    if match := _UNKNOWN.search(message):
        pointer = f"{pointer}/{match[1]}"
        return Invalid(f"{pointer}: {unknown_key(shape, data, path, match[1])}", pointer)
    told = wrong_value(shape, data, path) if message.startswith("Invalid ") else None
    return Invalid(f"{pointer or 'the body'}: {told or message[:1].lower() + message[1:]}", pointer)


def _without(data: Any, keys: frozenset[str]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise Invalid("the body: expected a JSON object", "")
    return {key: value for key, value in data.items() if key not in keys}
