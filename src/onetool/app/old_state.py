"""Imports state files of older versions: tokens, sessions of the page, callers' examples, and the tools and logins of
MCP servers. Only this module reads those files.

All of them are stored in `state.db` in one transaction, and then renamed. A damaged file, or a file that other users
could have written, stays in place, and every start logs it. While the file of tokens exists, no stored token is valid.
While any file of a server exists, unknown pinned servers wait for approval.
"""

import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onetool.app.documents import documents_in
from onetool.config.find import own_folder
from onetool.core.errors import OneToolError
from onetool.core.flock import key_in
from onetool.core.os_files import UnsafeFileError, read_private
from onetool.database.connection import DatabaseError
from onetool.database.documents import MAX_WAIT_S, Documents, read_row, write_row
from onetool.services import access_tokens, page_sessions
from onetool.services.access_tokens import join_revoked, make_marker

if TYPE_CHECKING:
    from onetool.app.documents import DocumentKind
    from onetool.config import Config
    from onetool.database import Transaction
    from onetool.database.sqlite import SqliteDatabase

SUFFIX = ".before-state-db"
TOKENS = "access_tokens/tokens.json"
KEY_FILE = "tokens.key"  # in the user's own folder; it signed the tokens of projects
FOLDERS: "dict[str, DocumentKind]" = {
    "access_tokens": "tokens",
    "page_sessions": "page_sessions",
    "own_examples": "own_examples",
}
MAX_BYTES = 4 * 1024**2

log = logging.getLogger("onetool.database")


class OldFile(NamedTuple):
    kind: "DocumentKind"
    file: Path
    name: str  # of the file, without its suffix


class OldFileError(OneToolError):
    """An old file that can't be imported."""


def old_files(home: Path) -> list[OldFile]:
    """Return the files that are not imported yet."""
    found: list[OldFile] = []
    for folder in (*FOLDERS, "servers"):
        names: list[str] = []
        with suppress(OSError):
            names = os.listdir(home / folder)
        for name in sorted(name for name in names if name.endswith(".json") and not name.startswith(".")):
            end = ".auth.json" if folder == "servers" and name.endswith(".auth.json") else ".json"
            kind = FOLDERS.get(folder) or ("servers" if end == ".json" else "logins")
            found.append(OldFile(kind, home / folder / name, name.removesuffix(end)))
    return found


def tokens_problem(config: "Config") -> str | None:
    """Return why no stored token is valid; None if the old file of tokens has been imported."""
    file = config.home / TOKENS
    if not os.path.lexists(file):
        return None
    try:
        _body(OldFile("tokens", file, "tokens"), config)
    except OldFileError as error:
        return str(error)
    return f"{file} could not be imported into state.db: see the log"


def import_old_files(database: "SqliteDatabase", config: "Config") -> None:
    """Store the old files in the database and rename them. Files that can't be imported are logged."""
    try:
        with Documents(database, "tokens").locked("old files", MAX_WAIT_S):
            rows: list[tuple[OldFile, str, bytes]] = []
            for one in old_files(config.home):
                try:
                    rows.append((one, *_body(one, config)))
                except OldFileError as error:
                    database.is_incomplete |= one.kind == "servers"
                    log.error("%s", error)
            if any(one.kind == "tokens" for one, _, _ in rows):
                make_marker(config.home)
            if rows:
                database.write(lambda work: _store(work, rows, database, config), durable=True)
            for one, _, _ in rows:
                os.replace(one.file, one.file.with_name(one.file.name + SUFFIX))
    except (OSError, DatabaseError) as error:
        database.is_incomplete = True
        log.error("the state of an older version can't be imported from %s: %s", config.home, error)
    else:
        if rows:
            log.warning("%d files of an older version were imported into %s", len(rows), database.describe())


def _store(
    work: "Transaction", rows: list[tuple[OldFile, str, bytes]], database: "SqliteDatabase", config: "Config"
) -> None:
    """Store missing documents, and revoke existing tokens that the file revokes."""
    for one, key, body in rows:
        documents = documents_in(database, one.kind, config)
        before = documents.unsealed(key, read_row(work, (one.kind, key)).body)
        if before is not None and one.kind != "tokens":
            continue
        joined = body if before is None else join_revoked(before, body)
        write_row(work, one.kind, key, documents.sealed(key, joined), database.clock)


def _body(one: OldFile, config: "Config") -> tuple[str, bytes]:
    """Return the key and the body of the document. Raises OldFileError."""
    import msgspec

    from onetool.http.login import StoredLogin
    from onetool.sources.bundles.editing import OwnLists
    from onetool.sources.mcp_servers.server_cache import CachedServer, cache_key

    if not one.name.isprintable():  # databases and logs need valid UTF-8
        raise OldFileError(f"{one.file.parent}: {one.name!a} was not imported: rename or delete this file")
    try:
        body = read_private(one.file, MAX_BYTES + 1) or b""
        if len(body) > MAX_BYTES:
            raise OldFileError(f"{one.file} was not imported: it has more than {MAX_BYTES:,} bytes")
        match one.kind:
            case "tokens":
                body = _unsealed(one.file, body, config)
                access_tokens.read_tokens(body)
            case "page_sessions":
                if page_sessions.read_session_state(body) is None:
                    raise ValueError
            case "servers":
                return cache_key(one.name, msgspec.json.decode(body, type=CachedServer).server), body
            case "logins":
                msgspec.json.decode(body, type=StoredLogin)
            case _:
                msgspec.json.decode(body, type=OwnLists)
        return one.name, body
    except UnsafeFileError as error:
        raise OldFileError(f"{one.file} was not imported: {error.why}; {error.hint or 'fix or delete it'}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise OldFileError(f"{one.file} was not imported: it is damaged; delete it") from None


def _unsealed(file: Path, body: bytes, config: "Config") -> bytes:
    """Remove the signature of a project's folder from tokens. Raises OldFileError, UnsafeFileError."""
    import hmac  # loads OpenSSL, which commands without old files don't need

    seal, _, rest = body.partition(b"\n")
    is_sealed = re.fullmatch(rb"[0-9a-f]{64}", seal) is not None
    if not (is_sealed or config.is_home_in_project):
        return body
    key = key_in(own_folder() / KEY_FILE)
    mac = hmac.digest(key, b"tokens of a project:" + rest, "sha256").hex().encode()
    if not key or not is_sealed or not hmac.compare_digest(seal, mac):
        raise OldFileError(f"{file} was not imported: it was not written by this user's `onetool tokens`; delete it")
    return rest
