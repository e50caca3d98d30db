"""Files that a look finds other than they were known, read: what each says, or why it can't be used.

A tool needs the bundle in whose folder it lies. Where that can't be used, its tools are set aside with it, unread.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.files import opening
from onetool.sources.bundles.files.form import read_bundle_file, read_tool_file
from onetool.sources.bundles.files.layout import BUNDLE, OVERLAY, bundle_file, folder_of, is_tool
from onetool.sources.bundles.files.overlay import Overlay, read_overlay
from onetool.sources.bundles.files.scanning import NO_LOOK, NOWHERE
from onetool.sources.bundles.index import Stamp
from onetool.sources.bundles.model import Bundle, Tool

NO_BUNDLE = "its bundle can't be used"

Thing = Bundle | Tool | Overlay


class Read(NamedTuple):
    """What a file says, or the reason why that can't be used; and of the bytes a digest, None where none were read."""

    path: str
    stamp: Stamp
    thing: Thing | None = None
    reason: str | None = None
    digest: bytes | None = None


def read_files(folder: Path, stamps: dict[str, Stamp], paths: Iterable[str]) -> Iterator[Read]:
    """Bundles before their tools. `stamps` are those that the look has seen.

    Left out is what is not there any more, or can't be read for a while; and tools whose bundle is left out.
    """
    bundles: dict[str, Read | None] = {}  # by folder
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        if not is_tool(path):
            read = _read(folder, path, stamps[path], None)
            if path.endswith(f"/{BUNDLE}"):
                bundles[folder_of(path)] = read
        else:
            name = folder_of(path)
            if name not in bundles:
                bundles[name] = _read(folder, bundle_file(name), stamps.get(bundle_file(name), NOWHERE), None)
            read = _tool(folder, path, stamps[path], bundles[name])
        if read is not None:
            yield read


def _tool(folder: Path, path: str, stamp: Stamp, bundle: Read | None) -> Read | None:
    if bundle is None:
        return None
    if not isinstance(bundle.thing, Bundle):
        return Read(path, stamp, reason=NO_BUNDLE)
    return _read(folder, path, stamp, bundle.thing)


def _read(folder: Path, path: str, seen: Stamp, bundle: Bundle | None) -> Read | None:
    try:
        data, stamp = opening.read(folder / path)
    except Invalid as error:
        return Read(path, seen, reason=str(error))
    except OSError as error:
        return _unreadable(path, seen, error)
    digest = sha256(data).digest()
    try:
        return Read(path, stamp, _thing(path, data, stamp, bundle), digest=digest)
    except Invalid as error:
        return Read(path, stamp, reason=str(error), digest=digest)


def _thing(path: str, data: bytes, stamp: Stamp, bundle: Bundle | None) -> Thing:
    if bundle is not None:
        return read_tool_file(data, bundle.id, folder_of(path), stamp.mtime_ns)
    if path == OVERLAY:
        return read_overlay(data)
    return read_bundle_file(data, folder_of(path), stamp.mtime_ns)


def _unreadable(path: str, seen: Stamp, error: OSError) -> Read | None:
    if error.errno in NO_LOOK:
        return None  # it says nothing of the file: the next look will
    if error.errno == errno.ELOOP:
        return Read(path, seen, reason="it is a link, and links are not followed: put the file itself here")
    if isinstance(error, FileNotFoundError):
        if seen != NOWHERE:
            return None  # it has gone meanwhile: the next look sees that
        return Read(path, seen, reason="it is missing, and there are tools in its folder")
    return Read(path, seen, reason=f"it can't be read: {os.strerror(error.errno or 0)}")
