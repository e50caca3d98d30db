"""How words and meanings become one score.

A tool's score is how near its meaning is to the query's, and a little for each point that BM25F gives its words. No
weight depends on the query: BM25F already counts a rare word for much and a common one for little. So a query whose
rare words stand in a tool is decided by them, and one in other words than the tool's is decided by what it means.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onetool.services.search.meaning import Similarities

WORD_POINT = 0.03  # what a point of BM25F counts beside a nearness, which is about 0.2 to 1; 0.02 to 0.05 do as well
LEAST_NEAR = 0.25  # of a tool that shares no word with the query: below this, everything is like everything

FAIR_WORDS, FAIR_BLEND = 5.0, 0.6  # the score of a fair match: it counts as one half


def blended(words: Mapping[int, float], meanings: "Similarities | None") -> dict[int, float]:
    """Tool -> how well its text fits, more than 0 and less than 1. Without meanings, words decide alone."""
    if meanings is None:
        return {tool: score / (score + FAIR_WORDS) for tool, score in words.items()}
    near = meanings.near
    found = dict.fromkeys((near >= LEAST_NEAR).nonzero()[0].tolist(), 0.0) if meanings.may_find else {}
    found.update(words)
    tools = [tool for tool in found if tool < len(near)]
    nearness = dict(zip(tools, near[tools].tolist(), strict=True))
    return {tool: _half(max(nearness.get(tool, 0.0), 0.0) + WORD_POINT * score) for tool, score in found.items()}


def _half(score: float) -> float:
    return score / (score + FAIR_BLEND)
