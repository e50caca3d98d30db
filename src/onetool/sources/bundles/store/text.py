"""Conversion of bundles and tools to the text of their files and back, and checks before a change.

Files are written in a fixed order: first the fields of users, then the fields of the store. Files are untrusted and
read strictly, but handwritten files may leave out the store's fields. The id is then derived from the file's place and
names, and the times are the file's.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, TypeVar

import msgspec

from onetool.core.json_data import StrictJsonError, no_constant, unique
from onetool.core.schema import depth_of
from onetool.core.text import LAST_SECOND
from onetool.sources.bundles.errors import ConflictError, InvalidError, NotFoundError, OutdatedError, invalid_at
from onetool.sources.bundles.model import IMPLS, OMITTED_IF_EMPTY, SCHEMA_VERSION, Bundle, Tool, ToolContent, shown
from onetool.sources.bundles.names import check_id, check_slug, check_version, derived_id
from onetool.sources.bundles.queries import ETag, tag_of
from onetool.sources.bundles.store.paths import MAX_FILE_BYTES
from onetool.sources.bundles.validation import check_schemas, read_bundle, read_tool


def time_text(seconds: float) -> str:
    second, microsecond = divmod(round(min(max(seconds, 0.0), LAST_SECOND) * 1_000_000), 1_000_000)
    return f"{_second_text(second)}.{microsecond // 1000:03d}Z"


@lru_cache(16)  # each call needs a time, and many are in the same second
def _second_text(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"


def time_seconds(text: str) -> float:
    """Parse a time, which may be incomplete or in any time zone; the default is UTC. Raises ValueError."""
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


# Checks before a change


def structure(bundle: Bundle) -> tuple[str, str, str]:
    """Return the fields that `modifiedAt` covers: switching, deleting and restoring don't change it."""
    return bundle.slug, bundle.display_name, bundle.description


def refuse_stale(thing: Bundle | Tool | None, match: ETag | None) -> None:
    if match is not None and (thing is None or (match != "*" and match != tag_of(thing))):
        why = "it does not exist" if thing is None else "it has been changed since"
        raise OutdatedError(f"{why}: get it again, then repeat the change")


def not_empty(bundle: Bundle, tools: list[str]) -> str:
    """Return the message for a bundle with tools."""
    first = ", ".join(tools[:3]) + (" …" if len(tools) > 3 else "")
    return f"the bundle {bundle.slug} is not empty: delete its {len(tools)} tools first ({first})"


def tool_of(bundle: Bundle, tools: Sequence[Tool], slug: str, version: str) -> Tool:
    for tool in tools:
        if (tool.slug, tool.version) == (slug, version):
            return tool
    raise NotFoundError(f"there is no tool {slug}@{version} in the bundle {bundle.slug}")


def check_set(tools: Sequence[Tool]) -> None:
    names, ids = set[tuple[str, str]](), set[str]()
    for number, tool in enumerate(tools):
        check_id(tool.id, f"/tools/{number}/id")
        check_slug(tool.slug, f"/tools/{number}/slug")
        check_version(tool.version, f"/tools/{number}/version")
        if (tool.slug, tool.version) in names or tool.id in ids:
            raise ConflictError(f"{tool.slug}@{tool.version} or its id {tool.id} occurs twice", "exists")
        names.add((tool.slug, tool.version))
        ids.add(tool.id)


def check_format(data: Mapping[str, Any]) -> None:
    """Raise InvalidError for another version of the format. Files without a version have the current one."""
    version = str(data.get("schemaVersion", SCHEMA_VERSION))
    if version == SCHEMA_VERSION:
        return
    if version.isascii() and version.isdigit() and int(version[:9]) > int(SCHEMA_VERSION):
        what = f"version {version[:9]} is not supported, only versions up to {SCHEMA_VERSION}"
        update = "the file was written by a newer OneTool: update this one"
        raise invalid_at("/schemaVersion", f"{what}; {update}")
    what = f"unknown version {version!r:.40}; the current version is {SCHEMA_VERSION!r}"
    raise invalid_at("/schemaVersion", what)


