"""`Document`: the searchable fields of a tool."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from onetool.services.search.words import name_key, name_keys, split_words, tool_words

Terms = Sequence[str]


class Document(NamedTuple):
    """The terms of each field: words; from `titles` on, normalised whole names."""

    names: Terms  # of the full name
    description: Terms = ()
    parameters: Terms = ()
    tags: Terms = ()
    others: Terms = ()  # of the title and the names of the group
    everyday: Terms = ()  # everyday words of the description
    own: Terms = ()  # of the name without the group, and the title
    titles: Terms = ()  # name without the group, and title
    squeezed: Terms = ()  # titles as one word: `readfile`
    spelled: Terms = ()  # the full name
    parts: Terms = ()  # the pack, and the name without the pack
    group: str = ""
    enabled: bool = True
    age: int = 0  # lower is newer
    title_length: int = 0  # characters of the shorter title

    @property
    def terms(self) -> tuple[Terms, ...]:
        return self[:-4]


class ScoredField(NamedTuple):
    weight: float
    b: float  # length normalisation: 0: none; 1: full


# Names, description, parameters, tags. Parameters are many and similar (`path`, `limit`), so their weight is low.
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
    """Return the document with a tool's titles: its name and title, without the group."""
    known = [title for title in titles if name_key(title)]
    keys = [name_key(title, " ") for title in known]
    return document._replace(
        own=[word for title in known for word in split_words(title)],
        titles=keys,
        squeezed=[name_key(title) for title, key in zip(known, keys, strict=True) if " " in key],
        title_length=min(map(len, keys), default=0),
    )
