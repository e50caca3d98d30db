"""What somebody asks for: the words of a query that can tell tools apart."""

from onetool.services.search.everyday import EVERYDAY
from onetool.services.search.words import Group, groups

MOST_WORDS = 64  # nobody describes a task in more; a pasted document must not cost more than a question


def asked(query: str) -> list[Group]:
    """Each word once, in order, without the everyday ones, unless there are no others."""
    every = list(dict.fromkeys(groups(query)))
    telling = [group for group in every if group[0] not in EVERYDAY]
    return (telling or every)[:MOST_WORDS]
