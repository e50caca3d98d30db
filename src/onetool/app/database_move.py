"""Moves the state of a home into the database, and back: `onetool db import` and `export`.

`STORES`, at the end, is the table of all that can be moved. A store is one line there, with the files of a home that it
stands for and its StoreMover. Bundles and small documents have theirs here, the others beside their store.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from onetool.app import bundles
from onetool.app.access import token_key_file
from onetool.app.bundle_runtime import foreign_file
from onetool.app.documents import DocumentKind, documents_in
from onetool.config.file_checks import STATE
from onetool.core.errors import OneToolError
from onetool.core.os_files import UnsafeFileError
from onetool.core.state_folders import make_state_folder
from onetool.database import Database, DatabaseError
from onetool.database.documents import HeldDocument
from onetool.database.encryption import SealError
from onetool.database.file_documents import FileDocuments
from onetool.database.moving import LeftBehind, Moved, MoveOptions, StoreMover
from onetool.http.login import StoredLogin, login_documents
from onetool.services import access_tokens
from onetool.services.access_tokens import TokenFileError, TokenStore
from onetool.services.page_sessions import read_session_state
from onetool.sources.bundles.database import DatabaseStore
from onetool.sources.bundles.editing import OwnLists, own_documents
from onetool.sources.bundles.errors import BundleError
from onetool.sources.bundles.files.store import FileStore
from onetool.sources.bundles.rules import MOST_TOOLS, StoreRules
from onetool.sources.bundles.transfer import export_bundles, import_bundles
from onetool.sources.mcp_servers.server_cache import CachedServer, server_documents

Tell = Callable[[str, int, int], None]  # the store, how many are done, of how many
PATIENCE_S = 10.0  # for replicas that change the same document
OTHER = "something else is in the database under this name"


class MoveError(OneToolError):
    """Nothing was moved."""


class MovableStore(msgspec.Struct, frozen=True):
    name: str
    files: tuple[str, ...]  # of a home
    mover: StoreMover


def count_stores(database: Database) -> dict[str, int]:
    """How many rows each store has in the database."""
    return {store.name: store.mover.count(database) for store in STORES}


def import_home(home: Path, database: Database, options: MoveOptions, tell: Tell) -> Iterator[tuple[str, Moved]]:
    """Copy all that a home has into the database, store by store. What nobody moves is told, too."""
    for store in STORES:
        yield store.name, store.mover.import_folder(home, database, _telling(options, store.name, tell))
    known = {file for store in STORES for file in store.files}
    for name in STATE:
        if name not in known and "/" not in name and (home / name).exists():
            yield name, Moved(left=(LeftBehind(str(home / name), "this version has no way to move it"),))


def export_home(database: Database, home: Path, options: MoveOptions, tell: Tell) -> Iterator[tuple[str, Moved]]:
    """Copy all that the database has into an empty folder, which is a home then. Raises MoveError for another one."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_empty = not any(home.iterdir())
        if is_empty:
            make_state_folder(home)  # before the first file is in it
    except OSError as error:
        raise MoveError(f"{home} can't be used: {error.strerror or error}") from None
    if not is_empty:
        raise MoveError(f"{home} is not empty: name a folder that is, or that is not there yet")
    for store in STORES:
        try:
            moved = store.mover.export_folder(database, home, _telling(options, store.name, tell))
        except OSError as error:
            raise MoveError(f"{error.filename or home} can't be written: {error.strerror or error}") from None
        yield store.name, moved


def _telling(options: MoveOptions, name: str, tell: Tell) -> MoveOptions:
    return msgspec.structs.replace(options, progress=lambda done, total: tell(name, done, total))


# Bundles


class BundleMover:
    """Bundles. The index of neither side is moved: each makes its own."""

    def count(self, database: Database) -> int:
        return database.read(lambda work: work.execute("SELECT count(*) FROM bundles")[0][0])

    def import_folder(self, home: Path, database: Database, options: MoveOptions) -> Moved:
        """Files that others could have written are left, as they are never used."""
        if not (home / bundles.FOLDER).is_dir():
            return Moved()
        target = DatabaseStore(database, max_tools=_most_tools(options))
        return _move_bundles(_bundle_files(home, options), target, options, str(home / bundles.FOLDER))

    def export_folder(self, database: Database, home: Path, options: MoveOptions) -> Moved:
        return _move_bundles(DatabaseStore(database), _bundle_files(home, options), options, "bundles in the database")


