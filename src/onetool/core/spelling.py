"""How code says the names of packs and tools: Python can't say `12306-mcp.get-date`, so it says `_12306_mcp.get_date`.

A name that Python can say stays as it is. Two names that would be spelled alike differ by a short hash of the name, so
that a spelling does not depend on what else is there or in which order it came; one that is literally so keeps it.
"""

from collections.abc import Collection, Iterable
from functools import lru_cache
from keyword import iskeyword
from unicodedata import normalize


@lru_cache(maxsize=4096)
def spelled(name: str) -> str:
    """The identifier closest to a name. Python reads identifiers in NFKC, and so is this."""
    if name.isascii() and name.isidentifier() and not iskeyword(name):
        return name
    letters = "".join(char if f"a{char}".isidentifier() else "_" for char in normalize("NFKC", name))
    letters = normalize("NFKC", letters)
    if not letters.isidentifier():
        letters = f"_{letters}"
    return f"{letters}_" if iskeyword(letters) else letters


def spellings(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Every name by its spelling, in whatever order they come. Names that are their own spelling keep it.

    `taken` are words that mean something else already.
    """
    wanted: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        wanted.setdefault(spelled(name), []).append(name)
    reserved = frozenset(taken)
    used = {*wanted, *reserved}
    found: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for spelling, same in wanted.items():
        if spelling not in reserved and (len(same) == 1 or spelling in same):
            found[spelling] = spelling if spelling in same else same[0]
        others += [(name, spelling) for name in same if found.get(spelling) != name]
    for name, spelling in sorted(others):
        word = _told_apart(name, spelling, used)
        used.add(word)
        found[word] = name
    return found


def _told_apart(name: str, spelling: str, used: Collection[str]) -> str:
    from hashlib import sha256  # slow to load, and hardly a name needs it

    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()
    return next(word for end in range(4, 65) if (word := f"{spelling}_{digest[:end]}") not in used)
