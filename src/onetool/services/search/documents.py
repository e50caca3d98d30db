"""`Document`: what a search knows of a tool, field by field."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from onetool.services.search.words import name_key, name_keys, split_words, tool_words

Terms = Sequence[str]


class Document(NamedTuple):
    """The terms of each field: words, and from `titles` on whole names as they are compared."""

    names: Terms  # of its full name
    description: Terms = ()
    parameters: Terms = ()
    tags: Terms = ()
    others: Terms = ()  # of its title, and of the names of its group
    everyday: Terms = ()  # of the description: they say nothing about which tool is meant
    own: Terms = ()  # of its name without the group, and of its title
    titles: Terms = ()  # these two
    squeezed: Terms = ()  # the same in one word: `readfile`
    spelled: Terms = ()  # its full name
    parts: Terms = ()  # its pack, and its name without the pack
    group: str = ""
    enabled: bool = True
    age: int = 0  # the newest has the least
    title_length: int = 0  # characters of the shorter of its titles

    @property
    def terms(self) -> tuple[Terms, ...]:
        return self[:-4]


class ScoredField(NamedTuple):
    weight: float
    b: float  # 0: its length does not matter; 1: only the share of the text counts


# Names, description, parameters, tags. Parameters are many and alike (`path`, `limit`): they hint, they do not decide.
SCORED_FIELDS = (ScoredField(2.0, 0.3), ScoredField(1.0, 0.5), ScoredField(0.3, 0.7), ScoredField(2.0, 0.3))

FIELD_COUNT = Document._fields.index("group")
NAMES, DESCRIPTION, PARAMETERS, TAGS, OTHERS, EVERYDAY, OWN, TITLES, SQUEEZED, SPELLED, PARTS = (
    1 << field for field in range(FIELD_COUNT)
)
SCORED = NAMES | DESCRIPTION | PARAMETERS | TAGS
LABELS = NAMES | TAGS | OTHERS
TEXTS = LABELS | DESCRIPTION | EVERYDAY
NAMED = OWN | SQUEEZED


def tool_document(name: str, description: str, schema: Any, tags: Iterable[str]) -> Document:
    words = tool_words(name, description, schema, tags)
    spelled, parts = name_keys(name)
    return Document(
        words.names,
        words.description,
        words.parameters,
        words.tags,
        everyday=words.everyday,
        spelled=[spelled],
        parts=parts,
    )


def with_titles(document: Document, *titles: str) -> Document:
    """Return the document of a tool with its name and title, without its group."""
    known = [title for title in titles if name_key(title)]
    keys = [name_key(title, " ") for title in known]
    return document._replace(
        own=[word for title in known for word in split_words(title)],
        titles=keys,
        squeezed=[name_key(title) for title, key in zip(known, keys, strict=True) if " " in key],
        title_length=min(map(len, keys), default=0),
    )
