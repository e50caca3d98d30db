"""The handlers of /hosts, /secrets, /tokens and /tools/clients: what tools, other callers and clients are given.

They do what `onetool hosts allow`, `onetool auth set` and `onetool tokens` do, by the same code, and put it in force at
once. Values of secrets come in and never go out. Tokens are made only in a session that a link of `onetool page` has
begun: a token that is stolen makes no others.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.access import accepts_any, as_stored
from onetool.app.grants import (
    GrantValueError,
    SecretRow,
    allow_host,
    secrets_in_use,
    store_secret,
)
from onetool.app.own_server import ClientEntry, client_entries
from onetool.app.token_admin import (
    add_token,
    check_name,
    closed_clients,
    requested_token,
    revoke_token,
    token_row,
    token_rows,
)
from onetool.core.principal import OWNER, Role
from onetool.http.asgi import encode
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.query import REPLACE_SECRET, SERVER_URL
from onetool.interfaces.rest.request import RestRequest, RestResponse, json_body
from onetool.interfaces.rest.route import RestRoute
from onetool.services.access_tokens import TokenNameError, TokenNameRevokedError, TokenStoreError, token_hash
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.validation import converted

T = TypeVar("T")


class HostGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`private`: the host may lead to an address of this machine or its network."""

    private: Annotated[bool, Meta(description="True in any case for names and addresses that are private.")] = False


class GrantedHost(msgspec.Struct, frozen=True):
    """A host that tools may call."""

    host: Annotated[str, Meta(description="As it stands in the config: IDN in ASCII.")]
    private: bool


@RestRoute(
    "PUT", "/hosts/{host}", "Server", role="admin", takes=HostGrant, example={}, gives=GrantedHost, errors=(400, 409)
)
async def allow_host_for_tools(request: RestRequest) -> RestResponse:
    """Allow tools to call a host.

    It is written into the config, and in force at once. One host, with its port or without: wildcards are for the
    command line. No tool can call this.
    """
    asked = converted(await json_body(request, empty={}), HostGrant)
    found = await _granted(request, partial(allow_host, request.context.app, request.path[0], asked.private))
    return RestResponse(200, encode(GrantedHost(*found)))


class SecretGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a secret, and the hosts that it is sent to. It can't be read again."""

    value: Annotated[str, Meta(extra_json_schema={"writeOnly": True, "minLength": 1})]
    hosts: Annotated[tuple[str, ...], Meta(description="It goes to these only. `http://` allows plain http.")] = ()

    def __repr__(self) -> str:
        return "SecretGrant(***)"


class SecretState(msgspec.Struct, frozen=True):
    """A secret, without its value."""

    name: str
    hosts: Annotated[tuple[str, ...], Meta(description="The hosts that it is bound to.")]


class SecretList(msgspec.Struct, frozen=True):
    """The secrets that are stored, and the keys of model providers. No values."""

    secrets: list[SecretRow]


@RestRoute("GET", "/secrets", "Server", role="admin", audited=False, gives=SecretList)
async def list_secrets(request: RestRequest) -> RestResponse:
    """List the secrets and the hosts that they are bound to, without values.

    The key of each model provider is in the list, also if it is not set.
    """
    return RestResponse(200, encode(SecretList(await asyncio.to_thread(secrets_in_use, request.context.app))))


@RestRoute(
    "PUT",
    "/secrets/{secret}",
    "Server",
    role="admin",
    query=(REPLACE_SECRET,),
    takes=SecretGrant,
    example={"value": "a-key-of-the-api", "hosts": ["api.example.com"]},
    gives=SecretState,
    errors=(400, 409),
)
async def set_secret(request: RestRequest) -> RestResponse:
    """Store a secret, bound to hosts.

    It goes into the secrets file, and is in force at once. The hosts of a secret that is stored are never changed
    here, and its value only with `replace`; 409 says so. No tool can call this.
    """
    asked, (name,) = converted(await json_body(request), SecretGrant), request.path
    store = partial(store_secret, request.context.app, name, asked.value, asked.hosts, request.query["replace"])
    return RestResponse(200, encode(SecretState(name, await _granted(request, store))))


async def _granted(request: RestRequest, grant: Callable[[], T]) -> T:
    """Run `grant` in a thread. The caller gets a response even if the new config no longer accepts its token."""
    request.scope["admission"].task = None
    try:
        return await asyncio.to_thread(grant)
    except GrantValueError as error:
        if error.part == "host":
            raise RestError(400, "invalid", f"{error}.", part="path", pointer="/host") from None
        raise InvalidError(f"/{error.part}: {error}", f"/{error.part}") from None


# Clients


class ClientEntries(msgspec.Struct, frozen=True):
    """The entries of MCP clients for this server."""

    clients: list[ClientEntry]


@RestRoute("GET", "/tools/clients", "Server", query=(SERVER_URL,), gives=ClientEntries)
async def list_client_entries(request: RestRequest) -> RestResponse:
    """List the entries that MCP clients need to call this server.

    As `onetool init --client` writes them: with the URL, or, for editors only, with a command that starts OneTool on
    this machine. No entry has a secret in it.
    """
    config, is_editor = request.context.app.config, request.context.principal.may("edit")
    try:
        found = await asyncio.to_thread(client_entries, config, request.query["url"], is_editor)
    except ValueError as error:
        raise RestError(400, "bad_parameter", str(error), part="query", pointer="/url") from None
    return RestResponse(200, encode(ClientEntries(found)))


