"""`FileStamps`: what very many files look like, in a form that is small and quickly compared.

Of all files of a bundle's folder there is one text. Where two texts are equal, no file of that folder differs; only of
other folders single files are looked at. Both the index and a look at the folder have such texts.
"""

import sqlite3
from collections.abc import Iterator, Mapping

from onetool.sources.bundles.index.changes import Stamp
from onetool.sources.bundles.index.rows import path_out

SEPARATOR = "//"  # stands in no path
_TOP = ""  # the folder of files that are in none


class FileStamps(Mapping[str, Stamp]):
    """By their paths. Files of a folder stand in the order of their paths; another one costs time, and nothing else."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts  # by folder
        self._parsed: tuple[str | None, dict[str, Stamp]] = (None, {})

    def of(self, folder: str) -> dict[str, Stamp]:
        """Those of one folder."""
        known, stamps = self._parsed
        if known != folder:
            above = f"{folder}/" if folder else ""
            fields = iter(self.texts[folder].split(SEPARATOR) if self.texts.get(folder) else ())
            stamps = {
                f"{above}{path}": Stamp(int(mtime_ns), int(size), int(inode))
                for path, mtime_ns, size, inode in zip(fields, fields, fields, fields, strict=True)
            }
            self._parsed = folder, stamps
        return stamps

    def differing(self, other: "FileStamps") -> list[str]:
        """The folders that do not have the same files with the same stamps, or may not."""
        everything = {**self.texts, **other.texts}
        return [folder for folder in everything if self.texts.get(folder, "") != other.texts.get(folder, "")]

    def __getitem__(self, path: str) -> Stamp:
        return self.of(folder_of(path))[path]

    def __iter__(self) -> Iterator[str]:
        for folder in self.texts:
            yield from self.of(folder)

    def __len__(self) -> int:
        return sum(len(self.of(folder)) for folder in self.texts)


def folder_of(path: str) -> str:
    """What a path's files are together with: its first folder."""
    folder, slash, _ = path.partition("/")
    return folder if slash else _TOP


def stamp_text(path: str, stamp: Stamp) -> str:
    """A file in the text of its folder. `path` is relative to that."""
    return f"{path}//{stamp.mtime_ns}//{stamp.size}//{stamp.inode}"


# SQLite makes the texts, so that there are no objects of single files. "0" comes right behind "/".
_FIRST = "SELECT min(path) FROM files WHERE path >= ?"
_TEXT = """
SELECT CAST(group_concat(substr(path, ?) || '//' || mtime_ns || '//' || size || '//' ||
    CASE WHEN inode < 0 THEN printf('%llu', inode) ELSE inode END, '//') AS BLOB)
FROM files WHERE path >= ? AND path < ?
"""


def read_stamps(database: sqlite3.Connection) -> FileStamps:
    """Of all files that are known to the index."""
    texts: dict[str, str] = {}
    top = list[str]()
    begin = b""
    while (first := database.execute(_FIRST, (begin,)).fetchone()[0]) is not None:
        folder, slash, _ = first.partition(b"/")
        begin, end = (folder + b"/", folder + b"0") if slash else (first, first + b"\0")
        ((text,),) = database.execute(_TEXT, (len(begin) + 1 if slash else 1, begin, end))
        if slash:
            texts[path_out(folder)] = path_out(text)
        else:
            top.append(path_out(text))
        begin = end
    return FileStamps({_TOP: SEPARATOR.join(top), **texts})
