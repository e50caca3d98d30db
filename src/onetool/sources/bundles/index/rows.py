"""Bundles and tools as rows of the index. A tool's whole JSON is stored: what was put comes back as it was."""

import os
from typing import Any, NamedTuple

import msgspec

from onetool.sources.bundles.model import Bundle, Tool, function_name

_encode = msgspec.json.Encoder().encode
read_bundle = msgspec.json.Decoder(Bundle).decode


class IndexedBundleRow(NamedTuple):
    id: str
    live: bool
    built_in: bool
    body: bytes


class IndexedToolRow(NamedTuple):
    id: str
    bundle: str
    slug: str
    version: str
    enabled: bool
    built_in: bool
    function: str | None


def bundle_row(bundle: Bundle) -> IndexedBundleRow:
    live = bundle.is_enabled and bundle.soft_deleted_at is None
    return IndexedBundleRow(bundle.id, live, bundle.is_built_in, _encode(bundle))


def tool_row(tool: Tool) -> IndexedToolRow:
    place = (tool.id, tool.bundle_id, tool.slug, tool.version)
    return IndexedToolRow(*place, tool.is_enabled, tool.is_built_in, function_name(tool))


def tool_body(tool: Tool) -> bytes:
    return _encode(tool)


def fingerprint(things: Any) -> str:
    """A digest of the content."""
    from hashlib import sha256

    return sha256(msgspec.json.encode(things, order="deterministic")).hexdigest()


# Names of files may hold any bytes, and inodes any 64 bits.


def path_in(path: str) -> bytes:
    return os.fsencode(path)


path_out = os.fsdecode


def inode_in(inode: int) -> int:
    return inode - (1 << 64) if inode >= 1 << 63 else inode


def inode_out(inode: int) -> int:
    return inode if inode >= 0 else inode + (1 << 64)
