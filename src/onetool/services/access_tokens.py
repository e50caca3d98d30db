"""`TokenStore`: the tokens that `onetool tokens add` has made, and those that were revoked, in one document.

It is a file of the state, or a row of the database that replicas share. It holds hashes alone. A token is long and
random, so that its hash tells nobody what it is, and needs no salt.

All processes of the state folder share the file. They see by its stamp that it has changed, and so a revocation counts
at once. A change of the row is told to all replicas, and each looks every second; while the database is away, what was
known goes on to count.

Who could write the file could let himself in: it is refused if it is a link, if others can read or write it, or if it
is damaged. While it is refused, nobody is let in by it, nor by a token of the config, since nobody knows which of those
were revoked. The same holds for a database that was never reached.

Who can delete the file or the row opens nothing: a running process remembers that there were tokens, and what it has
seen revoked (`TokenMemory`). Where replicas share a database, nobody is let in without a token in any case.

The folder of a project comes from wherever the project comes from, and with it could come a file of tokens. There the
file is sealed with a key that lies in the person's own folder, and a file with another seal is refused.
"""

import hmac
import logging
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
from onetool.core.flock import key_in
from onetool.core.os_files import UnsafeFileError
from onetool.core.principal import Principal, Rate, Role
from onetool.database import DatabaseError
from onetool.database.documents import Documents, Version
from onetool.database.file_documents import FileDocuments
from onetool.database.moving import LeftBehind, Moved
from onetool.services.secrets import UNMISTAKABLE

log = logging.getLogger("onetool.serve")

FOLDER = "access_tokens"  # of the state
DOCUMENT = "tokens"  # its file is tokens.json
KEY_FILE = "tokens.key"  # in the person's own folder
PREFIX = "ot_"
HASH = "sha256:"
RANDOM_BYTES = 32
FILE_VERSION = 1
LARGEST_FILE = 4 * 1024**2  # bytes: more than ten thousand tokens
PATIENCE_S = 2.0  # to wait for another process that writes the file
_SHOWN = re.compile(rf"\b{PREFIX}[A-Za-z0-9_-]{{40,}}")  # names of tools are shorter
_OWN = re.compile(rf"(?=({PREFIX}[A-Za-z0-9_-]{{43}}))")  # as `new_token` makes them, whatever stands around them
_NOT_IN_TOKENS = re.compile(r"[^A-Za-z0-9_.~+/-]+")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{16,}")  # Base64 or hexadecimal digits


class TokenFileError(OneToolError):
    """The file of tokens can't be used or written: why, and what to do. Nothing has changed."""


