"""Find the tool for a task: the one search behind every door.

`words` takes text apart, `stems` and `everyday` make words comparable, `texts` says what a tool is known by, `postings`
weighs its words, `vocabulary` finds the word that was meant, `lexical` and `names` judge, `index` ranks.
"""

from onetool.services.search.index import SearchIndex

__all__ = ["SearchIndex"]
