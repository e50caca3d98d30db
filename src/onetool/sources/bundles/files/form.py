"""A bundle or a tool as the text of its file, and back.

Written: what a person gives first, in a fixed order; what the store knows of it last, so that a change of one thing is
a difference in one place. Read: strictly, since a file comes from anywhere; but who writes one by hand may leave out
what the store would know. An id is then made of the file's place and names, its times are those of the file. The digest
tells whether somebody has edited it since it was written.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from onetool.core.errors import SchemaError
from onetool.core.schema import CompiledSchema, depth_of
from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.files.migrations import migrated
from onetool.sources.bundles.files.opening import LARGEST
from onetool.sources.bundles.files.rules import fields_of
from onetool.sources.bundles.files.times import as_seconds, as_text
from onetool.sources.bundles.model import Bundle, Tool, shown
from onetool.sources.bundles.names import check_id, check_slug, check_version, derived_id
from onetool.sources.bundles.reading import read_bundle, read_tool

Thing = TypeVar("Thing", Bundle, Tool)

DEEPEST = 120  # levels; schemas have 100 at the most
MOST_SOUND = 10_000
_BUNDLE_KEYS = ("slug", "displayName", "description", "isEnabled", "id", "createdAt", "modifiedAt", "softDeletedAt")
_FIRST = ("slug", "version", "type", "displayName", "description", "tags", "isEnabled", "parallel")
_SCHEMAS = ("argSchema", "outputSchema")
_IMPLS = ("httpImpl", "pythonImpl", "goImpl", "scriptImpl")
_LOSSY = "it has values that JSON does not: NaN, infinity, tuples, or keys that are no texts"
_TOOL_KEYS = (*_FIRST, *_SCHEMAS, *_IMPLS, "limits", "id", "createdAt", "modifiedAt")
_SWITCHED = ("isEnabled", "id", "createdAt", "modifiedAt", "softDeletedAt")  # what is no structural change
_sound: set[bytes] = set()  # of schemas that can be used


# Written


def bundle_text(bundle: Bundle) -> bytes:
    """Raises Invalid for one that could not be read again."""
    text = _text(bundle, _BUNDLE_KEYS)
    if read_bundle_file(text, "", 0) != bundle:
        raise Invalid(_LOSSY, "")
    return text


def tool_text(tool: Tool, is_kept: bool = False) -> bytes:
    """The same. Of one that is kept already, whether its schemas can be used need not be looked at again."""
    text = _text(tool, _TOOL_KEYS)
    read = _tool if is_kept else read_tool_file
    if read(text, tool.bundle_id, "", 0) != tool:
        raise Invalid(_LOSSY, "")
    return text


def with_times(thing: Thing) -> Thing:
    """What comes from elsewhere, with its times as we write them."""
    return msgspec.structs.replace(
        thing, created_at=_time(thing.created_at, "/createdAt"), modified_at=_time(thing.modified_at, "/modifiedAt")
    )


def _text(thing: Bundle | Tool, keys: tuple[str, ...]) -> bytes:
    try:
        data = shown(thing)
        chosen = {key: data[key] for key in keys if data.get(key) is not None} | {"schemaVersion": thing.schema_version}
        chosen["digest"] = _digest(thing)
        text = msgspec.json.format(msgspec.json.encode(chosen), indent=2) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"it can't be written as JSON: {error}", "") from None
    if len(text) > LARGEST:
        raise Invalid(f"it has {len(text):,} bytes; {LARGEST:,} is the most", "")
    return text


# Read


def read_bundle_file(text: bytes, folder: str, mtime_ns: int) -> Bundle:
    """Raises Invalid. `folder` is the name of the bundle's folder."""
    data = migrated("bundle", parsed(text))
    content = read_bundle(data)
    check_slug(content.slug)
    deleted = data.get("softDeletedAt")
    bundle = Bundle(
        **fields_of(content),
        id=_id(data, f"bundle {folder}"),
        **_times(data, mtime_ns),
        soft_deleted_at=None if deleted is None else _time(deleted, "/softDeletedAt"),
    )
    return _as_edited(bundle, data, mtime_ns)


def read_tool_file(text: bytes, bundle_id: str, folder: str, mtime_ns: int) -> Tool:
    """Raises Invalid. `bundle_id` is that of the bundle in whose folder it lies, whatever it says of itself."""
    tool = _tool(text, bundle_id, folder, mtime_ns)
    _check_schema("/argSchema", tool.arg_schema, True)
    _check_schema("/outputSchema", tool.output_schema, False)
    return tool


