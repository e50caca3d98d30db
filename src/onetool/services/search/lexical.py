"""Finds tools that a query names, and scores tools that share its words (BM25F). Results are vectors by slot."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import chain, islice

import numpy as np

from onetool.services.search.documents import NAMES, PARTS, SCORED, SPELLED
from onetool.services.search.postings import Words
from onetool.services.search.words import Group, QueryWords, name_key, split_words, stem

_AROUND = "\"'`()[]{}<>,;:.!?"


class Naming(IntEnum):
    """Ways to name a tool, least certain first."""

    PREFIX = 1  # all query words are in the name, the last as a prefix
    WORDS = 2  # all query words are in the name
    PART = 3  # the query is the pack, or the name without the pack
    MENTIONED = 4  # a word of the query is the name
    SPELLED = 5  # the query is the name, except for case and punctuation
    EXACT = 6


def naming(words: Words, name_of: Callable[[int], str], query: str, keywords: Sequence[Group]) -> np.ndarray:
    """Return for each tool how the query names it, or 0. `name_of` returns the name of a slot."""

    def exact(name: str) -> list[int]:
        found = words.having(name_key(name) or name, SPELLED).tolist()
        return [slot for slot in found if name_of(slot) == name]

    found = np.zeros(words.size)
    if keywords:
        others = _all(words.size, (_in_names(words, group) for group in keywords[:-1]))
        if others.any():
            found[others & mask(words.size, words.having_prefix(keywords[-1][0], NAMES))] = Naming.PREFIX
            found[others & _in_names(words, keywords[-1])] = Naming.WORDS
    key = name_key(query)
    found[words.having(key, PARTS)] = Naming.PART
    mentioned = (name.strip(_AROUND) for name in query.split())
    # A single plain word in a sentence is rarely a name, so only longer names count.
    found[[slot for name in mentioned if len(split_words(name)) > 1 for slot in exact(name)]] = Naming.MENTIONED
    found[words.having(key, SPELLED)] = Naming.SPELLED
    found[exact(query.strip())] = Naming.EXACT
    return found


def mask(size: int, slots: np.ndarray) -> np.ndarray:
    found = np.zeros(size, bool)
    found[slots] = True
    return found


def _all(size: int, masks: Iterable[np.ndarray]) -> np.ndarray:
    found = np.ones(size, bool)
    for matches in masks:
        found &= matches
        if not found.any():
            break
    return found


def _in_names(words: Words, group: Group) -> np.ndarray:
    """Return a mask of tools whose names have this word in any form; if there are none, all its parts."""
    word, *parts = group
    found = words.having_stem(stem(word), NAMES)
    if len(found[words.alive[found]]) or not parts:
        return mask(words.size, found)
    return _all(words.size, (_in_names(words, (part,)) for part in parts))


# Scores of words

# The weight of a matching word that differs from the query word:
PREFIX_WEIGHT = 0.5  # the query word is a prefix of it
GUESS_WEIGHT = 0.5  # the query word may be a typo of it
PART_WEIGHT = 0.3  # a part of the query word, or a longer word, if tools also have the query word
EVERYDAY_WEIGHT = 0.05  # an everyday word: finds no tools, but ranks get_info above set_info for `get info`

MAX_TERMS = 64  # of a query: words, parts and completions
MIN_PREFIX = 3  # letters, except for the last word of a query, which may be incomplete
MAX_GUESSED = 4  # words: guesses are slow, and rarely needed for many words
MAX_GUESSES = 3

QueryTerm = tuple[Collection[str], float]
"""Alternative stems, and their weight."""


def scores(words: Words, asked: QueryWords) -> np.ndarray:
    """Return the points of each tool; 0 if no word matches."""
    found = _sum(words, _known(words, asked.keywords))
    if not found.any():
        guesses = (words.mistyped(word, SCORED) for word, *_ in asked.keywords[:MAX_GUESSED])
        found = _sum(words, ((_stems(_nearest(guess)), GUESS_WEIGHT) for guess in guesses))
    everyday = [base for base in _stems(word for word, *_ in asked.everyday) if words.knows(base)]
    if everyday:
        found += (found > 0) * _sum(words, (((base,), EVERYDAY_WEIGHT) for base in everyday))
    return found


def _sum(words: Words, terms: Iterable[QueryTerm]) -> np.ndarray:
    """Return the sum over the terms, using the best stem of each term."""
    total = np.zeros(words.size)
    for stems, factor in terms:
        best = total if len(stems) == 1 else np.zeros(words.size)
        for slots, weights in map(words.weights, stems):
            if best is total:
                total[slots] += factor * weights
            else:
                best[slots] = np.maximum(best[slots], factor * weights)
        if best is not total:
            total += best
    return total


def _known(words: Words, keywords: Sequence[Group]) -> Iterator[QueryTerm]:
    """Return the terms of the query. A long text is cut to MAX_TERMS, since each term costs time."""
    every = (_terms(words, group, is_last=group is keywords[-1]) for group in keywords)
    return islice(chain.from_iterable(every), MAX_TERMS)


def _terms(words: Words, group: Group, is_last: bool) -> Iterator[QueryTerm]:
    word, *parts = group
    base = stem(word)
    if not words.knows(base):
        if parts:
            yield from chain.from_iterable(_terms(words, (part,), is_last) for part in parts)
        elif (is_last or len(word) >= MIN_PREFIX) and (longer := words.longer(word)):
            yield _stems(longer), PREFIX_WEIGHT
        else:
            yield _stems(_nearest(words.mistyped(word, SCORED, word[:1]))), GUESS_WEIGHT
        return
    yield (base,), 1.0
    for part in parts:
        yield (stem(part),), PART_WEIGHT
    if is_last:  # the last word may be incomplete
        yield [other for other in _stems(words.longer(word)) if other != base], PART_WEIGHT


def _nearest(mistyped: dict[str, int]) -> list[str]:
    fewest = min(mistyped.values(), default=0)
    return [word for word, mistakes in mistyped.items() if mistakes == fewest][:MAX_GUESSES]


def _stems(words: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(map(stem, words))]
