"""Read an OpenAPI document, JSON or YAML, within limits, and resolve its references. Nothing is fetched.

Only the needed parts of a JSON document are decoded, so that a few tools can be imported from a large document.

YAML is read by the rules of YAML 1.2, as OpenAPI requires: `no` and `2026-11-15` are strings, and all keys are strings.
The parser's events are processed without recursion. Aliases count with their whole content each time, so that alias
bombs are refused before anything traverses them.
"""

import codecs
import re
from collections.abc import Iterator
from time import thread_time
from typing import Any
from urllib.parse import unquote

import msgspec
import yaml

from onetool.core.os_files import MAX_INPUT_BYTES
from onetool.core.work import check_wanted
from onetool.sources.bundles.errors import InvalidError

MAX_DEPTH = 200
MAX_VALUES = 4_000_000

# A number with a leading zero is a string: a code, or part of a telephone number.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,40})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_AS_WRITTEN = ("openapi", "swagger", "version")  # `1.10` is not the number 1.1
_MERGE = "<<"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Open:
    """An unfinished mapping or list."""

    __slots__ = ("anchor", "key", "size", "value")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: str | None = None
        self.size = 1


def read_yaml(text: str) -> Any:
    """Parse one document. Raises InvalidError with the line."""
    try:
        loader = _LOADER(text)
    except yaml.YAMLError as error:
        raise _not_yaml(error) from None
    try:
        return _Builder().read(loader)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _not_yaml(error) from None
    finally:
        loader.dispose()


class _Builder:
    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._total = 0
        self._root: Any = None
        self._documents = 0

    def read(self, loader: Any) -> Any:
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.MappingStartEvent):
                self._begin({}, event)
            elif isinstance(event, yaml.SequenceStartEvent):
                self._begin([], event)
            elif isinstance(event, yaml.CollectionEndEvent):
                done = self._open.pop()
                self._remember(done.anchor, done.value, done.size)
                self._add(done.value, done.size, event)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise _yaml_error(event, "a second document begins here; one file is one document: remove the ---")
        return self._root

    def _scalar(self, event: Any) -> None:
        above = self._open[-1] if self._open else None
        if above is not None and isinstance(above.value, dict) and above.key is None:
            above.key = event.value
            self._remember(event.anchor, event.value, 1)
            return
        # Only near the top, such as `info.version`.
        kept = above is not None and above.key in _AS_WRITTEN and len(self._open) <= 2
        plain = event.implicit[0] and not kept
        value = _plain_scalar(event.value) if plain else event.value
        self._remember(event.anchor, value, 1)
        self._add(value, 1, event)

    def _begin(self, value: dict[str, Any] | list[Any], event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise _yaml_error(event, f"nested more than {MAX_DEPTH} levels deep")
        above = self._open[-1] if self._open else None
        if above is not None and isinstance(above.value, dict) and above.key is None:
            raise _yaml_error(event, "a key that is not a string; write a plain string before the ':'")
        self._open.append(_Open(value, event.anchor))

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise _yaml_error(event, "'*' refers to an anchor that does not exist; quote a string that begins with '*'")
        value, size = self._anchors[event.anchor]
        above = self._open[-1]
        if isinstance(above.value, dict) and above.key is None:
            if not isinstance(value, str):
                raise _yaml_error(event, "a key that is not a string; write a plain string before the ':'")
            above.key = value
            return
        self._add(value, size, event)

    def _remember(self, anchor: str | None, value: Any, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size)

    def _add(self, value: Any, size: int, event: Any) -> None:
        if not self._open:
            self._root = value
            return
        above = self._open[-1]
        above.size += size
        if above.size > MAX_VALUES:
            raise _yaml_error(event, f"more than {MAX_VALUES:,} values, counting what aliases repeat")
        if isinstance(above.value, list):
            above.value.append(value)
            return
        key, above.key = above.key or "", None
        if key == _MERGE:
            for source in value if isinstance(value, list) else [value]:
                if not isinstance(source, dict):
                    raise _yaml_error(event, "'<<' takes a mapping, or a list of them")
                above.value.update({name: item for name, item in source.items() if name not in above.value})
        else:
            above.value[key] = value


def _plain_scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "+-.0123456789":
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


def _yaml_error(event: Any, message: str) -> InvalidError:
    return InvalidError(f"line {event.start_mark.line + 1}: {message}")


def _not_yaml(error: Exception) -> InvalidError:
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}: " if mark else ""
    what = getattr(error, "problem", None) or "a character that is not allowed in YAML"
    return InvalidError(f"{place}not YAML: {what}")


