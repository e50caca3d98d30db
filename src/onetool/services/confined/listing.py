"""Listing a folder that is open, and the folders below it."""

import heapq
import os
from itertools import islice
from typing import Literal, NamedTuple

from onetool.services.confined.opening import LIST
from onetool.services.confined.paths import shown
from onetool.services.confined.private import Private
from onetool.services.confined.refusals import Refused, reason_for

MOST_SCANNED = 1_000_000  # names looked at in one folder

Kind = Literal["directory", "file", "symlink", "other"]


class Entry(NamedTuple):
    """One thing in a folder. `path` is relative to the folder that was listed; `error` a reason, as in Refused."""

    path: str
    kind: Kind
    size: int | None = None
    error: str | None = None


def list_into(entries: list[Entry], folder: int, prefix: str, depth: int, most: int, private: Private) -> None:
    for found in sorted_entries(folder, most - len(entries)):
        if len(entries) >= most:
            return
        entry = _described(found, prefix, private)
        if entry is not None and entry.kind == "directory" and entry.error is None:
            _list_folder_into(entries, entry, found.name, folder, depth - 1, most, private)
        elif entry is not None:
            entries.append(entry)


def _list_folder_into(
    entries: list[Entry], entry: Entry, name: str, parent: int, depth: int, most: int, private: Private
) -> None:
    """Add a folder, and what is in it if there is depth left. Opened in any case, to tell whether it can be."""
    at = len(entries)
    try:
        folder = os.open(name, LIST | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError as error:
        entries.append(entry._replace(error=reason_for(error)))
        return
    try:
        entries.append(entry)
        private.refuse_entry(name, os.fstat(folder))  # it may be another one than that which was described
        if depth > 0:
            list_into(entries, folder, f"{entry.path}/", depth, most, private)
    except Refused as refused:
        entries[at] = entry._replace(error=refused.reason)
    except OSError as error:
        entries[at] = entry._replace(error=reason_for(error))
    finally:
        os.close(folder)


def sorted_entries(folder: int, most: int) -> "list[os.DirEntry[str]]":
    """The first `most` by name, without holding more than those."""
    with os.scandir(folder) as scan:
        return heapq.nsmallest(most, islice(scan, MOST_SCANNED), key=lambda entry: entry.name)


def _described(found: "os.DirEntry[str]", prefix: str, private: Private) -> Entry | None:
    """What a folder's entry is; None when it has gone meanwhile. Of what is private only the name and the kind."""
    path = prefix + shown(os.fsencode(found.name))
    kind: Kind = "other"
    try:
        kind = _kind(found)
        status = found.stat(follow_symlinks=False)
        private.refuse_entry(found.name, status)
        size = status.st_size if kind == "file" else None
    except Refused as refused:
        return Entry(path, kind, error=refused.reason)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Entry(path, "other", error=reason_for(error))
    return Entry(path, kind, size)


def _kind(found: "os.DirEntry[str]") -> Kind:
    if found.is_symlink():
        return "symlink"
    if found.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if found.is_file(follow_symlinks=False) else "other"
