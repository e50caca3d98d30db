"""The tables. Whoever changes them, or how texts become words, raises LAYOUT: files of another layout are made anew."""

import sqlite3
from time import time_ns

APPLICATION = 0x0B0D1E5  # says that a file is ours
LAYOUT = 2

# `no` is a tool's number in here, and nowhere else. Its JSON lies apart, so that what is scanned stays slim.
# `since`: the revision that a body was written at; another one for every other body.
# `live`: a bundle that is neither disabled nor soft-deleted. Built-in rows have no file.
# Texts in `finding` are words already: "ascii" parts them at the blanks, and takes everything else as it is.
# `heads`: the words of the names, to look inside of them. `letters`: every word that may be mistyped; it only grows.
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE bundles (
    id TEXT PRIMARY KEY, live INTEGER NOT NULL, built_in INTEGER NOT NULL, words TEXT NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE tools (
    no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, bundle TEXT NOT NULL, slug TEXT NOT NULL, version TEXT NOT NULL,
    enabled INTEGER NOT NULL, built_in INTEGER NOT NULL, age INTEGER NOT NULL, slug_key TEXT NOT NULL,
    name_key TEXT NOT NULL, heads TEXT NOT NULL, UNIQUE (bundle, slug, version)
);
CREATE INDEX tools_of_bundle ON tools (bundle, id);
CREATE INDEX tools_by_slug ON tools (slug_key);
CREATE INDEX tools_by_name ON tools (name_key);
CREATE INDEX tools_by_age ON tools (age, id);
CREATE INDEX tools_built_in ON tools (no) WHERE built_in;
CREATE TABLE bodies (no INTEGER PRIMARY KEY, body BLOB NOT NULL, since INTEGER NOT NULL);
CREATE TABLE tags (tag TEXT, id TEXT, no INTEGER NOT NULL, PRIMARY KEY (tag, id)) WITHOUT ROWID;
CREATE INDEX tags_of_tool ON tags (no);
CREATE TABLE files (
    path BLOB PRIMARY KEY, mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
    bundle TEXT, tool INTEGER, reason TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX files_of_bundles ON files (bundle) WHERE bundle IS NOT NULL;
CREATE UNIQUE INDEX files_of_tools ON files (tool) WHERE tool IS NOT NULL;
CREATE INDEX broken_files ON files (path) WHERE reason IS NOT NULL;
CREATE VIRTUAL TABLE finding USING fts5 (
    heading, tags, description, of_bundle, tokenize = 'ascii', detail = column, columnsize = 0
);
CREATE VIRTUAL TABLE found_words USING fts5vocab (finding, instance);
CREATE TABLE letters (no INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE);
"""


def create(database: sqlite3.Connection) -> None:
    """All tables, empty. The revision begins at the time: a file made anew never has a number of the one before."""
    database.executescript(f"BEGIN; {_TABLES} COMMIT;")
    database.executemany(
        "INSERT INTO meta VALUES (?, ?)", [("revision", time_ns() // 1000), ("filled", 0), ("built_in", "")]
    )
    database.execute(f"PRAGMA application_id = {APPLICATION}")
    database.execute(f"PRAGMA user_version = {LAYOUT}")


def is_ours(database: sqlite3.Connection) -> bool:
    """Whether its tables are those of today."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (layout,) = database.execute("PRAGMA user_version").fetchone()
    return (application, layout) == (APPLICATION, LAYOUT)
