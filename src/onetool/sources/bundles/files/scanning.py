"""What lies in the folder, without reading any of it: the stamp of every file that should be one of ours.

Names that begin with a dot are nobody's business; those of drafts are told, to be cleared. Whatever else people keep in
there (a README, a folder of git) is left alone.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from onetool.core.errors import Mistake
from onetool.sources.bundles.errors import Unavailable
from onetool.sources.bundles.files.layout import BUNDLE, DRAFT, OVERLAY, STATE, TOOLS
from onetool.sources.bundles.index import Stamp

NOWHERE = Stamp(0, 0, 0)  # of what should be there, or can't be looked at
# These say nothing of the files: a look that met one is not taken for "they are gone".
NO_LOOK = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR))

WRITABLE = 0o022  # by others than its owner
_EUID = os.geteuid() if hasattr(os, "geteuid") else 0

Entry = os.DirEntry[str]
Foreign = Callable[[Path], Mistake | None]
"""What is wrong with the owner of something, or with who can write it; None if it counts."""


def anybody(_: Path) -> None:
    """Whoever owns it, it counts."""


class Scan:
    """`is_whole` is false when something could not be looked at for a while; then nothing is said to be gone.

    Raises Unavailable for what is `foreign`: whoever can write a tool is whoever calls it.
    """

    def __init__(self, folder: Path, foreign: Foreign = anybody) -> None:
        self.files: dict[str, Stamp] = {}
        self.drafts: list[str] = []
        self.is_whole = True
        self._root = str(folder)
        self._foreign = foreign
        self._fine: set[tuple[str, int, int, int]] = set()
        self._check_state()
        for entry in self._entries(""):
            if entry.name == OVERLAY:
                self._add(OVERLAY, entry)
            elif entry.is_dir(follow_symlinks=False):
                self._check_folder("", entry)
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
            elif entry.name == TOOLS:
                self._check_folder(folder, entry)
                if self._tools(f"{folder}/{TOOLS}"):
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
                    if status.st_uid != _EUID or status.st_mode & WRITABLE:
                        self._check(folder, name, status)
                    files[f"{folder}/{name}"] = new(Stamp, (status.st_mtime_ns, status.st_size, status.st_ino))
        return len(files) > before

    def _add(self, path: str, entry: Entry) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            self._skip(path, error)
        else:
            self._check("", path, status)
            self.files[path] = Stamp(status.st_mtime_ns, status.st_size, status.st_ino)

    def _check_state(self) -> None:
        try:
            with os.scandir(f"{self._root}/{STATE}") as entries:
                found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
            self._check("", STATE, os.stat(f"{self._root}/{STATE}"))
        except OSError:
            return
        for name, status in found:
            self._check(STATE, name, status)

    def _check_folder(self, above: str, entry: Entry) -> None:
        with suppress(OSError):  # it has gone meanwhile
            self._check(above, entry.name, entry.stat(follow_symlinks=False))

    def _check(self, folder: str, name: str, status: os.stat_result) -> None:
        """Most are ours, and like others in their folder: only what is not is asked about."""
        like = (folder, status.st_uid, status.st_gid, status.st_mode & WRITABLE)
        if (status.st_uid != _EUID or status.st_mode & WRITABLE) and like not in self._fine:
            mistake = self._foreign(Path(self._root, folder, name))
            if mistake is not None:
                raise Unavailable(str(mistake))
            self._fine.add(like)

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
