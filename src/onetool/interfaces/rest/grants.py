"""The handlers of /hosts, /secrets, /tokens and /tools/clients: access for tools, callers and clients.

They share their code with `onetool hosts allow`, `onetool auth set` and `onetool tokens`. Changes apply at once. Values
of secrets can be set but never read. Tokens can be made only in a session started with a link of `onetool page`, so
that a stolen token can't make others.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.access import accepts_any, as_stored
from onetool.app.grants import GrantValueError, SecretRow, allow_host, secrets_in_use, store_secret
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
from onetool.sources.bundles.errors import invalid_at
from onetool.sources.bundles.validation import converted


class HostGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options for a host. `private` allows the host to resolve to an address of this machine or its network."""

    private: Annotated[bool, Meta(description="Always true for private names and addresses.")] = False


class GrantedHost(msgspec.Struct, frozen=True):
    """A host that tools may connect to."""

    host: Annotated[str, Meta(description="The host as in the config: IDN in ASCII.")]
    private: bool


@RestRoute(
    "PUT", "/hosts/{host}", "Server", role="admin", takes=HostGrant, example={}, gives=GrantedHost, errors=(400, 409)
)
def allow_host_for_tools(request: RestRequest, asked: HostGrant) -> RestResponse:
    """Allow tools to connect to a host.

    The host is written to the config and allowed at once. It may have a port. Wildcards can be allowed only on the
    command line. No tool can call this.
    """
    with _grant(request):
        return RestResponse(200, encode(GrantedHost(*allow_host(request.context.app, request.path[0], asked.private))))


class SecretGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a secret, and its hosts. The value can't be read again."""

    value: Annotated[str, Meta(extra_json_schema={"writeOnly": True, "minLength": 1})]
    hosts: Annotated[tuple[str, ...], Meta(description="It is sent only to these. `http://` allows plain http.")] = ()

    def __repr__(self) -> str:
        return "SecretGrant(***)"


class SecretState(msgspec.Struct, frozen=True):
    """A secret, without its value."""

    name: str
    hosts: Annotated[tuple[str, ...], Meta(description="The hosts that the secret is bound to.")]


class SecretList(msgspec.Struct, frozen=True):
    """The stored secrets and the keys of model providers, without values."""

    secrets: list[SecretRow]


@RestRoute("GET", "/secrets", "Server", role="admin", audited=False, gives=SecretList)
def list_secrets(request: RestRequest) -> RestResponse:
    """List the secrets and their hosts, without values.

    The list also has the key of each model provider, even if it is not set.
    """
    return RestResponse(200, encode(SecretList(secrets_in_use(request.context.app))))


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
def set_secret(request: RestRequest, asked: SecretGrant) -> RestResponse:
    """Store a secret, bound to hosts.

    The secret is written to the secrets file and can be used at once. This never changes the hosts of a stored secret
    (409), and changes its value only with `replace`. No tool can call this.
    """
    (name,) = request.path
    with _grant(request):
        hosts = store_secret(request.context.app, name, asked.value, asked.hosts, request.query["replace"])
    return RestResponse(200, encode(SecretState(name, hosts)))


@contextmanager
def _grant(request: RestRequest) -> Iterator[None]:
    """Translate errors about values. The caller gets the response even if the new config revokes its token."""
    request.scope["admission"].task = None
    try:
        yield
    except GrantValueError as error:
        if error.part == "host":
            raise RestError(400, "invalid", f"{error}.", part="path", pointer="/host") from None
        raise invalid_at(f"/{error.part}", str(error)) from None


# Clients


class ClientEntries(msgspec.Struct, frozen=True):
    """The entries for this server in the configs of MCP clients."""

    clients: list[ClientEntry]


@RestRoute("GET", "/tools/clients", "Server", query=(SERVER_URL,), gives=ClientEntries)
def list_client_entries(request: RestRequest) -> RestResponse:
    """List the entries that MCP clients need to call this server.

    These are the entries that `onetool init --client` writes: with the URL or, for the role edit, with a command that
    starts OneTool on this machine. They contain no secrets.
    """
    config, is_editor = request.context.app.config, request.context.principal.may("edit")
    try:
        found = client_entries(config, request.query["url"], is_editor)
    except ValueError as error:
        raise RestError(400, "bad_parameter", str(error), part="query", pointer="/url") from None
    return RestResponse(200, encode(ClientEntries(found)))