def _bundle_files(home: Path, options: MoveOptions) -> FileStore:
    return FileStore(home / bundles.FOLDER, max_tools=_most_tools(options), foreign=foreign_file)


def _most_tools(options: MoveOptions) -> int:
    return MOST_TOOLS if options.config is None else options.config.bundles.max_tools


def _move_bundles(source: StoreRules, target: StoreRules, options: MoveOptions, place: str) -> Moved:
    with closing(source), closing(target):
        try:
            return import_bundles(target, export_bundles(source), options.force, options.progress)
        except BundleError as error:
            if isinstance(error.__cause__, DatabaseError):  # it is told for all stores in one way
                raise error.__cause__ from None
            return Moved(left=(LeftBehind(place, str(error)),))


# Documents, which are small things: see `app/documents.py`. What is encrypted in the database is plain in a folder, and
# private there. Tokens go through their store, which knows the seal of a project's folder, and never lets in again what
# was revoked.


class Joined(NamedTuple):
    """What becomes of a document that is there already. With a `problem` a part of it was left."""

    body: bytes
    problem: str | None = None


class DocumentMover:
    """The documents of one kind. `check` raises for a body that nobody could use; `join` makes one of two."""

    def __init__(
        self,
        kind: DocumentKind,
        files: Callable[[Path], FileDocuments],
        check: Callable[[bytes], object],
        join: Callable[[bytes, bytes, bool], Joined] | None = None,
    ) -> None:
        self._kind: DocumentKind = kind
        self._files = files
        self._check = check
        self._join = join or _whole

    def count(self, database: Database) -> int:
        sql = "SELECT count(*) FROM documents WHERE kind = %s"
        return database.read(lambda work: work.execute(sql, (self._kind,))[0][0])

    def import_folder(self, home: Path, database: Database, options: MoveOptions) -> Moved:
        files, target = self._files(home), documents_in(database, self._kind, options.config, "never")
        found = files.keys()
        keys = [key for key in found if self._kind != "servers" or "." not in key]  # logins lie beside servers
        done = Moved()
        for number, key in enumerate(keys, 1):
            try:
                body = files.read(key) or b""
                self._check(body)
                with target.locked(key, PATIENCE_S) as held:
                    one = self._put(held, body, options.force, files.describe(key))
            except (OSError, ValueError, RecursionError) as error:
                one = Moved(left=(LeftBehind(files.describe(key), _why(error)),))
            done = _sum(done, one)
            options.progress(number, len(keys))
        return done

    def _put(self, held: HeldDocument, body: bytes, force: bool, what: str) -> Moved:
        try:
            before = held.load().body
            joined = Joined(body) if before is None else self._join(before, body, force)
        except SealError as error:  # nobody here can read it
            if not force:
                return Moved(left=(LeftBehind(what, str(error), is_conflict=True),))
            before, joined = None, Joined(body)
        left = () if joined.problem is None else (LeftBehind(what, joined.problem, is_conflict=True),)
        if joined.body == before:
            return Moved(0, 0 if left else 1, left)
        held.write(joined.body)
        return Moved(1, 0, left)

    def export_folder(self, database: Database, home: Path, options: MoveOptions) -> Moved:
        files, source = self._files(home), documents_in(database, self._kind, options.config, "never")
        keys, moved, left = source.keys(), 0, list[LeftBehind]()
        for number, key in enumerate(keys, 1):
            try:
                body = source.read(key)
                if body is not None:
                    files.write(_safe(key), body)
                    moved += 1
            except (SealError, ValueError) as error:
                left.append(LeftBehind(source.describe(key), str(error)))
            options.progress(number, len(keys))
        return Moved(moved, 0, tuple(left))


def _safe(key: str) -> str:
    """The name of a file; whoever can write the database could name another one. Raises ValueError."""
    if not key or key.startswith(".") or any(sign in key for sign in "/\\\0"):
        raise ValueError("its name is not one of a file")
    return key


