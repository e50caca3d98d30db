"""Files and folders of our own that no tool may touch, by whatever name or link."""

import os
from collections.abc import Iterable

from onetool.services.confined.refusals import Refused, refusals


class Private:
    """Paths of files, and of folders with all that is in them. They need not exist: nobody may make them either.

    What is read is open already: where the system tells where it lies, what is in those folders is kept back as well.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)

    def refuse(self, status: os.stat_result) -> None:
        """Refuse a file that is open, or a folder, if it is one of them."""
        if any(_is_at(status, path) for path in self._paths):
            raise Refused("private")

    def refuse_open(self, file: int) -> None:
        """Refuse what is open, if it is one of them, or in one of them."""
        self.refuse(os.fstat(file))
        where = _place_of(file) if self._paths else None
        if where and any(where.startswith(f"{os.path.realpath(path)}{os.sep}") for path in self._paths):
            raise Refused("private")

    def refuse_name(self, folder: int, name: bytes) -> None:
        """Refuse to write a name in an open folder, whether there is something or not."""
        if not self._paths:
            return
        with refusals(otherwise="not_writable"):
            for status in _ways_up(folder):
                self.refuse(status)
            here = os.stat(".", dir_fd=folder)
        for path in self._paths:
            parent, own = os.path.split(os.fsencode(os.path.abspath(path)))
            # Where upper and lower case are one, a file of the other case would be the private one.
            if own.lower() == name.lower() and _is_at(here, os.fsdecode(parent)):
                raise Refused("private")


def _is_at(status: os.stat_result, path: str) -> bool:
    try:
        return os.path.samestat(status, os.stat(path))
    except OSError:
        return False


def _place_of(file: int) -> str | None:
    """Where it lies, as the system says; None where it does not."""
    try:
        return os.readlink(f"/proc/self/fd/{file}")
    except OSError:
        return None


def _ways_up(folder: int) -> Iterable[os.stat_result]:
    """A folder, the one it is in, and so on to the top: as they really lie, not as a path with links says."""
    path, below = ".", None
    while True:
        status = os.stat(path, dir_fd=folder)
        if below is not None and os.path.samestat(status, below):
            return
        yield status
        path, below = f"{path}/..", status
