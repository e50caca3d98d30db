"""A page of a text that is in memory: what the same text must give when it is stored."""

from onetool.services.results.paging import MOST_BYTES, in_memory, page_of


def query(text, offset=1, limit=100, search=None, fuzzy=False, most_bytes=MOST_BYTES, column=1):
    return page_of(in_memory(text), offset, limit, search, fuzzy, most_bytes, column)