def _tool(text: bytes, bundle_id: str, folder: str, mtime_ns: int) -> Tool:
    data = migrated("tool", parsed(text))
    slug, version = _name(data, "slug"), _name(data, "version")
    check_slug(slug)
    check_version(version)
    content = read_tool(data, slug, version)
    tool = Tool(
        **fields_of(content),
        id=_id(data, f"tool {folder} {slug}@{version}"),
        bundle_id=bundle_id,
        slug=slug,
        version=version,
        **_times(data, mtime_ns),
    )
    return _as_edited(tool, data, mtime_ns)


def parsed(text: bytes) -> dict[str, Any]:
    """A JSON object, with nothing in it that programs read differently. Raises Invalid with the place of a fault."""
    if text.startswith(b"\xef\xbb\xbf"):
        raise Invalid("it begins with a byte order mark (BOM): save it as UTF-8 without one")
    if b"\0" in text:
        raise Invalid("it has NUL bytes in it: it was not written to its end, or is no text")
    if not text.strip():
        raise Invalid("it is empty")
    try:
        data = json.loads(text.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise Invalid(f"it is not UTF-8: byte {error.start} can't be read") from None
    except json.JSONDecodeError as error:
        raise Invalid(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise Invalid(f"it is nested deeper than {DEEPEST} levels") from None
    except ValueError as error:  # a number with thousands of digits
        raise Invalid(str(error)) from None
    if not isinstance(data, dict):
        raise Invalid("expected a JSON object")
    if text.count(b"{") + text.count(b"[") > DEEPEST and depth_of(data, DEEPEST) >= DEEPEST:
        raise Invalid(f"it is nested deeper than {DEEPEST} levels")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"the key {twice!r:.60} stands twice in one object")
    return found


def _no_number(text: str) -> Any:
    raise Invalid(f"{text} is no number in JSON")


def _name(data: Mapping[str, Any], key: str) -> str:
    name = data.get(key)
    if name is None:
        raise Invalid(f"/{key} is missing: a tool's file has its slug and its version", f"/{key}")
    if not isinstance(name, str):
        raise Invalid(f'/{key}: expected a text; put quotes around it: "{name}"', f"/{key}")
    return name


def _check_schema(pointer: str, schema: dict[str, Any], closed: bool) -> None:
    """Tools of one API share many schemas, and nothing about a file takes as long as this: each is looked at once."""
    key = _key(schema, closed) if schema else b""
    if not schema or key in _sound:
        return
    try:
        CompiledSchema(schema, closed=closed)
    except SchemaError as error:
        raise Invalid(f"{pointer}: {error}", pointer) from None
    if key is not None:
        if len(_sound) >= MOST_SOUND:
            _sound.clear()
        _sound.add(key)


def _key(schema: dict[str, Any], closed: bool) -> bytes | None:
    """The same for equal JSON alone; None where there is none."""
    try:
        return sha256(msgspec.json.encode((closed, schema))).digest()
    except (ValueError, RecursionError):  # half of a character
        return None


def _id(data: Mapping[str, Any], otherwise: str) -> str:
    id = data.get("id")
    if id is None:
        return derived_id(otherwise)
    if not isinstance(id, str):
        raise Invalid("/id: expected a text", "/id")
    return check_id(id)


def _times(data: Mapping[str, Any], mtime_ns: int) -> dict[str, Any]:
    changed = as_text(mtime_ns / 1e9)
    created, modified = data.get("createdAt"), data.get("modifiedAt")
    return {
        "created_at": changed if created is None else _time(created, "/createdAt"),
        "modified_at": changed if modified is None else _time(modified, "/modifiedAt"),
    }


def _as_edited(thing: Thing, data: Mapping[str, Any], mtime_ns: int) -> Thing:
    """A file that was changed by hand since it was written was modified when it was saved, whatever it says itself."""
    if data.get("modifiedAt") is None or data.get("digest") in (None, _digest(thing)):
        return thing
    return msgspec.structs.replace(thing, modified_at=max(thing.modified_at, as_text(mtime_ns / 1e9)))


def _digest(thing: Bundle | Tool) -> str | None:
    """Of what `modifiedAt` is about. The same for equal data; None where there is no JSON for it."""
    keys = _BUNDLE_KEYS if isinstance(thing, Bundle) else _TOOL_KEYS
    data = shown(thing)
    about = {key: data[key] for key in keys if key not in _SWITCHED and data.get(key) is not None}
    try:
        return sha256(msgspec.json.encode(about, order="sorted")).hexdigest()[:16]
    except (ValueError, RecursionError):  # half of a character
        return None


def _time(text: Any, pointer: str) -> str:
    try:
        return as_text(as_seconds(text))
    except (TypeError, ValueError, OverflowError):
        raise Invalid(f"{pointer}: {text!r:.60} is no time, as 2026-11-15T16:00:00.000Z is one", pointer) from None
