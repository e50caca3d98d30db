"""How code says the names of packs and tools: Python can't say `12306-mcp.get-date`, so it says `_12306_mcp.get_date`.

A name that Python can say stays as it is. Two names that would be spelled alike differ by a short hash of the name, so
that a spelling does not depend on what else is there or in which order it came; one that is literally so keeps it.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
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


def spellings(names: Iterable[str]) -> dict[str, str]:
    """Every name by its spelling. Names that are their own spelling come first; of the others none is first."""
    wanted: dict[str, list[str]] = {}
    for name in names:
        wanted.setdefault(spelled(name), []).append(name)
    found: dict[str, str] = {}
    for spelling, same in wanted.items():
        if len(same) == 1:
            found[spelling] = same[0]
            continue
        for name in same:
            found[name if name == spelling else f"{spelling}_{sha256(name.encode()).hexdigest()[:4]}"] = name
    return found