class TokenNameError(OneToolError):
    """The name of a token is taken, or there is none of that name."""


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token, by its hash, and what it may do. Times are seconds since 1970."""

    name: str
    hash: str
    role: Role = "call"
    tools: tuple[str, ...] | None = None  # names and patterns of tools; None: all
    rate: Rate | None = None
    expires: float | None = None
    whole: bool = True
    created: float | None = None  # None: it stands in the config

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.hash.removeprefix(HASH))

    @property
    def principal(self) -> Principal:
        """Who calls with it. What is stored for it belongs to its name."""
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
    """What is left of a token that was revoked."""

    name: str
    at: float


_SEALED = re.compile(rb"[0-9a-f]{64}\n")
SEALED_WHY = "it is sealed for the folder of a project"
SEALED_HINT = "put it into a project's .onetool, or export again with --config and the config that is to use it"


class _TokenState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    version: int = FILE_VERSION
    tokens: tuple[StoredToken, ...] = ()
    revoked: dict[str, RevokedToken] = {}  # by hash: of the config's tokens, too

    def named(self, name: str) -> StoredToken | None:
        return next((token for token in self.tokens if token.name == name), None)

    def adding(self, token: StoredToken) -> "_TokenState":
        if self.named(token.name):
            message = f"a token is called {token.name} already; take another name, or first: onetool tokens revoke"
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
            raise TokenNameError(f"no token that was stored is called {name}; see: onetool tokens list")
        return self.revoking(token.hash, name, at)

    def joining(self, other: "_TokenState", force: bool) -> "tuple[_TokenState, Moved]":
        """With those of another one. What was revoked in one of them stays revoked."""
        revoked = {**other.revoked, **self.revoked}
        tokens = {token.name: token for token in self.tokens if token.hash not in revoked}
        moved, left = len(revoked) - len(self.revoked), list[LeftBehind]()
        for token in other.tokens:
            there = tokens.get(token.name)
            if there == token or token.hash in revoked:
                continue
            if there is not None and not force:
                left.append(LeftBehind(f"token {token.name}", "another token has this name", is_conflict=True))
                continue
            tokens[token.name] = token
            moved += 1
        same = len(other.tokens) + len(other.revoked) - moved - len(left)
        joined = msgspec.structs.replace(self, tokens=tuple(tokens.values()), revoked=revoked)
        return joined, Moved(moved, same, tuple(left))


class TokenView(NamedTuple):
    """What the file says at one moment, for fast questions."""

    stamp: Version
    state: _TokenState
    problem: str | None  # why the file is refused
    tokens: dict[bytes, StoredToken]
    revoked: dict[bytes, RevokedToken]
    is_away: bool = False  # nobody knows them yet, because the database can't be reached


class TokenMemory:
    """What a running process has seen, and what counts also after the file or the row is gone, or is an older one."""

    def __init__(self) -> None:
        self.has_guarded = False
        self.revoked: dict[str, RevokedToken] = {}  # by hash

    def add(self, state: _TokenState) -> _TokenState:
        """The state with all that was ever seen revoked."""
        self.has_guarded = self.has_guarded or bool(state.tokens or state.revoked)
        if not self.revoked.keys() <= state.revoked.keys():
            revoked = {**self.revoked, **state.revoked}
            left = tuple(token for token in state.tokens if token.hash not in revoked)
            state = msgspec.structs.replace(state, tokens=left, revoked=revoked)
        self.revoked = state.revoked
        return state


class TokenStore:
    """The tokens of one state folder, or of one database."""

    def __init__(
        self,
        place: Path | Documents,
        clock: Callable[[], float] = time.time,
        *,
        key_file: Path | None = None,
        former: "TokenStore | None" = None,
        is_closed: bool = False,
        memory: TokenMemory | None = None,
    ) -> None:
        """`place`: a folder, or where else documents are. `key_file` seals a file of tokens: for folders that may come
        from somebody else. `former` has the tokens of before there was a database: they let nobody in, and a server
        that they have closed stays closed. `is_closed`: nobody is let in without a token, though none is stored.
        `memory` is that of the store before, after a reload.
        """
        self._documents = FileDocuments(place) if isinstance(place, Path) else place
        self.file = self._documents.file(DOCUMENT) if isinstance(self._documents, FileDocuments) else None
        self.where = self._documents.describe(DOCUMENT)
        self._clock = clock
        self._key_file = key_file
        self.former = former
        self._is_closed = is_closed
        self.memory = memory or TokenMemory()
        self._lock = Lock()
        self._known = _known(None, self.memory.add(_TokenState()))

    # What a request asks

    def find(self, digest: bytes) -> StoredToken | None:
        """The token with this SHA-256 digest; it may have expired. None if there is none, or the file is refused."""
        return self.view().tokens.get(digest)

    def revocation(self, digest: bytes) -> RevokedToken | None:
        """Which token with this digest was revoked, and when."""
        return self.view().revoked.get(digest)

    def is_revoked(self, digest: bytes) -> bool:
        return digest in self.view().revoked

    @property
    def problem(self) -> str | None:
        """Why the file is refused, in words for who runs the server; None if all is well, or there is none."""
        return self.view().problem

    @property
    def guards(self) -> bool:
        """Whether a server needs a credential because of this store. Neither revoking the last token nor deleting the
        file or the row opens a door.
        """
        return self._is_closed or self.has_any

    @property
    def has_any(self) -> bool:
        """Whether there are tokens, or were, as far as is known; True if that can't be read."""
        known = self.view()
        if known.problem or known.tokens or known.revoked or self.memory.has_guarded:
            return True
        return self.former is not None and self.former.guards

    # What a person asks. All raise TokenFileError.

    def list(self) -> tuple[StoredToken, ...]:
        return self._usable().state.tokens

    def named(self, name: str) -> StoredToken | None:
        return self._usable().state.named(name)

    def revoked(self) -> dict[str, RevokedToken]:
        """By hash."""
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
        """Store a new token and return its text, which nobody can ever read again. TokenNameError if it is taken."""
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
        """Revoke a token that was stored, at once, in all processes. TokenNameError if there is none."""
        self._change(lambda state: state.revoking_name(name, self._clock()))

    def revoke_hash(self, hash: str, name: str) -> None:
        """Revoke a token of the config."""
        self._change(lambda state: state.revoking(hash, name, self._clock()))

    def take_in(self, other: "TokenStore", force: bool = False) -> Moved:
        """Add what another store has: its tokens by their hashes, and what was revoked there."""
        theirs, done = other._usable().state, Moved()

        def change(state: _TokenState) -> _TokenState:
            nonlocal done
            joined, done = state.joining(theirs, force)
            return joined

        if theirs != _TokenState():
            self._change(change)
        return done

    # The file

    def _usable(self) -> TokenView:
        known = self.view()
        if known.problem:
            raise TokenFileError(known.problem)
        return known

    def view(self) -> TokenView:
        """What is kept now. It is read only if it has changed."""
        try:
            stamp = self._documents.version(DOCUMENT)
        except OSError as error:
            return _refused(None, f"{self.where} can't be read: {error.strerror}")
        except DatabaseError as error:
            return _refused(None, str(error), is_away=True)
        known = self._known
        if known.stamp != stamp:
            known = self._known = self._read_anew(stamp)  # all at once: other threads read it
        return known

    def _read_anew(self, stamp: Version) -> TokenView:
        try:
            stamp, body = self._documents.load(DOCUMENT)
            return _known(stamp, self._remembered(body))
        except (UnsafeFileError, TokenFileError, DatabaseError) as error:
            problem = str(_unsafe(self.where, error) if isinstance(error, UnsafeFileError) else error)
            if problem != self._known.problem:
                log.error("no token is accepted but http.token: %s", problem)
            return _refused(stamp, problem, isinstance(error, DatabaseError))

    def _remembered(self, body: bytes | None) -> _TokenState:
        state = self._state(body)
        if body is None and self.memory.has_guarded:
            log.error("%s is gone: no stored token is accepted; add them again", self.where)
        return self.memory.add(state)

    def _state(self, data: bytes | None) -> _TokenState:
        """Raises TokenFileError for what does not count."""
        if data is None:
            return _TokenState()
        if self._key_file is not None:
            data = _unsealed(data, _key_in(self._key_file), self.where)
        elif _SEALED.match(data):
            raise _refusal(self.where, SEALED_WHY, SEALED_HINT)
        try:
            state = msgspec.json.decode(data, type=_TokenState)
            all_digests = [token.digest for token in state.tokens] + [_digest_of(hash) for hash in state.revoked]
        except (ValueError, RecursionError):
            raise _refusal(self.where, "it is damaged") from None
        if state.version != FILE_VERSION or any(len(digest) != sha256().digest_size for digest in all_digests):
            raise _refusal(self.where, "it is damaged, or a newer version has written it")
        return state

    def _change(self, change: Callable[[_TokenState], _TokenState]) -> None:
        """Change it under its lock. After an error it is as it was, but for ChangeUnknownError."""
        try:
            with self._lock, self._documents.locked(DOCUMENT, PATIENCE_S) as held:
                before = self._state(held.load().body)
                if (after := change(before)) == before:
                    return
                data = msgspec.json.encode(after)
                if self._key_file is not None:
                    data = _sealed(data, _key_in(self._key_file, make=True))
                if len(data) > LARGEST_FILE:
                    raise TokenFileError(f"{self.where} is full: nothing was changed")
                held.write(data)
                self.memory.add(after)
        except UnsafeFileError as error:
            raise _unsafe(self.where, error) from None
        except OSError as error:
            why = error.strerror or error
            raise TokenFileError(f"{self.where} can't be written ({why}): nothing was changed") from None


