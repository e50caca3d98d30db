"""Loading a pack from its source alone, and all that is inside of it: no bytecode that lies beside it is read.

Bytecode says itself whether it has to be looked at again: who puts some into a project has it run in place of the
source that a person has seen. And after an edit within the same second, of the same size, it counts as the newer one.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from types import CodeType, ModuleType


class FromSource(SourceFileLoader):
    """As Python loads a source file, without the cache."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


_WAYS = ((ExtensionFileLoader, EXTENSION_SUFFIXES), (FromSource, SOURCE_SUFFIXES))


class Finder:
    """Finds what is inside of packs that are loaded from source. All else is left to Python."""

    def __init__(self) -> None:
        self.packs: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None = None, _: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or name.partition(".")[0] not in self.packs:
            return None
        for folder in path:
            spec = FileFinder(folder, *_WAYS).find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None


_finder = Finder()


def take_source(spec: ModuleSpec) -> None:
    """Have a pack's module, and later those inside of it, loaded from source."""
    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = FromSource(spec.name, spec.loader.path)
    _finder.packs.add(spec.name)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
