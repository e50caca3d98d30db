"""State folders, and the marker that closes them to tools.

State contains sessions, hashes of tokens and keys: a caller who can read it can sign in. So each folder that contains
only state has a file `.onetool-state`, which also protects exports, copies and second mounts. The marker is created
before the first file. `services/file_access` opens nothing in such a folder.

A folder with both state and other files has no marker. There, each state folder has its own marker, and state files are
recognised by name if the folder contains a state folder or another such file.
"""

import os
from contextlib import suppress
from pathlib import Path

from onetool.core.os_files import OpenFolder

MARKER = ".onetool-state"
MARKER_TEXT = b"OneTool keeps its state in this folder. Because of this file, tools can't open anything in it.\n"
IGNORE = ".gitignore"
# Entries for .gitignore in a project's .onetool: generated and private files.
IGNORED = (
    ".onetool-state\n.has-tokens\nstate.db*\nstats.db*\nresults/\nsessions/\nservers/\nrun_history\nchat_history\n"
    "open-page.html\nsecrets.yaml\n.secrets.yaml.*\n.*.lock\n__pycache__/\n"
)

# Some of these names only protect the state of versions before 0.1.0.
STATE_FOLDERS = (
    *("results", "sessions", "access_tokens", "page_sessions", "own_examples", "servers", "audit", "database"),
    "bundles/.state",
)
STATE_FILE = "state.db"
PAGE_FILE = "open-page.html"  # opens the web page in a browser, with the key of a link
STATE_FILES = (STATE_FILE, ".has-tokens", "stats.db", "run_history", "chat_history", PAGE_FILE)
CONFIG_FILES = ("onetool.yaml", "secrets.yaml", "trust.json", "tokens.key", "database.key")


def make_state_folder(folder: Path) -> None:
    """Create a state folder, or mark an existing one. Raises OSError."""
    if not is_marked(folder):
        if folder.name in STATE_FOLDERS:
            make_home(folder.parent)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with OpenFolder.at(folder, follow=False) as opened:
            mark_folder(opened)


def mark_folder(folder: OpenFolder) -> None:
    """Close a folder to tools, to other users, and to git. Raises OSError."""
    if folder.status().st_mode & 0o077:
        os.fchmod(folder.fileno(), 0o700)
    with suppress(FileNotFoundError):
        folder.stat(MARKER)
        return
    _write_new(folder, IGNORE, b"*\n")
    _write_new(folder, MARKER, MARKER_TEXT)


def _write_new(folder: OpenFolder, name: str, text: bytes) -> None:
    file = folder.open(name, os.O_WRONLY | os.O_CREAT)
    try:
        if os.fstat(file).st_size == 0:  # new, or left empty by a crash
            os.write(file, text)
    finally:
        os.close(file)


def make_home(home: Path) -> None:
    """Create the top folder of all state. Mark it unless it contains other files.

    Raises OSError. The folder gets no .gitignore and keeps its mode, because users may put a config there later.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_marked(home):
        return
    folders, files = {"bundles", IGNORE, *STATE_FOLDERS}, (*STATE_FILES, "secrets.yaml")
    if all(name in folders or is_name_of(name, files) for name in os.listdir(home)):
        with OpenFolder.at(home) as opened:
            _write_new(opened, MARKER, MARKER_TEXT)


def mark_home(home: Path) -> None:
    """Mark state folders that were created before markers existed. Ignore folders that can't be written to."""
    with suppress(OSError):
        if home.is_dir():
            make_home(home)
        for folder in (home / name for name in STATE_FOLDERS):
            if (folder / IGNORE).exists():  # else the folder may belong to the project
                make_state_folder(folder)


def is_marked(folder: str | Path) -> bool:
    return os.path.lexists(os.path.join(folder, MARKER))


def is_state_file(path: str) -> bool:
    """Return whether a name is that of a state, config, secrets or key file, and the folder has another such file."""
    folder, name = os.path.split(path)
    names = (*STATE_FILES, *CONFIG_FILES)
    if not is_name_of(name, names):
        return False
    others = (other for other in names if not is_name_of(name, (other,)))
    return (
        any(os.path.lexists(os.path.join(folder, other)) for other in others)
        or any(is_marked(os.path.join(folder, other)) for other in STATE_FOLDERS)
        # stores of logins and tokens in a state.db have such a lock file
        or (is_name_of(name, ("state.db",)) and any(Path(folder).glob(".state.db.*.lock")))
        # `database` may belong to the project: each index in it has a marker
        or any(Path(folder, "database").glob(f"*/{MARKER}"))
    )


def is_name_of(name: str, files: tuple[str, ...]) -> bool:
    """Return whether a name is one of these names or derived from one: `stats.db-wal`, `.secrets.yaml.lock`."""
    name = name.lower()
    for file in map(str.lower, files):
        longer = tuple(f"{file}{sign}" for sign in "-.~")
        if name == file or name.startswith(longer) or name.removeprefix(".").startswith(longer):
            return True
    return False
