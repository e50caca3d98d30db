"""The handlers of MCP servers: state, logs, connections and approval. `server_edit` changes the config.

The command or URL of a server is for the role edit. Its log, which may contain a password, and actions on it are for
admins.

Actions that start code need the role admin. No tool can use these routes: requests of HTTP tools and to MCP servers
have the header `OneTool-Call`, which only a few routes accept (`RestRoute.for_tools`), and `http.token` can't be a
secret of a tool. This does not restrict code of a pack, which runs in this process, and programs to which a user gave
the token.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.findings import server_problems
from onetool.app.operations.fields import DryRun, Query, Words
from onetool.core.errors import OneToolError, ToolFailure
from onetool.core.text import or_rather
from onetool.http.asgi import encode
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import RestContext, RestRequest, RestResponse
from onetool.interfaces.rest.route import RestRoute

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.servers import Servers, ServerStatus

log = logging.getLogger("onetool.serve")
MAX_LINES = 1000  # of a log, in one response
TEST_LINES = 10  # of the log of a server that failed its test


class ServerChange(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that has changed since its approval: all changes, line by line."""

    name: str
    lines: list[str]


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The state of a server. It has either a `command` or a `url`."""

    name: str
    state: Annotated[str, Meta(description="connected, connecting, disconnected, idle (not used yet) or disabled.")]
    is_enabled: bool
    tools: int
    transport: str
    changed: Annotated[int, Meta(description="Number of its tools that have changed since their approval.")]
    needs_login: Annotated[bool, Meta(description="Whether it requires a login: see `POST …/login`.")]
    refused: Annotated[bool, Meta(description="Whether its tools can't be called until the changes are approved.")]
    since: Annotated[str | None, Meta(description="The time of the last change of its state.")]
    version: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    hints: Annotated[list[str] | UnsetType, Meta(description="Commands that may fix the problem.")] = UNSET
    command: Annotated[str | UnsetType, Meta(description="For the role edit. Secrets are masked.")] = UNSET
    url: Annotated[str | UnsetType, Meta(description="For the role edit. Secrets are masked.")] = UNSET
    changes: Annotated[list[ServerChange] | UnsetType, Meta(description="Only for a single server.")] = UNSET
    digest: Annotated[str | UnsetType, Meta(description="For `approve`: approve only these tools.")] = UNSET


class ServerList(msgspec.Struct, frozen=True):
    """The MCP servers of the config."""

    servers: list[ServerEntry]


class ServerLogPage(msgspec.Struct, frozen=True):
    """Lines of a log. `next` is the `after` of the next request."""

    lines: list[str]
    next: Annotated[str, Meta(description="`after` of the next request.")]


class LogQuery(Query, frozen=True):
    """The position in a log."""

    after: Annotated[Words, Meta(description="`next` of the previous page.")] = ""


class ServerTest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of asking a server for its tools."""

    ok: bool
    seconds: float
    tools: int
    error: str | UnsetType = UNSET
    log: Annotated[list[str], Meta(description="The last lines of its log, if it failed.")] = []


class OfferedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of a server."""

    name: str
    description: str
    arguments: list[str]


class OfferedResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A resource or resource template: `notes://{day}`."""

    uri: str
    name: str
    description: str
    mime_type: str | None


class ServerOffers(msgspec.Struct, frozen=True):
    """The prompts and resources of a server."""

    prompts: list[OfferedPrompt]
    resources: list[OfferedResource]


