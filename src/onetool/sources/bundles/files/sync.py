"""Brings the contents of a store up to date with its folder: what people, git and other processes have changed there.

`find_changes` compares files by their stamps (mtime, size, inode), and reads only changed ones; it holds no lock.
`take_in` makes the next contents of them. A file that was written in the last moments may be written again without its
stamp changing: it gets a stamp that no file has, and so is read again the next time. A tool needs the bundle in whose
folder it lies: where that can't be used, its tools are set aside with it, unread.
"""

import errno
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from onetool.sources.bundles.contents import Contents, ContentsChange, PathTakenError
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.files import disk
from onetool.sources.bundles.files.disk import (
    BUNDLE,
    NO_STAMP,
    OVERLAY,
    TEMPORARY_ERRORS,
    FolderScan,
    Foreign,
    Stamp,
    anybody,
    bundle_file,
    folder_of,
    is_tool,
    stamp_of,
    tool_file,
)
from onetool.sources.bundles.files.form import read_bundle_file, read_tool_file
from onetool.sources.bundles.files.overlay import Overlay, UnknownOverlay, read_overlay
from onetool.sources.bundles.model import Bundle, Tool

NO_BUNDLE = "its bundle can't be used"
AS_BEFORE = "until it can be read, switches stay as they were"
ALL_OFF = "until it can be read, all packs, servers and tools of the config are switched off: it may say so of any"

ParsedContent = Bundle | Tool | Overlay


class ReadFile(NamedTuple):
    """What a file says, or the reason why that can't be used."""

    path: str
    stamp: Stamp
    content: ParsedContent | None = None
    reason: str | None = None


Stamps = Mapping[str, Mapping[str, Stamp]]
"""By folder and path."""


def read_files(folder: Path, stamps: Stamps, paths: Iterable[str]) -> Iterator[ReadFile]:
    """Read the files, bundles before their tools. `stamps` are those that the look has seen.

    Left out is what is not there any more, or can't be read for a while; and tools whose bundle is left out.
    """
    bundles: dict[str, ReadFile | None] = {}  # by folder
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        if not is_tool(path):
            read = _read_one(folder, path, stamps[folder_of(path)][path], None)
            if path.endswith(f"/{BUNDLE}"):
                bundles[folder_of(path)] = read
        else:
            name = folder_of(path)
            if name not in bundles:
                seen = stamps[name].get(bundle_file(name), NO_STAMP)
                bundles[name] = _read_one(folder, bundle_file(name), seen, None)
            bundle, stamp = bundles[name], stamps[name][path]
            if bundle is None:
                continue
            if isinstance(bundle.content, Bundle):
                read = _read_one(folder, path, stamp, bundle.content)
            else:
                read = ReadFile(path, stamp, reason=NO_BUNDLE)
        if read is not None:
            yield read


def _read_one(folder: Path, path: str, seen: Stamp, bundle: Bundle | None) -> ReadFile | None:
    try:
        data, stamp = disk.read_bytes(f"{folder}/{path}")  # a Path would take as long as opening it
    except InvalidError as error:
        return ReadFile(path, seen, reason=str(error))
    except OSError as error:
        return _unreadable(path, seen, error)
    try:
        return ReadFile(path, stamp, _whole_texts(data, _content_of(path, data, stamp, bundle)))
    except InvalidError as error:
        return ReadFile(path, stamp, reason=str(error))


def _whole_texts(data: bytes, content: ParsedContent) -> ParsedContent:
    """Refuse half a character, which only an escape can say: nothing that keeps or shows it could write it."""
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


# What has changed


class FolderChanges(NamedTuple):
    read: list[ReadFile]
    gone: list[str]
    drafts: list[str]  # what processes that were killed have left


def find_changes(
    folder: Path,
    known: Contents,
    foreign: Foreign = anybody,
    paths: Collection[str] | None = None,
    is_settled: bool = False,
) -> FolderChanges:
    """Compare the folder, or only these paths, with what is known of it.

    Files that could not be used are read again, since others may have been in their way; not if nothing has changed,
    and `is_settled`: they were read with the same contents.
    """
    scan = FolderScan(folder, foreign, paths)
    changed, gone = set[str](), list[str]()
    for name in scan.files.keys() | known.files.keys():
        before, now = known.files.get(name, {}), scan.files.get(name, {})
        changed |= {path for path, stamp in now.items() if path not in before or before[path].stamp != stamp}
        if scan.is_whole:
            gone += [path for path in before if path not in now and (paths is None or path in paths)]
    if paths is None and (changed or gone or not is_settled):
        broken = ((one.path, one.reason) for folder in known.files.values() for one in folder.values() if one.reason)
        changed |= {path for path, why in broken if why != NO_BUNDLE and path in scan.files.get(folder_of(path), {})}
    return FolderChanges([*_read_changed(folder, known, scan.files, changed)], gone, scan.drafts)


