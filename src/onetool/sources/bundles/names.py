"""Slugs, versions and ids: what they may be, and new ids.

A slug is made of letters (Unicode L*), decimal digits (Nd) and the ASCII dash; a version may have dots, too. Both are
case-sensitive, have 1 to 64 code points, and are in NFC, so that what looks the same is the same. Ids are UUIDv7.
"""

import re
import unicodedata
from functools import lru_cache
from secrets import randbits
from threading import Lock
from typing import Annotated, Any

from msgspec import Meta

from onetool.sources.bundles.errors import InvalidError

MAX_SLUG = 64  # code points
# get|Weather, HTTP|Server; but list|IPs, since a small s at the end of a word makes a plural
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")

_PLAIN_SLUG = re.compile(r"[A-Za-z0-9-]{1,64}")
_PLAIN_VERSION = re.compile(r"[A-Za-z0-9.-]{1,64}")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_LOW_BITS = 74  # of an id: what is neither time nor fixed

ID_SCHEMA: dict[str, Any] = {"type": "string", "pattern": f"^{_ID.pattern}$"}
SLUG_SCHEMA: dict[str, Any] = {
    "type": "string",
    "pattern": "^[\\p{L}\\p{Nd}-]+$",  # with {1,64} it is too large for many an engine
    "minLength": 1,
    "maxLength": MAX_SLUG,
}
VERSION_SCHEMA = {**SLUG_SCHEMA, "pattern": "^[\\p{L}\\p{Nd}.-]+$"}
# The types are documentation: `check_id`, `check_slug` and `check_version` check values.
Id = Annotated[str, Meta(description="A UUIDv7 in lower case.", extra_json_schema=ID_SCHEMA)]
Slug = Annotated[str, Meta(description="Letters, digits, dashes, in NFC.", extra_json_schema=SLUG_SCHEMA)]
Version = Annotated[str, Meta(description="Letters, digits, dashes, dots, in NFC.", extra_json_schema=VERSION_SCHEMA)]

_one_at_a_time = Lock()
_last = 0  # time and low bits of the newest id of this process, as one number


def check_slug(text: str, pointer: str | None = "/slug") -> str:
    if not _PLAIN_SLUG.fullmatch(text):
        _check(text, "slug", "-", pointer)
    return text


def check_version(text: str, pointer: str | None = "/version") -> str:
    if not _PLAIN_VERSION.fullmatch(text):
        _check(text, "version", "-.", pointer)
    return text


def check_id(text: str, pointer: str | None = "/id") -> str:
    """Return the id in lower case, which is how ids are stored: digits mean the same in both."""
    id = text.lower()
    if not _ID.fullmatch(id):
        raise InvalidError(f"{text!r:.80} is not a UUIDv7, as 01890a5d-ac96-774b-bcce-b302099a8057 is one", pointer)
    return id


def new_id(now: float) -> str:
    """Make an id of that time (seconds since 1970). Within a process each one is greater than those before."""
    global _last
    with _one_at_a_time:
        milliseconds = min(max(int(now * 1000), 0), (1 << 48) - 1)
        _last = max(_last + 1, (milliseconds << _LOW_BITS) | randbits(_LOW_BITS))
        return _uuid(_last)


@lru_cache(1024)  # calls of a tool are counted under it
def derived_id(text: str) -> str:
    """Derive the id of something written by hand without one: the same as long as `text` is the same.

    It has no time in it. That of the file changes with every edit, and with every `git clone`; an id must not.
    """
    from hashlib import sha256

    return _uuid(int.from_bytes(sha256(text.encode()).digest()[:10], "big") & ((1 << _LOW_BITS) - 1))


def code_name(slug: str) -> str:
    """Convert a slug to a name in code. Slugs have no underscore, so this can be undone."""
    return slug.replace("-", "_")


def _uuid(number: int) -> str:
    """48 bits of time, the version, 12 bits, the variant, 62 bits."""
    time, high, low = number >> _LOW_BITS, number >> 62 & 0xFFF, number & ((1 << 62) - 1)
    digits = f"{time << 80 | 7 << 76 | high << 64 | 2 << 62 | low:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _check(text: str, what: str, signs: str, pointer: str | None) -> None:
    if not text:
        raise InvalidError(f"the {what} is empty: it needs 1 to {MAX_SLUG} characters", pointer)
    if len(text) > MAX_SLUG:
        raise InvalidError(f"the {what} {text!r:.80} has {len(text)} characters; {MAX_SLUG} is the most", pointer)
    nfc = unicodedata.normalize("NFC", text)
    if nfc != text:
        raise InvalidError(f"the {what} {text!r} is not in Unicode's normal form NFC; write it as {nfc!r}", pointer)
    for sign in text:
        if sign not in signs and not fits(sign):
            allowed = "letters, digits and dashes" + (", and dots" if "." in signs else "")
            raise InvalidError(f"the {what} {text!r} has {_named(sign)} in it; it may have {allowed}", pointer)


def fits(sign: str) -> bool:
    """Return whether the character may stand in a slug, beside the dash."""
    category = unicodedata.category(sign)
    return category[0] == "L" or category == "Nd"


def _named(sign: str) -> str:
    if sign == " ":
        return "a space"
    shown = f"{sign!r} " if sign.isprintable() else ""
    return f"{shown}(U+{ord(sign):04X} {unicodedata.name(sign, 'without a name')})"
