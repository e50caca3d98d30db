"""Bundles and tools as rows of the index, and lists of them by id, page by page.

A tool's whole JSON is stored: what was put comes back as it was.
"""

import json
import os
import sqlite3
from collections.abc import Iterable
from heapq import merge
from typing import Any, NamedTuple

import msgspec

from onetool.sources.bundles.model import Bundle, Tool, function_name, unpack_tool

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


# Lists


# Of a tool: it is not disabled, and its bundle is neither disabled nor soft-deleted nor gone. The plus keeps the
# planner from going bundle by bundle: then it would have to sort.
IN_USE = "enabled AND +bundle IN (SELECT id FROM bundles WHERE live)"
MANY = 10_000

Numbered = tuple[str, int]  # a tool's id and its number


def bundle(database: sqlite3.Connection, id: str) -> Bundle | None:
    found = database.execute("SELECT body FROM bundles WHERE id = ?", (id,)).fetchone()
    return None if found is None else read_bundle(found[0])


def bundles(
    database: sqlite3.Connection, ids: Iterable[str], include_disabled: bool, after: str | None, limit: int
) -> list[Bundle]:
    wanted = json.dumps(sorted(set(ids)))
    also = "" if include_disabled else "AND live"
    if wanted != "[]":
        also += " AND id IN (SELECT value FROM json_each(:wanted))"
    asked = f"SELECT body FROM bundles WHERE id > :after {also} ORDER BY id LIMIT :limit"  # noqa: S608 - our own words
    found = database.execute(asked, {"after": after or "", "limit": limit, "wanted": wanted})
    return [read_bundle(body) for (body,) in found]


def bundles_of_ids(database: sqlite3.Connection, ids: list[str]) -> dict[str, Bundle]:
    """Those of them that are there."""
    asked = "SELECT id, body FROM bundles WHERE id IN (SELECT value FROM json_each(?))"
    return {id: read_bundle(body) for id, body in database.execute(asked, (json.dumps(ids),))}


def tool(database: sqlite3.Connection, bundle_id: str, slug: str, version: str) -> Tool | None:
    asked = "SELECT body FROM bodies WHERE no = (SELECT no FROM tools WHERE bundle = ? AND slug = ? AND version = ?)"
    found = database.execute(asked, (bundle_id, slug, version)).fetchone()
    return None if found is None else unpack_tool(found[0])


def versions(database: sqlite3.Connection, bundle_id: str, slug: str) -> list[Tool]:
    asked = "SELECT body FROM tools JOIN bodies USING (no) WHERE bundle = ? AND slug = ?"
    return [unpack_tool(body) for (body,) in database.execute(asked, (bundle_id, slug))]


def tools(
    database: sqlite3.Connection,
    tags: Iterable[str],
    bundle_ids: Iterable[str],
    include_disabled: bool,
    after: str | None,
    limit: int,
) -> list[Tool]:
    """Each tag, or each bundle, has its tools in the order of ids already: their first pages are merged."""
    tags, bundle_ids = sorted(set(tags)), sorted(set(bundle_ids))
    also = "" if include_disabled else f"AND {IN_USE}"
    if tags and bundle_ids:
        also += " AND bundle IN (SELECT value FROM json_each(:bundles))"
    values: dict[str, Any] = {"after": after or "", "limit": limit, "bundles": json.dumps(bundle_ids)}

    def page(table: str, which: str, one: str = "") -> list[Numbered]:
        asked = f"SELECT id, no FROM {table} WHERE {which} AND id > :after {also} ORDER BY id LIMIT :limit"  # noqa: S608
        return database.execute(asked, {**values, "one": one}).fetchall()

    if tags:
        pages = [page("tags JOIN tools USING (no, id)", "tag = :one", tag) for tag in tags]
    elif bundle_ids:
        pages = [page("tools", "bundle = :one", one) for one in bundle_ids]
    else:
        pages = [page("tools", "TRUE")]
    found = dict.fromkeys(merge(*pages))  # a tool with two of the tags is found twice
    return bodies(database, [no for _, no in list(found)[:limit]])


def bodies(database: sqlite3.Connection, numbers: list[int]) -> list[Tool]:
    """The tools of these numbers, in this order. Of very many it is quicker to take all."""
    if len(numbers) > MANY:
        wanted = set(numbers)
        found = {no: body for no, body in database.execute("SELECT no, body FROM bodies") if no in wanted}
    else:
        asked = "SELECT no, body FROM bodies WHERE no IN (SELECT value FROM json_each(?))"
        found = dict(database.execute(asked, (json.dumps(numbers),)))
    return [unpack_tool(found[no]) for no in numbers]


def tools_of_ids(database: sqlite3.Connection, ids: list[str]) -> dict[str, Tool]:
    """Those of them that are there."""
    asked = "SELECT id, body FROM tools JOIN bodies USING (no) WHERE id IN (SELECT value FROM json_each(?))"
    return {id: unpack_tool(body) for id, body in database.execute(asked, (json.dumps(ids),))}
