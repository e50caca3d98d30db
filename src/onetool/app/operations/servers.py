"""Manage MCP servers whose tools you use."""

# The command or URL of a server is for the role edit. Its log, which may contain a password, and actions on it are for
# admins, because they start code. No tool can use these operations: requests of HTTP tools and to MCP servers have the
# header `OneTool-Call`, which only a few routes accept (`for_tools`), and `http.token` can't be a secret of a tool.
# This does not restrict code of a pack, which runs in this process, and programs to which a user gave the token.

import asyncio
import logging
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.findings import server_problems
from onetool.app.operations import At, Command, operation
from onetool.app.operations.fields import DryRun, Input, Query, Words
from onetool.app.server_changes import changed_error, digest_of
from onetool.core.errors import OneToolError, ToolFailure
from onetool.core.text import or_rather
from onetool.sources.bundles.errors import ConflictError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.mcp_servers.servers import Servers, ServerStatus

log = logging.getLogger("onetool.serve")
MAX_LINES = 1000  # of a log, in one response
TEST_LINES = 10  # of the log of a server that failed its test


# Reading


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


class ListOptions(Query, frozen=True):
    """Options of a list of servers."""

    no_connect: Annotated[bool, Meta(description="Do not connect: show the state of the last connection.")] = False


@operation(command=Command("servers list", columns=("name", "state", "transport", "tools", "version", "problem")))
async def list_server_states(at: At, query: ListOptions) -> list[dict[str, Any]]:
    """List the servers with their state and tools. Also shows which tools have changed."""
    servers = at.app.servers
    if servers is None:
        at.note(no_servers(at.app))
        return []
    if not query.no_connect:
        await servers.wait_connected()
    return [{**msgspec.to_builtins(one), "problem": problem_lines(one)} for one in servers.statuses()]


def no_servers(app: "App") -> str:
    """Return why there are no servers."""
    if app.untrusted is not None:
        return f"This folder's servers are not in use: run {app.untrusted.command}"
    return "No servers are configured. Add one: onetool servers import, or onetool servers add NAME -- COMMAND"


def problem_lines(status: "ServerStatus") -> str:
    """Return what is wrong with a server, and what to do, in lines."""
    lines = [status.error] if status.error else []
    if status.state == "disabled":
        lines.append("it is switched off in the config")
    if status.changed:
        lines.append(f"changed: {', '.join(status.changed)}")
        lines.append(f"look at them, then: onetool servers approve {status.name}")
    if status.warning:
        lines.append(status.warning)
    return "\n".join(lines)


@operation("GET", "/servers", "Servers", completes="server")
def list_servers(at: At) -> ServerList:
    """List the MCP servers."""
    servers = at.app.servers
    statuses = [] if servers is None else servers.statuses(_allowed(at))
    return ServerList([_entry(at, status) for status in statuses])


@operation("GET", "/servers/{server}", "Servers", errors=(404,))
def get_server(at: At, server: str) -> ServerEntry:
    """Get a server, with the changes to its tools."""
    servers, status = found_server(at, server)
    differences = servers.differences(server, _allowed(at))
    changes = [ServerChange(name=tool, lines=lines) for tool, lines in differences.items()]
    return msgspec.structs.replace(_entry(at, status), changes=changes, digest=digest_of(differences))


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


@operation("GET", "/servers/{server}/offers", "Servers", role="edit", errors=(404,))
def get_server_offers(at: At, server: str) -> ServerOffers:
    """Get the prompts and resources of a server."""
    found_server(at, server)
    catalog, source = at.app.catalog, f"proxy:{server}"
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
    return ServerOffers(prompts, resources)


class LogQuery(Query, frozen=True):
    """The position in a log."""

    after: Annotated[Words, Meta(description="`next` of the previous page.")] = ""


@operation("GET", "/servers/{server}/logs", "Servers", role="admin", errors=(404,))
def read_server_log(at: At, server: str, query: LogQuery) -> ServerLogPage:
    """Read the log of a server.

    The log has the standard error of the server, and when it was started and lost: at most the last 1,000 lines. With
    `after`, only later lines are returned.
    """
    servers, _ = found_server(at, server)
    return ServerLogPage(*servers.log_after(server, query.after, MAX_LINES))


class LineOptions(Query, frozen=True):
    """Options of the log."""

    lines: Annotated[int, Meta(ge=1, description="The number of last lines.")] = 50


@operation(command=Command("servers logs"))
def show_server_log(at: At, server: str, query: LineOptions) -> list[str]:
    """Show the log of a server. The log has its standard error, and when it was started and lost."""
    found = found_server(at, server)[0].log_lines(server, query.lines)
    if at.is_shown:
        at.say("\n".join(found) or f"{server} has no log yet. Start it: onetool servers test {server}")
    return found


def found_server(at: At, name: str) -> "tuple[Servers, ServerStatus]":
    """Return all servers, and the state of the named one. Raises NotFoundError."""
    servers = at.app.servers
    statuses = {} if servers is None else {one.name: one for one in servers.statuses(_allowed(at))}
    if servers is None or name not in statuses:
        raise NotFoundError(f"There is no server {name[:100]!r}{or_rather(name, statuses) or '.'}")
    return servers, statuses[name]


def _allowed(at: At) -> Any:
    """Return the allow-list for what is shown."""
    return None if at.may_change else at.allowed


def _entry(at: At, status: "ServerStatus") -> ServerEntry:
    is_command, target = status.transport == "stdio", status.target if at.may_change else UNSET
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


# Connections


class NoOptions(Input, frozen=True):
    """An empty body."""


ACTION: dict[str, Any] = {"role": "admin", "example": {}, "errors": (404, 409)}


