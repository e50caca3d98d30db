"""The path of a URL template: a value in it is one segment, or a part of one, whatever it contains."""

import re
from urllib.parse import quote, unquote

from onetool.handlers.http.placeholders import Hole, Text, Values
from onetool.handlers.http.url import clean

_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")


def escaped(hole: Hole, value: str) -> str:
    """A value for a path or a query. All but letters, digits, `-`, `.`, `_` and `~` becomes %XX."""
    return value if _PLAIN.fullmatch(value) else quote(value, safe="")


class Path:
    """What stands before the `?`: texts that stay, and segments with holes in them."""

    __slots__ = ("fixed", "parts")

    def __init__(self, segments: list[Text]) -> None:
        parts: list[str | Text] = []
        for number, segment in enumerate(segments):
            slash = "/" if number else ""
            cleaned = segment.changed(clean)
            if cleaned.holes:
                parts += [slash, cleaned]
            else:
                parts.append(slash + cleaned.literal)
        self.parts = tuple(parts)
        self.fixed = None if any(isinstance(part, Text) for part in parts) else "".join(map(str, parts))

    def fill(self, values: Values) -> str:
        if self.fixed is not None:
            return self.fixed
        return "".join([part if isinstance(part, str) else _segment(part, values) for part in self.parts])


def _segment(segment: Text, values: Values) -> str:
    filled = segment.fill_whole(values, _full, "the URL's path")
    # There is no way to write a segment of dots that is not taken for a step up or none; `..;x` is one to some servers.
    if filled[0] in ".%" and unquote(filled.partition(";")[0]) in (".", ".."):
        raise segment.holes[0].bad("can't make a segment of the URL's path that is only `.` or `..`")
    return filled


def _full(hole: Hole, value: str) -> str:
    if not value:
        raise hole.bad("is empty: the URL would be that of something else")
    return escaped(hole, value)
