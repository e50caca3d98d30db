"""The derived index of a folder of bundles: lists and search without opening a file. Delete it, and it comes back.

index      Index: what can be asked            changes      Changes: what can be written, in one transaction
access     questions and transactions          connections  one for each thread
opening    the file, made anew where needed    schema       its tables
faults     what can be wrong with it           patience     how long who asks may wait for others
rows       bundles and tools as rows           writing      … into their tables
lists      pages in the order of ids           search       pages in the order of ranks; tiers: what ranks are
words      texts as words                      near         which words may have been meant; known: all of them
"""

from onetool.sources.bundles.index.changes import Changes, Stamp, Taken
from onetool.sources.bundles.index.faults import Busy, Damaged, Unwritable
from onetool.sources.bundles.index.index import Index

__all__ = ["Busy", "Changes", "Damaged", "Index", "Stamp", "Taken", "Unwritable"]
