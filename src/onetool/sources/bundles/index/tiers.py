"""The four tiers of a search, each as one or a few steps: parts of a statement that finds tools and scores them.

    0  the slug or the name begins with the query     the fewer characters are left, the better
    1  every word of it is a whole word               of the names (the shorter, the better); of names, tags and the
                                                      bundle's names; of all texts
    2  every word of it is near a word                the sum of how near: see `_levels`
    3  nothing was asked for                          newest first, as everywhere among equals

What a tool's score is depends on its own texts (and its bundle's names) and on the query, never on other tools.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from onetool.sources.bundles.index.near import near
from onetool.sources.bundles.index.words import words

PREFIX, WHOLE_WORD, FUZZY, RECENCY = range(4)
MOST_WORDS = 64  # different ones of a query; what is behind them is not looked at
MOST_FUZZY = 10  # a longer query is pasted, not typed
_ENOUGH = 3  # letters: see `_is_long`
_FAR = 1000  # more than what any name is long, or any sum of what is near

_BEGINS = "(slug_key >= :key AND slug_key < :beyond OR name_key >= :key AND name_key < :beyond)"
_LEFT = """min(
    CASE WHEN slug_key >= :key AND slug_key < :beyond THEN length(slug_key) ELSE 9999 END,
    CASE WHEN name_key >= :key AND name_key < :beyond THEN length(name_key) ELSE 9999 END
) - :length"""
_SHORTER = "min(length(slug_key), CASE name_key WHEN '' THEN 9999 ELSE length(name_key) END)"
_NAMES, _LABELS, _OTHERS = "{heading}", "{heading tags of_bundle}", "{tags description of_bundle}"
_MATCHED = "finding CROSS JOIN tools ON no = finding.rowid"  # the words first, whatever the planner thinks


class Step(NamedTuple):
    tier: int
    table: str
    where: str
    score: str
    values: dict[str, Any]  # for the names in these texts
    scores: tuple[int, int] = (0, 1 << 40)  # the least and the most that the score can be
    first: str = ""  # what stands before the statement


def steps(query: str, known: Callable[[], Sequence[str]]) -> Iterator[Step]:
    """In the order of ranks. `known` gives the words that may have been mistyped; it is asked last."""
    asked = words(query)
    if not query.strip():
        yield Step(RECENCY, "tools", "TRUE", "0", {}, (0, 0))
    if not asked:  # or nothing but punctuation, which nothing has
        return
    key = " ".join(asked)
    values = {"key": key, "beyond": f"{key}\U0010ffff", "length": len(key)}
    yield Step(PREFIX, "tools", _BEGINS, _LEFT, values)
    asked = list(dict.fromkeys(asked))[:MOST_WORDS]
    yield from _whole_words(asked, values)
    if len(asked) <= MOST_FUZZY:
        yield _fuzzy(asked, values, known())


def _whole_words(asked: list[str], values: dict[str, Any]) -> Iterator[Step]:
    every = f"({' AND '.join(map(_quoted, asked))})"
    names, labels = f"{_NAMES} : {every}", f"{_LABELS} : {every}"

    def step(text: str, score: str, least: int, most: int) -> Step:
        where = f"finding MATCH :words AND NOT {_BEGINS}"
        return Step(WHOLE_WORD, _MATCHED, where, score, {**values, "words": text}, (least, most))

    yield step(names, f"max(0, {_SHORTER} - :length)", 0, _FAR - 1)
    yield step(f"({labels}) NOT ({names})", f"{_FAR}", _FAR, _FAR)
    yield step(f"{every} NOT ({labels})", f"{2 * _FAR}", 2 * _FAR, 2 * _FAR)


def _fuzzy(asked: list[str], values: dict[str, Any], known: Sequence[str]) -> Step:
    """Word by word, the longest first: who has nothing near it is out."""
    values = {**values, "whole": " AND ".join(map(_quoted, asked))}
    parts = []
    for number, word in enumerate(sorted(asked, key=len, reverse=True)):
        inside = values[f"inside{number}"] = f"*{word}*" if _is_long(word) else ""  # which no name is like
        levels = _levels(number, word, values, near(word, known))
        if number == 0 and inside:
            levels += " UNION ALL SELECT no, 1 FROM tools WHERE heads GLOB :inside0"
        found = f"SELECT no, min(level) AS nearness FROM ({levels}) GROUP BY no"  # noqa: S608 - our own words only
        parts.append(f"near{number} AS MATERIALIZED ({found if number == 0 else _narrowed(number, found)})")
    where = f"NOT {_BEGINS} AND no NOT IN (SELECT rowid FROM finding WHERE finding MATCH :whole)"  # noqa: S608
    table = f"near{len(asked) - 1} CROSS JOIN tools USING (no)"
    return Step(FUZZY, table, where, "nearness", values, first=f"WITH {', '.join(parts)}")


def _narrowed(number: int, found: str) -> str:
    """Those of the words before that have something near this word, too. Only they are looked into."""
    return f"""
        SELECT no, before.nearness + min(
            ifnull(found.nearness, {_FAR}), CASE WHEN heads GLOB :inside{number} THEN 1 ELSE {_FAR} END
        ) AS nearness
        FROM near{number - 1} AS before CROSS JOIN tools USING (no) LEFT JOIN ({found}) AS found USING (no)
        WHERE found.nearness IS NOT NULL OR heads GLOB :inside{number}"""  # noqa: S608 - our own words only


def _levels(number: int, word: str, values: dict[str, Any], slips: dict[int, list[str]]) -> str:
    """Tools that have something near this word, each with how near, and maybe several times.

    0 begins a word of the names, 1 is inside of one (who calls adds these), 2 and 3 so many slips away; 4 begins a word
    of other texts, or is one, 5 is one or two slips away from one.
    """
    others = f"{_OTHERS} : {_quoted(word)} {'*' if _is_long(word) else ''}"
    parts = [
        ("rowid", "0", "finding WHERE finding MATCH :{}", f"{_NAMES} : {_quoted(word)} *"),
        ("rowid", "4", "finding WHERE finding MATCH :{}", others),
    ]
    for slip, meant in slips.items():
        if meant:  # one by one: a long OR asks each of its words at each tool
            level = f"CASE col WHEN 'heading' THEN {slip + 1} ELSE 5 END"
            parts.append(("doc", level, "json_each(:{}) CROSS JOIN found_words ON term = value", json.dumps(meant)))
    found = []
    for no, level, table, value in parts:
        name = f"near{number}_{len(found)}"
        values[name] = value
        found.append(f"SELECT {no} AS no, {level} AS level FROM {table.format(name)}")  # noqa: S608 - our own words only
    return " UNION ALL ".join(found)


def _is_long(word: str) -> bool:
    """Enough to look for inside of words, and as a beginning in longer texts. Two ideographs say enough."""
    return len(word) >= _ENOUGH or not word.isascii()


def _quoted(word: str) -> str:
    """Words are letters, digits and symbols: there is no quote in them."""
    return f'"{word}"'
