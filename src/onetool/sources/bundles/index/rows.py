"""Bundles and tools as rows of the index, and their texts as words, also as words that may have been mistyped.

A tool's whole JSON is stored: what was put comes back as it was. A word is a run of letters and digits without case and
accents, or one symbol such as an emoji; stored texts and queries are split by the same function.
"""

import os
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from unicodedata import category, combining, normalize

import msgspec

from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.names import CAMEL

LONGEST = 100  # characters of a word
_ASCII = re.compile("[a-z0-9]+")
_SELECTORS = range(0xFE00, 0xFE10)  # say how the sign before them is to be drawn


class _SignTable(dict[int, str | None]):
    """Cache: character -> its normalized form."""

    def __missing__(self, code: int) -> str | None:
        self[code] = found = _sign(chr(code))
        return found


def _sign(sign: str) -> str | None:
    kind = category(sign)
    if kind == "Cf" or combining(sign) or ord(sign) in _SELECTORS:  # accents, soft hyphens, joiners
        return None
    if kind[0] in "LNM":
        return sign
    return f" {sign} " if kind == "So" else " "


_SIGNS = _SignTable()


def words(text: str) -> list[str]:
    """All words, in order."""
    if text.isascii():
        plain = text.lower()
        found = _ASCII.findall(plain)
    else:
        plain = normalize("NFKD", normalize("NFKD", text).casefold()).translate(_SIGNS)
        found = normalize("NFC", plain).split()
    # The plain text, because it may be the longer one: a single character can stand for a word of six letters.
    return [word[:LONGEST] for word in found] if len(plain) > LONGEST else found


class SearchName:
    """A name as it is compared, `Get-Weather` as `get weather`, and the words that it is found by."""

    def __init__(self, text: str) -> None:
        found = words(text)
        self.key = " ".join(found)
        self.squeezed = "".join(found)[:LONGEST]  # `read-file` as some would write it
        humps = words(CAMEL.sub(" ", text))
        if humps != found:  # getWeather is found by its parts, too
            found = found + humps
        self.words = [*found, self.squeezed] if len(found) > 1 else found


# Mistyped words


SHORTEST_MISTYPED, LONGEST_MISTYPED = 4, 40  # shorter words are near to everything
_TWO_SLIPS = 7  # letters from which on a word may have two


def can_be_mistyped(word: str) -> bool:
    return SHORTEST_MISTYPED <= len(word) <= LONGEST_MISTYPED and word.isalpha()


def near(word: str, known: Sequence[str]) -> dict[int, list[str]]:
    """The known words that are one slip away, and two: a letter too many, too few, another one, or two swapped."""
    found: dict[int, list[str]] = {1: [], 2: []}
    if not can_be_mistyped(word):
        return found
    from rapidfuzz.distance import OSA  # needed only for a search that finds nothing exact
    from rapidfuzz.process import extract

    slips = 2 if len(word) >= _TWO_SLIPS else 1
    for other, distance, _ in extract(word, known, scorer=OSA.distance, score_cutoff=slips, limit=None):
        if distance:
            found[int(distance)].append(other)
    return found


# Rows


_encode = msgspec.json.Encoder().encode
read_tool = msgspec.json.Decoder(Tool).decode
read_bundle = msgspec.json.Decoder(Bundle).decode

Texts = tuple[str, str, str]


class IndexedBundleRow(NamedTuple):
    id: str
    live: bool
    built_in: bool
    words: str
    body: bytes


class IndexedToolRow(NamedTuple):
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


def bundle_row(bundle: Bundle) -> IndexedBundleRow:
    live = bundle.is_enabled and bundle.soft_deleted_at is None
    text = " ".join([*SearchName(bundle.slug).words, *SearchName(bundle.display_name).words])
    return IndexedBundleRow(bundle.id, live, bundle.is_built_in, text, _encode(bundle))


def tool_row(tool: Tool) -> tuple[IndexedToolRow, Texts]:
    """Its row; and what of itself it is found by: its names, its tags, its description."""
    slug, name = SearchName(tool.slug), SearchName(tool.display_name)
    row = IndexedToolRow(
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
    """A digest of the content."""
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
