"""Splits the text of tools and queries into words, and stems them.

A *group* is one word, whole first, then its parts: `readFile2` gives `("readfile2", "read", "file",
"2")`, `weather` gives `("weather",)`. Stemming is simple: a wrong stem costs little, since the same rules apply to
tools and queries. Everyday words of queries (`please`, `looking`) are rare in descriptions, so by rarity alone they
would outweigh the words that matter.
"""

import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

from onetool.core.schema_keywords import KEYWORDS_WITH_SUBSCHEMAS, subschemas

Group = tuple[str, ...]

MAX_TEXT = 20_000  # characters read of one text: longer ones are pasted documents
MAX_PARTS = 16  # of one word; only keys and hashes have more

# Scripts without spaces between words: every two adjacent characters count as a word.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"  # Han beyond the basic plane
)
# Vowel signs and points, which belong to a word although `\w` doesn't match them.
MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0970-\u0dff"

# A run without spaces, a word, or a character that may be a symbol.
RUNS = rf"([{UNSPACED}]+)|((?:(?![{UNSPACED}])[^\W_]|[{MARKS}])+|[^\w\s\0-\x7f])"

_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_PART = re.compile(r"[0-9]+|[A-Z]+s?(?![a-z])|[A-Z]?[^A-Z0-9]+")
_BETWEEN_PARTS = re.compile(r"[./:@]")
MAX_CACHED = 40  # characters of a cached word: longer ones are mostly hashes and keys
MAX_GROUPS = 20_000


def word_groups(text: str) -> Iterator[Group]:
    for unspaced, word in _runs(text):
        if word:
            yield _groups[word]
        elif len(unspaced) == 1:
            yield (unspaced,)
        else:
            for first, second in pairwise(unspaced):
                yield (first + second, first, second)


def split_words(text: str) -> list[str]:
    if not text.isascii():
        return [word for group in word_groups(text) for word in group]
    # A fast path: most strings are ASCII.
    return [*chain.from_iterable(map(_groups.__getitem__, _ASCII_WORD.findall(text, 0, MAX_TEXT)))]


def name_key(name: str, between: str = "") -> str:
    """Return a normalised name: the same for `brave.web_search`, `Brave Web Search`, `braveWebSearch`."""
    if name.isascii():
        return between.join(_ASCII_WORD.findall(name, 0, MAX_TEXT)).lower()
    return between.join(unspaced + word for unspaced, word in _runs(name)).casefold()


def name_keys(name: str) -> tuple[str, list[str]]:
    """Return the keys of a name and of its parts. A name of only punctuation is its own key."""
    parts = filter(None, map(name_key, _BETWEEN_PARTS.split(name)))
    return name_key(name) or name, list(parts)


def _runs(text: str) -> list[tuple[str, str]]:
    """Return the runs between spaces and punctuation, each as (unspaced text, word), one of which is empty."""
    if text.isascii():
        return [("", word) for word in _ASCII_WORD.findall(text, 0, MAX_TEXT)]
    # Remove accents and compatibility forms. Compose again, since decomposing splits Korean syllables.
    text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text[:MAX_TEXT])))
    # Not compiled at import, which is slow: ASCII never needs this pattern. `re` caches it.
    return [(unspaced, word) for unspaced, word in re.findall(RUNS, text) if unspaced or len(word) > 1 or _counts(word)]


def _counts(char: str) -> bool:
    """Return whether a character is a letter, digit, mark or symbol such as an emoji, not punctuation."""
    return char.isalnum() or unicodedata.category(char)[0] == "M" or unicodedata.category(char) == "So"


class _Groups(dict[str, Group]):
    """A cache of groups by word: most words recur."""

    def __missing__(self, word: str) -> Group:
        whole = word.casefold()
        group = (whole,)
        if whole != word or not word.isalpha():
            parts = _PART.findall(word)
            if len(parts) > 1:
                group = (whole, *(part.casefold() for part in parts[:MAX_PARTS]))
        if len(word) <= MAX_CACHED:
            if len(self) >= MAX_GROUPS:
                self.clear()
            self[word] = group
        return group


_groups = _Groups()


# Words that don't help to identify a tool: English grammar, and phrases for requests.

GRAMMAR = """
a about above actually after again all already also although always am among an and another any anyone anything are
aren as at be because been before being below between both but by can cannot could couldn d did didn do does doesn
doing don done down during each either else etc ever every everybody everyone everything few for from further had hadn
has hasn have haven having he her here hers herself him himself his how however i if in into is isn it its itself just
ll m may maybe me might more most must my myself no nobody nor not nothing of off on once only or other ought our ours
out over own per quite rather re really s same shall she should shouldn since so some somebody someone something still
such t than that the their theirs them themselves then there these they this those though through to too towards under
until up upon us ve very via was wasn we were weren what whatever when where whether which while who whom whose why
will with within without won would wouldn yet you your yours yourself
"""
ASKING = """
able assist get gets getting give gives go going got hello help hey hi kind know let like look looking make need needs
please possible sure tell thank thanks thing things use used using want wanted wants way ways
"""

