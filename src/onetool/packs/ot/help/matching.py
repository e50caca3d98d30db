"""What a query may mean, where nothing is called exactly so: best first, whether it is a tool, a pack or anything else.

3 + …   a name begins with it
2 + …   its words are in the name, or for what is small in the text, too
… 1     words of it are in the text, or a name is spelled much alike: the closer, the more
"""

import re
from collections.abc import Iterable, Sequence

from onetool.core.spec import ToolSpec
from onetool.packs.ot.listing import Listed

PREFIX, WORDS = 3.0, 2.0
WEAK = 0.2  # what scores less than this part of the best one, at most of a name's words, is not worth a line
CLOSE = 75.0  # of 100: `frirecrawl` is 95 from `firecrawl`, `web fecth` 89 from `web fetch`
SHORT, SHORT_ALIKE = 4, 0.7  # of a name so short one slip is a third of it: `gti` is meant for `git`
LONGEST = 100  # characters of a query that are compared with names
_SIGNS = re.compile(r"[^\w]|_")


class Names:
    """The names of a catalogue's tools, ready to be compared. Made once for each catalogue."""

    def __init__(self, tools: Sequence[Listed]) -> None:
        self.tools = tools
        self.known = {tool.spec.name for tool in tools}
        self._whole = [plain(tool.word) for tool in tools]
        self._own = [plain(tool.word.rpartition(".")[2]) for tool in tools]

    def begun(self, query: str) -> dict[str, float]:
        """Tools whose name, or own name, begins with it."""
        said = plain(query)
        if not said:
            return {}
        return {
            tool.spec.name: PREFIX + len(said) / len(whole)
            for tool, whole, own in zip(self.tools, self._whole, self._own, strict=True)
            if whole.startswith(said) or own.startswith(said)
        }

    def alike(self, query: str) -> dict[str, float]:
        """Tools whose name, or own name, is spelled much like it."""
        from rapidfuzz import fuzz, process

        said, found = plain(query)[:LONGEST], dict[str, float]()
        for names in (self._whole, self._own):
            for _, score, at in process.extract(said, names, scorer=fuzz.ratio, score_cutoff=CLOSE, limit=20):
                name = self.tools[at].spec.name
                found[name] = max(found.get(name, 0.0), score / 100)
        return found


def tools_for(query: str, names: Names, found: Iterable[tuple[ToolSpec, float]]) -> list[tuple[str, float]]:
    """Names of tools and their scores, best first. `found` is what the search says, which scores in its own way."""
    scores = names.alike(query)
    for spec, score in found:
        naming, text = divmod(score, 1.0)
        scores[spec.name] = max(scores.get(spec.name, 0.0), (WORDS if naming else 0.0) + text)
    scores |= names.begun(query)
    best = _sorted({name: score for name, score in scores.items() if name in names.known})
    enough = min(best[0][1] if best else 0.0, WORDS) * WEAK
    return [(name, score) for name, score in best if score >= enough]


def others_for(query: str, texts: dict[str, str]) -> list[tuple[str, float]]:
    """The same for what there are few of: names, and what is said of each."""
    return _sorted({name: score for name, text in texts.items() if (score := _score(query, name, text))})


def plain(name: str) -> str:
    """As names are compared: small letters, and spaces for signs."""
    return " ".join(_SIGNS.sub(" ", name.casefold()).split())


def _score(query: str, name: str, text: str) -> float:
    from rapidfuzz import fuzz
    from rapidfuzz.distance import OSA

    said, called = plain(query)[:LONGEST], plain(name)
    if not said or not called:
        return 0.0
    if called.startswith(said):
        return PREFIX + len(said) / len(called)
    words, there = said.split(), {*called.split(), *plain(text).split()}
    if there.issuperset(words):
        return WORDS + len(set(words) & set(called.split())) / len(words)
    near = (
        SHORT_ALIKE
        if any(len(called) <= SHORT < 2 * len(one) and OSA.distance(one, called) == 1 for one in words)
        else 0.0
    )
    begun = max((len(word) / len(called) for word in words if len(word) > 2 and called.startswith(word)), default=0.0)
    closest = max(fuzz.ratio(one, called, score_cutoff=CLOSE) for one in (said, *words))
    return max(begun, near, closest / 100)


def _sorted(scores: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
