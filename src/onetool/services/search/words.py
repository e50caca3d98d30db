"""Splits texts of tools and queries into words, and stems them.

A *group* is one word as it was written, whole first, then its parts: `readFile2` gives `("readfile2", "read", "file",
"2")`, `weather` gives `("weather",)`. Stems are light: a wrong stem costs little, since the same rules run over the
tools and over the query. Everyday words of queries (`please`, `looking`) are rare in descriptions, so that rarity alone
would make them weigh more than the word that counts.
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

MAX_TEXT = 20_000  # characters of one text that are looked at: a pasted document is not a description
MAX_PARTS = 16  # of one word: no name has more, but a key or a hash may

# Scripts written without spaces between the words: two neighbouring characters stand for a word.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"  # Han beyond the basic plane
)
# Vowel signs and points belong to their word, though `\w` does not know them.
MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0970-\u0dff"

# A run of one kind or of the other, or a sign that may be a symbol.
RUNS = rf"([{UNSPACED}]+)|((?:(?![{UNSPACED}])[^\W_]|[{MARKS}])+|[^\w\s\0-\x7f])"

_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_PART = re.compile(r"[0-9]+|[A-Z]+s?(?![a-z])|[A-Z]?[^A-Z0-9]+")
_BETWEEN_PARTS = re.compile(r"[./:@]")
MAX_KEPT = 40  # characters of a word that may come again: hashes and keys seldom do
MAX_GROUPS = 20_000


def word_groups(text: str) -> Iterator[Group]:
    for unspaced, word in _runs(text):
        if word:
            yield _groups[word]
        else:
            yield from _pairs(unspaced)


def split_words(text: str) -> list[str]:
    if not text.isascii():
        return [word for group in word_groups(text) for word in group]
    # The same, but quicker: most texts are so.
    return [*chain.from_iterable(map(_groups.__getitem__, _ASCII_WORD.findall(text, 0, MAX_TEXT)))]


def name_key(name: str, between: str = "") -> str:
    """Return one spelling of a name: the same for `brave.web_search`, `Brave Web Search`, `braveWebSearch`."""
    if name.isascii():
        return between.join(_ASCII_WORD.findall(name, 0, MAX_TEXT)).lower()
    return between.join(unspaced + word for unspaced, word in _runs(name)).casefold()


def name_keys(name: str) -> tuple[str, list[str]]:
    """Return the key of a name, and those of its parts. A name made of signs is its own key."""
    parts = filter(None, map(name_key, _BETWEEN_PARTS.split(name)))
    return name_key(name) or name, list(parts)


def _runs(text: str) -> list[tuple[str, str]]:
    """Return what stands between spaces and signs: either text without spaces or a word, the other one empty."""
    if text.isascii():
        return [("", word) for word in _ASCII_WORD.findall(text, 0, MAX_TEXT)]
    # Not compiled above: that takes longer than everything else here, and plain ASCII never needs it. `re` keeps it.
    found = re.findall(RUNS, _plain(text[:MAX_TEXT]))
    return [(unspaced, word) for unspaced, word in found if unspaced or len(word) > 1 or _counts(word)]


def _counts(sign: str) -> bool:
    """Return whether it is a letter, a digit, a mark or a symbol such as an emoji: no punctuation."""
    return sign.isalnum() or unicodedata.category(sign)[0] == "M" or unicodedata.category(sign) == "So"


def _plain(text: str) -> str:
    """Remove accents and compatibility forms. Composed again, since decomposing takes Korean syllables apart."""
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))


def _split(word: str) -> Group:
    whole = word.casefold()
    if whole == word and word.isalpha():
        return (whole,)
    parts = _PART.findall(word)
    return (whole, *(part.casefold() for part in parts[:MAX_PARTS])) if len(parts) > 1 else (whole,)


class _Groups(dict[str, Group]):
    """By words as they are written: most come again and again."""

    def __missing__(self, word: str) -> Group:
        group = _split(word)
        if len(word) <= MAX_KEPT:
            if len(self) >= MAX_GROUPS:
                self.clear()
            self[word] = group
        return group


_groups = _Groups()


def _pairs(run: str) -> Iterator[Group]:
    if len(run) == 1:
        yield (run,)
    for first, second in pairwise(run):
        yield (first + second, first, second)


# Words that say nothing about which tool is wanted: the grammar of English, and the way people ask for things.


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


# A pasted document must not cost more than a question.
MAX_QUERY = 10_000  # characters
MAX_WORDS = 64  # nobody describes a task in more


class QueryWords(NamedTuple):
    """Each word once, in order."""

    telling: list[Group]
    everyday: list[Group]


def query_words(query: str) -> QueryWords:
    every = list(dict.fromkeys(word_groups(query)))
    telling = [group for group in every if group[0] not in EVERYDAY][:MAX_WORDS]
    if not telling:  # `now` or `get me` is all there is to go by
        return QueryWords(every[:MAX_WORDS], [])
    return QueryWords(telling, [group for group in every if group[0] in EVERYDAY][:MAX_WORDS])


# Stems of English words


MIN_STEM = 3  # letters that must stay: below this too many words fall together
MAX_STEMMED = 40  # no word is longer; hashes and keys are left as they are
VOWELS = frozenset("aeiouy")

# The longest first, so that `-ization` is not taken for `-ation`. Each: the ending, what takes its place, and how many
# letters must be left: an ending that looks like a word's own letters (document, station, table) has to prove itself.
ENDINGS = (
    ("ization", "iz", 5), ("isation", "iz", 5), ("ability", "", 5), ("ibility", "", 5), ("ersion", "ert", 5),
    ("ation", "at", 5), ("ment", "", 5), ("ness", "", 4), ("able", "", 4), ("ible", "", 4), ("ance", "", 5),
    ("ence", "", 5), ("sion", "s", 5), ("tion", "t", 5), ("ysis", "ys", 4), ("eed", "eed", 3), ("ful", "", 3),
    ("ive", "", 4), ("ing", "", 3), ("ity", "", 4), ("ise", "iz", 4), ("ed", "", 3), ("er", "", 3), ("or", "", 3),
    ("ly", "", 3), ("al", "", 4),
)  # fmt: skip


def stem(word: str) -> str:
    """Return what the forms of a lower-case word share. A word that is not plain ASCII letters is its own stem."""
    if len(word) <= MIN_STEM or len(word) > MAX_STEMMED or not (word.isascii() and word.isalpha()):
        return word
    return _stemmed(word)


@lru_cache(50_000)
def _stemmed(word: str) -> str:
    return _trimmed(_without_ending(_singular(word)))


def _singular(word: str) -> str:
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_ending(word: str) -> str:
    for ending, instead, least in ENDINGS:
        if word.endswith(ending):
            rest = word[: -len(ending)] + instead
            return rest if len(rest) >= least and not VOWELS.isdisjoint(rest) else word
    return word


def _trimmed(word: str) -> str:
    """Remove what comes and goes before an ending: creat(e), recommend(at)ion, run(n)ing, query/queries."""
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
    """Field by field. Somebody chose each word of a name or a tag: even `get` or `now` may tell two tools apart."""

    names: list[str]
    description: list[str]
    parameters: list[str]
    tags: list[str]
    everyday: list[str]  # of the description: they say nothing


def tool_words(name: str, description: str, schema: Any, tags: Iterable[str]) -> ToolWords:
    said = split_words(description)
    parameters = split_words("\n".join(said_of_parameters(schema)))
    return ToolWords(
        split_words(name),
        [word for word in said if word not in EVERYDAY],
        [word for word in parameters if word not in EVERYDAY],
        split_words("\n".join(tags)),
        [word for word in said if word in EVERYDAY],
    )


_OTHER_KEYWORDS = KEYWORDS_WITH_SUBSCHEMAS - {"properties"}
_MAPPINGS = (dict, Mapping)  # a dict is told at once
_NONE: Mapping[str, Any] = {}


def said_of_parameters(schema: Any) -> Iterator[str]:
    """Yield names and descriptions, outer ones first. A schema may be anything: it is read here, not judged."""
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
            if has_names and _OTHER_KEYWORDS.isdisjoint(node):  # as of most: no other schema is in it
                todo.extend(properties.values())
            else:
                todo.extend(subschemas(node))
