"""Allow-lists: None allows everything, a list exactly what it names. One can only narrow another."""

from collections.abc import Collection


def both(one: Collection[str] | None, other: Collection[str] | None) -> Collection[str] | None:
    """What both lists allow."""
    for names in (one, other):
        if isinstance(names, str):  # else `in` would look for parts of it
            raise TypeError(f"an allow-list is a list of names: [{names!r}]")
    if one is None or other is None:
        return other if one is None else one
    return frozenset(one) & frozenset(other)
