"""Bundles and tools into their tables and out of them: rows, tags, the words for the search. Knows nothing of files."""

import sqlite3
from collections.abc import Iterable

from onetool.sources.bundles.index.near import can_be_mistyped
from onetool.sources.bundles.index.rows import Texts, ToolRow, bundle_row, tool_body, tool_row
from onetool.sources.bundles.model import Bundle, Tool

_NOW = "(SELECT value FROM meta WHERE key = 'revision')"
_TOOL = ", ".join(f"{column} = ?" for column in ToolRow._fields)


class Writing:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        self._learnt: set[str] = set()  # in this transaction: of many tools most words are the same

    def bundle(self, bundle: Bundle) -> None:
        row = bundle_row(bundle)
        old = self._db.execute("SELECT words FROM bundles WHERE id = ?", (bundle.id,)).fetchone()
        self._db.execute("INSERT OR REPLACE INTO bundles VALUES (?, ?, ?, ?, ?)", row)
        if old != (row.words,):
            self._rename(bundle.id, row.words)
            self._learn((row.words,))

    def tool(self, tool: Tool, no: int | None) -> int:
        """Its number: `no`, where it takes the place of another one."""
        (row, texts), body = tool_row(tool), tool_body(tool)
        if no is None:
            no = self._db.execute("INSERT INTO tools VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row).lastrowid
            assert no is not None  # noqa: S101 - an insert has one
            self._db.execute(f"INSERT INTO bodies VALUES (?, ?, {_NOW})", (no, body))  # noqa: S608 - our own words
        else:
            self._db.execute(f"UPDATE tools SET {_TOOL} WHERE no = ?", (*row, no))  # noqa: S608 - our own words
            self._db.execute(f"UPDATE bodies SET body = ?, since = {_NOW} WHERE no = ?", (body, no))  # noqa: S608
            self._db.execute("DELETE FROM tags WHERE no = ?", (no,))
        self._db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?, ?)", [(tag, tool.id, no) for tag in tool.tags])
        self._find_by(no, tool.bundle_id, texts)
        return no

    def forget_tool(self, no: int) -> None:
        for statement in (
            "DELETE FROM tags WHERE no = ?",
            "DELETE FROM finding WHERE rowid = ?",
            "DELETE FROM bodies WHERE no = ?",
            "DELETE FROM tools WHERE no = ?",
        ):
            self._db.execute(statement, (no,))

    def forget_bundle(self, id: str) -> None:
        """Its tools stay: nobody but their own files says that they are gone."""
        self._db.execute("DELETE FROM bundles WHERE id = ?", (id,))
        self._rename(id, "")

    def forget_built_in(self) -> None:
        for (no,) in self._db.execute("SELECT no FROM tools WHERE built_in").fetchall():
            self.forget_tool(no)
        for (id,) in self._db.execute("SELECT id FROM bundles WHERE built_in").fetchall():
            self.forget_bundle(id)

    def _find_by(self, no: int, bundle_id: str, own: Texts) -> None:
        """A toggle changes none of them: then the tables of the search stay as they are."""
        bundle = self._db.execute("SELECT words FROM bundles WHERE id = ?", (bundle_id,)).fetchone()
        texts = (*own, bundle[0] if bundle else "")
        old = self._db.execute("SELECT * FROM finding WHERE rowid = ?", (no,)).fetchone()
        if texts == old:
            return
        if old is not None:
            self._db.execute("DELETE FROM finding WHERE rowid = ?", (no,))
        self._db.execute(
            "INSERT INTO finding (rowid, heading, tags, description, of_bundle) VALUES (?, ?, ?, ?, ?)", (no, *texts)
        )
        self._learn(own)

    def _rename(self, bundle_id: str, text: str) -> None:
        """Tools are found by their bundle's names, too."""
        self._db.execute(
            "UPDATE finding SET of_bundle = :text "
            "WHERE rowid IN (SELECT no FROM tools WHERE bundle = :bundle) AND of_bundle != :text",
            {"text": text, "bundle": bundle_id},
        )

    def _learn(self, texts: Iterable[str]) -> None:
        """Words that somebody may mistype."""
        new = {word for text in texts for word in text.split()} - self._learnt
        self._learnt |= new
        rows = [(word,) for word in new if can_be_mistyped(word)]
        self._db.executemany("INSERT OR IGNORE INTO letters (word) VALUES (?)", rows)
