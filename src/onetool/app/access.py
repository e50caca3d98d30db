"""`KnownTokens`: the named tokens of the config and of the state folder together, and why one of them is refused."""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from onetool.config.access import TokenConfig, read_rate, read_time
from onetool.core.principal import Principal
from onetool.services.access_tokens import FOLDER, KEY_FILE, StoredToken, TokenStore

if TYPE_CHECKING:
    from onetool.config import Config

UNKNOWN = "It is not known which tokens were revoked, because their file can't be used: the server's log says why."
TWO = "Two tokens are called {}, one in the config and one that was stored: one of them has to go."


class FoundToken(NamedTuple):
    """A token that somebody has shown. With a `refusal` it is not accepted; only who holds it may read that."""

    principal: Principal
    refusal: str | None = None


class KnownTokens:
    """The named tokens of one server. Built at start and at each reload; the store sees its own changes."""

    def __init__(
        self, tokens: Iterable[TokenConfig], store: TokenStore, clock: Callable[[], float] = time.time
    ) -> None:
        configured = [as_stored(token) for token in tokens]
        self.store = store
        self._configured = {token.digest: token.principal for token in configured}
        self._names = {token.name for token in configured}
        self._clock = clock

    def __bool__(self) -> bool:
        """Whether there is any, so that a request needs a credential. A file that is refused counts."""
        return bool(self._configured) or self.store.guards

    def digest_of(self, name: str) -> bytes | None:
        """The digest of the token of that name."""
        found = next((digest for digest, one in self._configured.items() if one.name == name), None)
        if found is not None:
            return found
        stored = self.store.view().state.named(name)
        return None if stored is None else stored.digest

    def find(self, digest: bytes) -> FoundToken | None:
        """The token with this SHA-256 digest: of the config, else of the store. None if nobody knows it."""
        view, problem = self.store.view(), None
        principal = self._configured.get(digest)
        if gone := view.revoked.get(digest):
            told = f"This token was revoked on {shown_time(gone.at)}."
            return FoundToken(principal or Principal(name=gone.name, owner=gone.name), told)
        if principal is not None:
            problem = view.problem and UNKNOWN
        elif stored := view.find(digest):
            principal = stored.principal
            problem = TWO.format(stored.name) if stored.name in self._names else None
        else:
            return None
        if principal.expires is not None and principal.expires <= self._clock():
            problem = f"This token expired on {shown_time(principal.expires)}."
        return FoundToken(principal, problem)


def token_store(config: "Config") -> TokenStore:
    """The tokens of the state folder. Those in a project's own folder are sealed: see `services.access_tokens`."""
    from onetool.config.find import own_folder

    in_project = config.whose == "project" and config.path is not None and config.home == config.path.parent
    return TokenStore(config.home / FOLDER, key_file=own_folder() / KEY_FILE if in_project else None)


def as_stored(token: TokenConfig) -> StoredToken:
    """A token of the config, in the form of the store."""
    return StoredToken(
        name=token.name,
        hash=token.hash,
        role=token.role,
        tools=token.tools,
        rate=read_rate(token.rate) if token.rate else None,
        expires=read_time(token.expires) if token.expires else None,
    )


def principal_of(token: StoredToken | TokenConfig) -> Principal:
    """Who calls with this token."""
    return (as_stored(token) if isinstance(token, TokenConfig) else token).principal


def shown_time(seconds: float) -> str:
    """`2027-01-01 12:00 UTC`; a day alone where it begins."""
    day, _, rest = iso_time(seconds).partition("T")
    return day if rest == "00:00:00Z" else f"{day} {rest[:5]} UTC"


def iso_time(seconds: float) -> str:
    """`2027-01-01T12:00:00Z`."""
    from datetime import UTC, datetime

    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):  # no calendar has it, and no date of the config is it
        return "9999-12-31T23:59:59Z" if seconds > 0 else "0001-01-01T00:00:00Z"