# The document and its references

MAX_BYTES = 32 * 1024**2  # of a whole document; MAX_INPUT_BYTES of JSON if only a part is imported
MAX_JSON_VALUES = 4_000_000
MAX_STEPS = 20  # from one reference to the next
LAZY_LEVELS = 3  # #/components/schemas/Pet and #/paths/~1pets/get are decoded one by one
CHUNK = 1024**2
MAX_SECONDS = 60.0  # of processor time, so that a busy machine refuses no document
PART_OPTIONS = "--only, --tag and --operation (over REST: only=, tag= and operation=)"
IMPORT_A_PART = f"import a part of it with {PART_OPTIONS}"

_READ_AT_ONCE = ("openapi", "swagger", "info", "servers", "security")
_VERSION = re.compile(r"3\.[01](\.|-|$)")
_BOM = b"\xef\xbb\xbf"
_NOWHERE = object()


class UnresolvedError(Exception):
    """An error for a part of a document that can't be resolved or converted."""


class BadDocumentError(InvalidError):
    """An error for a document that is not JSON, too large, or too slow to read, so that nothing can be imported."""


class OperationHead(msgspec.Struct):
    """The members of an operation that select and name its tool."""

    operationId: Any = None  # noqa: N815 - the name in documents
    summary: Any = None
    tags: Any = None
    servers: Any = None


class OpenApiDocument:
    """An OpenAPI document. `version` is (3, 0) or (3, 1).

    The parts of a JSON document are decoded when first needed; until then they are `msgspec.Raw`.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._end = thread_time() + MAX_SECONDS
        self._complete: set[int] = set()  # ids of completely decoded nodes near the root
        for name in _READ_AT_ONCE:
            self.member(root, name)
        if "swagger" in root:
            raise InvalidError(
                "Swagger 2.0 is not supported, only OpenAPI 3.0 and 3.1; convert it first (with swagger2openapi)"
            )
        if "openapi" not in root:
            raise InvalidError("not an OpenAPI document: it has no key `openapi`")
        if not _VERSION.match(str(root["openapi"])):
            raise InvalidError(f"openapi: only 3.0 and 3.1 are supported, got {str(root['openapi'])[:20]!r}")
        self.version = (3, 1) if str(root["openapi"]).startswith("3.1") else (3, 0)

    def check_time(self) -> None:
        """Raise BadDocumentError if the import has taken too much processor time; end if nobody waits for it."""
        check_wanted()
        if thread_time() > self._end:
            raise BadDocumentError(f"the document takes more than {MAX_SECONDS:.0f} s to read: {IMPORT_A_PART}")

    def paths(self) -> Iterator[tuple[str, dict[str, Any] | UnresolvedError]]:
        """Yield each path with its item, whose members may not be decoded yet, or with its error."""
        paths = self.member(self.root, "paths", 1)
        if not isinstance(paths, dict):
            what = "expected an object with a path for each key; without it there is nothing to import"
            raise BadDocumentError(f"paths: {what}")
        for path in paths:
            try:
                yield path, self.object(self.member(paths, path, 2))
            except UnresolvedError as error:
                yield path, error

    def head(self, item: dict[str, Any], method: str) -> dict[str, Any] | None:
        """Return the head of an operation without decoding the rest, or None if the operation doesn't exist."""
        data = item.get(method)
        if not isinstance(data, msgspec.Raw):
            return data if isinstance(data, dict) else None
        return msgspec.structs.asdict(_decode(data, OperationHead)) if _is_object(data) else None

    def member(self, node: dict[str, Any], name: str, level: int = LAZY_LEVELS) -> Any:
        """Return a member of an object, decoded in place when first needed."""
        value = node.get(name)
        if isinstance(value, msgspec.Raw):
            is_lazy = level < LAZY_LEVELS and _is_object(value)
            value = node[name] = _decode(value, dict[str, msgspec.Raw] if is_lazy else Any)
        return value

    def at(self, ref: str) -> Any:
        """Return the target of a reference. Raises BadDocumentError if the import takes too long."""
        self.check_time()
        if not ref.startswith("#"):
            raise UnresolvedError(
                f"it refers to {ref[:100]!r}: only references inside of the document (#/…) are followed"
            )
        if not ref.startswith("#/"):
            raise UnresolvedError(f"it refers to {ref[:100]!r}: write it as a path, #/components/…")
        node: Any = self.root
        steps = ref[2:].split("/")
        for level, step in enumerate(steps, 1):
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                self.member(node, name, LAZY_LEVELS if level == len(steps) else level)
            node = _step(node, name)
            if node is _NOWHERE:
                raise UnresolvedError(f"it refers to {ref[:100]!r}: there is nothing in the document")
        if len(steps) < LAZY_LEVELS and id(node) not in self._complete:
            self._decode_rest(node)
            self._complete.add(id(node))
        return node

    def is_marked(self, schema: Any, mark: str) -> bool:
        """Return whether a schema, or the schema that it refers to, has the `mark`, such as `readOnly`."""
        try:
            return self.object(schema).get(mark) is True
        except UnresolvedError:
            return False

    def object(self, value: Any) -> dict[str, Any]:
        """Return an object, following references."""
        for _ in range(MAX_STEPS):
            if not isinstance(value, dict):
                raise UnresolvedError("expected an object")
            ref = self.member(value, "$ref")
            if not isinstance(ref, str):
                return value
            value = self.at(ref)
        raise UnresolvedError("its references are circular")

    def _decode_rest(self, node: Any, level: int = 1) -> None:
        """Decode the rest of a node near the root."""
        if isinstance(node, dict) and level <= LAZY_LEVELS:
            for name in node:
                self._decode_rest(self.member(node, name), level + 1)


