"""Where a value has what its schema marks as secret: `writeOnly`, or `format: password`.

Everything that may apply to a part of the value is followed, whether it would fit or not: references, anchors,
alternatives and conditions. So a mark that counts in one case counts in all.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

MOST_STEPS = 100_000

_SAME = ("allOf", "anyOf", "oneOf")  # lists of schemas of the same value
_ALSO = ("if", "then", "else")  # schemas of the same value
_ITEMS = ("items", "additionalItems", "contains", "unevaluatedItems")
_MEMBERS = ("additionalProperties", "unevaluatedProperties")

Schema = Mapping[str, Any]


class SecretPlaces:
    """Finds marked values. One for each search."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._named = dict(_named(root))
        self._seen = set[tuple[int, str]]()

    def first(self, value: Any) -> str | None:
        """The pointer to the first value that is marked; None if there is none. Of what is too large it is ""."""
        waiting: list[tuple[Any, Any, str]] = [(self._root, value, "")]
        while waiting:
            schema, part, pointer = waiting.pop()
            if not isinstance(schema, Mapping) or (id(cast(Schema, schema)), pointer) in self._seen:
                continue
            if len(self._seen) >= MOST_STEPS:
                return ""
            known = cast(Schema, schema)
            self._seen.add((id(known), pointer))
            if pointer and part not in (None, "") and _is_marked(known):
                return pointer
            waiting += [(other, part, pointer) for other in self._same(known)]
            waiting += _below(known, part, pointer)
        return None

    def _same(self, schema: Schema) -> Iterator[Any]:
        """The schemas that apply to the same value."""
        for word in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(ref := schema.get(word), str):
                yield self._resolved(ref)
        for word in _SAME:
            if isinstance(found := schema.get(word), list | tuple):
                yield from cast(list[Any], found)
        yield from (schema.get(word) for word in _ALSO)
        for word in ("dependentSchemas", "dependencies"):
            if isinstance(found := schema.get(word), Mapping):
                yield from cast(Schema, found).values()

    def _resolved(self, ref: str) -> Any:
        base, _, fragment = ref.partition("#")
        here: Any = self._named.get(base, self._root) if base else self._root
        if not fragment.startswith("/"):
            return self._named.get(f"#{fragment}", here) if fragment else here
        for step in unquote(fragment).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(here, list | tuple):
                items = cast(list[Any], here)
                here = items[int(name)] if name.isdecimal() and int(name) < len(items) else None
            else:
                here = cast(Schema, here).get(name) if isinstance(here, Mapping) else None
        return here


def _is_marked(schema: Schema) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"


def _below(schema: Schema, value: Any, pointer: str) -> Iterator[tuple[Any, Any, str]]:
    """The parts of a value, each with the schemas that may apply to it."""
    if isinstance(value, Mapping):
        for name, part in cast(Mapping[str, Any], value).items():
            place = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            yield from ((one, part, place) for one in _of_member(schema, name))
    elif isinstance(value, list | tuple):
        items = cast(list[Any], value)
        for number, part in enumerate(items):
            yield from ((one, part, f"{pointer}/{number}") for one in _of_item(schema, number))


def _of_member(schema: Schema, name: str) -> Iterator[Any]:
    if isinstance(named := schema.get("properties"), Mapping):
        yield cast(Schema, named).get(name)
    if isinstance(patterns := schema.get("patternProperties"), Mapping):
        yield from cast(Schema, patterns).values()  # whichever fits: a stranger's pattern is not run for this
    yield from (schema.get(word) for word in _MEMBERS)


def _of_item(schema: Schema, number: int) -> Iterator[Any]:
    for word in ("prefixItems", "items"):  # a list of `items` is that of older drafts
        if isinstance(found := schema.get(word), list | tuple) and number < len(cast(list[Any], found)):
            yield cast(list[Any], found)[number]
    yield from (schema.get(word) for word in _ITEMS)


def _named(root: Schema) -> Iterator[tuple[str, Schema]]:
    """All schemas that have a name: `#anchor`, or an `$id`."""
    waiting: list[Any] = [root]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            schema = cast(Schema, part)
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := schema.get(word), str):
                    yield f"#{name}", schema
            if isinstance(name := schema.get("$id"), str):
                yield name.removesuffix("#"), schema
            waiting += schema.values()
        elif isinstance(part, list | tuple):
            waiting += cast(list[Any], part)