class LoginPage(msgspec.Struct, frozen=True):
    """The page where a user logs in, in a browser on the server's machine."""

    url: Annotated[str, Meta(description="For a browser on the machine of the server, which then connects again.")]


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty body."""


server_action = partial(
    RestRoute, "POST", tag="Servers", role="admin", takes=NoOptions, example={}, gives=ServerEntry, errors=(404, 409)
)


@RestRoute("GET", "/servers", "Servers", gives=ServerList)
def list_servers(request: RestRequest) -> RestResponse:
    """List the MCP servers."""
    context = request.context
    servers = context.app.servers
    statuses = [] if servers is None else servers.statuses(_allowed(context))
    return context.response(ServerList([_entry(context, status) for status in statuses]))


@RestRoute("GET", "/servers/{server}", "Servers", gives=ServerEntry, errors=(404,))
def get_server(request: RestRequest) -> RestResponse:
    """Get a server, with the changes to its tools."""
    return server_response(request.context, request.path[0])


@RestRoute("GET", "/servers/{server}/offers", "Servers", role="edit", gives=ServerOffers, errors=(404,))
def get_server_offers(request: RestRequest) -> RestResponse:
    """Get the prompts and resources of a server."""
    (name,) = request.path
    found_server(request.context, name)
    catalog, source = request.context.app.catalog, f"proxy:{name}"
    prompts = [
        OfferedPrompt(name=one.name, description=one.spec.description, arguments=[*one.spec.input_schema["properties"]])
        for one in catalog.prompts.values()
        if one.spec.source == source
    ]
    resources = [
        OfferedResource(uri=one.uri, name=one.name, description=one.spec.description, mime_type=one.mime_type)
        for one in catalog.resources
        if one.spec.source == source
    ]
    return request.context.response(ServerOffers(prompts, resources))


@RestRoute("GET", "/servers/{server}/logs", "Servers", role="admin", query=LogQuery, gives=ServerLogPage, errors=(404,))
def read_server_log(request: RestRequest) -> RestResponse:
    """Read the log of a server.

    The log has the standard error of the server, and when it was started and lost: at most the last 1,000 lines. With
    `after`, only later lines are returned.
    """
    (name,) = request.path
    servers, _ = found_server(request.context, name)
    lines, position = servers.log_after(name, request.query.after, MAX_LINES)
    return RestResponse(200, encode(ServerLogPage(request.context.clean(lines, None), position)))


@server_action("/servers/{server}/reconnect")
async def reconnect_server(request: RestRequest, _: NoOptions) -> RestResponse:
    """Reconnect a server."""
    servers, status = await asyncio.to_thread(_enabled, request.context, request.path[0])
    try:
        await servers.reconnect(status.name)
    except ToolFailure as error:  # another process runs it and can't be reached
        raise RestError(503, "unavailable", f"{error}.", hints=error.hints) from None
    return await asyncio.to_thread(server_response, request.context, status.name)


@server_action("/servers/{server}/test", gives=ServerTest)
async def test_server(request: RestRequest, body: NoOptions) -> RestResponse:
    """Ask a server for its tools.

    Connects the server first if necessary. The response has the result of the test, even if the server can't be
    reached.
    """
    servers, status = await asyncio.to_thread(_enabled, request.context, request.path[0])
    began, error, tools = monotonic(), None, 0
    try:
        tools = await servers.test(status.name)
    except OneToolError as failure:
        error = str(failure)
    log_lines = [] if error is None else await asyncio.to_thread(servers.log_lines, status.name, TEST_LINES)
    found = ServerTest(
        ok=error is None, seconds=round(monotonic() - began, 3), tools=tools, error=error or UNSET, log=log_lines
    )
    return request.context.response(found)


@server_action("/servers/{server}/login", gives=LoginPage)
async def login_to_server(request: RestRequest, _: NoOptions) -> RestResponse:
    """Begin a login to a server.

    For servers with OAuth. 409 means that the server has no login.
    """
    servers, status = await asyncio.to_thread(_enabled, request.context, request.path[0])
    try:
        page = await servers.begin_login(status.name)
    except OneToolError as error:
        raise RestError(409, "no_login", f"{error}.") from None
    return RestResponse(200, encode(LoginPage(page)))


def server_response(context: RestContext, name: str) -> RestResponse:
    """Build the response with one server."""
    servers, status = found_server(context, name)
    differences = servers.differences(name, _allowed(context))
    changes = [ServerChange(name=tool, lines=lines) for tool, lines in differences.items()]
    entry = _entry(context, status)
    return context.response(msgspec.structs.replace(entry, changes=changes, digest=digest_of(differences)))


def _allowed(context: RestContext) -> Any:
    """Return the allow-list for the response."""
    return None if context.may_change else context.allowed


def found_server(context: RestContext, name: str) -> "tuple[Servers, ServerStatus]":
    """Return all servers, and the state of the named one. Raises RestError."""
    servers = context.app.servers
    statuses = {} if servers is None else {one.name: one for one in servers.statuses(_allowed(context))}
    if servers is None or name not in statuses:
        raise RestError(404, "not_found", f"There is no server {name[:100]!r}{or_rather(name, statuses) or '.'}")
    return servers, statuses[name]


def _enabled(context: RestContext, name: str) -> "tuple[Servers, ServerStatus]":
    servers, status = found_server(context, name)
    if status.state == "disabled":
        raise RestError(409, "disabled", f"{name} is switched off: POST /servers/{name}/enable.")
    return servers, status


def _entry(context: RestContext, status: "ServerStatus") -> ServerEntry:
    is_command, target = status.transport == "stdio", status.target if context.may_change else UNSET
    since = None if status.since is None else datetime.fromtimestamp(status.since, UTC).isoformat(timespec="seconds")
    return ServerEntry(
        name=status.name,
        state=status.state,
        is_enabled=status.state != "disabled",
        tools=status.tools,
        transport=status.transport,
        changed=len(status.changed),
        needs_login=status.needs_login,
        refused=status.refused,
        since=since,
        version=status.version or UNSET,
        error=status.error or UNSET,
        hints=[command for _, command in server_problems(status)] or UNSET,
        command=target if is_command else UNSET,
        url=UNSET if is_command else target,
    )


# Approving changes of tools


class SeenDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The digest of a dry run. Tools that have changed since are not approved."""

    digest: Annotated[str | None, Meta(description="The digest of a dry run.")] = None