@operation("POST", "/servers/{server}/reconnect", "Servers", **ACTION)
async def reconnect_server(at: At, server: str, options: NoOptions) -> ServerEntry:
    """Reconnect a server."""
    servers, status = await asyncio.to_thread(_enabled, at, server)
    try:
        await servers.reconnect(status.name)
    except ToolFailure as error:  # another process runs it and can't be reached
        raise UnavailableError(f"{error}.") from None
    return await asyncio.to_thread(get_server, at, status.name)


@operation("POST", "/servers/{server}/test", "Servers", **ACTION)
async def test_server(at: At, server: str, options: NoOptions) -> ServerTest:
    """Ask a server for its tools.

    Connects the server first if necessary. The response has the result of the test, even if the server can't be
    reached.
    """
    servers, status = await asyncio.to_thread(_enabled, at, server)
    began, error, tools = monotonic(), None, 0
    try:
        tools = await servers.test(status.name)
    except OneToolError as failure:
        error = str(failure)
    log_lines = [] if error is None else await asyncio.to_thread(servers.log_lines, status.name, TEST_LINES)
    return ServerTest(
        ok=error is None, seconds=round(monotonic() - began, 3), tools=tools, error=error or UNSET, log=log_lines
    )


class LoginPage(msgspec.Struct, frozen=True):
    """The page where a user logs in, in a browser on the server's machine."""

    url: Annotated[str, Meta(description="For a browser on the machine of the server, which then connects again.")]


@operation("POST", "/servers/{server}/login", "Servers", **ACTION)
async def login_to_server(at: At, server: str, options: NoOptions) -> LoginPage:
    """Begin a login to a server.

    For servers with OAuth. 409 means that the server has no login.
    """
    servers, status = await asyncio.to_thread(_enabled, at, server)
    try:
        return LoginPage(await servers.begin_login(status.name))
    except OneToolError as error:
        raise ConflictError(f"{error}.", "no_login") from None


@operation(command=Command("servers login", noted=True))
async def log_in(at: At, server: str) -> None:
    """Log in to a server in the browser. The login is kept."""
    scopes = await found_server(at, server)[0].login(server, say=at.note)
    at.note(f"Logged in to {server}{f', with {scopes}' if scopes else ''}. Next: onetool servers test {server}")


@operation(command=Command("servers logout", noted=True))
def log_out(at: At, server: str) -> None:
    """Forget the login to a server."""
    if not found_server(at, server)[0].logout(server):
        raise NotFoundError(f"There is no login to {server}.")
    at.note(f"Deleted the login to {server}.")


def _enabled(at: At, name: str) -> "tuple[Servers, ServerStatus]":
    servers, status = found_server(at, name)
    if status.state == "disabled":
        raise ConflictError(f"{name} is switched off: POST /servers/{name}/enable.", "disabled")
    return servers, status


# Approving changes of tools


class ToolChange(msgspec.Struct, frozen=True):
    """A tool that has changed since its approval."""

    tool: str
    lines: list[str]


class ServerChanges(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes of a server's tools that were approved, or would be."""

    dry_run: bool
    server: str
    changes: list[ToolChange]
    digest: Annotated[str, Meta(description="For the real request, which fails if anything has changed since.")]


class SeenDigest(Input, frozen=True):
    """The digest of a dry run. Tools that have changed since are not approved."""

    digest: Annotated[str | None, Meta(description="The digest of a dry run.")] = None


@operation(command=Command("servers changes"))
async def show_server_changes(at: At, server: str) -> list[ToolChange]:
    """Show changes to tools since their approval."""
    _, changes = await _connected_changes(at, server)
    _say(at, changes)
    if at.is_shown:
        at.say(f"To approve the current tools: onetool servers approve {server}" if changes else "Nothing has changed.")
    return changes


@operation(
    "POST",
    "/tools/servers/{server}/approve",
    "Servers",
    **ACTION,
    command=Command("servers approve", rows="changes", noted=True),
)
async def approve_server(at: At, server: str, query: DryRun, asked: SeenDigest) -> ServerChanges:
    """Approve the current tools of a server. Needed after one of them has changed.

    With the `digest` of a dry run, tools that have changed since are refused with 409. No tool can call this.
    """
    from onetool.sources.mcp_servers.proxy import ChangedSinceSeenError

    servers, changes = await _connected_changes(at, server)
    differences = {one.tool: one.lines for one in changes}
    digest = digest_of(differences)
    if asked.digest not in (None, digest):
        raise changed_error(server)
    if not query.dry_run:
        try:
            await asyncio.to_thread(servers.approve, server, differences)
        except ChangedSinceSeenError:  # changed during this request
            raise changed_error(server) from None
        log.info("Approved: the current state of the server %s", server)
    _say(at, changes)
    if at.is_shown and not query.dry_run:
        at.say(f"Approved {server}." if changes else f"{server} has not changed.")
    return ServerChanges(dry_run=query.dry_run, server=server, changes=changes, digest=digest)


async def _connected_changes(at: At, name: str) -> "tuple[Servers, list[ToolChange]]":
    """Connect a server, and return the changes of its tools since their approval."""
    servers, _ = await asyncio.to_thread(found_server, at, name)
    await servers.wait_connected([name])
    status = next(one for one in servers.statuses() if one.name == name)
    if status.state not in ("connected", "disabled") and not status.changed:
        raise ConflictError(f"{name} can't be reached: {status.error}", "source_unavailable")
    differences = await asyncio.to_thread(servers.differences, name)
    return servers, [ToolChange(tool, lines) for tool, lines in differences.items()]


def _say(at: At, changes: list[ToolChange]) -> None:
    if at.is_shown:
        for one in changes:
            at.say("\n  ".join([one.tool, *one.lines]))
