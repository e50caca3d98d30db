"""How much each word says for each tool: BM25F, worked out once, so that a query only adds numbers up.

A word counts more in a name than in a description (`weight`), less in a long text than in a short one (`evening`), each
further time a little less (`SATURATION`), and the more the fewer tools have it.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import NamedTuple

from onetool.services.search.texts import Texts

SATURATION = 1.0


class Field(NamedTuple):
    weight: float
    evening: float  # 0: its length does not matter; 1: only the share of the text counts


# In the order of `texts`. Parameters are many and alike (`path`, `limit`): they hint, they do not decide.
FIELDS = (Field(2.0, 0.3), Field(1.0, 0.5), Field(0.3, 0.7), Field(2.0, 0.3))


class Posting(NamedTuple):
    """The tools that have one word, in their order, and what the word says for each."""

    tools: "array[int]"
    weights: "array[float]"


def postings(tools: Sequence[Texts], stems: Mapping[str, str]) -> dict[str, Posting]:
    """Stem -> its posting."""
    counted = _counted(tools, stems)
    return {stem: _posting(counts, len(tools)) for stem, counts in counted.items()}


def _counted(tools: Sequence[Texts], stems: Mapping[str, str]) -> dict[str, dict[int, float]]:
    """Stem -> tool -> how often, each time weighed by where it stands."""
    usual = [_usual_length(words) for words in zip(*tools, strict=True)]
    counted: dict[str, dict[int, float]] = {}
    for tool, fields in enumerate(tools):
        for words, field, length in zip(fields, FIELDS, usual, strict=True):
            worth = field.weight / (1 - field.evening + field.evening * len(words) / length)
            for word in words:
                counts = counted.setdefault(stems[word], {})
                counts[tool] = counts.get(tool, 0.0) + worth
    return counted


def _usual_length(texts: Iterable[Sequence[str]]) -> float:
    lengths = [len(words) for words in texts if words]
    return sum(lengths) / len(lengths) if lengths else 1.0


def _posting(counts: Mapping[int, float], tools: int) -> Posting:
    rarity = log(1 + (tools - len(counts) + 0.5) / (len(counts) + 0.5))
    weights = (rarity * count / (SATURATION + count) for count in counts.values())
    return Posting(array("L", counts), array("d", weights))
