"""Update the contents of a store with the changes made to its folder by users, git and other processes.

`find_changes` compares files by their stamps (mtime, size, inode) and reads only changed files, without a lock.
`apply_changes` applies the changes to the contents. A file that was written just now may be written again with the same
stamp, so it gets an impossible stamp and is read again next time. A tool needs the bundle of its folder: if the bundle
can't be used, its tools are recorded as broken without reading them.
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
ALL_OFF = "until it can be read, all packs, servers and tools of the config are disabled, because it may disable any"

ParsedContent = Bundle | Tool | Overlay


class ReadFile(NamedTuple):
    """The content of a file, or the reason why it can't be used."""

    path: str
    stamp: Stamp
    content: ParsedContent | None = None
    reason: str | None = None


Stamps = Mapping[str, Mapping[str, Stamp]]
"""By folder and path."""


def read_files(folder: Path, stamps: Stamps, paths: Iterable[str]) -> Iterator[ReadFile]:
    """Read the files, bundles before their tools. `stamps` are from the scan.

    Files that vanished or are temporarily unreadable are left out, as are the tools of such bundles.
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
        data, stamp = disk.read_bytes(f"{folder}/{path}")  # creating a Path would take as long as opening the file
    except InvalidError as error:
        return ReadFile(path, seen, reason=str(error))
    except OSError as error:
        return _unreadable(path, seen, error)
    try:
        if bundle is not None:
            content: ParsedContent = read_tool_file(data, bundle.id, folder_of(path), stamp.mtime_ns)
        elif path == OVERLAY:
            content = read_overlay(data)
        else:
            content = read_bundle_file(data, folder_of(path), stamp.mtime_ns)
        if b"\\ud" in data or b"\\uD" in data:
            msgspec.json.encode(content)
        return ReadFile(path, stamp, content)
    except UnicodeEncodeError:  # can't be stored or shown
        reason = "a string contains a lone surrogate (an escape such as \\ud800): remove it"
        return ReadFile(path, stamp, reason=reason)
    except InvalidError as error:
        return ReadFile(path, stamp, reason=str(error))


def _unreadable(path: str, seen: Stamp, error: OSError) -> ReadFile | None:
    if error.errno in TEMPORARY_ERRORS:
        return None  # temporary: the next scan tries again
    if error.errno == errno.ELOOP:
        return ReadFile(path, seen, reason="it is a symbolic link, which is not followed: put the file itself here")
    if isinstance(error, FileNotFoundError):
        if seen != NO_STAMP:
            return None  # removed concurrently: the next scan handles it
        return ReadFile(path, seen, reason="it is missing, and there are tools in its folder")
    return ReadFile(path, seen, reason=f"it can't be read: {os.strerror(error.errno or 0)}")


# Finding changes


class FolderChanges(NamedTuple):
    read: list[ReadFile]
    gone: list[str]
    drafts: list[str]  # left by killed processes


def find_changes(
    folder: Path,
    known: Contents,
    foreign: Foreign = anybody,
    paths: Collection[str] | None = None,
    is_settled: bool = False,
) -> FolderChanges:
    """Compare the folder, or only these paths, with the known contents.

    Unusable files are read again, because another file may have caused the problem, unless nothing has changed and
    `is_settled`, which means that the files were read with the same contents.
    """
    scan = FolderScan(folder, foreign, paths)
    changed, gone = set[str](), list[str]()
    for name in scan.files.keys() | known.files.keys():
        before, now = known.files.get(name, {}), scan.files.get(name, {})
        changed |= {path for path, stamp in now.items() if path not in before or before[path].stamp != stamp}
        if scan.is_whole:
            gone += [path for path in before if path not in now and (paths is None or path in paths)]
    if paths is None and (changed or gone or not is_settled):
        broken = [
            file.path
            for files in known.files.values()
            for file in files.values()
            if file.reason not in (None, NO_BUNDLE)
        ]
        changed |= {path for path in broken if path in scan.files.get(folder_of(path), {})}
    read = [*read_files(folder, scan.files, [path for path in changed if not is_tool(path)])]
    for file in read:
        old = known.file(file.path)
        before = None if old is None or old.bundle is None else old.bundle.bundle.id
        now = file.content.id if isinstance(file.content, Bundle) else None
        if file.path.endswith(f"/{BUNDLE}") and before != now:  # replaced, or became usable or unusable
            changed |= scan.files[folder_of(file.path)].keys()
    read += read_files(folder, scan.files, filter(is_tool, changed))
    return FolderChanges(read, gone, scan.drafts)


# Applying changes

RACY_SECONDS = 2.0
UNSETTLED = -1  # an impossible size


def apply_changes(folder: Path, change: ContentsChange, changes: FolderChanges) -> None:
    """Apply the changes to the contents, except known files that have changed again."""
    for path in changes.gone:
        if not os.path.lexists(folder / path):
            change.drop(path)
            if path == OVERLAY:
                change.put_overlay(Overlay())
    if not change.has_overlay and not os.path.lexists(folder / OVERLAY):
        change.put_overlay(Overlay())
    reads = [read for read in changes.read if _is_usable(folder, change, read)]
    for read in reads:
        if read.path != OVERLAY:
            continue
        if isinstance(read.content, Overlay):
            change.keep_overlay(OVERLAY, _stamp_to_keep(read))
            change.put_overlay(read.content)
            continue
        is_known = change.is_overlay_known  # disabled tools stay disabled
        change.put_broken(OVERLAY, _stamp_to_keep(read), f"{read.reason}; {AS_BEFORE if is_known else ALL_OFF}")
        if not is_known:
            change.put_overlay(UnknownOverlay())
    _put_all(change, [read for read in reads if read.path != OVERLAY and not is_tool(read.path)])
    _put_all(change, [read for read in reads if is_tool(read.path)])


def _put_all(change: ContentsChange, reads: list[ReadFile]) -> None:
    """Store all files, in two passes: two files may have swapped their contents."""
    reads = sorted(reads, key=lambda read: (not _has_usual_name(read), read.path))
    refused = [(read, taken) for read in reads if (taken := _put(change, read)) is not None]
    if all(_stays_refused(change, read, taken) for read, taken in refused):
        return
    for read, _ in refused:
        change.drop(read.path)
    for read, _ in refused:
        taken = _put(change, read)
        if taken is not None:
            _put(change, read._replace(content=None, reason=_clash_reason(read, taken)))


def _stays_refused(change: ContentsChange, read: ReadFile, taken: PathTakenError) -> bool:
    """Return whether the file was refused for the same reason before; if so, record the refusal again."""
    known, reason = change.file(read.path), _clash_reason(read, taken)
    if known is None or known.reason != reason:
        return False
    change.put_broken(read.path, _stamp_to_keep(read), reason)
    return True


def _put(change: ContentsChange, read: ReadFile) -> PathTakenError | None:
    stamp, content, bundle_path = _stamp_to_keep(read), read.content, bundle_file(folder_of(read.path))
    known = change.file(bundle_path)
    try:
        if isinstance(content, Bundle):
            change.put_bundle(content, read.path, stamp)
        elif is_tool(read.path) and (known is None or known.bundle is None):
            change.put_broken(read.path, stamp, NO_BUNDLE)
        elif isinstance(content, Tool) and change.path_of_bundle(content.bundle_id) == bundle_path:
            change.put_tool(content, read.path, stamp)
        else:
            change.put_broken(read.path, stamp, read.reason or NO_BUNDLE)
    except PathTakenError as taken:
        return taken
    return None


def _stamp_to_keep(read: ReadFile) -> Stamp:
    is_racy = read.stamp != NO_STAMP and abs(time.time() - read.stamp.mtime_ns / 1e9) < RACY_SECONDS
    return msgspec.structs.replace(read.stamp, size=UNSETTLED) if is_racy else read.stamp


def _is_usable(folder: Path, change: ContentsChange, read: ReadFile) -> bool:
    """Return whether the file is unchanged since it was read, or was unknown until then: another process may have had
    the lock before us, but without old content, an unknown file would be missing until the next read.
    """
    try:
        stamp = stamp_of(os.stat(f"{folder}/{read.path}", follow_symlinks=False))
    except OSError:
        return read.stamp == NO_STAMP
    return stamp == read.stamp or read.stamp == NO_STAMP or change.file(read.path) is None


def _has_usual_name(read: ReadFile) -> bool:
    """Return whether the file has the name that the store would give it, and thus wins over a copy."""
    thing = read.content
    return not isinstance(thing, Tool) or read.path == tool_file(folder_of(read.path), thing.slug, thing.version)


def _clash_reason(read: ReadFile, taken: PathTakenError) -> str:
    """Return why the second of two files with the same id, such as a copy, can't be used."""
    text = str(taken)
    if read.content is not None and not isinstance(read.content, Overlay) and read.content.id in text:
        return f'{text}; remove the line "id" from this file to give it a new id'
    return f"{text}; give this one another name, or remove it"
