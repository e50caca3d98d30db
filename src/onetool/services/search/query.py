"""What somebody asks for: the words of a query, by how much they tell."""

from typing import NamedTuple

from onetool.services.search.everyday import EVERYDAY
from onetool.services.search.words import Group, groups

MOST_WORDS = 64  # nobody describes a task in more; a pasted document must not cost more than a question


class Asked(NamedTuple):
    """Each word once, in order."""

    telling: list[Group]
    everyday: list[Group]


def asked(query: str) -> Asked:
    every = list(dict.fromkeys(groups(query)))
    telling = [group for group in every if group[0] not in EVERYDAY][:MOST_WORDS]
    if not telling:  # `now` or `get me` is all there is to go by
        return Asked(every[:MOST_WORDS], [])
    return Asked(telling, [group for group in every if group[0] in EVERYDAY][:MOST_WORDS])