# Named tokens


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What may be shown of a token: not the token, and not its hash."""

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
    """The named tokens, and what another one would change."""

    tokens: list[TokenEntry]
    can_add: Annotated[bool, Meta(description="Whether this session may add tokens.")]
    closes: Annotated[bool, Meta(description="The first token closes the server to clients that send none.")]
    clients: Annotated[list[str], Meta(description='Clients that did so in the last day; "": without a name.')]
    none_left: Annotated[bool, Meta(description="All tokens were revoked: the server refuses every client.")]


class NewTokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to make."""

    name: Annotated[str, Meta(description="Letters, digits, dots, dashes and underscores, at most 64.")]
    role: Role = "call"
    tools: Annotated[list[str] | None, Meta(description="Names and patterns (`time.*`); null: all.")] = None
    rate: Annotated[str | None, Meta(description="600/min, 10/s, 5000/day.")] = None
    expires: Annotated[str | None, Meta(description="30d, 12h or 4w from now, or a date: 2027-01-01.")] = None
    again: Annotated[bool, Meta(description="The name was revoked, and is for the same person or program.")] = False


class NewToken(msgspec.Struct, frozen=True):
    """A token, shown this once."""

    token: Annotated[str, Meta(description="To be sent as `Authorization: Bearer …`. It can't be read again.")]
    entry: TokenEntry


class RevokedTokenReport(msgspec.Struct, frozen=True):
    """A token that is refused from now on."""

    name: str
    remove: Annotated[list[str], Meta(description="Lines of the config that are of no use any more.")]


@RestRoute("GET", "/tokens", "Server", role="admin", audited=False, gives=TokenList)
async def list_tokens(request: RestRequest) -> RestResponse:
    """List the named tokens."""
    return RestResponse(200, encode(await _run_token_job(request, _listed, request)))


def _listed(request: RestRequest) -> TokenList:
    app = request.context.app
    store = app.runtime.tokens.store
    rows, clients = token_rows(app.config, store), closed_clients(app.config, store)
    return TokenList(
        tokens=[msgspec.convert(one, TokenEntry) for one in rows],
        can_add=request.context.principal == OWNER,
        closes=clients is not None,
        clients=clients or [],
        none_left=clients is None and not accepts_any(app.config.http, store),
    )


@RestRoute(
    "POST",
    "/tokens",
    "Server",
    role="admin",
    takes=NewTokenRequest,
    example={"name": "ci", "role": "call", "expires": "30d"},
    gives=NewToken,
    errors=(400, 409),
)
async def add_named_token(request: RestRequest) -> RestResponse:
    """Make a token.

    Only in a session that a link of `onetool page` has begun: no token makes others. It is shown this once. The first
    one closes the server to clients that send none. No tool can call this.
    """
    if request.context.principal != OWNER:
        message = "Create tokens on the command line, or in a page opened with `onetool page`."
        raise RestError(403, "owner_needed", message)
    asked = converted(await json_body(request), NewTokenRequest)
    text, row = await _run_token_job(request, _added, request, asked)
    entry = msgspec.convert(row, TokenEntry)
    return RestResponse(200, encode(NewToken(text, entry)), ((b"cache-control", b"no-store"),))


def _added(request: RestRequest, asked: NewTokenRequest) -> tuple[str, dict[str, Any]]:
    config, store = request.context.app.config, request.context.app.runtime.tokens.store
    if asked.tools == []:
        raise InvalidError("/tools: Must not be empty. Leave it out to allow every tool.", "/tools")
    wanted = requested_token(
        name=asked.name,
        hash=token_hash(""),  # the store makes the token
        role=asked.role,
        tools=asked.tools,
        rate=asked.rate,
        expires=asked.expires,
    )
    for field, message, hint in wanted.problems():
        raise InvalidError(f"/{field}: {message}{f'; {hint}' if hint else ''}", f"/{field}")
    check_name(asked.name, config, store, only_print=False, again=asked.again)
    text, token = add_token(store, as_stored(wanted))
    return text, token_row(token)


@RestRoute("DELETE", "/tokens/{token}", "Server", role="admin", gives=RevokedTokenReport, errors=(404,))
async def revoke_named_token(request: RestRequest) -> RestResponse:
    """Revoke a token, at once.

    Also one of the config. What it does now ends within seconds.
    """
    request.scope["admission"].task = None  # it may be the caller's own
    app, (name,) = request.context.app, request.path
    places = await _run_token_job(request, revoke_token, name, app.config, app.runtime.tokens.store)
    return RestResponse(200, encode(RevokedTokenReport(name, places or [])))


async def _run_token_job(request: RestRequest, work: Callable[..., T], *args: Any) -> T:
    """Do it in a thread. Raises RestError if the stored tokens can't be used, or a name is taken."""
    try:
        return await asyncio.to_thread(work, *args)
    except TokenNameRevokedError as error:
        same = "Send `again: true` if it is for the same person or program; else take another name."
        raise RestError(409, "name_revoked", f"{error} {same}") from None
    except TokenNameError as error:
        status, code = (404, "not_found") if request.scope["method"] == "DELETE" else (409, "exists")
        raise RestError(status, code, f"{error}.") from None
    except TokenStoreError as error:
        raise RestError(503, "unavailable", f"{error}.") from None
