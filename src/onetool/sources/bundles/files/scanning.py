"""What lies in the folder, without reading any of it: the stamp of every file that should be one of ours.

Names that begin with a dot are nobody's business; those of drafts are told, to be cleared. Whatever else people keep in
there (a README, a folder of git) is left alone.
"""

import errno
import os
from pathlib import Path

from onetool.sources.bundles.files.layout import BUNDLE, DRAFT, OVERLAY, TOOLS
from onetool.sources.bundles.index import Stamp

NOWHERE = Stamp(0, 0, 0)  # of what should be there, or can't be looked at
# These say nothing of the files: a look that met one is not taken for "they are gone".
NO_LOOK = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR))

Entry = os.DirEntry[str]


class Scan:
    """`is_whole` is false when something could not be looked at for a while; then nothing is said to be gone."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, Stamp] = {}
        self.drafts: list[str] = []
        self.is_whole = True
        self._root = str(folder)
        for entry in self._entries(""):
            if entry.name == OVERLAY:
                self._add(OVERLAY, entry)
            elif entry.is_dir(follow_symlinks=False):
                self._bundle(entry.name)
            elif entry.is_symlink() and os.path.isdir(entry.path):
                self._add(entry.name, entry)  # refused when it is read

    def _bundle(self, folder: str) -> None:
        file = f"{folder}/{BUNDLE}"
        for entry in self._entries(folder):
            if entry.name == BUNDLE:
                self._add(file, entry)
            elif entry.name == TOOLS and entry.is_symlink():
                self._add(f"{folder}/{TOOLS}", entry)  # refused when it is read
            elif entry.name == TOOLS and self._tools(f"{folder}/{TOOLS}"):
                self.files.setdefault(file, NOWHERE)  # tools without a bundle: that it is missing is told

    def _tools(self, folder: str) -> bool:
        """Whether there are any."""
        before, files, new = len(self.files), self.files, tuple.__new__  # there may be very many: each step counts
        for entry in self._entries(folder):
            name = entry.name
            if name.endswith(".json"):
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError as error:
                    self._skip(f"{folder}/{name}", error)
                else:
                    files[f"{folder}/{name}"] = new(Stamp, (status.st_mtime_ns, status.st_size, status.st_ino))
        return len(files) > before

    def _add(self, path: str, entry: Entry) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            self._skip(path, error)
        else:
            self.files[path] = Stamp(status.st_mtime_ns, status.st_size, status.st_ino)

    def _entries(self, folder: str) -> list[Entry]:
        try:
            with os.scandir(f"{self._root}/{folder}" if folder else self._root) as entries:
                found = list(entries)
        except OSError as error:
            self._skip(folder, error)
            return []
        ours = [entry for entry in found if not entry.name.startswith(".")]
        if len(ours) != len(found):
            above = f"{folder}/" if folder else ""
            self.drafts += [f"{above}{entry.name}" for entry in found if entry.name.startswith(DRAFT)]
        return ours

    def _skip(self, path: str, error: OSError) -> None:
        """What has gone meanwhile is gone. What we may not look at is told when it is read."""
        if error.errno in NO_LOOK or not path:
            self.is_whole = False
        elif not isinstance(error, FileNotFoundError):
            self.files[path] = NOWHERE
