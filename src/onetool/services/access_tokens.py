"""`TokenStore`: tokens made by `onetool tokens add`, and revoked tokens, in one document.

Only hashes are stored. Tokens are long and random, so their hashes need no salt.

All processes of a state folder see a change at once. PostgreSQL notifies all replicas of a change,
and each replica also polls every second. While the database can't be reached, the last known tokens stay valid. While
the document can't be read, neither its tokens nor those of the config are accepted: any of them may be revoked.

Deleting or damaging the database grants no access. A running process remembers that tokens existed, and which were
revoked (`TokenMemory`). A new server finds the marker: an empty file in the state folder, created before the first
token or revocation is stored. Until tokens are stored again, tokens of the config are refused too, since any of them
may be revoked. Replicas that share a database always require a token.
"""

import logging
import os
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from threading import Lock
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from onetool.core.errors import OneToolError
from onetool.core.os_files import private, sync_folder
from onetool.core.principal import Principal, Rate, Role
from onetool.core.state_folders import make_home
from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError
from onetool.database.connection import with_folder
from onetool.database.documents import MAX_WAIT_S, Documents, Unknown, Version
from onetool.services.secrets import UNMISTAKABLE

log = logging.getLogger("onetool.serve")
DOCUMENT = "tokens"
MARKER = ".has-tokens"  # in the state folder
LOSS_FIX = "restore a backup with `onetool db import FILE`, or create new tokens: `onetool tokens add NAME`"
PREFIX = "ot_"
HASH = "sha256:"
RANDOM_BYTES = 32
FORMAT = 1
MAX_BYTES = 4 * 1024**2  # more than ten thousand tokens
_OWN = re.compile(rf"(?=({PREFIX}[A-Za-z0-9_-]{{43}}))")  # as made by `new_token`, whatever surrounds them
_NOT_IN_TOKENS = re.compile(r"[^A-Za-z0-9_.~+/-]+")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{16,}")  # Base64 or hexadecimal digits


class TokenStoreError(OneToolError):
    """The stored tokens can't be used or changed. Nothing was changed."""


class TokenNameError(OneToolError):
    """A token name that is taken or unknown."""


class TokenNameRevokedError(TokenNameError):
    """The name of a revoked token: a new token of that name would own the data stored for the old one."""


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """The hash and permissions of a token. Times are seconds since 1970."""

    name: str
    hash: str
    role: Role = "call"
    tools: tuple[str, ...] | None = None  # names and patterns of tools; None: all
    rate: Rate | None = None
    expires: float | None = None
    whole: bool = True
    created: float | None = None  # None: a token of the config

    @property
    def digest(self) -> bytes:
        return _digest_of(self.hash)

    @property
    def principal(self) -> Principal:
        """The principal of calls with this token. Stored data belongs to its name."""
        return Principal(
            name=self.name,
            owner=self.name,
            role=self.role,
            tools=self.tools,
            rate=self.rate,
            expires=self.expires,
            whole=self.whole,
        )

    def __repr__(self) -> str:
        return f"StoredToken({self.name!r}, {self.role!r})"


