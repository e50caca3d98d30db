"""`IndexTransaction` writes bundles, tools and broken files into the index, in one transaction.

A row belongs to a path: putting replaces whatever was of that path, dropping removes it. Two paths that claim one
bundle or one tool are refused with `PathTakenError`, which names the first: look before with `path_of_…`.
"""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from onetool.sources.bundles.index.rows import (
    IndexedToolRow,
    bundle_row,
    fingerprint,
    inode_in,
    path_in,
    path_out,
    tool_row,
)
from onetool.sources.bundles.model import Bundle, Tool, pack_tool

_REVISION = "(SELECT value FROM meta WHERE key = 'revision')"
KEPT_REVISIONS = 10_000  # for which it is known what is gone
SAME = -1  # in place of the number of a tool that needs no writing
_SET_TOOL = ", ".join(f"{column} = ?" for column in IndexedToolRow._fields)


class RowWriter:
    """Writes rows of one transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        self._is_purged = False  # of what is gone for long

    def bundle(self, bundle: Bundle) -> None:
        row = bundle_row(bundle)
        self._db.execute(f"INSERT OR REPLACE INTO bundles VALUES (?, ?, ?, ?, {_REVISION})", row)  # noqa: S608 - our own words

    def tool(self, tool: Tool, no: int | None) -> int:
        """Its number: `no`, where it takes the place of another one."""
        row, body = tool_row(tool), pack_tool(tool)
        if no is None:
            no = self._db.execute("INSERT INTO tools VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", row).lastrowid
            assert no is not None  # noqa: S101 - an insert has one
            self._db.execute(f"INSERT INTO bodies VALUES (?, ?, {_REVISION})", (no, body))  # noqa: S608 - our own words
        else:
            ((id,),) = self._db.execute("SELECT id FROM tools WHERE no = ?", (no,))
            if id != tool.id:
                self._note_gone(id)
            self._db.execute(f"UPDATE tools SET {_SET_TOOL} WHERE no = ?", (*row, no))  # noqa: S608 - our own words
            self._db.execute(f"UPDATE bodies SET body = ?, since = {_REVISION} WHERE no = ?", (body, no))  # noqa: S608
            self._db.execute("DELETE FROM tags WHERE no = ?", (no,))
        self._db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?, ?)", [(tag, tool.id, no) for tag in tool.tags])
        return no

    def new_tools(self, tools: Sequence[Tool]) -> int:
        """Many at once, which takes a third of the time. The number of the first: the others follow."""
        ((first,),) = self._db.execute("SELECT coalesce(max(no), 0) + 1 FROM tools")
        numbered = list(enumerate(tools, first))
        rows = ((no, *tool_row(tool)) for no, tool in numbered)
        self._db.executemany("INSERT INTO tools VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        bodies = ((no, pack_tool(tool)) for no, tool in numbered)
        self._db.executemany(f"INSERT INTO bodies VALUES (?, ?, {_REVISION})", bodies)  # noqa: S608 - our own words
        tags = ((tag, tool.id, no) for no, tool in numbered for tag in tool.tags)
        self._db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?, ?)", tags)
        return first

    def forget_tool(self, no: int) -> None:
        ((id,),) = self._db.execute("SELECT id FROM tools WHERE no = ?", (no,))
        self._note_gone(id)
        for statement in (
            "DELETE FROM tags WHERE no = ?",
            "DELETE FROM bodies WHERE no = ?",
            "DELETE FROM tools WHERE no = ?",
        ):
            self._db.execute(statement, (no,))

    def forget_bundle(self, id: str) -> None:
        """Remove the row of a bundle. Its tools stay until their own files are gone."""
        self._db.execute("DELETE FROM bundles WHERE id = ?", (id,))
        self._note_gone(id, is_bundle=True)

    def _note_gone(self, id: str, is_bundle: bool = False) -> None:
        """For the search of this and other processes, which follows what changes."""
        self._db.execute(f"INSERT OR REPLACE INTO gone VALUES (?, ?, {_REVISION})", (id, is_bundle))  # noqa: S608
        if not self._is_purged:  # once a transaction: it looks at all that is gone
            self._db.execute(f"DELETE FROM gone WHERE since < {_REVISION} - ?", (KEPT_REVISIONS,))  # noqa: S608
            self._is_purged = True

    def forget_built_in(self, bundles: Collection[str], tools: Mapping[str, Tool]) -> dict[str, int]:
        """Forget the built-in ones but these. Of the tools that stay: their numbers, or SAME where nothing differs."""
        asked = "SELECT id, no, bundle, slug, version, body FROM tools JOIN bodies USING (no) WHERE built_in"
        numbers: dict[str, int] = {}
        for id, no, *row, body in self._db.execute(asked).fetchall():
            tool = tools.get(id)
            if tool is None or row != [tool.bundle_id, tool.slug, tool.version]:
                self.forget_tool(no)
            else:
                numbers[id] = SAME if body == pack_tool(tool) else no
        for (id,) in self._db.execute("SELECT id FROM bundles WHERE built_in").fetchall():
            if id not in bundles:
                self.forget_bundle(id)
        return numbers


# Transactions


NOTE = "note "  # how keys of notes begin
AT_ONCE = 1_000  # tools: their packed JSON is in memory until they are written
_NAMED = "bundle = ? AND slug = ? AND version = ?"


class Stamp(NamedTuple):
    """What a file looked like when it was read."""

    mtime_ns: int
    size: int
    inode: int


class PathTakenError(Exception):
    """It belongs to another file already; `path` is None where it is built-in."""

    def __init__(self, what: str, path: str | None) -> None:
        super().__init__(f"{what} is in {path or 'the built-in bundles'} already")
        self.path = path


class _IndexRow(NamedTuple):
    path: bytes | None  # none of what is built-in


class IndexTransaction:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        self._writing = RowWriter(database)

    # Writing

    def put_bundle(self, bundle: Bundle, path: str, stamp: Stamp) -> None:
        mine = path_in(path)
        _check_taken(self._bundle_row(bundle.id), mine, f"the bundle {bundle.id}")
        old = self._file(mine)
        if old is not None and old[0] != bundle.id:
            self.drop(path)
        self._writing.bundle(bundle)
        self._write_file(path, stamp, bundle=bundle.id)

    def put_tool(self, tool: Tool, path: str, stamp: Stamp) -> None:
        mine = path_in(path)
        _check_taken(self._tool_row("id = ?", tool.id), mine, f"the tool {tool.id}")
        named = self._tool_row(_NAMED, tool.bundle_id, tool.slug, tool.version)
        _check_taken(named, mine, f"the tool {tool.slug}@{tool.version}")
        old = self._file(mine)
        no = None if old is None else old[1]
        if old is not None and no is None:
            self.drop(path)
        self._write_file(path, stamp, tool=self._writing.tool(tool, no))

    def put_new_tools(self, tools: Iterable[tuple[Tool, str, Stamp]]) -> bool:
        """Those of files that are not known yet. False where one of them is taken, and then nothing is written:
        `put_tool` tells which one, and by whom.
        """
        waiting = iter(tools)
        self._db.execute("SAVEPOINT new_tools")
        try:
            while some := list(islice(waiting, AT_ONCE)):
                first = self._writing.new_tools([tool for tool, _, _ in some])
                files = ((*_file_row(path, stamp), None, no, None) for no, (_, path, stamp) in enumerate(some, first))
                self._db.executemany("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", files)
        except sqlite3.IntegrityError:
            self._db.execute("ROLLBACK TO new_tools")
            return False
        finally:
            if self._db.in_transaction:
                self._db.execute("RELEASE new_tools")
        return True

    def put_broken(self, path: str, stamp: Stamp, reason: str) -> None:
        """Store a file that can't be used, with the reason, so that it is not read again and again."""
        self.drop(path)
        self._write_file(path, stamp, reason=reason)

    def drop(self, path: str) -> bool:
        """Forget a file and what was in it; whether it was known. Tools of a bundle that is dropped stay, disabled."""
        mine = path_in(path)
        found = self._file(mine)
        if found is None:
            return False
        bundle, tool = found
        if tool is not None:
            self._writing.forget_tool(tool)
        if bundle is not None:
            self._writing.forget_bundle(bundle)
        self._db.execute("DELETE FROM files WHERE path = ?", (mine,))
        return True

    def built_in(
        self,
        bundles: Iterable[tuple[Bundle, Sequence[Tool]]],
        switches: Mapping[str, bool] | None = None,
        others: str | None = None,
    ) -> bool:
        """All built-in bundles with their tools, in place of those that were; whether that is any different.

        `switches` says of ids of both whether they are enabled. A file that claims one of the ids is broken by that.
        `others` is what `Index.switches` gives back: switches of bundles that are not in here; None keeps them.
        """
        is_other = others is not None and self._keep_switches(others)
        switches = switches or {}
        switched = [(_switch(one, switches), [_switch(tool, switches) for tool in tools]) for one, tools in bundles]
        mark = fingerprint(switched)
        if self._one("SELECT value FROM meta WHERE key = 'built_in'") == mark:
            return is_other
        numbers = self._writing.forget_built_in({one.id for one, _ in switched}, _by_id(switched))
        for bundle, tools in switched:
            self._free_path(self._bundle_row(bundle.id))
            self._writing.bundle(bundle)
            for tool in tools:
                if tool.id not in numbers:
                    self._free_path(self._tool_row("id = ?", tool.id))
                    self._free_path(self._tool_row(_NAMED, tool.bundle_id, tool.slug, tool.version))
                if (no := numbers.get(tool.id)) != SAME:
                    self._writing.tool(tool, no)
        self._db.execute("UPDATE meta SET value = ? WHERE key = 'built_in'", (mark,))
        return True

    def note(self, key: str, value: str) -> None:
        """What a store keeps beside the rows, such as how far it has followed: `noted` gives it back."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"{NOTE}{key}", value))

    # Asking

    def noted(self, key: str) -> str | None:
        return read_note(self._db, key)

    def switches(self) -> str | None:
        """What `built_in` was given as `others`; None if it was never called."""
        known = self._one("SELECT value FROM meta WHERE key = 'built_in'")
        return self._one("SELECT value FROM meta WHERE key = 'switches'") if known else None

    def path_of_bundle(self, id: str) -> str | None:
        """Its file; None where there is no such bundle, or it is built-in."""
        return _path(self._bundle_row(id))

    def path_of_tool(self, bundle_id: str, slug: str, version: str) -> str | None:
        return _path(self._tool_row(_NAMED, bundle_id, slug, version))

    def has_tool_id(self, id: str) -> bool:
        """Also of one that is built-in."""
        return self._tool_row("id = ?", id) is not None

    def count_tools(self) -> int:
        """Without the built-in ones."""
        return self._one("SELECT (SELECT count(*) FROM tools) - (SELECT count(*) FROM tools WHERE built_in)")

    # How it is done

    def _keep_switches(self, text: str) -> bool:
        asked = "UPDATE meta SET value = ? WHERE key = 'switches' AND value != ?"
        return self._db.execute(asked, (text, text)).rowcount > 0

    def _free_path(self, known: _IndexRow | None) -> None:
        if known is not None and known.path is not None:
            (row,) = self._db.execute("SELECT mtime_ns, size, inode FROM files WHERE path = ?", known)
            why = "its id or its name is that of something built-in: give it another one"
            self.put_broken(path_out(known.path), Stamp(*row), why)

    def _write_file(
        self, path: str, stamp: Stamp, bundle: str | None = None, tool: int | None = None, reason: str | None = None
    ) -> None:
        row = (*_file_row(path, stamp), bundle, tool, reason)
        self._db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def _file(self, path: bytes) -> tuple[str | None, int | None] | None:
        return self._db.execute("SELECT bundle, tool FROM files WHERE path = ?", (path,)).fetchone()

    def _bundle_row(self, id: str) -> _IndexRow | None:
        asked = "SELECT path FROM bundles LEFT JOIN files ON files.bundle = bundles.id WHERE bundles.id = ?"
        found = self._db.execute(asked, (id,)).fetchone()
        return None if found is None else _IndexRow(*found)

    def _tool_row(self, where: str, *values: str) -> _IndexRow | None:
        asked = f"SELECT path FROM (SELECT no FROM tools WHERE {where}) LEFT JOIN files ON files.tool = no"  # noqa: S608
        found = self._db.execute(asked, values).fetchone()
        return None if found is None else _IndexRow(*found)

    def _one(self, question: str, *values: Any) -> Any:
        return self._db.execute(question, values).fetchone()[0]


def read_note(database: sqlite3.Connection, key: str) -> str | None:
    found = database.execute("SELECT value FROM meta WHERE key = ?", (f"{NOTE}{key}",)).fetchone()
    return None if found is None else found[0]


def _file_row(path: str, stamp: Stamp) -> tuple[bytes, int, int, int]:
    return path_in(path), stamp.mtime_ns, stamp.size, inode_in(stamp.inode)


def _check_taken(row: _IndexRow | None, mine: bytes, what: str) -> None:
    if row is not None and row.path != mine:
        raise PathTakenError(what, _path(row))


def _path(row: _IndexRow | None) -> str | None:
    return None if row is None or row.path is None else path_out(row.path)


def _by_id(bundles: Iterable[tuple[Bundle, Sequence[Tool]]]) -> dict[str, Tool]:
    return {tool.id: tool for _, tools in bundles for tool in tools}


def _switch(thing: Any, switches: Mapping[str, bool]) -> Any:
    enabled = switches.get(thing.id, thing.is_enabled)
    return msgspec.structs.replace(thing, is_enabled=enabled, is_built_in=True)
