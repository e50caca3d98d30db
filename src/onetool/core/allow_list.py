"""AllowList: which tools names and patterns allow.

A plain collection of names is an allow-list, too, and None is one that allows everything.
"""

import re
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache


class AllowList(Collection[str]):
    """The tools that names and patterns such as `web.*` allow, of those that there are at one moment.

    A tool that is in no list, such as an older version (`web.get@1.0`), is allowed if its name fits.
    """

    __slots__ = ("_fits", "_names", "_within")

    def __init__(
        self, patterns: Collection[str], there: Collection[str], within: Collection[str] | None = None
    ) -> None:
        """`there` are the tools that there are. With `within`, what is allowed has to be in there, too."""
        self._fits = _matcher(tuple(patterns))
        self._within = within
        # A name may be that of a tool that is in no list, too.
        further = (name for name in patterns if not is_pattern(name) and name not in there)
        self._names = tuple(name for name in (*there, *further) if name in self)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or self._fits(name) is None:
            return False
        return self._within is None or name in self._within

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


@lru_cache(256)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    """A function that gives a match for a name that is one of these, or fits one."""
    from fnmatch import translate

    whole = "|".join(translate(one) if is_pattern(one) else re.escape(one) + r"\Z" for one in patterns)
    return re.compile(whole or r"(?!)").match


def allowed_by_both(one: Collection[str] | None, other: Collection[str] | None) -> Collection[str] | None:
    """The intersection of two allow-lists; None allows everything."""
    for names in (one, other):
        if isinstance(names, str):  # else `in` would look for parts of it
            raise TypeError(f"an allow-list is a list of names: [{names!r}]")
    if one is None or other is None:
        return other if one is None else one
    if one is other:  # of a tool and what it calls
        return one
    # Asked both ways: a list of patterns also holds names that it does not list, such as those of older versions.
    return frozenset([name for name in one if name in other] + [name for name in other if name in one])