@RestRoute(
    "POST",
    "/tools/servers/{server}/approve",
    "Servers",
    role="admin",
    query=DryRun,
    takes=SeenDigest,
    example={},
    gives="ServerChanges",
    errors=(404, 409),
)
async def approve_server(request: RestRequest, seen: SeenDigest) -> RestResponse:
    """Approve the current tools of a server.

    With the `digest` of a dry run, tools that have changed since are refused with 409. No tool can call this.
    """
    from onetool.sources.mcp_servers.proxy import ChangedSinceSeenError

    (name,) = request.path
    servers, _ = found_server(request.context, name)
    await servers.wait_connected([name])
    status = next(one for one in servers.statuses() if one.name == name)
    if status.state not in ("connected", "disabled") and not status.changed:
        raise RestError(409, "source_unavailable", f"{name} can't be reached: {status.error}")
    differences = await asyncio.to_thread(servers.differences, name)
    digest = digest_of(differences)
    if seen.digest not in (None, digest):
        raise changed_error(name)
    dry_run = request.query.dry_run
    if not dry_run:
        try:
            await asyncio.to_thread(servers.approve, name, differences)
        except ChangedSinceSeenError:  # changed during this request
            raise changed_error(name) from None
        log.info("Approved over REST: the current state of the server %s", name)
    found = [{"tool": tool, "lines": lines} for tool, lines in differences.items()]
    return RestResponse(200, encode({"dryRun": dry_run, "server": name, "changes": found, "digest": digest}))


def changed_error(
    what: str | Path, advice: str = "Repeat the request with dryRun=true and look at the result."
) -> RestError:
    return RestError(409, "changed", f"{what} has changed in the meantime. {advice}")


def sealed_digest(context: RestContext, data: Any, secrets: Mapping[str, str]) -> str:
    """Return a digest that also covers secrets. It is keyed, so that the secrets can't be guessed by trying."""
    text = json.dumps([data, {name: value[:] for name, value in secrets.items()}], sort_keys=True)
    return hmac.new(context.bundles.key(), text.encode(), sha256).hexdigest()[:32]


def digest_of(data: Any) -> str:
    return sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()[:32]