# Texts of files

Thing = TypeVar("Thing", Bundle, Tool)
MAX_DEPTH = 120  # levels; schemas have at most 100
_BUNDLE_KEYS = ("slug", "displayName", "description", "isEnabled", "id", "createdAt", "modifiedAt", "softDeletedAt")
_FIRST = ("slug", "version", "type", "displayName", "description", "tags", "isEnabled", "parallel")
_SCHEMAS = ("argSchema", "outputSchema")
_IMPLS = ("httpImpl", "pythonImpl", "goImpl", "scriptImpl")
_LOSSY = "it contains values that JSON can't express: NaN, infinity, tuples, or keys other than strings"
_TOOL_KEYS = (*_FIRST, *_SCHEMAS, "preProcessors", *_IMPLS, "limits", "examples", "id", "createdAt", "modifiedAt")
# Changes of these keys are not structural.
_UNDIGESTED = ("isEnabled", "examples", "id", "createdAt", "modifiedAt", "softDeletedAt")


def _digest_fields(shape: type[Bundle | Tool], keys: tuple[str, ...]) -> list[tuple[str, str, bool]]:
    """Return the keys and fields of a digest, and whether empty values are written, as in `shown`."""
    names = {key: field for field, key in zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True)}
    return [(key, names[key], key not in OMITTED_IF_EMPTY) for key in keys if key not in _UNDIGESTED]


_BUNDLE_DIGEST = _digest_fields(Bundle, _BUNDLE_KEYS)
_TOOL_DIGEST = _digest_fields(Tool, _TOOL_KEYS)


# Writing


def bundle_text(bundle: Bundle) -> bytes:
    """Return the text of a bundle's file. Raises InvalidError if it couldn't be read again."""
    text = _yaml_text(bundle, _BUNDLE_KEYS)
    if read_bundle_file(text, "", 0) != bundle:
        raise InvalidError(_LOSSY, "")
    return text


def tool_text(tool: Tool, is_kept: bool = False) -> bytes:
    """Return the text of a tool's file. The schemas of stored tools (`is_kept`) are not checked again."""
    text = _yaml_text(tool, _TOOL_KEYS)
    read = _tool(parsed(text), tool.bundle_id, "", 0)
    if not is_kept:
        check_schemas(read)
    if read != tool:
        raise InvalidError(_LOSSY, "")
    return text


def with_times(thing: Thing) -> Thing:
    """Return foreign data with its times in our format."""
    return msgspec.structs.replace(
        thing, created_at=_time(thing.created_at, "/createdAt"), modified_at=_time(thing.modified_at, "/modifiedAt")
    )


def _yaml_text(thing: Bundle | Tool, keys: tuple[str, ...]) -> bytes:
    try:
        data = shown(thing)
        chosen = {key: data[key] for key in keys if data.get(key) is not None} | {"schemaVersion": thing.schema_version}
        chosen["digest"] = _digest(thing)
        text = msgspec.json.format(msgspec.json.encode(chosen), indent=2) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidError(f"it can't be written as JSON: {error}", "") from None
    if len(text) > MAX_FILE_BYTES:
        raise InvalidError(f"it has {len(text):,} bytes; the limit is {MAX_FILE_BYTES:,}", "")
    return text


# Reading


def read_bundle_file(text: bytes, folder: str, mtime_ns: int) -> Bundle:
    """Read a bundle's file in the folder named `folder`. Raises InvalidError."""
    return _bundle(parsed(text), folder, mtime_ns)


def read_tool_file(text: bytes, bundle_id: str, folder: str, mtime_ns: int) -> Tool:
    """Read a tool's file. `bundle_id`, of the bundle in its folder, overrides the file. Raises InvalidError."""
    tool = _tool(parsed(text), bundle_id, folder, mtime_ns)
    check_schemas(tool)
    return tool


def bundle_body(text: bytes, folder: str, mtime_ns: int) -> bytes:
    """Return a bundle's file as compact JSON with all fields of the store. Raises InvalidError."""
    data = parsed(text)
    bundle = _bundle(data, folder, mtime_ns)
    return _body(bundle, data, softDeletedAt=bundle.soft_deleted_at)


