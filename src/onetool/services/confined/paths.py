"""Paths as text: how a name is shown, what an escape means, and which names a path takes one after the other."""

import re

from onetool.services.confined.refusals import Refused

LONGEST_PATH = 4095  # bytes; what Linux takes, held everywhere

Parts = list[bytes]


def shown(name: bytes) -> str:
    """A file name as text that is valid everywhere, and that can be handed back."""
    return _ESCAPE.sub(rb"\\x5cx\1", name).decode("utf-8", "backslashreplace")


def meant(path: bytes) -> bytes:
    return _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), path)


_ESCAPE = re.compile(rb"\\x(5c|[89a-f][0-9a-f])")


def encoded(path: str) -> bytes:
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        raise Refused("bad_path", "it holds half of a surrogate pair, which is no character") from None
    if not raw:
        raise Refused("bad_path", "it is empty; '.' is the first allowed folder")
    if b"\0" in raw:
        raise Refused("bad_path", "it holds a NUL character")
    if len(raw) > LONGEST_PATH:
        raise Refused("name_too_long")
    return raw


def names_of(path: bytes) -> Parts:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def split(path: bytes) -> Parts:
    """The names to take one after the other. At the end of `a/` stands a `.`: then `a` must be a folder."""
    parts = names_of(path)
    return parts if parts and not path.endswith((b"/", b"/.")) else [*parts, b"."]


def stays_inside(parts: Parts) -> bool:
    """Whether the path stays inside as it is written. Tells nobody whether the folders on the way exist."""
    depth = 0
    for part in parts:
        depth += -1 if part == b".." else 1
        if depth < 0:
            return False
    return True
