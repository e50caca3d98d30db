"""`LoginStore` keeps the tokens of a login: one file each, readable by its owner alone, replaced atomically.

Tokens belong to a url and to a client: with another one they are not used. A refresh token may be good for one use
only, so whoever uses it holds the lock, and first looks whether another process has already used it.
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from onetool.core import flock
from onetool.core.os_files import sync_folder
from onetool.core.private_file import private, replace_file
from onetool.http.errors import AuthError

PATIENCE = 60.0  # seconds to wait for who renews the same tokens; longer than one such request may take
PAUSE = 0.05


class StoredLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file. The mappings are the protocol's own: see RFC 6749, 7591, 8414 and 9728."""

    url: str
    key: str  # whose tokens these are
    client: dict[str, Any] | None = None
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None  # what `expires_in` meant when it came
    authorization_server: dict[str, Any] | None = None  # where to refresh
    resource: dict[str, Any] | None = None
    wanted: str | None = None  # scopes that the server asked for since: the next login asks for them, too
    origins: tuple[str, ...] = ()  # of HTTP tools: where the tokens may be sent to, and nowhere else

    def __repr__(self) -> str:
        return "StoredLogin(***)"


class LoginStore:
    """The file of one login, as seen by one url and one client."""

    def __init__(self, file: Path, url: str, key: str) -> None:
        self.file = file
        self._empty = StoredLogin(url=url, key=key)

    def read(self) -> StoredLogin:
        """What is kept. Whatever is wrong with the file, it counts as empty: a new login mends it."""
        try:
            login = msgspec.json.decode(self.file.read_bytes(), type=StoredLogin)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return self._empty
        return login if (login.url, login.key) == (self._empty.url, self._empty.key) else self._empty

    def version(self) -> tuple[int, int]:
        """A version of the file: differs after any write."""
        try:
            found = self.file.stat()
        except OSError:
            return (0, 0)
        return (found.st_ino, found.st_mtime_ns)

    def write(self, login: StoredLogin) -> None:
        """Within `locked` only."""
        try:
            replace_file(self.file, msgspec.json.format(msgspec.json.encode(login), indent=1))
            sync_folder(self.file.parent)
        except OSError as error:
            raise _not_kept(self.file, error) from None

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """One at a time, also among processes. Waiting keeps nobody else of this process waiting."""
        with _lock_file(self.file) as lock:
            if not await flock.wait_async(lock, PATIENCE, PAUSE):
                raise _held_error(self.file)
            yield


def forget(file: Path) -> bool:
    """Remove what is kept, for whichever url; whether there was anything."""
    if not file.exists():
        return False
    with _lock_file(file) as lock:
        if not flock.wait(lock, PATIENCE):
            raise _held_error(file)
        with suppress(FileNotFoundError):
            file.unlink()
            return True
    return False


def _held_error(file: Path) -> AuthError:
    return AuthError(f"another process holds {file.name} for more than {PATIENCE:.0f} s; end it, and try again")


@contextmanager
def _lock_file(file: Path) -> Iterator[int]:
    """Gives the open file of the lock. Leaving gives the lock back, as the end of the process does."""
    try:
        _private_folder(file.parent)
        # Never deleted: a new file would be another lock.
        lock = private(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise _not_kept(file, error) from None
    try:
        yield lock
    finally:
        flock.give_back(lock)


def _not_kept(file: Path, error: OSError) -> AuthError:
    return AuthError(f"the login can't be kept in {file}: {error.strerror}")


def _private_folder(folder: Path) -> None:
    """There may be one already that is more open than it should be."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name == "posix" and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