def tool_body(text: bytes, folder: str, mtime_ns: int) -> bytes:
    """Return a tool's file as compact JSON with all fields of the store, but its bundle's id. Raises InvalidError."""
    data = parsed(text)
    if (written := _as_written(data)) is not None:
        check_schemas(written)
        body = msgspec.json.encode(written)  # without defaults
        return (
            body if written.digest is None else body.removesuffix(b',"digest":"%b"}' % written.digest.encode()) + b"}"
        )
    tool = _tool(data, "", folder, mtime_ns)
    check_schemas(tool)
    return _body(tool, data, tags=tool.tags)


class _WrittenTool(ToolContent, frozen=True, kw_only=True):
    """A tool's file that the store has written, or could have written."""

    slug: str
    version: str
    id: str
    created_at: str
    modified_at: str
    schema_version: Literal["1"]
    digest: str | None = None


def _as_written(data: Mapping[str, Any]) -> _WrittenTool | None:
    """Return a tool that `_tool` would read without any change, or None for all others.

    Most files are such files, and this takes half the time.
    """
    try:
        tool = msgspec.convert(data, _WrittenTool)
        key, shape = IMPLS[tool.type]
        msgspec.convert(data[key], shape)
    except (KeyError, msgspec.ValidationError, RecursionError):
        return None
    if tool.limits or tool.examples or tool.pre_processors or len({*tool.tags}) != len(tool.tags):
        return None
    if any(data.get(other) is not None for other, _ in IMPLS.values() if other != key):
        return None
    try:
        times = _normalized_time(tool.created_at), _normalized_time(tool.modified_at)
        is_same = times == (tool.created_at, tool.modified_at) and check_id(tool.id) == tool.id
        check_slug(tool.slug)
        check_version(tool.version)
    except (InvalidError, ValueError, OverflowError):
        return None
    return tool if is_same and (tool.digest is None or tool.digest == _digest(tool)) else None


_IN_BODY = frozenset((*_BUNDLE_KEYS, *_TOOL_KEYS, "schemaVersion"))


def body_of(data: Mapping[str, Any]) -> bytes:
    """Return the content of a bundle's or tool's file as compact JSON, without what can be left out."""
    return msgspec.json.encode({key: one for key, one in data.items() if (one or one is False) and key in _IN_BODY})


def _body(thing: Bundle | Tool, data: Mapping[str, Any], **more: Any) -> bytes:
    times = {"id": thing.id, "createdAt": thing.created_at, "modifiedAt": thing.modified_at}
    return body_of({**data, **times, **more})


def _bundle(data: Mapping[str, Any], folder: str, mtime_ns: int) -> Bundle:
    check_format(data)
    content = read_bundle(data)
    check_slug(content.slug)
    deleted = data.get("softDeletedAt")
    bundle = Bundle(
        **msgspec.structs.asdict(content),
        id=_id(data, f"bundle {folder}"),
        **_times(data, mtime_ns),
        soft_deleted_at=None if deleted is None else _time(deleted, "/softDeletedAt"),
    )
    return _as_edited(bundle, data, mtime_ns)


def _tool(data: Mapping[str, Any], bundle_id: str, folder: str, mtime_ns: int) -> Tool:
    check_format(data)
    slug, version = _name(data, "slug"), _name(data, "version")
    check_slug(slug)
    check_version(version)
    content = read_tool(data, slug, version)
    tool = Tool(
        **msgspec.structs.asdict(content),
        id=_id(data, f"tool {folder} {slug}@{version}"),
        bundle_id=bundle_id,
        slug=slug,
        version=version,
        **_times(data, mtime_ns),
    )
    return _as_edited(tool, data, mtime_ns)


