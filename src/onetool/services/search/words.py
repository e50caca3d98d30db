"""From text to words: any script, any way of writing a name.

A *group* is one word as it was written, whole first, then its parts: `readFile2` gives `("readfile2", "read", "file",
"2")`, `weather` gives `("weather",)`.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

Group = tuple[str, ...]

MOST_TEXT = 20_000  # characters of one text that are looked at: a pasted document is no description
MOST_PARTS = 16  # of one word: no name has more, but a key or a hash may

# Scripts written without spaces between the words: two neighbouring characters stand for a word.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"  # Han beyond the basic plane
)
# Vowel signs and points belong to their word, though `\w` does not know them.
MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0970-\u0dff"

# Either a run of one kind or of the other.
RUNS = rf"([{UNSPACED}]+)|((?:(?![{UNSPACED}])[^\W_]|[{MARKS}])+)"

_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_PART = re.compile(r"[0-9]+|[A-Z]+s?(?![a-z])|[A-Z]?[^A-Z0-9]+")


def groups(text: str) -> Iterator[Group]:
    """The words of a text, in order."""
    for unspaced, word in _runs(text):
        if word:
            yield _group(word)
        else:
            yield from _pairs(unspaced)


def words(text: str) -> list[str]:
    """All of them, wholes and parts alike."""
    return [word for group in groups(text) for word in group]


def key(name: str) -> str:
    """One spelling for all ways to write a name: `brave.web_search`, `Brave Web Search` and `braveWebSearch` agree."""
    return "".join(unspaced + word for unspaced, word in _runs(name)).casefold()


def _runs(text: str) -> list[tuple[str, str]]:
    """What stands between spaces and signs: either text without spaces or a word, the other one empty."""
    if text.isascii():
        return [("", word) for word in _ASCII_WORD.findall(text, 0, MOST_TEXT)]
    # Not compiled above: that takes longer than everything else here, and plain ASCII never needs it. `re` keeps it.
    return re.findall(RUNS, _plain(text[:MOST_TEXT]))


def _plain(text: str) -> str:
    """Without accents and compatibility forms. Composed again, since decomposing takes Korean syllables apart."""
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))


def _group(word: str) -> Group:
    whole = word.casefold()
    if whole == word and word.isalpha():
        return (whole,)
    parts = _PART.findall(word)
    return (whole, *(part.casefold() for part in parts[:MOST_PARTS])) if len(parts) > 1 else (whole,)


def _pairs(run: str) -> Iterator[Group]:
    if len(run) == 1:
        yield (run,)
    for first, second in pairwise(run):
        yield (first + second, first, second)
