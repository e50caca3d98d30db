"""`FolderSync` brings the index up to date with the folder: what people, git and other processes have changed there.

Files are compared by their stamps (mtime, size, inode), and only changed ones are read. The lock is held only while the
index is written. A file that was written in the last moments may be written again without its stamp changing: it is
indexed with a stamp that no file has, and so read again at the next sync. A tool needs the bundle in whose folder it
lies: where that can't be used, its tools are set aside with it, unread.
"""

import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from onetool.sources.bundles.errors import InvalidError, UnavailableError
from onetool.sources.bundles.files import disk, writing
from onetool.sources.bundles.files.disk import (
    BUNDLE,
    NO_STAMP,
    OVERLAY,
    TEMPORARY_ERRORS,
    FolderScan,
    Foreign,
    anybody,
    bundle_file,
    folder_of,
    is_tool,
    stamp_of,
    tool_file,
    tools_of,
)
from onetool.sources.bundles.files.form import read_bundle_file, read_tool_file
from onetool.sources.bundles.files.overlay import (
    UNKNOWN,
    BuiltIn,
    Overlay,
    overlay_as_before,
    read_overlay,
    switches_text,
)
from onetool.sources.bundles.files.writing import FolderLock
from onetool.sources.bundles.index import FileStamps, Index, IndexTransaction, PathTakenError, Stamp
from onetool.sources.bundles.model import Bundle, Tool

NO_BUNDLE = "its bundle can't be used"
AS_BEFORE = "until it can be read, switches stay as they were"
ALL_OFF = "until it can be read, all packs, servers and tools of the config are switched off: it may say so of any"

ParsedContent = Bundle | Tool | Overlay


class ReadFile(NamedTuple):
    """What a file says, or the reason why that can't be used; and of the bytes a digest, None where none were read."""

    path: str
    stamp: Stamp
    content: ParsedContent | None = None
    reason: str | None = None
    digest: bytes | None = None


def read_files(folder: Path, stamps: Mapping[str, Stamp], paths: Iterable[str]) -> Iterator[ReadFile]:
    """Bundles before their tools. `stamps` are those that the look has seen.

    Left out is what is not there any more, or can't be read for a while; and tools whose bundle is left out.
    """
    bundles: dict[str, ReadFile | None] = {}  # by folder
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        if not is_tool(path):
            read = _read_one(folder, path, stamps[path], None)
            if path.endswith(f"/{BUNDLE}"):
                bundles[folder_of(path)] = read
        else:
            name = folder_of(path)
            if name not in bundles:
                bundles[name] = _read_one(folder, bundle_file(name), stamps.get(bundle_file(name), NO_STAMP), None)
            read = _read_tool(folder, path, stamps[path], bundles[name])
        if read is not None:
            yield read


def _read_tool(folder: Path, path: str, stamp: Stamp, bundle: ReadFile | None) -> ReadFile | None:
    if bundle is None:
        return None
    if not isinstance(bundle.content, Bundle):
        return ReadFile(path, stamp, reason=NO_BUNDLE)
    return _read_one(folder, path, stamp, bundle.content)


def _read_one(folder: Path, path: str, seen: Stamp, bundle: Bundle | None) -> ReadFile | None:
    try:
        data, stamp = disk.read_bytes(f"{folder}/{path}")  # a Path would take as long as opening it
    except InvalidError as error:
        return ReadFile(path, seen, reason=str(error))
    except OSError as error:
        return _unreadable(path, seen, error)
    digest = sha256(data).digest()
    try:
        return ReadFile(path, stamp, _whole_texts(data, _content_of(path, data, stamp, bundle)), digest=digest)
    except InvalidError as error:
        return ReadFile(path, stamp, reason=str(error), digest=digest)


def _whole_texts(data: bytes, content: ParsedContent) -> ParsedContent:
    """Refuses half a character, which only an escape can say: nothing that keeps or shows it could write it."""
    if b"\\ud" in data or b"\\uD" in data:
        try:
            msgspec.json.encode(content)
        except UnicodeEncodeError as error:
            raise InvalidError(
                "there is half a character in a text (an escape such as \\ud800): take it out"
            ) from error
    return content


