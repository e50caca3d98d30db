"""SearchIndex: which tools fit what somebody asks for, best first."""

from collections.abc import Iterable

from onetool.core.spec import ToolSpec
from onetool.services.search.lexical import Lexical
from onetool.services.search.names import Names
from onetool.services.search.query import asked

FAIR = 5.0  # the lexical score of a fair match: it counts as one half


LONGEST = 10_000  # characters of a query: a pasted document must not cost more than a question


class SearchIndex:
    """Built once over a list of tools, then only read: any number of threads may share one.

    A score is a whole number, how surely the query names the tool (see `Naming`), and a fraction, how well the text
    fits. Tools that score the same stay in the order in which they were given.
    """

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self._specs = tuple(spec for spec in specs if not spec.hidden)
        self._names = Names([spec.name for spec in self._specs])
        self._lexical = Lexical(self._specs)

    def search(self, query: str, limit: int = 5) -> list[tuple[ToolSpec, float]]:
        if limit < 1:
            return []
        scores = self._scores(query[:LONGEST])
        return [(self._specs[tool], score) for tool, score in _best(scores, limit)]

    def _scores(self, query: str) -> dict[int, float]:
        words = asked(query)
        # A further stage, one that knows meanings, would be blended in here: it too gives each tool 0 to 1.
        scores = {tool: score / (score + FAIR) for tool, score in self._lexical.scores(words).items()}
        for tool, naming in self._names.named(query, words.telling).items():
            scores[tool] = naming + scores.get(tool, 0.0)
        return scores


def _best(scores: dict[int, float], limit: int) -> list[tuple[int, float]]:
    if len(scores) > limit:  # comparing bare numbers first is much quicker than sorting pairs
        least = sorted(scores.values(), reverse=True)[limit - 1]
        scores = {tool: score for tool, score in scores.items() if score >= least}
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:limit]
