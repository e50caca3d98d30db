"""What a pack offers beside tools: prompts for people, and resources to read.

Behind each is a ToolSpec that no list shows: reading a resource is a call like any other, within a deadline, with the
pack's settings and secrets, and recorded.
"""

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import msgspec

from onetool.core.spec import ToolSpec

_PLACE = re.compile(r"\{(\w+)\}")


class Alone:
    """A catalogue of one, for the executor: what is behind an offer is in no other."""

    def __init__(self, spec: ToolSpec) -> None:
        self._spec = spec

    def get(self, name: str) -> ToolSpec | None:
        return self._spec if name == self._spec.name else None

    def names(self) -> Collection[str]:
        return (self._spec.name,)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A text for a model that a person picks by name. What its spec gives is the text, or messages."""

    name: str
    spec: ToolSpec
    title: str | None = None


class Resource(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Something to read by its URI, or by any URI of a form: `notes://{day}` is a template.

    What its spec gives is one of {"text": …}, {"blob": base64} and {"data": …}.
    """

    uri: str
    name: str
    spec: ToolSpec
    mime_type: str | None = None

    @cached_property
    def places(self) -> tuple[str, ...]:
        """What a template leaves open."""
        return tuple(_PLACE.findall(self.uri))

    def match(self, uri: str) -> Mapping[str, Any] | None:
        """What the URI puts into those places; None where it is another's. A place is one segment of a path."""
        if not self.places:
            return {} if uri == self.uri else None
        found = self._pattern.fullmatch(uri)
        if found is None:
            return None
        from urllib.parse import unquote  # not for those who only list tools

        values = {name: unquote(text) for name, text in found.groupdict().items()}
        return values if all(map(_is_one_name, values.values())) else None

    @cached_property
    def _pattern(self) -> "re.Pattern[str]":
        parts = _PLACE.split(self.uri)  # text, name, text, name, …, text
        pattern, last = re.escape(parts[0]), len(self.places)
        for number, (name, text) in enumerate(zip(parts[1::2], parts[2::2], strict=True), 1):
            # Before another place of the same segment it ends where the text between them begins: else there were as
            # many ways to read an address as it has letters.
            end = "" if number == last or "/" in text else re.escape(text[:1])
            pattern += f"(?P<{name}>[^/{end}]+){re.escape(text)}"
        return re.compile(pattern)


def _is_one_name(text: str) -> bool:
    """No slash that hides behind its code, nor a way up: a place stands for a name, and some make a path of it."""
    return text.isprintable() and "/" not in text and text not in (".", "..")