def _content_of(path: str, data: bytes, stamp: Stamp, bundle: Bundle | None) -> ParsedContent:
    if bundle is not None:
        return read_tool_file(data, bundle.id, folder_of(path), stamp.mtime_ns)
    if path == OVERLAY:
        return read_overlay(data)
    return read_bundle_file(data, folder_of(path), stamp.mtime_ns)


def _unreadable(path: str, seen: Stamp, error: OSError) -> ReadFile | None:
    if error.errno in TEMPORARY_ERRORS:
        return None  # it says nothing of the file: the next look will
    if error.errno == errno.ELOOP:
        return ReadFile(path, seen, reason="it is a link, and links are not followed: put the file itself here")
    if isinstance(error, FileNotFoundError):
        if seen != NO_STAMP:
            return None  # it has gone meanwhile: the next look sees that
        return ReadFile(path, seen, reason="it is missing, and there are tools in its folder")
    return ReadFile(path, seen, reason=f"it can't be read: {os.strerror(error.errno or 0)}")


# Syncing the index with the folder


RACY_SECONDS = 2.0
LOCK_SECONDS = (
    2.0  # for writers; then the index is written without the lock: the next look puts right what that may miss
)
FIRST_SECONDS = 60.0  # that others wait for a look that has to read everything
UNSETTLED = -1  # as a size: what no file has


class FolderChanges(NamedTuple):
    files: FileStamps  # all that lie there
    read: list[ReadFile]
    gone: list[str]
    drafts: list[str]
    broken: dict[str, str]  # those that could not be used before, and why
    switches: "BuiltInSwitches | None"  # None: as they were

    def is_nothing(self) -> bool:
        return not (self.read or self.gone or self.drafts or self.switches)


class BuiltInSwitches(NamedTuple):
    """The switches of built-in bundles, from their file. None if there is no file."""

    stamp: Stamp | None
    read: ReadFile | None


