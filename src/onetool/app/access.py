"""Checks whether a server needs a credential, and looks up named tokens.

`KnownTokens` holds the named tokens of the config and the store, and the reason why a token is refused.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from onetool.app.database import open_state
from onetool.app.documents import documents_in
from onetool.config.model import TokenConfig, read_rate
from onetool.core.principal import Principal, Role
from onetool.core.text import read_time, utc_text
from onetool.services.access_tokens import StoredToken, TokenMemory, TokenStore, TokenView

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.config.model import HttpConfig
    from onetool.database.documents import Documents
    from onetool.services.page_links import PageLinks

MIN_TOKEN = 16  # characters of http.token
CACHED = 64  # hosts, which every request has; a few, because clients choose them
REVOKED_UNKNOWN = "The list of revoked tokens can't be read: the server's log says why."
SAME_NAME = (
    "Two tokens are called {0}, one in the config and one in the store: rename the token in http.tokens; "
    "or revoke both with `onetool tokens revoke {0}`, and add a new one."
)


def needs_credential(http: "HttpConfig", store: TokenStore | None) -> bool:
    """Return whether a server with this config and these stored tokens refuses clients without a credential."""
    return has_credential(http) or names_other_machine(http) or (store is not None and store.guards)


def has_credential(http: "HttpConfig") -> bool:
    """Return whether the config has a credential."""
    return bool(http.token or http.tokens or http.jwt)


def accepts_any(http: "HttpConfig", store: TokenStore) -> bool:
    """Return whether any valid credential exists. Raises TokenStoreError."""
    gone = store.revoked()
    return bool(http.token or http.jwt or store.list() or any(one.hash not in gone for one in http.tokens))


@lru_cache(CACHED)
def is_loopback_name(host: str) -> bool:
    """Return whether a host name or address refers to this machine. Names are not resolved."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def local_role(http: "HttpConfig") -> Role | None:
    """Return http.local; None behind a proxy, where other users' requests seem to come from this machine."""
    return None if names_other_machine(http) else http.local


def names_other_machine(http: "HttpConfig", hosts: Iterable[str] = ()) -> bool:
    """Return whether http.url, http.hosts or further `hosts` name another machine.

    Clients then reach the server through a proxy, which may not say so in its requests.
    """
    places = (*http.hosts, *hosts, *([urlsplit(http.url).netloc] if http.url else []))
    names = (re.sub(r":\d+$", "", place) if "]" in place or place.count(":") == 1 else place for place in places)
    return not all(is_loopback_name(name.strip("[]").lower()) for name in names)


class FoundToken(NamedTuple):
    """A token that a client has sent. A token with a `refusal` is not accepted; only its holder may read the reason."""

    principal: Principal
    refusal: str | None = None


class TokenTable(NamedTuple):
    """A snapshot of all named tokens. Each request uses one table, and so reads the store only once."""

    made_of: TokenView
    found: dict[bytes, tuple[FoundToken, float | None]]  # by digest; with the time of expiry
    digests: dict[str, bytes]  # by name
    clock: Callable[[], float]

    def find(self, digest: bytes) -> FoundToken | None:
        """Return the token with this SHA-256 digest; None if there is none."""
        # The lookup isn't constant-time. Its duration could reveal only something about known digests, and a digest
        # doesn't help to find its token.
        found, expires = self.found.get(digest, (None, None))
        if found is None or expires is None or expires > self.clock():
            return found
        return FoundToken(found.principal, f"This token expired on {shown_time(expires)}.")


class KnownTokens:
    """The named tokens of a server. Created at startup and by each reload; the store notices its own changes."""

    def __init__(
        self, tokens: Iterable[TokenConfig], store: TokenStore, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self._configured = [as_stored(token) for token in tokens]
        self._clock = clock
        self._table: TokenTable | None = None

    def find(self, digest: bytes) -> FoundToken | None:
        """Return the token with this SHA-256 digest, from the config or the store; None if there is none."""
        return self.table().find(digest)

    def table(self, view: TokenView | None = None) -> TokenTable:
        """Return all tokens: the current ones, or those of a `view` of the store.

        The table is rebuilt only after changes.
        """
        view, table = view or self.store.view(), self._table
        if table is None or table.made_of is not view:
            table = self._table = self._build(view)  # assigned at once: other threads read it
        return table

    def _build(self, view: TokenView) -> TokenTable:
        """Build the table. Of two tokens with the same digest the config's wins; a revoked token wins over both."""
        names = {token.name for token in self._configured}
        found: dict[bytes, tuple[FoundToken, float | None]] = {}
        for token in view.state.tokens:
            problem = SAME_NAME.format(token.name) if token.name in names else None
            found[token.digest] = FoundToken(token.principal, problem), token.expires
        for token in self._configured:
            problem = REVOKED_UNKNOWN if view.problem or view.is_lost else None
            found[token.digest] = FoundToken(token.principal, problem), token.expires
        for digest, gone in view.revoked.items():
            principal = found[digest][0].principal if digest in found else Principal(name=gone.name, owner=gone.name)
            found[digest] = FoundToken(principal, f"This token was revoked on {shown_time(gone.at)}."), None
        digests = {token.name: token.digest for token in (*view.state.tokens, *self._configured)}
        return TokenTable(view, found, digests, self._clock)


def token_store(config: "Config", documents: "Documents", memory: TokenMemory | None = None) -> TokenStore:
    """Return the stored tokens. The store is closed for a server of a `cluster`, because anyone who can write to its
    database could delete all tokens.
    """
    return TokenStore(documents, home=config.home, is_closed=config.cluster is not None, memory=memory)


@contextmanager
def open_token_store(config: "Config") -> Iterator[TokenStore]:
    """Open the stored tokens for a command. Raises ConfigError if the database can't be used."""
    with open_state(config) as database:
        yield token_store(config, documents_in(database, "tokens", config, "never"))


@contextmanager
def open_page_links(config: "Config") -> "Iterator[PageLinks]":
    """Open the links to the page for a command. Raises ConfigError if the database can't be used."""
    from onetool.services.page_links import PageLinks

    with open_state(config) as database:
        yield PageLinks(documents_in(database, "page_links", config), config.home)


def as_stored(token: TokenConfig) -> StoredToken:
    """Convert a token of the config to a stored token."""
    return StoredToken(
        name=token.name,
        hash=token.hash,
        role=token.role,
        tools=token.tools,
        rate=read_rate(token.rate) if token.rate else None,
        expires=read_time(token.expires) if token.expires else None,
        whole=token.whole,
    )


def shown_time(seconds: float) -> str:
    """Format a time as `2027-01-01 12:00 UTC`; midnight as the date alone."""
    day, _, rest = utc_text(seconds).partition("T")
    return day if rest == "00:00:00Z" else f"{day} {rest[:5]} UTC"
