"""Packs: Python modules whose functions are tools.

candidates   where packs are: built in, installed, in files and folders
importing    running a pack's module, within a budget of our time
reading      a pack that is heavy or slow to import: its tools as its source tells them
parsing      a pack that must not be run: the names of its tools, by parsing alone
source       all of them together, each name once
"""

from onetool.sources.packs.builtin import BuiltinFunctions
from onetool.sources.packs.importing import imported, put_back
from onetool.sources.packs.source import PackSource

__all__ = ["BuiltinFunctions", "PackSource", "imported", "put_back"]
