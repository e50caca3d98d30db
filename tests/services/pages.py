"""A page of a text that is in memory: what the same text must give when it is stored."""

from onetool.services.results.paging import page_of as query

__all__ = ["query"]
