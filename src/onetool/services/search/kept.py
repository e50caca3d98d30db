"""`KeptDocuments`: what a store lends to a `SearchIndex`, so that its words are in memory once."""

from typing import Protocol

from onetool.services.search.postings import WordIndex


class KeptDocuments(Protocol):
    """Tools that are indexed already, by their ids in a store."""

    words: WordIndex

    def slot_of(self, id: str) -> int | None: ...
