"""Folders of state, and the marker that closes them to tools wherever they lie.

State holds sessions, hashes of tokens and keys: a caller who reads it can sign in. So each folder that holds nothing
but state has a file `.onetool-state`, also in an export, a copy or a second mount of it. The marker is made before the
first file. `services/file_access` opens nothing in such a folder.

A folder that state shares with a project has no marker: there the folders of state have one each, and the files of
state are closed by their names, if such a folder or another file of these names lies beside them.
"""

import os
from contextlib import suppress
from pathlib import Path

from onetool.core.os_files import HAS_OWNERS, OpenFolder

MARKER = ".onetool-state"
MARKER_TEXT = b"OneTool keeps its state in this folder. Because of this file, tools can't open anything in it.\n"
IGNORE = ".gitignore"
# What a project's .onetool keeps out of a repository: files that are made by running, or must stay private.
IGNORED = (
    ".onetool-state\n.has-tokens\nstate.db*\nstats.db*\nresults/\nsessions/\nservers/\nrun_history\nchat_history\n"
    "open-page.html\nsecrets.yaml\n.secrets.yaml.*\n.*.lock\n__pycache__/\n"
)

OLD_FOLDERS = ("access_tokens", "page_sessions", "own_examples", "servers")  # of before there was a database
STATE_FOLDERS = ("results", "sessions", *OLD_FOLDERS, "audit", "database", "bundles/.state")
STATE_FILE = "state.db"
PAGE_FILE = "open-page.html"  # leads a browser to the page, with the key of a link
STATE_FILES = (STATE_FILE, ".has-tokens", "stats.db", "run_history", "chat_history", PAGE_FILE)
CONFIG_FILES = ("onetool.yaml", "secrets.yaml", "trust.json", "tokens.key", "database.key")


def make_state_folder(folder: Path) -> None:
    """Make a folder for state, or mark one from before there were markers. Raises OSError."""
    if not is_marked(folder):
        if folder.name in STATE_FOLDERS:
            make_home(folder.parent)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with OpenFolder.at(folder, follow=False) as opened:
            mark_folder(opened)


def mark_folder(folder: OpenFolder) -> None:
    """Close a folder to tools, to other users, and to git. Raises OSError."""
    if HAS_OWNERS and folder.status().st_mode & 0o077:
        os.fchmod(folder.fileno(), 0o700)
    with suppress(FileNotFoundError):
        folder.stat(MARKER)
        return
    _write_new(folder, IGNORE, b"*\n")
    _write_new(folder, MARKER, MARKER_TEXT)


def _write_new(folder: OpenFolder, name: str, text: bytes) -> None:
    file = folder.open(name, os.O_WRONLY | os.O_CREAT)
    try:
        if os.fstat(file).st_size == 0:  # new, or left so by a crash
            os.write(file, text)
    finally:
        os.close(file)


def make_home(home: Path) -> None:
    """Make the folder that all state lies in; mark it unless it holds something else as well. Raises OSError.

    It gets no .gitignore, and its mode stays as it is: users may put a config there later.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_marked(home):
        return
    folders, files = {"bundles", IGNORE, *STATE_FOLDERS}, (*STATE_FILES, "secrets.yaml")
    if all(name in folders or is_name_of(name, files) for name in os.listdir(home)):
        with OpenFolder.at(home) as opened:
            _write_new(opened, MARKER, MARKER_TEXT)


def mark_home(home: Path) -> None:
    """Mark state from before there were markers. What can't be written stays as it is."""
    with suppress(OSError):
        if home.is_dir():
            make_home(home)
        for folder in (home / name for name in STATE_FOLDERS):
            if (folder / IGNORE).exists():  # else it may be the project's own
                make_state_folder(folder)


def is_marked(folder: str | Path) -> bool:
    return os.path.lexists(os.path.join(folder, MARKER))


def is_state_file(path: str) -> bool:
    """Return whether a file has a name of state, config, secrets or keys, and something else of OneTool beside it."""
    folder, name = os.path.split(path)
    names = (*STATE_FILES, *CONFIG_FILES)
    if not is_name_of(name, names):
        return False
    others = (other for other in names if not is_name_of(name, (other,)))
    return (
        any(os.path.lexists(os.path.join(folder, other)) for other in others)
        or any(is_marked(os.path.join(folder, other)) for other in STATE_FOLDERS)
        # whoever stores logins or tokens in a state.db locks them by such a file
        or (is_name_of(name, ("state.db",)) and any(Path(folder).glob(".state.db.*.lock")))
        # `database` may be the project's own folder: the indexes in it have a marker each
        or any(Path(folder, "database").glob(f"*/{MARKER}"))
    )


def is_name_of(name: str, files: tuple[str, ...]) -> bool:
    """Return whether a name is that of one of these files or derived from it: `stats.db-wal`, `.secrets.yaml.lock`."""
    name = name.lower()
    for file in map(str.lower, files):
        longer = tuple(f"{file}{sign}" for sign in "-.~")
        if name == file or name.startswith(longer) or name.removeprefix(".").startswith(longer):
            return True
    return False
