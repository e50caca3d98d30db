"""Validation of slugs, versions and ids, and creation of ids.

A slug consists of letters (Unicode L*), decimal digits (Nd) and the ASCII dash; a version may also contain dots. Both
are case-sensitive, have 1 to 64 code points, and are in NFC, so that equal-looking strings are equal. Ids are UUIDv7.
"""

import re
import unicodedata
from functools import lru_cache
from hashlib import sha256
from secrets import randbits
from threading import Lock
from typing import Annotated, Any

from msgspec import Meta

from onetool.sources.bundles.errors import InvalidError

MAX_SLUG = 64  # code points
# get|Weather, HTTP|Server, but list|IPs, because a final lower-case s is a plural
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")

_PLAIN_SLUG = re.compile(r"[A-Za-z0-9-]{1,64}")
_PLAIN_VERSION = re.compile(r"[A-Za-z0-9.-]{1,64}")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_LOW_BITS = 74  # the random bits of an id

ID_SCHEMA: dict[str, Any] = {"type": "string", "pattern": f"^{_ID.pattern}$"}
SLUG_SCHEMA: dict[str, Any] = {
    "type": "string",
    "pattern": "^[\\p{L}\\p{Nd}-]+$",  # with {1,64} the pattern is too large for many engines
    "minLength": 1,
    "maxLength": MAX_SLUG,
}
VERSION_SCHEMA = {**SLUG_SCHEMA, "pattern": "^[\\p{L}\\p{Nd}.-]+$"}
# The types are documentation: `check_id`, `check_slug` and `check_version` check values.
Id = Annotated[str, Meta(description="A UUIDv7 in lower case.", extra_json_schema=ID_SCHEMA)]
Slug = Annotated[str, Meta(description="Letters, digits, dashes, in NFC.", extra_json_schema=SLUG_SCHEMA)]
Version = Annotated[str, Meta(description="Letters, digits, dashes, dots, in NFC.", extra_json_schema=VERSION_SCHEMA)]

_one_at_a_time = Lock()
_last = 0  # the time and random bits of this process's newest id, as a number


def check_slug(text: str, pointer: str | None = "/slug") -> str:
    if not _PLAIN_SLUG.fullmatch(text):
        _check(text, "slug", "-", pointer)
    return text


def check_version(text: str, pointer: str | None = "/version") -> str:
    if not _PLAIN_VERSION.fullmatch(text):
        _check(text, "version", "-.", pointer)
    return text


def check_id(text: str, pointer: str | None = "/id") -> str:
    """Return the id in lower case, the form in which ids are stored."""
    id = text.lower()
    if not _ID.fullmatch(id):
        raise InvalidError(f"invalid id {text!r:.80} (a UUIDv7 is 01890a5d-ac96-774b-bcce-b302099a8057)", pointer)
    return id


def new_id(now: float) -> str:
    """Return a new id for a time in seconds since 1970. Within a process, ids increase."""
    global _last
    with _one_at_a_time:
        milliseconds = min(max(int(now * 1000), 0), (1 << 48) - 1)
        _last = max(_last + 1, (milliseconds << _LOW_BITS) | randbits(_LOW_BITS))
        return _uuid(_last)


@lru_cache(1024)  # every call of a tool needs its id for counting
def derived_id(text: str) -> str:
    """Derive an id from a string, for handwritten files without an id. Equal strings give equal ids.

    The id contains no time: the time of a file changes with every edit and every `git clone`, but its id must not.
    """
    return _uuid(int.from_bytes(sha256(text.encode()).digest()[:10], "big") & ((1 << _LOW_BITS) - 1))


def code_name(slug: str) -> str:
    """Convert a slug to a name in code. Slugs contain no underscores, so the conversion is reversible."""
    return slug.replace("-", "_")


def _uuid(number: int) -> str:
    """Return a UUID of 48 bits of time, the version, 12 bits, the variant and 62 bits."""
    time, high, low = number >> _LOW_BITS, number >> 62 & 0xFFF, number & ((1 << 62) - 1)
    digits = f"{time << 80 | 7 << 76 | high << 64 | 2 << 62 | low:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _check(text: str, kind: str, signs: str, pointer: str | None) -> None:
    if not text:
        raise InvalidError(f"the {kind} is empty (expected 1 to {MAX_SLUG} characters)", pointer)
    if len(text) > MAX_SLUG:
        raise InvalidError(f"the {kind} {text!r:.80} has {len(text)} characters; the limit is {MAX_SLUG}", pointer)
    nfc = unicodedata.normalize("NFC", text)
    if nfc != text:
        change = f"write {nfc!a} instead of {text!a}"
        raise InvalidError(f"the {kind} {text!r} is not in the normal form NFC: {change}", pointer)
    for sign in text:
        if sign not in signs and not fits(sign):
            allowed = "letters, digits and dashes" + (", and dots" if "." in signs else "")
            shown = f"{sign!r} " if sign.isprintable() else ""
            name = f"{shown}(U+{ord(sign):04X} {unicodedata.name(sign, 'unnamed')})" if sign != " " else "a space"
            raise InvalidError(f"the {kind} {text!r} contains {name}; only {allowed} are allowed", pointer)


def fits(sign: str) -> bool:
    """Return whether a character other than the dash is allowed in slugs."""
    category = unicodedata.category(sign)
    return category[0] == "L" or category == "Nd"
