"""`make search-eval`: how well the search finds tools, on each set in tests/data, by words, by meaning and by both.

R@1 and R@5: the share of the queries with a best-graded tool in first place, and among the first five. MRR: the mean of
one by the place of the first of them. nDCG@10: how near the first ten are to the best order, by all grades.

`--record` writes the figures to tests/data/search_floor.json. A test fails when one of them falls.
"""

import json
import sys
from collections.abc import Callable, Sequence
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

from onetool.core.spec import ToolSpec
from onetool.services.search import SearchIndex

DATA = Path(__file__).parent / "data"
FLOOR = DATA / "search_floor.json"
# The weights were chosen on livemcp and bfcl, not on golden and metatool: see docs/internals/search.md.
SETS = ("golden", "metatool", "livemcp", "bfcl")
WAYS = ("words", "meaning", "blended")
SHOWN = 10

Ranking = Callable[[str], Sequence[str]]
"""Query -> the names of the first ten tools."""


class SearchFigures(NamedTuple):
    r1: float
    r5: float
    mrr: float
    ndcg: float


class SearchSet(NamedTuple):
    tools: list[ToolSpec]
    queries: list[tuple[str, dict[str, int]]]  # with the grades of the tools that would do


def load_set(name: str) -> SearchSet:
    content = json.loads((DATA / f"search_{name}.json").read_text("utf-8"))
    tools = content if "tools" in content else json.loads((DATA / content["tools_of"]).read_text("utf-8"))
    return SearchSet(
        [_spec(tool) for tool in tools["tools"]], [(one["query"], one["relevant"]) for one in content["queries"]]
    )


def _spec(tool: dict[str, Any]) -> ToolSpec:
    schema = tool.get("inputSchema", {"type": "object", "properties": {}})
    return ToolSpec(name=tool["name"], description=tool["description"], input_schema=schema)


def measure(data: SearchSet, way: str) -> SearchFigures:
    rank = _ranking(data.tools, way)
    each = [_figures(rank(query), grades) for query, grades in data.queries]
    return SearchFigures(*(round(sum(column) / len(each), 3) for column in zip(*each, strict=True)))


def _ranking(tools: list[ToolSpec], way: str) -> Ranking:
    index = SearchIndex(tools)
    ranking = index._current()
    assert ranking is not None
    similarities = ranking.meanings.similarities
    if way == "words":
        ranking.meanings.similarities = lambda *_: None
    if way != "meaning":
        return lambda query: [spec.name for spec, _ in index.search(query, SHOWN)]

    def by_meaning(query: str) -> list[str]:
        found = similarities(query, [*ranking._own])
        return [] if found is None else [tools[place].name for place in (-found.near).argsort(kind="stable")[:SHOWN]]

    return by_meaning


def _figures(names: Sequence[str], grades: dict[str, int]) -> SearchFigures:
    best = {name for name, grade in grades.items() if grade == max(grades.values())}
    place = next((place for place, name in enumerate(names, 1) if name in best), None)
    gain = sum((2 ** grades.get(name, 0) - 1) / log2(place + 1) for place, name in enumerate(names, 1))
    ideal = sorted(grades.values(), reverse=True)[:SHOWN]
    most = sum((2**grade - 1) / log2(place + 1) for place, grade in enumerate(ideal, 1))
    if place is None:
        return SearchFigures(0.0, 0.0, 0.0, gain / most)
    return SearchFigures(float(place == 1), float(place <= 5), 1 / place, gain / most)


def main(record: bool) -> None:
    figures: dict[str, dict[str, SearchFigures]] = {}
    print("set        way        R@1    R@5    MRR   nDCG@10")
    for name in SETS:
        data = load_set(name)
        figures[name] = {way: measure(data, way) for way in WAYS}
        for way, found in figures[name].items():
            print(f"{name:10} {way:10}" + "  ".join(f"{figure:.3f}" for figure in found))
    if record:
        said = {name: {way: found._asdict() for way, found in ways.items()} for name, ways in figures.items()}
        FLOOR.write_text(json.dumps(said, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main("--record" in sys.argv[1:])
