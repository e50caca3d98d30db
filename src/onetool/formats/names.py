"""A tool's name as a provider can spell it, and back again."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from itertools import count

from onetool.core.spec import ToolSpec
from onetool.formats.providers import find_provider

LONGEST = 64
HASH_LENGTH = 8

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_GOOD_START = re.compile(r"[A-Za-z_]")


class ProviderNames:
    """Both ways between the real names of some tools and one provider's spelling of them.

    The same tools give the same spellings, in whatever order they come: give the same ones here and to
    `provider_tools`. `others` exist but are not among these: a model may still call one that it knows from before.
    """

    def __init__(self, specs: Iterable[ToolSpec], provider: str, others: Iterable[ToolSpec] = ()) -> None:
        self._form = find_provider(provider)
        self._unlisted = others
        self._safe = self._spell_all({spec.name for spec in specs})
        self._real = {safe: real for real, safe in self._safe.items()}

    def to_provider(self, real: str) -> str:
        """The provider's spelling. A name of no tool here (one from an old session) gets a valid one too."""
        if real in self._safe:
            return self._safe[real]
        if (known := self._others.get(real)) and known not in self._real:
            return known
        return real if self._is_fine(real) and real not in self._real else self._spell(real, turn=1)

    def from_provider(self, safe: str) -> str | None:
        """The real name, also for a model that gave back the real one; None if it is neither."""
        if safe in self._real:
            return self._real[safe]
        if safe in self._safe or safe in self._others:
            return safe
        return next((real for real, spelled in self._others.items() if spelled == safe), None)

    @cached_property
    def _others(self) -> dict[str, str]:
        """The spellings of the others: worked out when a name comes that is none of ours."""
        return self._spell_all({spec.name for spec in self._unlisted})

    def _spell_all(self, names: set[str]) -> dict[str, str]:
        """One spelling for each name. A name that is fine stays; who clashes or is too long tries the next turn."""
        safe = {name: name for name in names if self._is_fine(name)}
        waiting = names - safe.keys()
        for turn in count():  # ends: each turn has other hashes, and there are only so many names to clash with
            wishes = {name: self._spell(name, turn) for name in waiting}
            # All who wish the same wait, not only the later ones: the result must not depend on the order.
            refused = {wish for wish, wanted in Counter(wishes.values()).items() if wanted > 1} | set(safe.values())
            safe |= {name: wish for name, wish in wishes.items() if wish not in refused and 0 < len(wish) <= LONGEST}
            waiting -= safe.keys()
            if not waiting:
                break
        return safe

    def _is_fine(self, name: str) -> bool:
        return 0 < len(name) <= LONGEST and self._spell(name, turn=0) == name

    def _spell(self, name: str, turn: int) -> str:
        """The plain spelling at turn 0, then one with a hash of the whole real name."""
        parts = name.split(".")
        safe = "__".join(_ODD.sub("_", part) for part in parts)
        if self._form.letter_first and not _GOOD_START.match(safe):
            safe = "_" + safe
        if turn == 0:  # a part of which nothing is left would be that of many other names, too
            return "" if any(map(_is_lost, parts)) else safe
        from hashlib import sha256  # slow to load, and hardly a name needs it

        digest = sha256(f"{turn}:{name}".encode("utf-8", "surrogatepass")).hexdigest()[:HASH_LENGTH]
        return f"{safe[: LONGEST - HASH_LENGTH - 1]}_{digest}"


def _is_lost(part: str) -> bool:
    """Whether all that tells a part of a name from others is what providers can't spell: 日本, as `__`."""
    return _ODD.search(part) is not None and not _ODD.sub("", part).strip("_-")
