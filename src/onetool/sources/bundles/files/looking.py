"""A look at the folder: what people, git and other processes have done there is taken into the index.

Files are compared by their stamps, and only those are read that are not known as they are. All that takes time is done
without the lock; it is held while the index is written, so that no write of somebody else comes in between. A file that
was written in the last moments may be written again without its stamp changing: it is put into the index with a stamp
that no file has, and so read again at the next look.
"""

import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from onetool.sources.bundles.errors import Unavailable
from onetool.sources.bundles.files import writing
from onetool.sources.bundles.files.layout import (
    BUNDLE,
    OVERLAY,
    bundle_file,
    folder_of,
    is_tool,
    tool_file,
    tools_of,
)
from onetool.sources.bundles.files.lock import FolderLock
from onetool.sources.bundles.files.opening import stamp_of
from onetool.sources.bundles.files.overlay import BuiltIn, Overlay
from onetool.sources.bundles.files.reading import NO_BUNDLE, Read, read_files
from onetool.sources.bundles.files.scanning import NOWHERE, Foreign, Scan, anybody
from onetool.sources.bundles.index import Changes, Index, Stamp, Taken
from onetool.sources.bundles.model import Bundle, Tool

RACY_SECONDS = 2.0
PATIENCE = 2.0  # for writers; then the index is written without the lock: the next look puts right what that may miss
FIRST_SECONDS = 60.0  # that others wait for a look that has to read everything
UNSETTLED = -1  # as a size: what no file has


class Found(NamedTuple):
    files: dict[str, Stamp]  # all that lie there
    read: list[Read]
    gone: list[str]
    drafts: list[str]
    broken: dict[str, str]  # those that could not be used before, and why
    switches: "Switches | None"  # None: as they were

    def is_nothing(self) -> bool:
        return not (self.read or self.gone or self.drafts or self.switches)


class Switches(NamedTuple):
    """Of what is built in: what their file says. None: there is no file."""

    stamp: Stamp | None
    read: Read | None


