"""Adds, lists and revokes the named tokens of a server, for `onetool tokens` and REST.

All functions raise TokenStoreError if the stored tokens can't be used.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from onetool.app.access import as_stored, needs_credential, shown_time
from onetool.app.journal import anonymous_clients
from onetool.config import Config
from onetool.config.load import token_places
from onetool.config.model import TokenConfig
from onetool.core.limits import DAY
from onetool.core.principal import Role
from onetool.core.text import or_rather, read_span, utc_text
from onetool.database import DatabaseError
from onetool.services.access_tokens import StoredToken, TokenNameError, TokenNameRevokedError, TokenStore

_RATES = {1: "s", 60: "min", 3600: "h", DAY: "day"}


def requested_token(
    *,
    name: str,
    hash: str,
    role: Role,
    tools: Iterable[str] | None,
    rate: str | None,
    expires: str | None,
    whole: bool = True,
) -> TokenConfig:
    """Return a new token in the form of the config. `expires` is a date, or a span from now on such as `30d`.

    Callers check its `problems`.
    """
    span = read_span(expires or "")
    return TokenConfig(
        name=name,
        hash=hash,
        role=role,
        tools=None if tools is None else tuple(dict.fromkeys(tools)),
        rate=rate,
        expires=utc_text(time.time() + span) if span else expires,
        whole=whole,
    )


def check_name(name: str, config: Config, store: TokenStore, only_print: bool, again: bool) -> str | None:
    """Raise TokenNameError if a new token can't have this name. Tokens with the same name would share stored data, so
    the name of a revoked token is refused unless `again` confirms that it is for the same user.

    Returns the line of the config that the new token replaces, if the token is only printed.
    """
    if only_print and store.named(name):
        raise TokenNameError(f"a stored token is already called {name}; choose another name, or revoke that token")
    place = next((place for one, place in configured_tokens(config) if one.name == name), None)
    if place and not only_print:
        raise TokenNameError(
            f"a token of the config is already called {name}; choose another name, or replace the line at {place} "
            f"with the output of: onetool tokens add {name} --print"
        )
    revoked = [one.at for one in store.revoked().values() if one.name == name]
    if revoked and not again:
        raise TokenNameRevokedError(
            f"a token called {name} was revoked on {shown_time(max(revoked))}, and a new token of this name "
            f"gets the data stored for it: results, sessions and examples."
        )
    return place


def add_token(store: TokenStore, token: StoredToken) -> tuple[str, StoredToken]:
    """Store a new token. Returns its text, which can't be read again, and the stored token."""
    text = store.add(token.name, token.role, token.tools, token.rate, token.expires, token.whole)
    return text, store.named(token.name) or token


def closed_clients(config: Config, store: TokenStore) -> list[str] | None:
    """Return the names of clients that the first token would lock out; None if this token is not the first.

    These clients called without a credential in the last day. The name "" stands for clients without a name.
    """
    if needs_credential(config.http, store):
        return None
    with suppress(DatabaseError):
        return anonymous_clients(config, time.time() - DAY)
    return []


def revoke_token(name: str, config: Config, store: TokenStore) -> list[str] | None:
    """Revoke a token immediately, including in running servers.

    Returns the lines of the config that have no effect any more; None if the token was already revoked. Raises
    TokenNameError.
    """
    of_config = [(one, place) for one, place in configured_tokens(config) if one.name == name]
    stored = store.named(name)
    if stored is None and not of_config:
        if any(one.name == name for one in store.revoked().values()):
            return None
        known = [one.name for one in (*store.list(), *config.http.tokens)]
        raise TokenNameError(f"No token is called {name}{or_rather(name, known) or '; see: onetool tokens list'}")
    if stored is not None:
        store.revoke(name)
    for one, _ in of_config:
        store.revoke_hash(one.hash, name)
    return [place for _, place in of_config]


def token_rows(config: Config, store: TokenStore) -> list[dict[str, Any]]:
    """Return the public facts about all tokens: stored ones, those of the config, and revoked ones."""
    stored, gone = store.list(), store.revoked()
    rows = [token_row(token) for token in stored]
    rows += [token_row(as_stored(one), place, one.hash in gone) for one, place in configured_tokens(config)]
    listed = {token.hash for token in (*stored, *config.http.tokens)}
    revoked = (one for hash, one in gone.items() if hash not in listed)
    return rows + [
        {"name": one.name, "where": "stored", "state": "revoked", "revoked": utc_text(one.at)} for one in revoked
    ]


def token_row(token: StoredToken, where: str = "stored", is_revoked: bool = False) -> dict[str, Any]:
    """Return the public facts about a token, without its hash."""
    is_over = token.expires is not None and token.expires <= time.time()
    rate = token.rate
    return {
        "name": token.name,
        "role": token.role,
        "tools": token.tools,
        "rate": rate and f"{rate.count}/{_RATES.get(int(rate.seconds), f'{rate.seconds:g} s')}",
        "expires": None if token.expires is None else utc_text(token.expires),
        "created": None if token.created is None else utc_text(token.created),
        "whole": token.whole,
        "where": where,
        "state": "revoked" if is_revoked else "expired" if is_over else "valid",
    }


def configured_tokens(config: Config) -> list[tuple[TokenConfig, str]]:
    """Return the tokens of the config, each with its file and line."""
    if not config.http.tokens or config.path is None:
        return []
    places: list[str] = []
    for file, line in token_places(config.path):
        relative = os.path.relpath(file)
        places.append(f"{file if relative.startswith('..') else relative}:{line}")
    return list(zip(config.http.tokens, places, strict=False))
