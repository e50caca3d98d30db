"""ETag, If-Match and If-None-Match: nobody overwrites what he has not seen (RFC 9110, 13.1)."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from onetool.interfaces.rest.problem import Wrong
from onetool.sources.bundles.errors import NotFound, Stale

ANY = "*"

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_LIST = re.compile(rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*")
_BARE = re.compile(r"[!#-+\x2d-~]+")  # without the quotes that belong to it: common, and not to be mistaken
_ONE = re.compile(r'(W/)?"([^"]*)"')


class Conditions(NamedTuple):
    """What a request says of the state that it was made for."""

    seen: tuple[str, ...]  # If-Match: one of these must be its tag. A weak one never is
    known: tuple[str, ...]  # If-None-Match: none of these may be its tag

    def settle(self, tag_now: Callable[[], str], may_be_new: bool = False) -> str | None:
        """The tag that the store has to find when it has its lock, if any; Stale where it need not even look."""
        if not self.seen and not self.known:
            return None
        try:
            now = tag_now()
        except NotFound:
            if not may_be_new:
                raise
            now = None
        if self.seen and (now is None or not _is_among(now, self.seen)):
            raise Stale("It is not what If-Match says any more: get it again, and repeat your change on that.")
        if now is not None and _is_among(now, self.known):
            raise Stale("It is there, and is what If-None-Match says that it must not be.")
        return (ANY if ANY in self.seen else now) if self.seen else None


def etag(tag: str) -> tuple[bytes, bytes]:
    return b"etag", f'"{tag}"'.encode("latin-1")


def conditions(headers: Mapping[bytes, bytes]) -> Conditions:
    seen, known = _read(headers, b"if-match"), _read(headers, b"if-none-match")
    return Conditions(
        seen=tuple("" if weak else tag for weak, tag in seen),  # no tag is empty
        known=tuple(tag for _, tag in known),
    )


def is_known(headers: Mapping[bytes, bytes], tag: str) -> bool:
    """Whether a client has it already."""
    return b"if-none-match" in headers and _is_among(tag, [one for _, one in _read(headers, b"if-none-match")])


def _is_among(tag: str, tags: tuple[str, ...] | list[str]) -> bool:
    return tag in tags or ANY in tags


def _read(headers: Mapping[bytes, bytes], name: bytes) -> list[tuple[str, str]]:
    if name not in headers:
        return []
    text = headers[name].decode("latin-1").strip(" \t")
    if text == ANY:
        return [("", ANY)]
    if _BARE.fullmatch(text):
        return [("", text)]
    if not _LIST.fullmatch(text):
        shown = name.decode().title()
        message = f'{shown} must be * or ETags in their quotes, such as "abc", not {text[:60]!r}.'
        raise Wrong(400, "bad_header", message, part="header", pointer=f"/{shown}")
    return [(weak, tag) for weak, tag in _ONE.findall(text) if tag != ANY]
