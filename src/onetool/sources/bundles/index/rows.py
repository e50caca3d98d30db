"""Bundles and tools as rows, and back. A tool's whole JSON is kept: what was put comes back as it was."""

import os
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from onetool.sources.bundles.index.words import Name, words
from onetool.sources.bundles.model import Bundle, Tool

_encode = msgspec.json.Encoder().encode
read_tool = msgspec.json.Decoder(Tool).decode
read_bundle = msgspec.json.Decoder(Bundle).decode

Texts = tuple[str, str, str]


class BundleRow(NamedTuple):
    id: str
    live: bool
    built_in: bool
    words: str
    body: bytes


class ToolRow(NamedTuple):
    id: str
    bundle: str
    slug: str
    version: str
    enabled: bool
    built_in: bool
    age: int
    slug_key: str
    name_key: str
    heads: str


def bundle_row(bundle: Bundle) -> BundleRow:
    live = bundle.is_enabled and bundle.soft_deleted_at is None
    text = " ".join([*Name(bundle.slug).words, *Name(bundle.display_name).words])
    return BundleRow(bundle.id, live, bundle.is_built_in, text, _encode(bundle))


def tool_row(tool: Tool) -> tuple[ToolRow, Texts]:
    """Its row; and what of itself it is found by: its names, its tags, its description."""
    slug, name = Name(tool.slug), Name(tool.display_name)
    row = ToolRow(
        tool.id,
        tool.bundle_id,
        tool.slug,
        tool.version,
        tool.is_enabled,
        tool.is_built_in,
        age_of(tool.modified_at),
        slug.key,
        name.key,
        f" {slug.key} {slug.squeezed} {name.key}",
    )
    heading = " ".join([*slug.words, *name.words])
    return row, (heading, " ".join(words(" ".join(tool.tags))), " ".join(words(tool.description)))


def tool_body(tool: Tool) -> bytes:
    return _encode(tool)


def age_of(modified_at: str) -> int:
    """Minus its milliseconds since 1970: what is newer comes first. What says no time comes last."""
    try:
        return -round(datetime.fromisoformat(modified_at).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0


def fingerprint(things: Any) -> str:
    """Another one for every other content."""
    from hashlib import sha256

    return sha256(msgspec.json.encode(things, order="deterministic")).hexdigest()


# Names of files may hold any bytes, and inodes any 64 bits.


def path_in(path: str) -> bytes:
    return os.fsencode(path)


def path_out(path: bytes) -> str:
    return os.fsdecode(path)


def inode_in(inode: int) -> int:
    return inode - (1 << 64) if inode >= 1 << 63 else inode


def inode_out(inode: int) -> int:
    return inode if inode >= 0 else inode + (1 << 64)
