"""The reading half of the store: what the index answers, once it is in step with the folder.

Where the folder is not there, or can't be written, the index is in memory; when that changes, the next look notices.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from onetool.core.errors import Mistake
from onetool.sources.bundles.errors import Unavailable
from onetool.sources.bundles.files.lock import FolderLock
from onetool.sources.bundles.files.looking import FIRST_SECONDS, Looking
from onetool.sources.bundles.files.overlay import BuiltIn, check_built_in
from onetool.sources.bundles.files.reading import NO_BUNDLE
from onetool.sources.bundles.files.state import make_state
from onetool.sources.bundles.index import Index
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.store import Found, Rank

log = logging.getLogger("onetool.bundles")


class Indexed:
    def __init__(self, folder: Path, built_in: BuiltIn) -> None:
        check_built_in(built_in)
        self._folder = folder
        self._built_in = built_in
        self._lock = FolderLock(folder)
        self._made: tuple[Index, Looking] | None = None
        self._is_kept = False  # the index is a file
        self._is_nowhere = False  # there is no folder yet: somebody else may make it
        self._is_behind = True  # something has changed that the index does not know yet
        self._seen = -1  # its state at the last look

    # Reading: see Store

    def bundle(self, id: str) -> Bundle | None:
        return self._index().bundle(id)

    def bundles(
        self, ids: Iterable[str] = (), include_disabled: bool = False, after: str | None = None, limit: int = 100
    ) -> list[Bundle]:
        return self._index().bundles(ids, include_disabled, after, limit)

    def tool(self, bundle_id: str, slug: str, version: str) -> Tool | None:
        return self._index().tool(bundle_id, slug, version)

    def tools(
        self,
        tags: Iterable[str] = (),
        bundle_ids: Iterable[str] = (),
        include_disabled: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Tool]:
        return self._index().tools(tags, bundle_ids, include_disabled, after, limit)

    def search(
        self, query: str, include_disabled: bool = False, after: Rank | None = None, limit: int = 100
    ) -> list[Found]:
        return self._index().search(query, include_disabled, after, limit)

    def everything(self) -> tuple[list[Bundle], Iterator[Tool]]:
        return self._index().everything()

    def place(self, tool_id: str) -> str | None:
        path = self._index().path_of(tool_id)
        return None if path is None else str(self._folder / path)

    def mistakes(self) -> list[Mistake]:
        """Tools that nothing is wrong with but their bundle are not told one by one."""
        return [
            msgspec.structs.replace(mistake, file=str(self._folder / (mistake.file or "")))
            for mistake in self._index().mistakes()
            if mistake.message != NO_BUNDLE
        ]

    def state(self) -> int:
        return self._index().state()

    def look(self) -> bool:
        with self._lock.alone():
            self._settle()
            index, looking = self._parts()
            looking.look(index)
            self._is_behind = False
            before, self._seen = self._seen, index.state()
            return before != self._seen

    # How it is done

    def _index(self) -> Index:
        """In step with what this process knows to have changed. Nobody waits for another thread but at the start."""
        if self._is_behind or (self._is_nowhere and self._folder.is_dir()):
            try:
                with self._lock.alone(FIRST_SECONDS if self._made is None else 0.0):
                    if self._is_behind or self._is_nowhere:
                        self.look()
            except Unavailable:
                if self._made is None:
                    raise
        return self._parts()[0]

    def _parts(self) -> tuple[Index, Looking]:
        if self._made is None:
            with self._lock.alone():
                if self._made is None:
                    self._made = self._open()
        return self._made

    def _open(self) -> tuple[Index, Looking]:
        self._is_nowhere = not self._folder.is_dir()
        file = make_state(self._folder)
        if file is not None:
            try:
                made = self._index_in(file)
                made[0].state()
                self._is_kept = True
                return made
            except Unavailable as error:
                log.warning("%s; it is kept in memory for now", error)
        self._is_kept = False
        return self._index_in(None)

    def _index_in(self, file: Path | None) -> tuple[Index, Looking]:
        looking = Looking(self._folder, self._lock, self._built_in)
        index = Index(file, lambda: looking.look(index, is_new=True))
        return index, looking

    def _settle(self) -> None:
        """From memory into a file, as soon as there can be one."""
        if self._made is not None and not self._is_kept:
            self._is_nowhere = not self._folder.is_dir()
            if make_state(self._folder) is not None:
                self._made = self._open()  # the old one goes when the last who asks it has its answer