class RevokedToken(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a revoked token."""

    name: str
    at: float


class _TokenState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the document."""

    version: int = FORMAT
    tokens: tuple[StoredToken, ...] = ()
    revoked: dict[str, RevokedToken] = {}  # by hash; includes tokens of the config

    def named(self, name: str) -> StoredToken | None:
        return next((token for token in self.tokens if token.name == name), None)

    def adding(self, token: StoredToken) -> "_TokenState":
        if self.named(token.name):
            message = f"The token name {token.name} is taken; use another name, or first run: onetool tokens revoke"
            raise TokenNameError(f"{message} {token.name}; then add it with --again")
        return msgspec.structs.replace(self, tokens=(*self.tokens, token))

    def revoking(self, hash: str, name: str, at: float) -> "_TokenState":
        left = tuple(token for token in self.tokens if token.hash != hash)
        return msgspec.structs.replace(
            self, tokens=left, revoked={**self.revoked, hash: RevokedToken(name=name, at=at)}
        )

    def revoking_name(self, name: str, at: float) -> "_TokenState":
        token = self.named(name)
        if token is None:
            raise TokenNameError(f"no stored token is named {name}; see: onetool tokens list")
        return self.revoking(token.hash, name, at)

    def joining_revoked(self, other: "_TokenState") -> "_TokenState":
        revoked = {**other.revoked, **self.revoked}
        left = tuple(token for token in self.tokens if token.hash not in revoked)
        return msgspec.structs.replace(self, tokens=left, revoked=revoked)


class TokenView(NamedTuple):
    """A snapshot of the document, indexed for lookups."""

    stamp: Version
    state: _TokenState
    problem: str | None  # why no stored token is accepted
    tokens: dict[bytes, StoredToken]
    revoked: dict[bytes, RevokedToken]
    is_away: bool = False  # the database can't be reached, and nothing was read before
    loss: str | None = None  # a message for the log and commands if the document is gone
    is_lost: bool = False  # the document was gone when this process started: revoked tokens are unknown


class TokenMemory:
    """The state of the tokens that a process has seen. It stays valid if the document is deleted or replaced by an old
    copy.
    """

    def __init__(self) -> None:
        self.has_guarded = self.has_read = False
        self.logged: str | None = None  # the last logged reason why stored tokens aren't accepted
        self.revoked: dict[str, RevokedToken] = {}  # by hash

    def add(self, state: _TokenState) -> _TokenState:
        """Return the state with every revocation ever seen."""
        self.has_guarded = self.has_guarded or bool(state.tokens or state.revoked)
        if not self.revoked.keys() <= state.revoked.keys():
            state = state.joining_revoked(_TokenState(revoked=self.revoked))
        self.revoked = state.revoked
        return state


class TokenStore:
    """The tokens of one state folder, or of one PostgreSQL database."""

    def __init__(
        self,
        documents: Documents,
        clock: Callable[[], float] = time.time,
        *,
        home: Path | None = None,
        is_closed: bool = False,
        memory: TokenMemory | None = None,
    ) -> None:
        """Open the tokens of a state folder. `home` is that folder, where the marker is.

        With `is_closed`, servers require a token even if none is stored. After a reload, `memory` is the memory of the
        previous store.
        """
        self._documents = documents
        self._clock = clock
        self._home = home
        self._is_closed = is_closed
        self.memory = memory or TokenMemory()
        if home is not None and os.path.lexists(home / MARKER):
            self.memory.has_guarded = True
        self._lock = Lock()
        self._known = _known(Unknown(), self.memory.add(_TokenState()))

    @property
    def place(self) -> str:
        """The place where the tokens are stored, for messages."""
        return self._documents.place

    # For requests

    def find(self, digest: bytes) -> StoredToken | None:
        """Return the token with this SHA-256 digest; it may have expired. None if no such token is accepted."""
        return self.view().tokens.get(digest)

    @property
    def is_away(self) -> bool:
        """Whether tokens may have been added or revoked without this process knowing. Never blocks."""
        return self._documents.is_away

    @property
    def problem(self) -> str | None:
        """The reason why no stored token is accepted; None if all is well."""
        return self.view().problem

    @property
    def loss(self) -> str | None:
        """A message if the stored tokens are gone; None if they exist or never existed."""
        return self.view().loss

    @property
    def guards(self) -> bool:
        """Whether a server needs a credential because of this store. Neither revoking the last token nor deleting the
        database opens a server.
        """
        return self.guards_with(self.view())

    @property
    def has_any(self) -> bool:
        """Whether tokens are known to exist or to have existed; True if the document can't be read."""
        return self._has_any(self.view())

    def guards_with(self, view: TokenView) -> bool:
        """Return `guards` for these tokens, which were just read."""
        return self._is_closed or self._has_any(view)

    def _has_any(self, view: TokenView) -> bool:
        return bool(view.problem or view.tokens or view.revoked or self.memory.has_guarded)

    # For commands. All raise TokenStoreError.

    def list(self) -> tuple[StoredToken, ...]:
        return self._usable().state.tokens

    def named(self, name: str) -> StoredToken | None:
        return self._usable().state.named(name)

    def revoked(self) -> dict[str, RevokedToken]:
        return self._usable().state.revoked

    def add(
        self,
        name: str,
        role: Role = "call",
        tools: tuple[str, ...] | None = None,
        rate: Rate | None = None,
        expires: float | None = None,
        whole: bool = True,
    ) -> str:
        """Store a new token and return its text, which can't be read again. Raises TokenNameError for a taken name."""
        text = new_token()
        token = StoredToken(
            name=name,
            hash=token_hash(text),
            role=role,
            tools=tools,
            rate=rate,
            expires=expires,
            whole=whole,
            created=round(self._clock(), 3),
        )
        self._change(lambda state: state.adding(token))
        return text

    def revoke(self, name: str) -> None:
        """Revoke a stored token immediately, in all processes. Raises TokenNameError if the name is unknown."""
        self._change(lambda state: state.revoking_name(name, self._clock()))

    def revoke_hash(self, hash: str, name: str) -> None:
        """Revoke a token of the config."""
        self._change(lambda state: state.revoking(hash, name, self._clock()))

    # The document

    def _usable(self) -> TokenView:
        known = self.view()
        if known.problem:
            raise TokenStoreError(known.problem)
        return known

    def view(self) -> TokenView:
        """Return the current tokens. The document is read only if it has changed."""
        try:
            version = self._documents.version(DOCUMENT)
        except DatabaseError as error:
            return _refused(None, with_folder(error.what, error), is_away=True)
        known = self._known
        if known.stamp != version:
            known = self._known = self._read_anew(version)  # all at once: other threads read it
        return known

    def _read_anew(self, version: Version) -> TokenView:
        before = self._known
        try:
            version, body = self._documents.load(DOCUMENT)
            if version == before.stamp and before.problem is None:
                return before
            state = read_tokens(body)
        except (ValueError, RecursionError, DatabaseError) as error:
            is_away = isinstance(error, DatabaseError)
            problem = with_folder(error.what, error) if isinstance(error, DatabaseError) else str(self._damaged())
            self._log_once(f"no token except http.token is accepted: {problem}")
            return _refused(version, problem, is_away)
        self.memory.has_read |= body is not None
        if body is not None and self._home is not None and not self._documents.is_shared:
            with suppress(OSError):  # restores a deleted marker, or one missing from a copy of `state.db`
                make_marker(self._home)
        view = _known(version, self.memory.add(state))
        if body is not None or not self.memory.has_guarded:
            self.memory.logged = None
            return view
        loss = f"the stored tokens are lost: {self.place} no longer has any, and none of them is accepted"
        if is_lost := not self.memory.has_read:
            loss += ", nor any of http.tokens, since they may have been revoked"
        self._log_once(f"{loss} (fix: {LOSS_FIX})")
        return view._replace(loss=loss, is_lost=is_lost)

    def _log_once(self, message: str) -> None:
        if message != self.memory.logged:
            self.memory.logged = message
            log.error("%s", message)

    def _damaged(self) -> TokenStoreError:
        return TokenStoreError(f"the tokens in {self.place} are damaged, or were written by a newer version")

    def _change(self, change: Callable[[_TokenState], _TokenState]) -> None:
        """Change the document under its lock. Errors leave it unchanged, except perhaps ChangeUnknownError."""
        try:
            with self._lock, self._documents.locked(DOCUMENT, MAX_WAIT_S) as held:
                before = read_tokens(held.load().body)
                if (after := change(before)) == before:
                    return
                data = msgspec.json.encode(after)
                if len(data) > MAX_BYTES:
                    raise TokenStoreError(f"{self.place} has too many tokens: nothing was changed")
                if self._home is not None:
                    make_marker(self._home)
                held.write(data)
                self.memory.add(after)
        except (ValueError, RecursionError):
            raise self._damaged() from None
        except (DatabaseAwayError, ChangeUnknownError):
            raise
        except (OSError, DatabaseError) as error:
            why = getattr(error, "strerror", None) or error
            raise TokenStoreError(f"tokens can't be stored ({why}): nothing was changed") from error


def read_tokens(body: bytes | None) -> _TokenState:
    """Read the document. Raises ValueError or RecursionError if it is invalid."""
    if body is None:
        return _TokenState()
    state = msgspec.json.decode(body, type=_TokenState)
    digests = [token.digest for token in state.tokens] + [_digest_of(hash) for hash in state.revoked]
    if state.version != FORMAT or any(len(digest) != sha256().digest_size for digest in digests):
        raise ValueError
    return state


def count_tokens(body: bytes) -> tuple[int, int]:
    """Return the number of tokens and of revoked tokens in a document. Raises the same errors as `read_tokens`."""
    state = read_tokens(body)
    return len(state.tokens), len(state.revoked)


def join_tokens(body: bytes | None, other: bytes, *, force: bool = False) -> tuple[bytes, list[str]]:
    """Return the document with the tokens of another document added, and the names of conflicting tokens.

    Tokens revoked in either stay revoked. With `force`, tokens of the other document win conflicts.
    """
    mine, theirs = read_tokens(body), read_tokens(other)
    joined = mine.joining_revoked(theirs)
    tokens = {token.name: token for token in joined.tokens}
    conflicts: list[str] = []
    for token in theirs.joining_revoked(joined).tokens:
        if token.name in tokens and tokens[token.name] != token and not force:
            conflicts.append(token.name)
        else:
            tokens[token.name] = token
    return msgspec.json.encode(msgspec.structs.replace(joined, tokens=tuple(tokens.values()))), conflicts


def make_marker(home: Path) -> None:
    """Record, outside the database, that servers of this state folder require a credential. Raises OSError."""
    if not os.path.lexists(home / MARKER):
        make_home(home)
        os.close(private(home / MARKER, os.O_WRONLY | os.O_CREAT))
        sync_folder(home)


# Tokens and their hashes


def new_token() -> str:
    return PREFIX + token_urlsafe(RANDOM_BYTES)


def token_digest(text: str | bytes) -> bytes:
    return sha256(text.encode() if isinstance(text, str) else text).digest()


def token_hash(text: str) -> str:
    """Return the hash of a token in the form used in the config."""
    return HASH + token_digest(text).hex()


def possible_tokens(text: str) -> set[str]:
    """Return the parts of a string that may be tokens, including parts that are encoded."""
    texts = {text, unquote(text)}
    for run in {run for decoded in texts for run in _ENCODED.findall(decoded)}:
        for part in (run[start:] for start in range(4)):  # other text may precede it
            texts.add(urlsafe_b64decode(part[: len(part) - (len(part) % 4 == 1)] + "==").decode("latin-1"))
            with suppress(ValueError):
                texts.add(bytes.fromhex(part).decode("latin-1"))
    parts = (part for text in texts for part in (*text.split(), *_NOT_IN_TOKENS.split(text), *_OWN.findall(text)))
    return texts | {part for part in parts if len(part) >= UNMISTAKABLE}


def _digest_of(hash: str) -> bytes:
    return bytes.fromhex(hash.removeprefix(HASH))


# Views


def _known(stamp: Version, state: _TokenState) -> TokenView:
    tokens = {token.digest: token for token in state.tokens}
    return TokenView(stamp, state, None, tokens, {_digest_of(hash): record for hash, record in state.revoked.items()})


def _refused(stamp: Version, problem: str, is_away: bool = False) -> TokenView:
    return TokenView(stamp, _TokenState(), problem, {}, {}, is_away)