EVERYDAY = frozenset((GRAMMAR + ASKING).split())


# Words of a query

# Limits the cost of a pasted document.
MAX_QUERY = 10_000  # characters
MAX_WORDS = 64  # more than any description of a task


class QueryWords(NamedTuple):
    """The words of a query, each once, in order."""

    keywords: list[Group]
    everyday: list[Group]


def query_words(query: str) -> QueryWords:
    every = list(dict.fromkeys(word_groups(query)))
    keywords = [group for group in every if group[0] not in EVERYDAY][:MAX_WORDS]
    if not keywords:  # such as `now` or `get me`
        return QueryWords(every[:MAX_WORDS], [])
    return QueryWords(keywords, [group for group in every if group[0] in EVERYDAY][:MAX_WORDS])


# Stems of English words

MIN_STEM = 3  # letters; shorter stems would merge too many words
MAX_STEMMED = 40  # characters; longer ones are hashes and keys
VOWELS = frozenset("aeiouy")

# Longest first, so that `-ization` is not treated as `-ation`. Each has the ending, its replacement, and the minimum
# number of remaining letters, which protects words like document, station and table.
ENDINGS = (
    ("ization", "iz", 5), ("isation", "iz", 5), ("ability", "", 5), ("ibility", "", 5), ("ersion", "ert", 5),
    ("ation", "at", 5), ("ment", "", 5), ("ness", "", 4), ("able", "", 4), ("ible", "", 4), ("ance", "", 5),
    ("ence", "", 5), ("sion", "s", 5), ("tion", "t", 5), ("ysis", "ys", 4), ("eed", "eed", 3), ("ful", "", 3),
    ("ive", "", 4), ("ing", "", 3), ("ity", "", 4), ("ise", "iz", 4), ("ed", "", 3), ("er", "", 3), ("or", "", 3),
    ("ly", "", 3), ("al", "", 4),
)  # fmt: skip


def stem(word: str) -> str:
    """Return the stem of a lower-case word. A word with anything but ASCII letters is its own stem."""
    if len(word) <= MIN_STEM or len(word) > MAX_STEMMED or not (word.isascii() and word.isalpha()):
        return word
    return _stemmed(word)


@lru_cache(50_000)
def _stemmed(word: str) -> str:
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, replacement, min_letters in ENDINGS:
        if word.endswith(ending):
            rest = word[: -len(ending)] + replacement
            if len(rest) >= min_letters and not VOWELS.isdisjoint(rest):
                word = rest
            break
    # Remove letters that vary before an ending: creat(e), recommend(at)ion, run(n)ing, query/queries.
    if word[-1] == "e" and len(word) > MIN_STEM:
        word = word[:-1]
    if word.endswith("at") and len(word) > MIN_STEM + 3:
        word = word[:-2]
    if word.endswith("iz") and len(word) > MIN_STEM + 2:
        word = word[:-1]
    if word.endswith("yz"):
        word = word[:-1] + "s"
    if word[-1] == word[-2] and word[-1] not in VOWELS and len(word) > MIN_STEM:
        word = word[:-1]
    return word[:-1] + "i" if word[-1] == "y" else word


# Words of a tool


class ToolWords(NamedTuple):
    """The words of a tool by field. In names and tags, even `get` or `now` may distinguish two tools."""

    names: list[str]
    description: list[str]
    parameters: list[str]
    tags: list[str]
    everyday: list[str]  # everyday words of the description


def tool_words(name: str, description: str, schema: Any, tags: Iterable[str]) -> ToolWords:
    described = split_words(description)
    parameters = split_words("\n".join(parameter_texts(schema)))
    return ToolWords(
        split_words(name),
        [word for word in described if word not in EVERYDAY],
        [word for word in parameters if word not in EVERYDAY],
        split_words("\n".join(tags)),
        [word for word in described if word in EVERYDAY],
    )


_OTHER_KEYWORDS = KEYWORDS_WITH_SUBSCHEMAS - {"properties"}
_MAPPINGS = (dict, Mapping)  # `dict` first: a fast check
_NONE: Mapping[str, Any] = {}


def parameter_texts(schema: Any) -> Iterator[str]:
    """Yield the names and descriptions of parameters, outer ones first. Invalid schemas are accepted."""
    todo: deque[Any] = deque([schema])
    while todo:
        node = todo.popleft()
        if isinstance(node, list):
            todo.extend(node)
        elif isinstance(node, _MAPPINGS):
            description, properties = node.get("description"), node.get("properties", _NONE)
            if isinstance(description, str):
                yield description
            has_names = isinstance(properties, _MAPPINGS)
            if has_names:
                yield from map(str, properties)
            if has_names and _OTHER_KEYWORDS.isdisjoint(node):  # usual: no other subschemas
                todo.extend(properties.values())
            else:
                todo.extend(subschemas(node))
