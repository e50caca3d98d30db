"""Whether a server needs a credential, and `KnownTokens`: the named tokens of the config and those that were stored
together, and why one of them is refused.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from onetool.app.database import open_state
from onetool.app.documents import documents_in
from onetool.app.old_state import tokens_problem
from onetool.config.model import TokenConfig, read_rate
from onetool.core.principal import Principal, Role
from onetool.core.text import read_time, utc_text
from onetool.services.access_tokens import StoredToken, TokenMemory, TokenStore, TokenView

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.config.model import HttpConfig
    from onetool.database.documents import Documents
    from onetool.services.page_links import PageLinks

UNKNOWN = "It is not known which tokens were revoked, because they can't be read: the server's log says why."
TWO = (
    "Two tokens are called {0}, one in the config and one that was stored: rename the one in http.tokens; "
    "or revoke both, with `onetool tokens revoke {0}`, and add one anew."
)


def needs_credential(http: "HttpConfig", store: TokenStore | None) -> bool:
    """Return whether a server with this config and these stored tokens refuses clients without a credential."""
    return bool(http.token or http.tokens or http.jwt or (store is not None and store.guards))


def accepts_any(http: "HttpConfig", store: TokenStore) -> bool:
    """Return whether there is a credential that was not revoked. Raises TokenStoreError."""
    gone = store.revoked()
    return bool(http.token or http.jwt or store.list() or any(one.hash not in gone for one in http.tokens))


def is_loopback_name(host: str) -> bool:
    """Return whether a host is this machine, by its name or address alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def local_role(http: "HttpConfig") -> Role | None:
    """Return http.local, unless http.url is of another machine: what a proxy sends may look as if it came from here."""
    return None if is_behind_proxy(http) else http.local


def is_behind_proxy(http: "HttpConfig") -> bool:
    """Return whether clients reach the server at the address of another machine, as http.url says."""
    return not is_loopback_name(urlsplit(http.url or "http://localhost").hostname or "")


class FoundToken(NamedTuple):
    """A token that somebody has shown. With a `refusal` it is not accepted; only who holds it may read that."""

    principal: Principal
    refusal: str | None = None


class TokenTable(NamedTuple):
    """All named tokens at one moment. A request asks for one table, and so looks at the file once."""

    made_of: TokenView
    found: dict[bytes, tuple[FoundToken, float | None]]  # by digest; with the time when it expires
    digests: dict[str, bytes]  # by name
    clock: Callable[[], float]

    def find(self, digest: bytes) -> FoundToken | None:
        """Return the token with this SHA-256 digest; None if nobody knows it."""
        # The time that a lookup takes could tell at most something of digests that are known. Nobody can make a token
        # from a digest, and nobody can choose a text so that its digest begins like another, but by trying.
        found, expires = self.found.get(digest, (None, None))
        if found is None or expires is None or expires > self.clock():
            return found
        return FoundToken(found.principal, f"This token expired on {shown_time(expires)}.")


class KnownTokens:
    """The named tokens of one server. Built at start and at each reload; the store sees its own changes."""

    def __init__(
        self, tokens: Iterable[TokenConfig], store: TokenStore, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self._configured = [as_stored(token) for token in tokens]
        self._clock = clock
        self._table: TokenTable | None = None

    def find(self, digest: bytes) -> FoundToken | None:
        """Return the token with this SHA-256 digest: of the config, else of the store. None if nobody knows it."""
        return self.table().find(digest)

    def table(self, view: TokenView | None = None) -> TokenTable:
        """Return all of them now, or as the store showed them. It is made anew only if the store has changed."""
        view, table = view or self.store.view(), self._table
        if table is None or table.made_of is not view:
            table = self._table = self._made(view)  # all at once: other threads read it
        return table

    def _made(self, view: TokenView) -> TokenTable:
        """Build the table. Of two tokens with one digest the config's wins, and a revoked one wins over both."""
        names = {token.name for token in self._configured}
        found: dict[bytes, tuple[FoundToken, float | None]] = {}
        for token in view.state.tokens:
            problem = TWO.format(token.name) if token.name in names else None
            found[token.digest] = FoundToken(token.principal, problem), token.expires
        for token in self._configured:
            problem = UNKNOWN if view.problem or view.is_lost else None
            found[token.digest] = FoundToken(token.principal, problem), token.expires
        for digest, gone in view.revoked.items():
            principal = found[digest][0].principal if digest in found else Principal(name=gone.name, owner=gone.name)
            found[digest] = FoundToken(principal, f"This token was revoked on {shown_time(gone.at)}."), None
        digests = {token.name: token.digest for token in (*view.state.tokens, *self._configured)}
        return TokenTable(view, found, digests, self._clock)


def token_store(config: "Config", documents: "Documents", memory: TokenMemory | None = None) -> TokenStore:
    """Return the stored tokens. A server of a `cluster` is closed: who can write its database could delete all tokens.
    So is one whose state folder has tokens of before the config had a `database`; those let nobody in.
    """
    problem = tokens_problem(config)
    if config.database is None:
        return TokenStore(documents, home=config.home, problem=problem, memory=memory)
    is_closed = config.cluster is not None or problem is not None
    return TokenStore(documents, home=config.home, is_closed=is_closed, memory=memory)


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
    """Convert a token of the config to the form of the store."""
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
    """`2027-01-01 12:00 UTC`; a day alone where it begins."""
    day, _, rest = utc_text(seconds).partition("T")
    return day if rest == "00:00:00Z" else f"{day} {rest[:5]} UTC"
