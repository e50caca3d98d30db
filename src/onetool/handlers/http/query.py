"""Pairs of names and values with holes, `a=${x}&b=1`: the query of a URL, or a form as the body.

A pair is dropped when one of its values is absent or null. A value that is a list by itself repeats its name.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from onetool.handlers.http.path import escaped
from onetool.handlers.http.placeholders import Hole, TemplateError, Text, Values, as_text, read, unmarked
from onetool.handlers.http.pointers import below
from onetool.handlers.http.url import clean


class Pair:
    __slots__ = ("key", "value")

    def __init__(self, key: Text, value: Text | None) -> None:
        self.key = key
        self.value = value  # None: a name alone, without `=`

    @property
    def holes(self) -> tuple[Hole, ...]:
        return self.key.holes + (() if self.value is None else self.value.holes)

    def fill(self, values: Values) -> list[str]:
        key = self.key.fill(values, escaped)
        if key is None:
            return []
        if self.value is None:
            return [key]
        alone = self.value.alone
        if alone is not None and isinstance(items := values.get(alone.name), list | tuple):
            return [f"{key}={escaped(alone, as_text(alone, item))}" for item in items if item is not None]
        value = self.value.fill(values, escaped)
        return [] if value is None else [f"{key}={value}"]


class Pairs:
    """All of them, in order. What has no holes is written once and for all."""

    __slots__ = ("fixed", "parts")

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self.parts: tuple[str | Pair, ...] = tuple(pair if pair.holes else "&".join(pair.fill({})) for pair in pairs)
        self.fixed = None if any(isinstance(part, Pair) for part in self.parts) else "&".join(map(str, self.parts))

    def fill(self, values: Values) -> str:
        if self.fixed is not None:
            return self.fixed
        filled: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                filled.append(part)
            else:
                filled += part.fill(values)
        return "&".join(filled)


def written_pairs(marked: str, holes: Iterator[Hole]) -> list[Pair]:
    """Pairs that stand in a URL, or in the text of a form: their escapes are kept."""
    pairs: list[Pair] = []
    for member in filter(None, marked.split("&")):
        name, equals, value = member.partition("=")
        key = unmarked(name, holes).changed(clean)
        pairs.append(Pair(key, unmarked(value, holes).changed(clean) if equals else None))
    return pairs


def named_pairs(given: Mapping[str, Any], arguments: Collection[str], pointer: str) -> list[Pair]:
    """Pairs given as a mapping: their texts are data, and escaped."""
    pairs: list[Pair] = []
    for name, value in given.items():
        place = below(pointer, name)
        key = read(name, arguments, place).changed(_literal)
        items = value if isinstance(value, list | tuple) else [value]
        pairs += [Pair(key, _value(item, arguments, place)) for item in items if item is not None]
    return pairs


def _value(value: Any, arguments: Collection[str], pointer: str) -> Text:
    if isinstance(value, str):
        return read(value, arguments, pointer).changed(_literal)
    if isinstance(value, dict | list | tuple):
        raise TemplateError("has to be a text, a number, true, false, or a list of them", pointer)
    return Text([_literal(as_text(Hole("", is_secret=False), value))])


def _literal(text: str) -> str:
    return quote(text, safe="")