# Named tokens


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


class NewTokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to make."""

    name: Annotated[str, Meta(description="At most 64 letters, digits, dots, dashes and underscores.")]
    role: Role = "call"
    tools: Annotated[list[str] | None, Meta(description="Names and patterns (`time.*`); null: all.")] = None
    rate: Annotated[str | None, Meta(description="600/min, 10/s, 5000/day.")] = None
    expires: Annotated[str | None, Meta(description="A time from now (30d, 12h, 4w) or a date (2027-01-01).")] = None
    again: Annotated[bool, Meta(description="Use a revoked name again, for the same person or program.")] = False


class NewToken(msgspec.Struct, frozen=True):
    """A new token, which is shown only once."""

    token: Annotated[str, Meta(description="Send it as `Authorization: Bearer …`. It can't be read again.")]
    entry: TokenEntry


class RevokedTokenReport(msgspec.Struct, frozen=True):
    """A token that was just revoked."""

    name: str
    remove: Annotated[list[str], Meta(description="Lines of the config that can be removed now.")]


@RestRoute("GET", "/tokens", "Server", role="admin", audited=False, gives=TokenList)
def list_tokens(request: RestRequest) -> RestResponse:
    """List the named tokens."""
    app = request.context.app
    store = app.runtime.tokens.store
    with _token_errors(request):
        rows, clients = token_rows(app.config, store), closed_clients(app.config, store)
        none_left = clients is None and not accepts_any(app.config.http, store)
    found = TokenList(
        tokens=[msgspec.convert(one, TokenEntry) for one in rows],
        can_add=request.context.principal == OWNER,
        closes=clients is not None,
        clients=clients or [],
        none_left=none_left,
    )
    return RestResponse(200, encode(found))


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

    Needs a session started with a link of `onetool page`: tokens can't make other tokens. The token is shown only once.
    The first token closes the server to clients that send none. No tool can call this.
    """
    if request.context.principal != OWNER:
        message = "Create tokens on the command line, or in a page opened with `onetool page`."
        raise RestError(403, "owner_needed", message)
    asked = converted(await json_body(request), NewTokenRequest)
    return await asyncio.to_thread(_add_token, request, asked)


def _add_token(request: RestRequest, asked: NewTokenRequest) -> RestResponse:
    config, store = request.context.app.config, request.context.app.runtime.tokens.store
    if asked.tools == []:
        raise invalid_at("/tools", "must not be empty; leave it out to allow every tool")
    wanted = requested_token(
        name=asked.name,
        hash=token_hash(""),  # the store makes the token
        role=asked.role,
        tools=asked.tools,
        rate=asked.rate,
        expires=asked.expires,
    )
    for field, message, hint in wanted.problems():
        raise invalid_at(f"/{field}", f"{message}{f'; {hint}' if hint else ''}")
    with _token_errors(request):
        check_name(asked.name, config, store, only_print=False, again=asked.again)
        text, token = add_token(store, as_stored(wanted))
    entry = msgspec.convert(token_row(token), TokenEntry)
    return RestResponse(200, encode(NewToken(text, entry)), ((b"cache-control", b"no-store"),))


@RestRoute("DELETE", "/tokens/{token}", "Server", role="admin", gives=RevokedTokenReport, errors=(404,))
def revoke_named_token(request: RestRequest) -> RestResponse:
    """Revoke a token at once.

    Tokens of the config can be revoked, too. Requests under way with the token end within seconds.
    """
    request.scope["admission"].task = None  # it may be the caller's own
    app, (name,) = request.context.app, request.path
    with _token_errors(request):
        places = revoke_token(name, app.config, app.runtime.tokens.store)
    return RestResponse(200, encode(RevokedTokenReport(name, places or [])))


@contextmanager
def _token_errors(request: RestRequest) -> Iterator[None]:
    """Raise RestError if the stored tokens can't be used or a name is taken."""
    try:
        yield
    except TokenNameRevokedError as error:
        same = "Send `again: true` if the token is for the same person or program; otherwise choose another name."
        raise RestError(409, "name_revoked", f"{error} {same}") from None
    except TokenNameError as error:
        status, code = (404, "not_found") if request.scope["method"] == "DELETE" else (409, "exists")
        raise RestError(status, code, f"{error}.") from None
    except TokenStoreError as error:
        raise RestError(503, "unavailable", f"{error}.") from None
