"""Read an OpenAPI document, JSON or YAML, within limits, and resolve its references. Nothing is fetched."""

import re
from collections.abc import Iterator
from time import thread_time
from typing import Any
from urllib.parse import unquote

import msgspec

from onetool.core import yaml
from onetool.core.os_files import MAX_INPUT_BYTES
from onetool.core.work import check_wanted
from onetool.sources.bundles.errors import InvalidError

MAX_DEPTH = 200
MAX_VALUES = 4_000_000
_AS_WRITTEN = ("openapi", "swagger", "version")  # `1.10` is not the number 1.1


def read_yaml(text: str) -> Any:
    """Parse one document. Raises InvalidError with the line."""
    try:
        return yaml.read(text, max_depth=MAX_DEPTH, max_values=MAX_VALUES, with_lines=False, text_keys=_AS_WRITTEN).data
    except yaml.YamlError as error:
        raise InvalidError(f"line {error.line}: {error}") from None


# The document and its references

MAX_YAML_BYTES = 32 * 1024**2
MAX_STEPS = 20  # from one reference to the next
CHUNK = 1024**2
MAX_SECONDS = 60.0  # of processor time, so that a busy machine refuses no document
PART_OPTIONS = "--only, --tag and --operation (over REST: only=, tag= and operation=)"
IMPORT_A_PART = f"import a part of it with {PART_OPTIONS}"

_VERSION = re.compile(r"3\.[01](\.|-|$)")
_BOM = b"\xef\xbb\xbf"
_NOWHERE = object()


class UnresolvedError(Exception):
    """An error for a part of a document that can't be resolved or converted."""


class BadDocumentError(InvalidError):
    """An error for a document that is not JSON, too large, or too slow to read, so that nothing can be imported."""


class OpenApiDocument:
    """An OpenAPI document."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._end = thread_time() + MAX_SECONDS
        if "swagger" in root:
            raise InvalidError(
                "Swagger 2.0 is not supported, only OpenAPI 3.0 and 3.1; convert it first (with swagger2openapi)"
            )
        if "openapi" not in root:
            raise InvalidError("not an OpenAPI document: it has no key `openapi`")
        if not _VERSION.match(str(root["openapi"])):
            raise InvalidError(f"openapi: only 3.0 and 3.1 are supported, got {str(root['openapi'])[:20]!r}")

    def check_time(self) -> None:
        """Raise BadDocumentError if the import has taken too much processor time; end if nobody waits for it."""
        check_wanted()
        if thread_time() > self._end:
            raise BadDocumentError(f"the document takes more than {MAX_SECONDS:.0f} s to read: {IMPORT_A_PART}")

    def paths(self) -> Iterator[tuple[str, dict[str, Any] | UnresolvedError]]:
        """Yield each path with its item, or with its error."""
        paths = self.root.get("paths")
        if not isinstance(paths, dict):
            what = "expected an object with a path for each key; without it there is nothing to import"
            raise BadDocumentError(f"paths: {what}")
        for path, item in paths.items():
            try:
                yield path, self.object(item)
            except UnresolvedError as error:
                yield path, error

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
        for step in ref[2:].split("/"):
            node = _step(node, unquote(step).replace("~1", "/").replace("~0", "~"))
            if node is _NOWHERE:
                raise UnresolvedError(f"it refers to {ref[:100]!r}: there is nothing in the document")
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
            ref = value.get("$ref")
            if not isinstance(ref, str):
                return value
            value = self.at(ref)
        raise UnresolvedError("its references are circular")


def read_document(data: bytes | str) -> OpenApiDocument:
    """Read a document. Raises InvalidError."""
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    is_json = data[:CHUNK].removeprefix(_BOM).lstrip()[:1] == b"{"
    limit = MAX_INPUT_BYTES if is_json else MAX_YAML_BYTES
    if len(data) > limit:
        size = f"the document is larger than {limit // 1024**2} MiB ({len(data) / 1024**2:.0f} MiB)"
        raise InvalidError(f"{size}: {'remove paths that you do not need' if is_json else 'convert it to JSON'}")
    # Every value except the first follows a bracket or a comma.
    if is_json and data.count(b"[") + data.count(b"{") + data.count(b",") > MAX_VALUES:
        raise InvalidError(f"the document has more than {MAX_VALUES:,} values: remove parts that you don't need")
    data = data.removeprefix(_BOM)
    root = _decoded(data) if is_json else read_yaml(_text_of(data))
    if not isinstance(root, dict):
        raise InvalidError("not an OpenAPI document: expected an object with `openapi`, `info` and `paths`")
    return OpenApiDocument(root)


def _text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidError(f"the document is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise BadDocumentError("the document is nested too deep") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise BadDocumentError(f"not JSON: {error}") from None


def _step(node: Any, name: str) -> Any:
    if isinstance(node, dict):
        return node.get(name, _NOWHERE)
    if isinstance(node, list) and name.isascii() and name.isdigit() and len(name) < 9 and int(name) < len(node):
        return node[int(name)]
    return _NOWHERE