class FolderSync:
    """Syncs the index. Not thread-safe: the caller runs one at a time."""

    def __init__(self, folder: Path, lock: FolderLock, built_in: BuiltIn, foreign: Foreign = anybody) -> None:
        self._folder = folder
        self._foreign = foreign
        self._lock = lock
        self._built_in = built_in
        self._known: tuple[int, FileStamps] = (-1, FileStamps({}))
        self._synced = -1  # the index's state after the last look
        self._overlay: Stamp | None = NO_STAMP
        self._racy: dict[str, bytes] = {}  # paths and digests of what was read and may change unseen

    def sync(self, index: Index, is_new: bool = False) -> None:
        """`is_new`: nothing is in the index yet."""
        with self._lock.alone(FIRST_SECONDS):
            if is_new:
                self._overlay = NO_STAMP
            found = self._find(index)
            if not found.is_nothing():
                self._apply(index, found)
            if found.switches is not None:
                stamp = found.switches.stamp
                self._overlay = stamp if stamp is None or not _is_racy(stamp) else NO_STAMP
            self._synced = index.state()

    # Seeing

    def _find(self, index: Index) -> FolderChanges:
        scan, known = FolderScan(self._folder, self._foreign), self._stamps(index)
        switches = self._switches(scan.overlay)
        changed, gone, broken = set[str](), list[str](), dict[str, str]()
        for folder in known.differing(scan.files):
            before, now = known.of(folder), scan.files.of(folder)
            changed |= {path for path, stamp in now.items() if before.get(path) != stamp}
            gone += [path for path in before if scan.is_whole and path not in now and path != OVERLAY]
        if changed or gone or index.state() != self._synced:
            broken = broken_files(index)
            changed |= {path for path, reason in broken.items() if path in scan.files and reason != NO_BUNDLE}
        read = list(self._read(index, scan.files, changed, broken))
        news = [one for one in read if self._has_changed(one, broken)]
        return FolderChanges(scan.files, news, gone, scan.drafts, broken, switches)

    def _switches(self, stamp: Stamp | None) -> BuiltInSwitches | None:
        if stamp == self._overlay:
            return None
        if stamp is None:
            return BuiltInSwitches(None, None)
        read = next(read_files(self._folder, {OVERLAY: stamp}, [OVERLAY]), None)
        return None if read is None else BuiltInSwitches(stamp, read)

    def _read(self, index: Index, files: FileStamps, changed: set[str], broken: dict[str, str]) -> Iterable[ReadFile]:
        """What has changed. With a bundle that is another one now, or of use again or no more, its tools as well."""
        heads = list(read_files(self._folder, files, (one for one in changed if not is_tool(one))))
        yield from heads
        bundles = (head for head in heads if head.path.endswith(f"/{BUNDLE}"))
        others = {folder_of(head.path) for head in bundles if self._is_another(index, head, broken)}
        below = changed.union(*map(files.of, others))
        yield from read_files(self._folder, files, filter(is_tool, below))

    def _is_another(self, index: Index, head: ReadFile, broken: dict[str, str]) -> bool:
        if not isinstance(head.content, Bundle):
            return head.path not in broken
        return head.path in broken or head.path not in self._known[1] or index.bundle(head.content.id) is None

    def _has_changed(self, read: ReadFile, broken: dict[str, str]) -> bool:
        is_as_before = read.reason == broken.get(read.path)
        if _is_racy(read.stamp) and read.path in self._racy:
            return not is_as_before or self._racy[read.path] != read.digest
        return read.reason is None or not is_as_before or self._known[1].get(read.path) != read.stamp

    def _stamps(self, index: Index) -> FileStamps:
        state = index.state()
        if self._known[0] != state:
            self._known = (state, index.stamps())
        return self._known[1]

    # Taking in

    def _apply(self, index: Index, found: FolderChanges) -> None:
        with ExitStack() as stack:
            try:
                root = stack.enter_context(self._lock.held(LOCK_SECONDS))
            except (UnavailableError, OSError):
                root = None
            if root is not None:
                for draft in found.drafts:
                    writing.remove_quietly(root, draft)  # we hold the lock: no writer owns it
            before = dict(self._racy)
            try:
                self._change(index, found)
            except BaseException:
                self._racy = before  # nothing of it was taken in: all of it is news again
                raise

    def _change(self, index: Index, found: FolderChanges) -> None:
        now = [read for read in found.read if self._is_still(read)]
        unread = found.switches is not None and found.switches.read is not None and found.switches.read.reason
        # If the switches can't be read, they stay as they were, if that is known: what is switched off stays off.
        before = overlay_as_before(index, self._built_in) if unread else self._built_in
        with index.changing() as changes:
            for path in found.gone:
                if not os.path.lexists(self._folder / path):
                    changes.drop(path)
                    self._racy.pop(path, None)
            self._put_all(changes, found, now)
            if found.switches is not None:
                self._switch(changes, found.switches.read, before)

    def _switch(self, changes: IndexTransaction, read: ReadFile | None, before: BuiltIn) -> None:
        if read is not None and read.reason is not None:
            known = changes.switches() not in (None, UNKNOWN)
            changes.put_broken(OVERLAY, read.stamp, f"{read.reason}; {AS_BEFORE if known else ALL_OFF}")
            changes.built_in(before, others=None if known else UNKNOWN)
            return
        changes.drop(OVERLAY)
        overlay = read.content if read is not None and isinstance(read.content, Overlay) else Overlay()
        changes.built_in(overlay.over(self._built_in), others=switches_text(overlay))

    def _put_all(self, changes: IndexTransaction, found: FolderChanges, reads: list[ReadFile]) -> None:
        """Two passes: two files may have swapped their contents."""
        reads = sorted(reads, key=lambda read: (read.path.count("/"), not _is_usual(read), read.path))
        heads = self._put_each(changes, (read for read in reads if not is_tool(read.path)))
        tools = self._put_new(changes, [read for read in reads if is_tool(read.path)])
        refused = heads + self._put_each(changes, tools)
        if all(self._is_known(found, read, taken) for read, taken in refused):
            return
        for read, _ in refused:
            changes.drop(read.path)
        for read, _ in refused:
            taken = self._put(changes, read)
            if taken is not None:
                self._put(changes, read._replace(content=None, reason=_clash_reason(read, taken)))
                if isinstance(read.content, Bundle):
                    self._set_aside(changes, found, folder_of(read.path))

    def _put_new(self, changes: IndexTransaction, reads: list[ReadFile]) -> list[ReadFile]:
        """Put tools all at once if no file was known before, as when the index is new. What is left has to be put one
        by one: what is no tool of use, or all where two claim the same.
        """
        if any(read.path in self._known[1] for read in reads):
            return reads
        bundles = {read.content.bundle_id for read in reads if isinstance(read.content, Tool)}
        places = {id: changes.path_of_bundle(id) for id in bundles}
        new: list[tuple[Tool, str, Stamp]] = []
        left: list[ReadFile] = []
        for read in reads:
            if isinstance(read.content, Tool) and places[read.content.bundle_id] == bundle_file(folder_of(read.path)):
                new.append((read.content, read.path, self._stamp_to_keep(read)))
            else:
                left.append(read)
        return left if changes.put_new_tools(new) else reads

    def _put_each(self, changes: IndexTransaction, reads: Iterable[ReadFile]) -> list[tuple[ReadFile, PathTakenError]]:
        """Those that are refused."""
        return [(read, taken) for read in reads if (taken := self._put(changes, read)) is not None]

    def _stamp_to_keep(self, read: ReadFile) -> Stamp:
        if _is_racy(read.stamp) and read.digest is not None:
            self._racy[read.path] = read.digest
            return read.stamp._replace(size=UNSETTLED)
        self._racy.pop(read.path, None)
        return read.stamp

    def _put(self, changes: IndexTransaction, read: ReadFile) -> PathTakenError | None:
        stamp = self._stamp_to_keep(read)
        try:
            if isinstance(read.content, Bundle):
                changes.put_bundle(read.content, read.path, stamp)
            elif isinstance(read.content, Tool) and self._is_in_its_bundle(changes, read.content, read.path):
                changes.put_tool(read.content, read.path, stamp)
            elif read.content is not None:
                changes.put_broken(read.path, stamp, NO_BUNDLE)
            else:
                changes.put_broken(read.path, stamp, read.reason or "")
        except PathTakenError as taken:
            return taken
        return None

    def _is_known(self, found: FolderChanges, read: ReadFile, taken: PathTakenError) -> bool:
        known = self._known[1].get(read.path, NO_STAMP)
        is_same = known == read.stamp or (known.size == UNSETTLED and _is_racy(read.stamp))
        return is_same and found.broken.get(read.path) == _clash_reason(read, taken)

    def _is_in_its_bundle(self, changes: IndexTransaction, tool: Tool, path: str) -> bool:
        """The folder may be a copy of that bundle's, and then that bundle is another one."""
        return changes.path_of_bundle(tool.bundle_id) == bundle_file(folder_of(path))

    def _set_aside(self, changes: IndexTransaction, found: FolderChanges, folder: str) -> None:
        for path, stamp in found.files.of(folder).items():
            if path.startswith(f"{tools_of(folder)}/"):
                changes.put_broken(path, stamp, NO_BUNDLE)

    def _is_still(self, read: ReadFile) -> bool:
        """Whether the file is as it was read: another process may have had the lock before us."""
        try:
            stamp = stamp_of(os.stat(f"{self._folder}/{read.path}", follow_symlinks=False))
        except OSError:
            return read.stamp == NO_STAMP
        return stamp == read.stamp or read.stamp == NO_STAMP


def broken_files(index: Index) -> dict[str, str]:
    """Paths and reasons."""
    return {mistake.file: mistake.message for mistake in index.mistakes() if mistake.file}


def _is_racy(stamp: Stamp) -> bool:
    return abs(time.time() - stamp.mtime_ns / 1e9) < RACY_SECONDS


def _is_usual(read: ReadFile) -> bool:
    """Whether the file has the name that we would give it; it wins over a copy."""
    thing = read.content
    return not isinstance(thing, Tool) or read.path == tool_file(folder_of(read.path), thing.slug, thing.version)


def _clash_reason(read: ReadFile, taken: PathTakenError) -> str:
    """Why the later one of two files with the same id can't be used. A copied file has the id of the original."""
    text = str(taken)
    if read.content is not None and not isinstance(read.content, Overlay) and read.content.id in text:
        return f'{text}; take the line "id" out of this file, and it gets one of its own'
    return f"{text}; give this one another name, or remove it"
