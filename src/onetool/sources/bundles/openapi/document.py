"""Bytes -> an OpenAPI document as plain data, within bounds; and what its references lead to. Nothing is fetched."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from onetool.sources.bundles.errors import Invalid

MAX_BYTES = 32 * 1024**2
MAX_VALUES = 4_000_000
MOST_STEPS = 20  # from one reference to the next

_VERSION = re.compile(r"3\.[01](\.|-|$)")
_NOWHERE = object()


class Unresolved(Exception):  # noqa: N818 - a reason to skip what asked, not a bug
    """A reference that leads to nothing here. The message says which, and why."""


class Document:
    """The whole document. `version` is (3, 0) or (3, 1)."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.version = (3, 1) if str(root["openapi"]).startswith("3.1") else (3, 0)

    def at(self, ref: str) -> Any:
        """What stands where a reference points to."""
        if not ref.startswith("#"):
            raise Unresolved(f"it refers to {ref[:100]!r}: only references inside of the document (#/…) are followed")
        if not ref.startswith("#/"):
            raise Unresolved(f"it refers to {ref[:100]!r}: write it as a path, #/components/…")
        node: Any = self.root
        for step in ref[2:].split("/"):
            node = _step(node, unquote(step).replace("~1", "/").replace("~0", "~"))
            if node is _NOWHERE:
                raise Unresolved(f"it refers to {ref[:100]!r}: there is nothing in the document")
        return node

    def object(self, value: Any) -> dict[str, Any]:
        """An object that may be a reference to one, or to a reference."""
        for _ in range(MOST_STEPS):
            if not isinstance(value, dict):
                raise Unresolved("expected an object")
            ref = value.get("$ref")
            if not isinstance(ref, str):
                return value
            value = self.at(ref)
        raise Unresolved("its references go round in a circle")


def read_document(data: bytes | str) -> Document:
    text = _text(data)
    root = _json(text) if text.lstrip()[:1] == "{" else _yaml(text)
    if not isinstance(root, dict):
        raise Invalid("not an OpenAPI document: expected an object with `openapi`, `info` and `paths`")
    if "swagger" in root:
        raise Invalid(
            "a Swagger 2.0 document, and only OpenAPI 3.0 and 3.1 are read; convert it first (swagger2openapi does)"
        )
    if "openapi" not in root:
        raise Invalid("not an OpenAPI document: it has no key `openapi`")
    if not _VERSION.match(str(root["openapi"])):
        raise Invalid(f"openapi: only 3.0 and 3.1 are read, this is {str(root['openapi'])[:20]!r}")
    if not isinstance(root.get("paths"), Mapping):
        raise Invalid("paths: expected an object with a path for each key; without it there is nothing to import")
    return Document(root)


def _text(data: bytes | str) -> str:
    if len(data) > MAX_BYTES:
        raise Invalid(f"the document is larger than {MAX_BYTES // 1024**2} MiB")
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"the document is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _json(text: str) -> Any:
    # Every value but the first stands behind a bracket or a comma.
    if text.count("[") + text.count("{") + text.count(",") > MAX_VALUES:
        raise Invalid(f"the document has more than {MAX_VALUES:,} values")
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise Invalid("the document is nested too deep") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise Invalid(f"not JSON: {error}") from None


def _yaml(text: str) -> Any:
    from onetool.sources.bundles.openapi.yaml_data import read_yaml  # YAML is slow to import

    return read_yaml(text)


def _step(node: Any, name: str) -> Any:
    if isinstance(node, dict):
        return node.get(name, _NOWHERE)
    if isinstance(node, list) and name.isascii() and name.isdigit() and len(name) < 9 and int(name) < len(node):
        return node[int(name)]
    return _NOWHERE