def parsed(text: bytes) -> dict[str, Any]:
    """Parse a strict JSON object, which all programs read alike. Raises InvalidError with the place of the mistake."""
    data = _read_plain(text)
    if data is None:
        if text.startswith(b"\xef\xbb\xbf"):
            raise InvalidError("it begins with a byte order mark (BOM): save it as UTF-8 without one")
        if b"\0" in text:
            raise InvalidError("it contains NUL bytes: it was not written completely, or is not text")
        if not text.strip():
            raise InvalidError("it is empty")
        try:
            data = json.loads(text.decode(), object_pairs_hook=unique, parse_constant=no_constant)
        except UnicodeDecodeError as error:
            raise InvalidError(f"it is not UTF-8: byte {error.start} can't be read") from None
        except json.JSONDecodeError as error:
            raise InvalidError(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
        except RecursionError:
            raise InvalidError(f"it is nested deeper than {MAX_DEPTH} levels") from None
        except StrictJsonError as error:
            is_key = error.kind == "duplicate"
            why = f"the key {error.text!r:.60} occurs twice in one object"
            raise InvalidError(why if is_key else f"{error.text} is not a number in JSON") from None
        except ValueError as error:  # a number with thousands of digits
            raise InvalidError(str(error)) from None
    if not isinstance(data, dict):
        raise InvalidError("expected a JSON object")
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH and depth_of(data, MAX_DEPTH) >= MAX_DEPTH:
        raise InvalidError(f"it is nested deeper than {MAX_DEPTH} levels")
    return data


def _read_plain(text: bytes) -> Any:
    """Parse JSON in a third of the strict reader's time, or return None.

    Encoding the value has to give the same text, so that no key can be duplicated. Otherwise, the strict reader reads
    the text or reports the mistake.
    """
    try:
        data = msgspec.json.decode(text)
        return data if msgspec.json.encode(data) == msgspec.json.format(text, indent=-1) else None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _name(data: Mapping[str, Any], key: str) -> str:
    name = data.get(key)
    if name is None:
        raise invalid_at(f"/{key}", "it is missing: a tool's file must have a slug and a version")
    if not isinstance(name, str):
        raise invalid_at(f"/{key}", f'expected a string; put quotes around it: "{name}"')
    return name


def _id(data: Mapping[str, Any], otherwise: str) -> str:
    id = data.get("id")
    if id is None:
        return derived_id(otherwise)
    if not isinstance(id, str):
        raise invalid_at("/id", "expected a string")
    return check_id(id)


def _times(data: Mapping[str, Any], mtime_ns: int) -> dict[str, Any]:
    created, modified = data.get("createdAt"), data.get("modifiedAt")
    return {
        "created_at": time_text(mtime_ns / 1e9) if created is None else _time(created, "/createdAt"),
        "modified_at": time_text(mtime_ns / 1e9) if modified is None else _time(modified, "/modifiedAt"),
    }


def _as_edited(thing: Thing, data: Mapping[str, Any], mtime_ns: int) -> Thing:
    """Set the modification time of a file that was edited by hand to the time when it was saved."""
    stored = data.get("digest")
    if stored is None or data.get("modifiedAt") is None or stored == _digest(thing):
        return thing
    return msgspec.structs.replace(thing, modified_at=max(thing.modified_at, time_text(mtime_ns / 1e9)))


def _digest(thing: Bundle | ToolContent) -> str | None:
    """Return a digest of the fields that `modifiedAt` covers, or None if they are not JSON."""
    fields = _BUNDLE_DIGEST if isinstance(thing, Bundle) else _TOOL_DIGEST
    content: dict[str, Any] = {}
    for key, field, keeps_empty in fields:
        value = getattr(thing, field)
        if value or (keeps_empty and value is not None):
            content[key] = value
    try:
        return sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:16]
    except (ValueError, RecursionError):  # a lone surrogate
        return None


def _time(text: Any, pointer: str) -> str:
    try:
        return _normalized_time(text)
    except (TypeError, ValueError, OverflowError):
        raise invalid_at(pointer, f"{text!r:.60} is not a time such as 2026-11-15T16:00:00.000Z") from None


@lru_cache(256)  # bundles imported together share their times
def _normalized_time(time: str) -> str:
    return time_text(time_seconds(time))