class Looking:
    """Remembers between looks what need not be asked again. One look at a time: the caller sees to that."""

    def __init__(self, folder: Path, lock: FolderLock, built_in: BuiltIn, foreign: Foreign = anybody) -> None:
        self._folder = folder
        self._foreign = foreign
        self._lock = lock
        self._built_in = built_in
        self._known: tuple[int, dict[str, Stamp]] = (-1, {})
        self._looked_at = -1  # the index's state after the last look
        self._overlay: Stamp | None = NOWHERE
        self._racy: dict[str, bytes] = {}  # paths and digests of what was read and may change unseen

    def look(self, index: Index, is_new: bool = False) -> None:
        """`is_new`: nothing is in the index yet."""
        with self._lock.alone(FIRST_SECONDS):
            if is_new:
                self._overlay = NOWHERE
            found = self._find(index)
            if not found.is_nothing():
                self._take_in(index, found)
            if found.switches is not None:
                stamp = found.switches.stamp
                self._overlay = stamp if stamp is None or not _is_racy(stamp) else NOWHERE
            self._looked_at = index.state()

    # Seeing

    def _find(self, index: Index) -> Found:
        scan, known = Scan(self._folder, self._foreign), self._stamps(index)
        switches = self._switches(scan.files.pop(OVERLAY, None))
        changed = {path for path, stamp in scan.files.items() if known.get(path) != stamp}
        gone = [path for path in known if path not in scan.files and path != OVERLAY] if scan.is_whole else []
        broken: dict[str, str] = {}
        if changed or gone or index.state() != self._looked_at:
            broken = broken_files(index)
            changed |= {path for path, reason in broken.items() if path in scan.files and reason != NO_BUNDLE}
        read = list(self._read(index, scan.files, changed, broken))
        news = [one for one in read if self._is_news(one, broken)]
        return Found(scan.files, news, gone, scan.drafts, broken, switches)

    def _switches(self, stamp: Stamp | None) -> Switches | None:
        if stamp == self._overlay:
            return None
        if stamp is None:
            return Switches(None, None)
        read = next(read_files(self._folder, {OVERLAY: stamp}, [OVERLAY]), None)
        return None if read is None else Switches(stamp, read)

    def _read(self, index: Index, files: dict[str, Stamp], changed: set[str], broken: dict[str, str]) -> Iterable[Read]:
        """What has changed. With a bundle that is another one now, or of use again or no more, its tools as well."""
        heads = list(read_files(self._folder, files, (one for one in changed if not is_tool(one))))
        yield from heads
        bundles = (head for head in heads if head.path.endswith(f"/{BUNDLE}"))
        others = {folder_of(head.path) for head in bundles if self._is_another(index, head, broken)}
        below = (path for path in (files if others else changed) if is_tool(path))
        tools = (path for path in below if path in changed or folder_of(path) in others)
        yield from read_files(self._folder, files, tools)

    def _is_another(self, index: Index, head: Read, broken: dict[str, str]) -> bool:
        if not isinstance(head.thing, Bundle):
            return head.path not in broken
        return head.path in broken or head.path not in self._known[1] or index.bundle(head.thing.id) is None

    def _is_news(self, read: Read, broken: dict[str, str]) -> bool:
        is_as_before = read.reason == broken.get(read.path)
        if _is_racy(read.stamp) and read.path in self._racy:
            return not is_as_before or self._racy[read.path] != read.digest
        return read.reason is None or not is_as_before or self._known[1].get(read.path) != read.stamp

    def _stamps(self, index: Index) -> dict[str, Stamp]:
        state = index.state()
        if self._known[0] != state:
            self._known = (state, index.stamps())
        return self._known[1]

    # Taking in

    def _take_in(self, index: Index, found: Found) -> None:
        with ExitStack() as stack:
            try:
                root = stack.enter_context(self._lock.held(PATIENCE))
            except (Unavailable, OSError):
                root = None
            if root is not None:
                for draft in found.drafts:
                    writing.remove_quietly(root, draft)  # nobody writes now: it is nobody's
            before = dict(self._racy)
            try:
                self._change(index, found)
            except BaseException:
                self._racy = before  # nothing of it was taken in: all of it is news again
                raise

    def _change(self, index: Index, found: Found) -> None:
        now = [read for read in found.read if self._is_still(read)]
        unread = found.switches is not None and found.switches.read is not None and found.switches.read.reason
        # Where the switches can't be read, they stay as they were: nothing goes on that somebody has switched off.
        before = self._as_before(index) if unread else self._built_in
        with index.changing() as changes:
            for path in found.gone:
                if not os.path.lexists(self._folder / path):
                    changes.drop(path)
                    self._racy.pop(path, None)
            self._put_all(changes, found, now)
            if found.switches is not None:
                self._switch(changes, found.switches.read, before)

    def _switch(self, changes: Changes, read: Read | None, before: BuiltIn) -> None:
        if read is not None and read.reason is not None:
            changes.put_broken(OVERLAY, read.stamp, read.reason)
            changes.built_in(before)
            return
        changes.drop(OVERLAY)
        overlay = read.thing if read is not None and isinstance(read.thing, Overlay) else Overlay()
        changes.built_in(overlay.over(self._built_in))

    def _as_before(self, index: Index) -> BuiltIn:
        known = Overlay()
        for bundle, tools in self._built_in:
            if (before := index.bundle(bundle.id)) is not None:
                known = known.with_bundle(bundle, before.is_enabled)
            for tool in tools:
                if (seen := index.tool(bundle.id, tool.slug, tool.version)) is not None:
                    known = known.with_tool(bundle, tool, seen.is_enabled)
        return known.over(self._built_in)

    def _put_all(self, changes: Changes, found: Found, reads: list[Read]) -> None:
        """Twice: two files may have exchanged what they are, and then each stands in the other's way."""
        reads = sorted(reads, key=lambda read: (read.path.count("/"), not _is_usual(read), read.path))
        refused = [(read, taken) for read in reads if (taken := self._put(changes, read)) is not None]
        if all(self._is_known(found, read, taken) for read, taken in refused):
            return
        for read, _ in refused:
            changes.drop(read.path)
        for read, _ in refused:
            taken = self._put(changes, read)
            if taken is not None:
                self._put(changes, read._replace(thing=None, reason=_clash(read, taken)))
                if isinstance(read.thing, Bundle):
                    self._set_aside(changes, found, folder_of(read.path))

    def _put(self, changes: Changes, read: Read) -> Taken | None:
        stamp = read.stamp
        if _is_racy(stamp) and read.digest is not None:
            self._racy[read.path] = read.digest
            stamp = stamp._replace(size=UNSETTLED)
        else:
            self._racy.pop(read.path, None)
        try:
            if isinstance(read.thing, Bundle):
                changes.put_bundle(read.thing, read.path, stamp)
            elif isinstance(read.thing, Tool) and self._is_in_its_bundle(changes, read.thing, read.path):
                changes.put_tool(read.thing, read.path, stamp)
            elif read.thing is not None:
                changes.put_broken(read.path, stamp, NO_BUNDLE)
            else:
                changes.put_broken(read.path, stamp, read.reason or "")
        except Taken as taken:
            return taken
        return None

    def _is_known(self, found: Found, read: Read, taken: Taken) -> bool:
        known = self._known[1].get(read.path, NOWHERE)
        is_same = known == read.stamp or (known.size == UNSETTLED and _is_racy(read.stamp))
        return is_same and found.broken.get(read.path) == _clash(read, taken)

    def _is_in_its_bundle(self, changes: Changes, tool: Tool, path: str) -> bool:
        """The folder may be a copy of that bundle's, and then that bundle is another one."""
        return changes.path_of_bundle(tool.bundle_id) == bundle_file(folder_of(path))

    def _set_aside(self, changes: Changes, found: Found, folder: str) -> None:
        for path, stamp in found.files.items():
            if path.startswith(f"{tools_of(folder)}/"):
                changes.put_broken(path, stamp, NO_BUNDLE)

    def _is_still(self, read: Read) -> bool:
        """Whether it is as it was read: somebody may have come before us to the lock."""
        try:
            stamp = stamp_of(os.stat(self._folder / read.path, follow_symlinks=False))
        except OSError:
            return read.stamp == NOWHERE
        return stamp == read.stamp or read.stamp == NOWHERE


def broken_files(index: Index) -> dict[str, str]:
    """Paths and reasons."""
    return {mistake.file: mistake.message for mistake in index.mistakes() if mistake.file}


def _is_racy(stamp: Stamp) -> bool:
    return abs(time.time() - stamp.mtime_ns / 1e9) < RACY_SECONDS


def _is_usual(read: Read) -> bool:
    """Whether it is called as we would call it. Of two that are the same, that one is the first."""
    thing = read.thing
    return not isinstance(thing, Tool) or read.path == tool_file(folder_of(read.path), thing.slug, thing.version)


def _clash(read: Read, taken: Taken) -> str:
    """Said of the later one. Whoever copies a file copies its id."""
    text = str(taken)
    if read.thing is not None and not isinstance(read.thing, Overlay) and read.thing.id in text:
        return f'{text}; take the line "id" out of this file, and it gets one of its own'
    return f"{text}; give this one another name, or remove it"
