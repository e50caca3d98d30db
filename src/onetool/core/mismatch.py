"""The words for expected types, wrong values and places, in messages about configs, JSON bodies and arguments.

Types have the names of JSON Schema: string, integer, number, boolean, array, object, null.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from onetool.core.errors import MAX_SHOWN_VALUE, cut

TYPES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
PYTHON_TYPES: dict[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
    list: "array", tuple: "array", dict: "object",
}  # fmt: skip

MAX_PLACE = 200
MAX_ALTERNATIVES = 12  # values of a fixed list that a message names


def type_of(value: Any) -> str | None:
    """Return the JSON type of a value; None if JSON has no such type."""
    kind = next((PYTHON_TYPES[kind] for kind in type(value).__mro__ if kind in PYTHON_TYPES), None)
    return "object" if kind is None and isinstance(value, Mapping) else kind


def either(words: Iterable[str]) -> str:
    """Join alternatives: a, b or c."""
    *others, last = dict.fromkeys(words)
    return f"{', '.join(others)} or {last}" if others else last


def expected_types(kinds: Iterable[str]) -> str:
    """Describe the types that a value may have. `null` comes last."""
    return either(TYPES.get(kind, kind) for kind in sorted(kinds, key="null".__eq__))


def described(value: Any, words: Mapping[str, str] = TYPES, limit: int = MAX_SHOWN_VALUE) -> str:
    """Describe a wrong value. Only the keys of an object are shown: its values may contain secrets."""
    kind = type_of(value)
    if kind == "string":
        return f"the string {cut(value, limit)!r}"
    if kind in ("integer", "number"):
        return f"the number {cut(str(value), limit)}"
    if kind == "boolean":
        return str(value).lower()
    if kind == "array":
        count = len(cast(Sequence[Any], value))
        return f"a list of {count:,} item{'s' * (count != 1)}" if count else "an empty list"
    if kind == "object":
        names = [str(name)[:limit] for name in islice(cast(Mapping[Any, Any], value), limit)]
        return cut(f"{words[kind]} with {', '.join(names)}", limit) if names else f"{words[kind]} without keys"
    return words["null"] if kind == "null" else type(value).__name__


def one_of(options: Sequence[Any]) -> str:
    """List the first values of a fixed list."""
    known = ", ".join(shown(option) for option in options[:MAX_ALTERNATIVES])
    more = len(options) - MAX_ALTERNATIVES
    return f"one of {known}" + (f" and {more} more" if more > 0 else "")


def shown(value: Any) -> str:
    """Return a short value as text."""
    if isinstance(value, str):
        return cut(repr(value[: MAX_SHOWN_VALUE + 1]), MAX_SHOWN_VALUE)
    import json  # slow, and packs import this module

    text = json.dumps(value, ensure_ascii=False, default=str)
    return cut(text, MAX_SHOWN_VALUE)


def violated_limit(value: Any, limits: Any) -> str | None:
    """Return the limit that a value violates, such as "be at least 1"; None if it violates none.

    `limits` has the attributes of msgspec's Meta, or some of them.
    """
    known = {name: found for name in _LIMITS if (found := getattr(limits, name, None)) is not None}
    if isinstance(value, str | Collection):
        count, least, most = len(cast(Collection[Any], value)), known.get("min_length", 0), known.get("max_length")
        unit = "characters" if isinstance(value, str) else "items"
        if count < least:
            return "not be empty" if least == 1 else f"have at least {least} {unit}"
        if most is not None and count > most:
            return f"have at most {most} {unit}, but has {count:,}"
        if isinstance(value, str) and "pattern" in known and not re.search(known["pattern"], value):
            return f"match {known['pattern']}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least, most = known.get("ge"), known.get("le")
        if least is not None and most is not None and not least <= value <= most:
            return f"be from {least} to {most}"
        if least is not None and value < least:
            return f"be at least {least}"
        if most is not None and value > most:
            return f"be at most {most}"
        if "gt" in known and value <= known["gt"]:
            return f"be more than {known['gt']}"
        if "lt" in known and value >= known["lt"]:
            return f"be less than {known['lt']}"
    return None


_LIMITS = ("min_length", "max_length", "pattern", "ge", "le", "gt", "lt")


def place(path: Iterable[str | int]) -> str:
    """Return a place in data as users write it: requests[0].name."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step[: MAX_PLACE + 1]}" for step in path)
    return cut("".join(steps).removeprefix("."), MAX_PLACE)


def place_of(pointer: str) -> str:
    """Return the place that a JSON pointer (RFC 6901) names: /requests/0/name is requests[0].name."""
    steps = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
    return place(int(step) if step.isascii() and step.isdigit() else step for step in steps)
