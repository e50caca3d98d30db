"""Give people and programs tokens for `onetool serve`.

Each token has a name, a role, and the tools that it may call. Data stored with a token belongs to its name. Only hashes
of tokens are stored.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.access import accepts_any, as_stored, local_role, open_page_links
from onetool.app.operations import At, Command, operation
from onetool.app.operations.fields import SPLIT, Input
from onetool.app.token_admin import (
    add_token,
    check_name,
    closed_clients,
    requested_token,
    revoke_token,
    token_row,
    token_rows,
)
from onetool.core.errors import ConfigError
from onetool.core.principal import Role
from onetool.database import DatabaseAwayError, DatabaseError
from onetool.services.access_tokens import (
    LOSS_FIX,
    StoredToken,
    TokenNameError,
    TokenNameRevokedError,
    TokenStoreError,
    new_token,
    token_hash,
)
from onetool.sources.bundles.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
    invalid_at,
)

MAY = {
    "call": "call tools, run code and ask",
    "edit": "call tools, run code, ask, and change bundles and examples",
    "admin": "do everything except create tokens",
}


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A named token, without the token itself and its hash."""

    name: str
    state: Annotated[str, Meta(description="valid, expired or revoked.")]
    where: Annotated[str, Meta(description="`stored`, or the file and line of the config.")]
    role: Role | UnsetType = UNSET
    tools: Annotated[list[str] | UnsetType | None, Meta(description="Names and patterns; null: all.")] = UNSET
    rate: str | UnsetType | None = UNSET
    expires: str | UnsetType | None = UNSET
    created: str | UnsetType | None = UNSET
    whole: bool | UnsetType = UNSET
    revoked: Annotated[str | UnsetType, Meta(description="When it was revoked.")] = UNSET


class TokenList(msgspec.Struct, frozen=True, rename="camel"):
    """The named tokens, and the effect of adding one."""

    tokens: list[TokenEntry]
    can_add: Annotated[bool, Meta(description="Whether this session may add tokens.")]
    closes: Annotated[bool, Meta(description="The first token closes the server to clients that send none.")]
    clients: Annotated[list[str], Meta(description='Clients that sent no token in the last day; "": without a name.')]
    none_left: Annotated[bool, Meta(description="All tokens were revoked: the server refuses every client.")]


@operation(
    "GET",
    "/tokens",
    "Server",
    role="admin",
    audited=False,
    completes="token",
    command=Command(
        "tokens list",
        rows="tokens",
        columns=("name", "role", "tools", "rate", "expires", "where", "state"),
        empty="There are no named tokens. Create one: onetool tokens add NAME",
    ),
)
def list_tokens(at: At) -> TokenList:
    """List the named tokens."""
    with at.tokens() as store, _store_errors(at):
        rows, clients = token_rows(at.config, store), closed_clients(at.config, store)
        none_left = clients is None and not accepts_any(at.config.http, store)
        if store.is_away and not store.list():
            raise DatabaseAwayError(message="the stored tokens can't be read")
        if loss := store.loss:
            at.note(f"warning: {loss}. To fix it, {LOSS_FIX}.")
    return TokenList(
        tokens=[msgspec.convert(one, TokenEntry) for one in rows],
        can_add=at.is_owner,
        closes=clients is not None,
        clients=clients or [],
        none_left=none_left,
    )


class NewTokenRequest(Input, frozen=True):
    """A token to make."""

    name: Annotated[
        str, Meta(description="At most 64 letters, digits, dots, dashes and underscores.", extra={"argument": True})
    ]
    role: Annotated[Role, Meta(description="What the token may do.")] = "call"
    tools: Annotated[
        Annotated[list[str], Meta(min_length=1)] | None,
        Meta(description="Names and patterns (`time.*`); null: all.", extra={**SPLIT, "complete": "tools"}),
    ] = None
    rate: Annotated[str | None, Meta(description="600/min, 10/s, 5000/day.")] = None
    expires: Annotated[str | None, Meta(description="A time from now (30d, 12h, 4w) or a date (2027-01-01).")] = None
    whole: Annotated[bool, Meta(description="Large results are returned whole to clients that want them whole.")] = True
    only_print: Annotated[bool, Meta(description="Store nothing: return the token, and its line for the config.")] = (
        msgspec.field(default=False, name="print")
    )
    again: Annotated[bool, Meta(description="Use a revoked name again, for the same person or program.")] = False


class NewToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A new token, which is shown only once."""

    token: Annotated[str, Meta(description="Send it as `Authorization: Bearer …`. It can't be read again.")]
    entry: TokenEntry
    config: Annotated[str | UnsetType, Meta(description="Only with `print`: the line for the config.")] = UNSET


@operation(
    "POST",
    "/tokens",
    "Server",
    role="admin",
    example={"name": "ci", "role": "call", "expires": "30d"},
    errors=(400, 409),
    is_secret=True,
    command=Command("tokens add", flat="entry", noted=True, unless="print"),
)
def add_named_token(at: At, asked: NewTokenRequest) -> NewToken:
    """Make a token.

    It is shown only once, and running servers accept it at once. Over HTTP, this needs a session started with a link of
    `onetool page`: tokens can't make other tokens. The first token closes the server to clients that send none. No tool
    can call this.
    """
    if not at.is_owner:
        message = "Create tokens on the command line, or in a page opened with `onetool page`."
        raise ForbiddenError(message, "owner_needed")
    text = new_token()
    wanted = requested_token(
        name=asked.name,
        hash=token_hash(text),
        role=asked.role,
        tools=asked.tools,
        rate=asked.rate,
        expires=asked.expires,
        whole=asked.whole,
    )
    for field, message, hint in wanted.problems():
        hint = "write 30d, 12h or 4w from now, or a date: 2027-01-01" if field == "expires" else hint
        raise invalid_at(f"/{field}", f"{message}{f'; {hint}' if hint else ''}")
    token, line, place = as_stored(wanted), UNSET, ""
    with at.tokens() as store, _store_errors(at):
        replaced = check_name(asked.name, at.config, store, only_print=asked.only_print, again=asked.again)
        if asked.only_print:
            # JSON strings are valid in YAML.
            parts = {"name": wanted.name, "hash": wanted.hash, "tools": wanted.tools, "role": wanted.role}
            parts |= {"rate": wanted.rate, "expires": wanted.expires, "whole": None if wanted.whole else False}
            entry = ", ".join(f"{key}: {json.dumps(value)}" for key, value in parts.items() if value is not None)
            line, target = "{" + entry + "}", f"in place of {replaced}" if replaced else "below http.tokens"
            at.note(f"Nothing was stored: put the line {target} of the config, and reload.")
        else:
            if (clients := closed_clients(at.config, store)) is not None:
                _note_closed(at, clients)
            text, token = add_token(store, token)
            place = str(store.place)
    at.say(text if line is UNSET else f"{text}\n    - {line}")
    _note_use(at, token, place)
    at.warn_unmatched("tools", asked.tools or ())
    return NewToken(text, msgspec.convert(token_row(token, "stored" if line is UNSET else "config"), TokenEntry), line)


class RevokedTokenReport(msgspec.Struct, frozen=True):
    """A token that was just revoked."""

    name: str
    remove: Annotated[list[str], Meta(description="Lines of the config that can be removed now.")]


@operation(
    "DELETE",
    "/tokens/{token}",
    "Server",
    role="admin",
    errors=(404,),
    changes_access=True,
    command=Command("tokens revoke", noted=True, waits=False),
)
def revoke_named_token(at: At, token: str) -> RevokedTokenReport:
    """Revoke a token at once.

    Tokens of the config can be revoked, too. Requests under way with the token end within seconds.
    """
    with at.tokens() as store:
        try:
            with _store_errors(at):
                places = revoke_token(token, at.config, store)
        except ConflictError as error:
            raise NotFoundError(str(error)) from None
        at.note(f"{token} is {'already revoked' if places is None else 'revoked, also in running servers'}.")
        for place in places or ():
            at.note(f"The config still has it, without effect: remove {place}.")
        if places is not None and not accepts_any(at.config.http, store):  # this must not open the server
            at.note(
                "No token is left, so the server refuses requests without one. Add one: onetool tokens add NAME. "
                "To allow requests from this machine without a token, set http.local to call or edit in the config."
            )
    return RevokedTokenReport(token, places or [])


@contextmanager
def _store_errors(at: At) -> Iterator[None]:
    """Translate the errors of stored tokens."""
    try:
        yield
    except TokenNameRevokedError as error:
        same = "if the token is for the same person or program; otherwise choose another name."
        raise ConflictError(f"{error} Add {at.option('again')} {same}", "name_revoked") from None
    except TokenNameError as error:
        raise ConflictError(f"{error}{'' if str(error).endswith('?') else '.'}", "exists") from None
    except TokenStoreError as error:
        raise UnavailableError(f"{error}.") from None


# Remarks for the user of the command


def _note_closed(at: At, clients: list[str]) -> None:
    """Warn that clients without a token are refused from now on, and name them."""
    http = at.config.http
    at.note(f"This is the first token. {_servers(at)} refuse clients without a token from now on.")
    if clients:
        names = ", ".join(one or "clients without a name" for one in clients)
        at.note(f"Clients that called without a token in the last day: {names}.")
    elif at.config.audit.mode == "none":
        at.note("The clients that called without a token are unknown: the config says audit: none.")
    if role := local_role(http):
        at.note(f"Clients on this machine may continue without a token, with the role {role} (http.local).")
    elif http.url is None:  # with a proxy http.local may have no effect
        hint = "set http.local to call or edit in the config, and reload the server"
        at.note(f"To let clients on this machine continue without a token, {hint}.")


def _note_use(at: At, token: StoredToken, place: str) -> None:
    """Say what the token is for, where it was stored and how to use it."""
    if not at.is_command:
        return
    may = MAY[token.role] + (f", limited to the tools {', '.join(token.tools)}" if token.tools else "")
    at.note(f"This is the token of {token.name}, and is not shown again. It may {may}.")
    if token.expires is not None and token.expires <= time.time():
        at.note("warning: it has already expired, so it is refused.")
    if place:
        at.note(f"It is stored in {place}. {_servers(at)} accept it at once.")
    http = at.config.http
    url = known = http.url.rstrip("/") if http.url else _running_server(at)
    if url is None:
        url = f"http://{f'[{http.host}]' if ':' in http.host else http.host}:{http.port}"
    at.note(f'Use it, as ONETOOL_TOKEN: curl -H "Authorization: Bearer $ONETOOL_TOKEN" {url}/tools/tools')
    at.note(f"MCP clients connect to {url}/mcp with the same header.")
    if known is None:
        at.note("A server that was started with --host or --port has another address, which it prints.")


def _servers(at: At) -> str:
    return f"Servers that use {at.config.home if at.config.database is None else 'this database'}"


def _running_server(at: At) -> str | None:
    """Return the address of the server that runs with this state, if it is the only one."""
    with suppress(ConfigError, DatabaseError, TimeoutError), open_page_links(at.config) as links:
        addresses: list[Any] = [*links.servers()]
        return addresses[0] if len(addresses) == 1 else None
    return None
