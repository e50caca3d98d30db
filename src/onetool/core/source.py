"""Source, a place that tools come from, and its Catalogue: tools, prompts and resources.

Behind each prompt and resource is a ToolSpec that no list shows: reading a resource is a call like any other, with a
deadline, the pack's settings and secrets, and a record.
"""

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, Protocol

import msgspec

from onetool.core.errors import Mistake
from onetool.core.registry import NO_PACKS, LazyPacks
from onetool.core.spec import ToolSpec

_PLACE = re.compile(r"\{(\w+)\}")


class SingleTool:
    """A ToolLookup with one tool: the ToolSpec behind a prompt or resource."""

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
    def variables(self) -> tuple[str, ...]:
        """What a template leaves open."""
        return tuple(_PLACE.findall(self.uri))

    def match(self, uri: str) -> Mapping[str, Any] | None:
        """The values of the template's variables in this URI; None if it does not match. Each is one segment."""
        if not self.variables:
            return {} if uri == self.uri else None
        found = self._pattern.fullmatch(uri)
        if found is None:
            return None
        from urllib.parse import unquote  # listing tools does not need it

        values = {name: unquote(text) for name, text in found.groupdict().items()}
        return values if all(map(_is_one_name, values.values())) else None

    @cached_property
    def _pattern(self) -> "re.Pattern[str]":
        parts = _PLACE.split(self.uri)  # text, name, text, name, …, text
        pattern, last = re.escape(parts[0]), len(self.variables)
        for number, (name, text) in enumerate(zip(parts[1::2], parts[2::2], strict=True), 1):
            # Before another place of the same segment it ends where the text between them begins: else there were as
            # many ways to read an address as it has letters.
            end = "" if number == last or "/" in text else re.escape(text[:1])
            pattern += f"(?P<{name}>[^/{end}]+){re.escape(text)}"
        return re.compile(pattern)


def _is_one_name(text: str) -> bool:
    """No slash that hides behind its code, nor a way up: a place stands for a name, and some make a path of it."""
    return text.isprintable() and "/" not in text and text not in (".", "..")


# Sources


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """What a source had to offer when it was asked, and what was wrong with the rest."""

    tools: tuple[ToolSpec, ...] = ()
    lazy: LazyPacks = NO_PACKS  # tools of a source that has very many
    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    mistakes: tuple[Mistake, ...] = ()


class Source(Protocol):
    """One place where tools come from. What is broken in it is reported, never raised: the rest still works."""

    name: str

    def load(self) -> Catalogue: ...
