"""What a search knows of a tool: its words field by field, how often each stands there, and what that says (BM25F)."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from onetool.services.search.meaning import Doubles

    Slots = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

Words = Sequence[str]


class Document(NamedTuple):
    """A tool as it is found: its name, and the words of each field."""

    name: str
    names: Words  # of the name
    description: Words = ()
    parameters: Words = ()
    tags: Words = ()
    others: Words = ()  # of its title, and of the names of what it belongs to
    everyday: Words = ()  # of the description: they say nothing about which tool is meant

    @property
    def fields(self) -> tuple[Words, ...]:
        return self[1:]


NAMES, DESCRIPTION, PARAMETERS, TAGS, OTHERS, EVERYDAY = range(6)
SATURATION = 1.0


class SearchField(NamedTuple):
    weight: float
    evening: float  # 0: its length does not matter; 1: only the share of the text counts


# Names, description, parameters, tags. Parameters are many and alike (`path`, `limit`): they hint, they do not decide.
FIELDS = (SearchField(2.0, 0.3), SearchField(1.0, 0.5), SearchField(0.3, 0.7), SearchField(2.0, 0.3))

PackedCounts = int
"""How often a word stands in each field: 16 bits for each."""
COUNT_BITS, COUNT_MASK = 16, 0xFFFF
COUNT_BYTES = 2 * (len(Document._fields) - 1)
COUNT_ONCE = tuple(1 << COUNT_BITS * field for field in range(len(Document._fields) - 1))

Lengths = tuple[int, int, int, int]
"""How many words each of the FIELDS has."""


class Said:
    """The tools that have a word in any of its forms, and what that says for each, but for how rare the word is."""

    def __init__(self, slots: Sequence[int], weights: Sequence[float]) -> None:
        self.slots = slots
        self.weights = weights

    @cached_property
    def by_slot(self) -> dict[int, float]:
        return dict(zip(self.slots, self.weights, strict=True))

    @cached_property
    def arrays(self) -> "tuple[Slots, Doubles]":
        """Both, for numpy."""
        import numpy as np

        return np.array(self.slots, np.int64), np.array(self.weights)

    @cached_property
    def by_weight(self) -> list[set[int]]:
        """Slots of one weight each, the heaviest first."""
        found: dict[float, set[int]] = {}
        for slot, weight in zip(self.slots, self.weights, strict=True):
            found.setdefault(weight, set()).add(slot)
        return [found[weight] for weight in sorted(found, reverse=True)]


class Worths(dict[tuple[int, int], float]):
    """Counts and lengths, by their numbers -> what they are worth together. Computed once for each pair."""

    def __init__(self, counts: Sequence[PackedCounts], lengths: Sequence[Lengths], usual: Sequence[float]) -> None:
        self._counts, self._lengths = counts, lengths
        self.usual = usual

    def __missing__(self, key: tuple[int, int]) -> float:
        counts, worth = self._counts[key[0]], 0.0
        for (weight, evening), length, usual in zip(FIELDS, self._lengths[key[1]], self.usual, strict=True):
            if count := counts & COUNT_MASK:
                worth += count * (weight / (1 - evening + evening * length / usual))
            counts >>= COUNT_BITS
        self[key] = worth
        return worth


Value = TypeVar("Value")


class Numbers(Generic[Value]):
    """Gives each value a number. Few different ones are many times there."""

    def __init__(self, values: Iterable[Value] = ()) -> None:
        self.values = list(values)
        self._known = {value: number for number, value in enumerate(self.values)}

    def of(self, value: Value) -> int:
        number = self._known.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number