def _read_changed(folder: Path, known: Contents, files: Stamps, changed: set[str]) -> Iterator[ReadFile]:
    """Yield what has changed. Where a bundle was replaced, or became usable or unusable, its tools come as well."""
    heads = [*read_files(folder, files, (one for one in changed if not is_tool(one)))]
    yield from heads
    for head in heads:
        old = known.file(head.path)
        before = None if old is None or old.bundle is None else old.bundle.bundle.id
        now = head.content.id if isinstance(head.content, Bundle) else None
        if head.path.endswith(f"/{BUNDLE}") and before != now:
            changed |= files[folder_of(head.path)].keys()
    yield from read_files(folder, files, filter(is_tool, changed))


# Taking in


RACY_SECONDS = 2.0
UNSETTLED = -1  # as a size: what no file has


def take_in(folder: Path, change: ContentsChange, found: FolderChanges) -> None:
    """Change the contents by what was found, as far as it is still there."""
    for path in found.gone:
        if not os.path.lexists(folder / path):
            change.drop(path)
            if path == OVERLAY:
                change.put_overlay(Overlay())
    if not change.has_overlay and not os.path.lexists(folder / OVERLAY):
        change.put_overlay(Overlay())
    reads = [read for read in found.read if _is_still(folder, read)]
    for read in reads:
        if read.path == OVERLAY:
            _switch(change, read)
    _put_all(change, [read for read in reads if read.path != OVERLAY and not is_tool(read.path)])
    _put_all(change, [read for read in reads if is_tool(read.path)])


def _switch(change: ContentsChange, read: ReadFile) -> None:
    """Apply the switches. Unreadable ones stay as they were, if that is known: disabled tools stay disabled."""
    if isinstance(read.content, Overlay):
        change.keep_overlay(OVERLAY, _stamp_to_keep(read))
        change.put_overlay(read.content)
        return
    is_known = change.is_overlay_known
    change.put_broken(OVERLAY, _stamp_to_keep(read), f"{read.reason}; {AS_BEFORE if is_known else ALL_OFF}")
    if not is_known:
        change.put_overlay(UnknownOverlay())


def _put_all(change: ContentsChange, reads: list[ReadFile]) -> None:
    """Put all files, in two passes: two files may have swapped their contents."""
    reads = sorted(reads, key=lambda read: (not _is_usual(read), read.path))
    refused = [(read, taken) for read in reads if (taken := _put(change, read)) is not None]
    if all(_is_known(change, read, taken) for read, taken in refused):
        return
    for read, _ in refused:
        change.drop(read.path)
    for read, _ in refused:
        taken = _put(change, read)
        if taken is not None:
            _put(change, read._replace(content=None, reason=_clash_reason(read, taken)))


def _is_known(change: ContentsChange, read: ReadFile, taken: PathTakenError) -> bool:
    """Return whether it was refused for the same reason before."""
    known, reason = change.file(read.path), _clash_reason(read, taken)
    if known is None or known.reason != reason:
        return False
    change.put_broken(read.path, _stamp_to_keep(read), reason)
    return True


def _put(change: ContentsChange, read: ReadFile) -> PathTakenError | None:
    stamp, thing, head = _stamp_to_keep(read), read.content, bundle_file(folder_of(read.path))
    kept = change.file(head)
    try:
        if isinstance(thing, Bundle):
            change.put_bundle(thing, read.path, stamp)
        elif is_tool(read.path) and (kept is None or kept.bundle is None):
            change.put_broken(read.path, stamp, NO_BUNDLE)
        elif isinstance(thing, Tool) and change.path_of_bundle(thing.bundle_id) == head:
            change.put_tool(thing, read.path, stamp)
        else:
            change.put_broken(read.path, stamp, read.reason or NO_BUNDLE)
    except PathTakenError as taken:
        return taken
    return None


def _stamp_to_keep(read: ReadFile) -> Stamp:
    is_racy = read.stamp != NO_STAMP and abs(time.time() - read.stamp.mtime_ns / 1e9) < RACY_SECONDS
    return msgspec.structs.replace(read.stamp, size=UNSETTLED) if is_racy else read.stamp


def _is_still(folder: Path, read: ReadFile) -> bool:
    """Return whether the file is as it was read: another process may have had the lock before us."""
    try:
        stamp = stamp_of(os.stat(f"{folder}/{read.path}", follow_symlinks=False))
    except OSError:
        return read.stamp == NO_STAMP
    return stamp == read.stamp or read.stamp == NO_STAMP


def _is_usual(read: ReadFile) -> bool:
    """Return whether the file has the name that we would give it; it wins over a copy."""
    thing = read.content
    return not isinstance(thing, Tool) or read.path == tool_file(folder_of(read.path), thing.slug, thing.version)


def _clash_reason(read: ReadFile, taken: PathTakenError) -> str:
    """Return why the later of two files with one id can't be used. A copied file has the id of the original."""
    text = str(taken)
    if read.content is not None and not isinstance(read.content, Overlay) and read.content.id in text:
        return f'{text}; take the line "id" out of this file, and it gets one of its own'
    return f"{text}; give this one another name, or remove it"