# Tokens and their hashes


def new_token() -> str:
    return PREFIX + token_urlsafe(RANDOM_BYTES)


def token_digest(text: str | bytes) -> bytes:
    return sha256(text.encode() if isinstance(text, str) else text).digest()


def token_hash(text: str) -> str:
    """As the config and the file have it."""
    return HASH + token_digest(text).hex()


def mask_tokens(text: str) -> str:
    """The text without tokens, for logs."""
    return _SHOWN.sub(f"{PREFIX}***", text) if PREFIX in text else text


def possible_tokens(text: str) -> set[str]:
    """Return the parts of a text that may be tokens, also where the text or a part of it is encoded."""
    texts = {text, unquote(text)}
    for run in {run for one in texts for run in _ENCODED.findall(one)}:
        for part in (run[start:] for start in range(4)):  # other text may stand before it
            texts.add(urlsafe_b64decode(part[: len(part) - (len(part) % 4 == 1)] + "==").decode("latin-1"))
            with suppress(ValueError):
                texts.add(bytes.fromhex(part).decode("latin-1"))
    parts = (part for one in texts for part in (*one.split(), *_NOT_IN_TOKENS.split(one), *_OWN.findall(one)))
    return texts | {part for part in parts if len(part) >= UNMISTAKABLE}


def _digest_of(hash: str) -> bytes:
    return bytes.fromhex(hash.removeprefix(HASH))


# What was read


def _known(stamp: Version, state: _TokenState) -> TokenView:
    tokens = {token.digest: token for token in state.tokens}
    return TokenView(stamp, state, None, tokens, {_digest_of(hash): one for hash, one in state.revoked.items()})


def _refused(stamp: Version, problem: str, is_away: bool = False) -> TokenView:
    return TokenView(stamp, _TokenState(), problem, {}, {}, is_away)


def _refusal(place: str | Path, why: str, hint: str | None = None) -> TokenFileError:
    return TokenFileError(f"{place} is not used, because {why}; {hint or 'remove it, and add the tokens again'}")


def _unsafe(place: str | Path, error: UnsafeFileError) -> TokenFileError:
    return _refusal(place, error.why, error.hint)


# The seal: a line with the MAC before the rest


_BOUND = b"tokens of a project:"


def _sealed(data: bytes, key: bytes) -> bytes:
    return hmac.digest(key, _BOUND + data, sha256).hex().encode() + b"\n" + data


def _unsealed(data: bytes, key: bytes, place: str) -> bytes:
    seal, _, rest = data.partition(b"\n")
    with suppress(ValueError):
        if key and hmac.compare_digest(bytes.fromhex(seal.decode("ascii")), hmac.digest(key, _BOUND + rest, sha256)):
            return rest
    raise _refusal(place, "it was not written by `onetool tokens` of this user on this machine")


def _key_in(file: Path, make: bool = False) -> bytes:
    """The key of the seal. With `make` there is one afterwards. Raises TokenFileError, OSError."""
    try:
        return key_in(file, make)
    except UnsafeFileError as error:
        raise _unsafe(file, error) from None
