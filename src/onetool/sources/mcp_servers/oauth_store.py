"""`LoginStore` keeps the tokens of a login: one file per server, readable by its owner alone, replaced atomically.

Tokens belong to a url and to a client: with another one they are not used. A refresh token may be good for one use
only, so whoever uses it holds the lock, and first looks whether another process has already used it.
"""

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from onetool.core import flock
from onetool.core.call import new_id
from onetool.core.private_file import private
from onetool.sources.mcp_servers.server_cache import file_name
from onetool.sources.mcp_servers.upstream_calls import AuthError

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

    def __repr__(self) -> str:
        return "Kept(***)"


class LoginStore:
    """The file of one server, as seen by one url and one client."""

    def __init__(self, folder: Path, name: str, url: str, key: str) -> None:
        self.file = auth_file(folder, name)
        self._empty = StoredLogin(url=url, key=key)

    def read(self) -> StoredLogin:
        """What is kept. Whatever is wrong with the file, it counts as empty: a new login mends it."""
        try:
            kept = msgspec.json.decode(self.file.read_bytes(), type=StoredLogin)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return self._empty
        return kept if (kept.url, kept.key) == (self._empty.url, self._empty.key) else self._empty

    def version(self) -> tuple[int, int]:
        """A version of the file: differs after any write."""
        try:
            found = self.file.stat()
        except OSError:
            return (0, 0)
        return (found.st_ino, found.st_mtime_ns)

    def write(self, kept: StoredLogin) -> None:
        """Within `locked` only."""
        draft = self.file.with_name(f".{self.file.name}.{new_id()}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(msgspec.json.format(msgspec.json.encode(kept), indent=1))
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, self.file)
            _sync_folder(self.file.parent)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise _not_kept(self.file, error) from None

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """One process at a time. Waiting does not block the event loop."""
        import anyio

        with _lock_file(self.file) as attempt:
            give_up = time.monotonic() + PATIENCE
            while not attempt():
                _still(give_up, self.file)
                await anyio.sleep(PAUSE)
            yield


def auth_file(folder: Path, name: str) -> Path:
    return folder / f"{file_name(name)}.auth.json"


def forget_login(folder: Path, name: str) -> bool:
    """Remove what is kept, for whichever url; whether there was anything."""
    file = auth_file(folder, name)
    if not file.exists():
        return False
    with _lock_file(file) as attempt:
        give_up = time.monotonic() + PATIENCE
        while not attempt():
            _still(give_up, file)
            time.sleep(PAUSE)
        with suppress(FileNotFoundError):
            file.unlink()
            return True
    return False


def _still(give_up: float, file: Path) -> None:
    if time.monotonic() > give_up:
        raise AuthError(f"another process holds {file.name} for more than {PATIENCE:.0f} s; end it, and try again")


@contextmanager
def _lock_file(file: Path) -> Iterator[Any]:
    """Gives a function that tries once to get the lock. Leaving gives it back, as the end of the process does."""
    try:
        _private_folder(file.parent)
        # Never deleted: a new file would be another lock.
        lock = private(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise _not_kept(file, error) from None
    try:
        yield lambda: _try_lock(lock)
    finally:
        flock.give_back(lock)


def _try_lock(lock: int) -> bool:
    try:
        return flock.take(lock)
    except flock.NoFlockError:  # whoever writes last wins
        return True


def _not_kept(file: Path, error: OSError) -> AuthError:
    return AuthError(f"the login can't be kept in {file}: {error.strerror}")


def _private_folder(folder: Path) -> None:
    """There may be one already that is more open than it should be."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name == "posix" and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def _sync_folder(folder: Path) -> None:
    """The new name is not safe before the folder is."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