def _why(error: Exception) -> str:
    if isinstance(error, UnsafeFileError):
        return error.why
    return f"it can't be read: {error.strerror or error}" if isinstance(error, OSError) else "it is damaged"


def _sum(one: Moved, other: Moved) -> Moved:
    return Moved(one.moved + other.moved, one.same + other.same, (*one.left, *other.left))


class TokenMover:
    """Tokens by their hashes, and what was revoked."""

    def count(self, database: Database) -> int:
        """Of documents: how many tokens they have is sealed."""
        sql = "SELECT count(*) FROM documents WHERE kind = 'tokens'"
        return database.read(lambda work: work.execute(sql)[0][0])

    def import_folder(self, home: Path, database: Database, options: MoveOptions) -> Moved:
        return self._moved(_token_file(home, options), _token_row(database, options), options.force)

    def export_folder(self, database: Database, home: Path, options: MoveOptions) -> Moved:
        return self._moved(_token_row(database, options), _token_file(home, options), options.force)

    def _moved(self, source: TokenStore, target: TokenStore, force: bool) -> Moved:
        try:
            return target.take_in(source, force)
        except (TokenFileError, SealError) as error:
            return Moved(left=(LeftBehind(source.where, str(error)),))


def _token_file(home: Path, options: MoveOptions) -> TokenStore:
    return TokenStore(home / access_tokens.FOLDER, key_file=token_key_file(options.config))


def _token_row(database: Database, options: MoveOptions) -> TokenStore:
    return TokenStore(documents_in(database, "tokens", options.config, "never"))


# What is there already


def _whole(before: bytes, body: bytes, force: bool) -> Joined:
    """One of both, as a whole."""
    return Joined(body) if force or before == body else Joined(before, OTHER)


def _join_examples(before: bytes, body: bytes, force: bool) -> Joined:
    """Tool by tool."""
    there, new = (msgspec.json.decode(one, type=OwnLists) for one in (before, body))
    if all(there.get(tool) == examples for tool, examples in new.items()):
        return Joined(before)
    differ = [tool for tool, examples in new.items() if there.get(tool, examples) != examples]
    joined = msgspec.json.encode({**there, **new} if force else {**new, **there})
    return Joined(joined, None if force or not differ else f"the database has other examples of {', '.join(differ)}")


def _join_sessions(before: bytes, body: bytes, force: bool) -> Joined:
    """With the same key, what was ended in one of them stays ended."""
    there, new = read_session_state(before), read_session_state(body)
    if there is None or new is None or there.key != new.key:
        return _whole(before, body, force)
    joined = there.joining(new, time.time())
    return Joined(before if joined == there.joining(there, time.time()) else msgspec.json.encode(joined))


def _check_sessions(body: bytes) -> None:
    if read_session_state(body) is None:
        raise ValueError


# The documents of each kind


def _decodes(form: Any) -> Callable[[bytes], object]:
    return msgspec.json.Decoder(form).decode


def _login_files(home: Path) -> FileDocuments:
    found = login_documents(home / "servers")
    assert isinstance(found, FileDocuments)  # noqa: S101 - of a folder
    return found


_SERVERS = DocumentMover("servers", lambda home: server_documents(home / "servers"), _decodes(CachedServer))
_LOGINS = DocumentMover("logins", _login_files, _decodes(StoredLogin))
_OWN_EXAMPLES = DocumentMover(
    "own_examples", lambda home: own_documents(home / "own_examples"), _decodes(OwnLists), _join_examples
)
_PAGE_SESSIONS = DocumentMover(
    "page_sessions", lambda home: FileDocuments(home / "page_sessions"), _check_sessions, _join_sessions
)

# `database` has the index of the bundles in the database, which each machine makes for itself.
STORES: tuple[MovableStore, ...] = (
    MovableStore("bundles", ("bundles", "database"), BundleMover()),
    MovableStore("servers", ("servers",), _SERVERS),
    MovableStore("logins", ("servers",), _LOGINS),
    MovableStore("tokens", ("access_tokens",), TokenMover()),
    MovableStore("own_examples", ("own_examples",), _OWN_EXAMPLES),
    MovableStore("page_sessions", ("page_sessions",), _PAGE_SESSIONS),
)