def read_document(data: bytes | str, is_part: bool = False) -> OpenApiDocument:
    """Read a document. Raises InvalidError. With `is_part`, only some operations are imported, so it may be larger."""
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    is_json = data[:CHUNK].removeprefix(_BOM).lstrip()[:1] == b"{"
    # Decoded as one string, the document could take four times its size.
    limit = MAX_INPUT_BYTES if is_json and is_part else MAX_BYTES
    if len(data) > limit:
        size = f"the document is larger than {limit // 1024**2} MiB ({len(data) / 1024**2:.0f} MiB)"
        if is_json and is_part:
            raise InvalidError(f"{size}: remove paths that you don't need from it")
        advice = IMPORT_A_PART if is_json else "convert it to JSON, and " + IMPORT_A_PART
        raise InvalidError(f"{size}: {advice}. Up to {MAX_INPUT_BYTES // 1024**2} MiB of JSON are supported")
    # Every value except the first follows a bracket or a comma.
    if is_json and data.count(b"[") + data.count(b"{") + data.count(b",") > MAX_JSON_VALUES:
        raise InvalidError(f"the document has more than {MAX_JSON_VALUES:,} values: remove parts that you don't need")
    start = 0
    while start < len(data):
        chunk = data[start : start + CHUNK]
        try:
            start += codecs.utf_8_decode(chunk, "strict", start + CHUNK >= len(data))[1]
        except UnicodeDecodeError as error:
            place = start + error.start
            raise InvalidError(f"the document is not UTF-8 (byte {place}); save it as UTF-8") from None
    data = data.removeprefix(_BOM)
    root = _decode(data, dict[str, msgspec.Raw]) if is_json else read_yaml(data.decode())
    if not isinstance(root, dict):
        raise InvalidError("not an OpenAPI document: expected an object with `openapi`, `info` and `paths`")
    return OpenApiDocument(root)


def _decode(data: bytes | msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise BadDocumentError("the document is nested too deep") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise BadDocumentError(f"not JSON: {error}") from None


def _is_object(part: msgspec.Raw) -> bool:
    return memoryview(part)[0] == ord("{")


def _step(node: Any, name: str) -> Any:
    if isinstance(node, dict):
        return node.get(name, _NOWHERE)
    if isinstance(node, list) and name.isascii() and name.isdigit() and len(name) < 9 and int(name) < len(node):
        return node[int(name)]
    return _NOWHERE
