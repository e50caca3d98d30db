"""Lists by id and search by rank, page by page.

The rank of a tool is (tier, score, age, id), and depends on its own texts (and its bundle's names) and the query, never
on other tools: so a page begins exactly where the one before ended, whoever writes in between. The tiers:

    0  the slug or the name begins with the query            the fewer characters are left, the better
    1  every word of it is a whole word                      of the names (the shorter, the better); of names, tags and
                                                             the bundle's names; of all texts
    2  every word of it is near a word                       the sum of how near: see `_levels`
    3  nothing was asked for                                 newest first, as everywhere among equals
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from threading import Lock
from typing import Any, NamedTuple

from onetool.sources.bundles.index.database import Identity, IndexConnection
from onetool.sources.bundles.index.rows import near, read_bundle, read_tool, words
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.store import Rank, SearchHit

# Of a tool: it is not disabled, and its bundle is neither disabled nor soft-deleted nor gone. The plus keeps the
# planner from going bundle by bundle: then it would have to sort.
IN_USE = "enabled AND +bundle IN (SELECT id FROM bundles WHERE live)"
MANY = 10_000

Numbered = tuple[str, int]  # a tool's id and its number


def bundle(database: sqlite3.Connection, id: str) -> Bundle | None:
    found = database.execute("SELECT body FROM bundles WHERE id = ?", (id,)).fetchone()
    return None if found is None else read_bundle(found[0])


def bundles(
    database: sqlite3.Connection, ids: Iterable[str], include_disabled: bool, after: str | None, limit: int
) -> list[Bundle]:
    wanted = json.dumps(sorted(set(ids)))
    also = "" if include_disabled else "AND live"
    if wanted != "[]":
        also += " AND id IN (SELECT value FROM json_each(:wanted))"
    asked = f"SELECT body FROM bundles WHERE id > :after {also} ORDER BY id LIMIT :limit"  # noqa: S608 - our own words
    found = database.execute(asked, {"after": after or "", "limit": limit, "wanted": wanted})
    return [read_bundle(body) for (body,) in found]


def tool(database: sqlite3.Connection, bundle_id: str, slug: str, version: str) -> Tool | None:
    asked = "SELECT body FROM bodies WHERE no = (SELECT no FROM tools WHERE bundle = ? AND slug = ? AND version = ?)"
    found = database.execute(asked, (bundle_id, slug, version)).fetchone()
    return None if found is None else read_tool(found[0])


def versions(database: sqlite3.Connection, bundle_id: str, slug: str) -> list[Tool]:
    asked = "SELECT body FROM tools JOIN bodies USING (no) WHERE bundle = ? AND slug = ?"
    return [read_tool(body) for (body,) in database.execute(asked, (bundle_id, slug))]


def tools(
    database: sqlite3.Connection,
    tags: Iterable[str],
    bundle_ids: Iterable[str],
    include_disabled: bool,
    after: str | None,
    limit: int,
) -> list[Tool]:
    """Each tag, or each bundle, has its tools in the order of ids already: their first pages are merged."""
    tags, bundle_ids = sorted(set(tags)), sorted(set(bundle_ids))
    also = "" if include_disabled else f"AND {IN_USE}"
    if tags and bundle_ids:
        also += " AND bundle IN (SELECT value FROM json_each(:bundles))"
    values: dict[str, Any] = {"after": after or "", "limit": limit, "bundles": json.dumps(bundle_ids)}

    def page(table: str, which: str, one: str = "") -> list[Numbered]:
        asked = f"SELECT id, no FROM {table} WHERE {which} AND id > :after {also} ORDER BY id LIMIT :limit"  # noqa: S608
        return database.execute(asked, {**values, "one": one}).fetchall()

    if tags:
        pages = [page("tags JOIN tools USING (no, id)", "tag = :one", tag) for tag in tags]
    elif bundle_ids:
        pages = [page("tools", "bundle = :one", one) for one in bundle_ids]
    else:
        pages = [page("tools", "TRUE")]
    found = dict.fromkeys(merge(*pages))  # a tool with two of the tags is found twice
    return bodies(database, [no for _, no in list(found)[:limit]])


def bodies(database: sqlite3.Connection, numbers: list[int]) -> list[Tool]:
    """The tools of these numbers, in this order."""
    found = raw_bodies(database, numbers)
    return [read_tool(found[no]) for no in numbers]


def raw_bodies(database: sqlite3.Connection, numbers: list[int]) -> dict[int, bytes]:
    """What is kept of them. Of very many it is quicker to take all."""
    if len(numbers) > MANY:
        wanted = set(numbers)
        return {no: body for no, body in database.execute("SELECT no, body FROM bodies") if no in wanted}
    asked = "SELECT no, body FROM bodies WHERE no IN (SELECT value FROM json_each(?))"
    return dict(database.execute(asked, (json.dumps(numbers),)))


# Known words, cached: their table only grows


_NEW = "SELECT no, word FROM letters WHERE no > ? ORDER BY no"


class KnownWords:
    def __init__(self) -> None:
        self._lock = Lock()
        self._file: Identity | None = None
        self._last = 0
        self._words: list[str] = []

    def words(self, held: IndexConnection) -> Sequence[str]:
        """All that this moment has, and maybe later ones, of which nothing is found."""
        with self._lock:
            if held.file != self._file:
                self._file, self._last, self._words = held.file, 0, []
            if found := held.database.execute(_NEW, (self._last,)).fetchall():
                self._last = found[-1][0]
                self._words = [*self._words, *(word for _, word in found)]  # others may be going through the old one
            return self._words


# The four tiers of a search


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


class SearchStep(NamedTuple):
    tier: int
    table: str
    where: str
    score: str
    values: dict[str, Any]  # for the names in these texts
    scores: tuple[int, int] = (0, 1 << 40)  # the least and the most that the score can be
    first: str = ""  # what stands before the statement


def steps(query: str, known: Callable[[], Sequence[str]]) -> Iterator[SearchStep]:
    """In the order of ranks. `known` gives the words that may have been mistyped; it is asked last."""
    asked = words(query)
    if not query.strip():
        yield SearchStep(RECENCY, "tools", "TRUE", "0", {}, (0, 0))
    if not asked:  # or nothing but punctuation, which nothing has
        return
    key = " ".join(asked)
    values = {"key": key, "beyond": f"{key}\U0010ffff", "length": len(key)}
    yield SearchStep(PREFIX, "tools", _BEGINS, _LEFT, values)
    asked = list(dict.fromkeys(asked))[:MOST_WORDS]
    yield from _whole_words(asked, values)
    if len(asked) <= MOST_FUZZY:
        yield _fuzzy(asked, values, known())


def _whole_words(asked: list[str], values: dict[str, Any]) -> Iterator[SearchStep]:
    every = f"({' AND '.join(map(_quoted, asked))})"
    names, labels = f"{_NAMES} : {every}", f"{_LABELS} : {every}"

    def step(text: str, score: str, least: int, most: int) -> SearchStep:
        where = f"finding MATCH :words AND NOT {_BEGINS}"
        return SearchStep(WHOLE_WORD, _MATCHED, where, score, {**values, "words": text}, (least, most))

    yield step(names, f"max(0, {_SHORTER} - :length)", 0, _FAR - 1)
    yield step(f"({labels}) NOT ({names})", f"{_FAR}", _FAR, _FAR)
    yield step(f"{every} NOT ({labels})", f"{2 * _FAR}", 2 * _FAR, 2 * _FAR)


def _fuzzy(asked: list[str], values: dict[str, Any], known: Sequence[str]) -> SearchStep:
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
    return SearchStep(FUZZY, table, where, "nearness", values, first=f"WITH {', '.join(parts)}")


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


# Search, page by page in the order of ranks: `prefix > whole word > fuzzy > recency`.


SearchRow = tuple[int, int, int, str, int]  # a rank's parts, and the tool's number


def search(
    database: sqlite3.Connection,
    query: str,
    include_disabled: bool,
    after: Rank | None,
    limit: int,
    known: Callable[[], Sequence[str]],
) -> list[SearchHit]:
    rows: list[SearchRow] = []
    for step in steps(query, known):
        if len(rows) < limit and (after is None or after[:2] <= (step.tier, step.scores[1])):
            rows += _rows_of_step(database, step, include_disabled, after, limit - len(rows))
        if len(rows) >= limit:
            break
    tools = bodies(database, [row[-1] for row in rows])
    return [
        SearchHit(Rank(tier, float(score), age, id), tool)
        for (tier, score, age, id, _), tool in zip(rows, tools, strict=True)
    ]


def _rows_of_step(
    database: sqlite3.Connection, step: SearchStep, include_disabled: bool, after: Rank | None, limit: int
) -> list[SearchRow]:
    where = [step.where] if include_disabled else [step.where, IN_USE]
    values: dict[str, Any] = {**step.values, "limit": limit}
    least, most = step.scores
    if after is not None and after[:2] >= (step.tier, least):
        values |= {"score": after.score, "age": after.age, "id": after.id}
        same = least == most  # then there is nothing to compare, and an index may do
        where.append("(age, id) > (:age, :id)" if same else f"({step.score}, age, id) > (:score, :age, :id)")
    order = "age, id" if least == most else "score, age, id"
    asked = (
        f"{step.first} SELECT {step.tier} AS tier, {step.score} AS score, age, id, no FROM {step.table} "  # noqa: S608 - our own words
        f"WHERE {' AND '.join(where)} ORDER BY {order} LIMIT :limit"
    )
    return database.execute(asked, values).fetchall()
