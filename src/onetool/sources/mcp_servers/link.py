"""One connection to a server, by the official SDK's client. This module brings the SDK with it: a second of import."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp import MCPError
from mcp.client import Client
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolResult,
    Implementation,
    PaginatedRequestParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from onetool import __version__
from onetool.core.errors import OneToolError, ToolFailure
from onetool.core.failure import cut, text_of, words_for
from onetool.sources.mcp_servers.asking import Asking
from onetool.sources.mcp_servers.child import Incoming, started
from onetool.sources.mcp_servers.flight import Flight, current_flight
from onetool.sources.mcp_servers.memory import Definition, Offers
from onetool.sources.mcp_servers.oauth_trouble import trouble_in, watching

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.upstream import Upstream
    from onetool.sources.mcp_servers.web import Trouble

# What the SDK has to say in its log is for its authors; ours says what matters, in the journal.
for noisy in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(noisy).addHandler(logging.NullHandler())

US = Implementation(name="onetool", title="OneTool", version=__version__)
MOST_PAGES, MOST_LISTED = 200, 10_000
CHANGED = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)
OLD_WAYS = (400, 404, 405, 406, 415)  # what servers from before Streamable HTTP say to it
LONGEST = 600
CLOSED = (CONNECTION_CLOSED, "Connection closed")  # the SDK's own; servers use the code for all sorts of things
FORGOTTEN = "Session terminated"  # what the SDK makes of a 404 where there was a session


@asynccontextmanager
async def connected(upstream: "Upstream") -> "AsyncGenerator[Link]":
    """The way that worked last, else today's, else the older ones; with the list of its tools, within its time."""
    seconds = upstream.settings.connect_timeout
    with anyio.move_on_after(seconds) as limit:
        async with AsyncExitStack() as stack:
            link = await _first(upstream, stack)
            limit.deadline = float("inf")
            yield link
    if limit.cancelled_caught:
        raise ToolFailure(f"it gave no answer within {seconds:g} s (connect_timeout in its block of the config)")


async def _first(upstream: "Upstream", stack: AsyncExitStack) -> "Link":
    ways = _ways(upstream)
    for way in ways:
        try:
            async with AsyncExitStack() as attempt:
                link = await attempt.enter_async_context(_open(upstream, way))
                stack.push_async_exit(attempt.pop_all())
                return link
        except Exception as error:
            if way == ways[-1] or not _is_worth_another(error, way):
                raise
            upstream.journal.note(f"{why(error)}; trying the older way")
    raise AssertionError("there is always a way")


def _ways(upstream: "Upstream") -> list[str]:
    match upstream.settings.transport:
        case "stdio":
            ways = ["auto", "legacy"]  # some old servers end at any first word but theirs
        case "sse":
            return ["sse"]
        case "http":
            ways = ["auto", "sse"]
    return sorted(ways, key=lambda way: way != upstream.way)


def _is_worth_another(error: Exception, way: str) -> bool:
    cause = _cause(error)
    if isinstance(cause, _Ended):
        return cause.had_begun
    return way == "sse" or (isinstance(cause, _Refused) and cause.status in OLD_WAYS)


class _Ended(ToolFailure):
    """The process ended before it was connected."""

    had_begun = True


class _Refused(ToolFailure):
    """The web server said no."""

    status: int | None = None


@asynccontextmanager
async def _open(upstream: "Upstream", way: str) -> "AsyncGenerator[Link]":
    settings, journal = upstream.settings, upstream.journal
    asking = Asking(upstream.name, upstream.flights, journal)
    async with AsyncExitStack() as stack:
        incoming, trouble = None, None
        if settings.transport == "stdio":
            transport: Any = started(settings, journal, upstream.watch)
            incoming, outgoing = await stack.enter_async_context(transport)
            streams = incoming, outgoing
        else:
            from onetool.sources.mcp_servers.oauth import http_auth
            from onetool.sources.mcp_servers.web import Trouble, reached

            trouble = Trouble()
            auth = http_auth(upstream.name, str(settings.url), settings.auth, upstream.folder, known=upstream.known)
            streams = await stack.enter_async_context(reached(settings, way, auth, trouble))
        link = Link(upstream, way, incoming, trouble)
        client = Client(
            _there(streams),
            mode="legacy" if way == "sse" else way,
            client_info=US,
            cache=None,
            elicitation_callback=asking.elicit,
            sampling_callback=asking.sample,
            logging_callback=asking.log,
            log_level="info",
            message_handler=link.heard,
        )
        try:
            link.client = await stack.enter_async_context(client)
            await link.list_all()
        except Exception as error:
            raise link.not_opened(error) from error
        listening = asyncio.create_task(link.listen())
        try:
            yield link
        finally:
            listening.cancel()


@asynccontextmanager
async def _there(streams: Any) -> AsyncGenerator[Any]:
    """The client opens its transport; ours is open, since it must outlast the client."""
    yield streams


class Link:
    """A connection that is open."""

    client: Client

    def __init__(self, upstream: "Upstream", way: str, incoming: Incoming | None, trouble: "Trouble | None") -> None:
        self.way = way
        self.tools: list[Definition] = []
        self.offers = Offers()
        self.changed = asyncio.Event()  # it has other tools than it told
        self._upstream = upstream
        self._incoming = incoming
        self._trouble = trouble
        self._over = asyncio.Event()
        if incoming is not None:
            incoming.at_end = self._over.set

    @property
    def version(self) -> str | None:
        info = self.client.server_info
        return None if info is None else cut(f"{info.name} {info.version or ''}".strip(), 100)

    @property
    def has_ended(self) -> bool:
        return self._over.is_set()

    async def ended(self) -> None:
        await self._over.wait()

    # What is asked of it

    async def list_all(self) -> None:
        """Its tools; and its prompts and resources, which are no reason to do without the tools."""
        has, session = self.client.server_capabilities, self.client.session
        if has.tools is not None:
            self.tools = await _pages(session.list_tools, "tools")
        try:
            self.offers = Offers(
                prompts=tuple(await _pages(session.list_prompts, "prompts") if has.prompts else ()),
                resources=tuple(await _pages(session.list_resources, "resources") if has.resources else ()),
                templates=tuple(
                    await _pages(session.list_resource_templates, "resource_templates") if has.resources else ()
                ),
            )
        except (MCPError, ValidationError) as error:
            self._upstream.journal.note(f"its prompts and resources can't be listed: {why(error)}")

    async def prompt(self, name: str, args: Mapping[str, str], flight: Flight) -> list[Any]:
        """Its messages, as plain data."""
        current_flight.set(flight)
        result = await self.client.get_prompt(name, dict(args))
        return [_plain(message) for message in result.messages]

    async def resource(self, uri: str, flight: Flight) -> dict[str, Any]:
        """What it holds, as {"text": …}, {"blob": …}, or where it has several parts as {"data": […]}."""
        current_flight.set(flight)
        parts = [_plain(part) for part in (await self.client.read_resource(uri)).contents]
        if len(parts) != 1:
            return {"data": parts}
        return {"blob": parts[0]["blob"]} if "blob" in parts[0] else {"text": parts[0].get("text", "")}

    async def call(self, tool: str, args: Mapping[str, Any], flight: Flight) -> CallToolResult:
        current_flight.set(flight)

        async def told(progress: float, total: float | None, message: str | None) -> None:
            if flight.progress is not None:  # nothing is told then, but a type checker can't know
                flight.progress(progress, total, message)

        with watching() as login:
            try:
                return await self.client.call_tool(tool, dict(args), progress_callback=flight.progress and told)
            except Exception:
                if login.trouble is not None:
                    raise ToolFailure(str(login.trouble), reason="denied") from None
                raise

    async def heard(self, message: Any) -> None:
        if isinstance(message, CHANGED):
            self.changed.set()

    async def listen(self) -> None:
        """Servers of today tell of changes only to those who listen."""
        has = self.client.server_capabilities
        tells = [part is not None and bool(part.list_changed) for part in (has.tools, has.prompts, has.resources)]
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not any(tells):
            return
        tools, prompts, resources = tells
        while not self.has_ended:
            try:
                async with self.client.listen(
                    tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
                ) as events:
                    async for _ in events:
                        self.changed.set()
            except Exception as error:  # noqa: BLE001 - whatever goes wrong: calls go on, and later it may work
                self._upstream.journal.note(f"it does not tell of changes: {words_for(error)}")
            await asyncio.sleep(self._upstream.settings.connect_timeout)

    # What went wrong

    def is_over(self, error: BaseException) -> bool:
        """Whether this is the end of the connection, and not an answer of the server."""
        if self.has_ended:
            return True
        closed = (
            isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and error.message == "Connection closed"
        )
        return (
            closed
            or isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError)
            or self.was_unheard(error)
        )

    def was_unheard(self, error: BaseException) -> bool:
        """Whether the server can't have done anything: it was not reached, or has forgotten who we are."""
        if self._trouble is None:
            return False
        forgotten = (
            isinstance(error, MCPError) and error.message == "Session terminated" and self._trouble.status == 404
        )
        return self._trouble.was_unheard or forgotten

    def give_up(self) -> None:
        """It is of no use any more: the next call gets another one."""
        self._over.set()

    def why_ended(self) -> str:
        if self._trouble is not None:
            return self._trouble.words or "the connection was closed"
        if self._incoming is None:
            return "the connection was closed"
        return self._incoming.why_ended()

    def not_opened(self, error: Exception) -> Exception:
        """The same in words that tell what to do about it."""
        if trouble_in(error) is not None:
            return error
        if self._trouble is not None and self._trouble.words:
            refused = _Refused(self._trouble.words + _advice(self._trouble.status))
            refused.status = self._trouble.status
            return refused
        if self._incoming is not None and self._incoming.ended:
            return _Ended(self._incoming.why_ended())
        return error

    def failure(self, error: BaseException) -> ToolFailure:
        """Of a call that the server answered with an error, or with something else than an answer."""
        if isinstance(error, ToolFailure):
            return error
        if isinstance(error, MCPError):
            words = error.message or f"error {error.code}"
            if self._trouble is not None and self._trouble.status and self._trouble.status >= 400:
                words = f"{words} ({self._trouble.words})"
            return ToolFailure(cut(words, LONGEST))
        if isinstance(error, ValidationError):
            return ToolFailure(f"its answer is not what MCP allows: {_first_fault(error)}", reason="output_invalid")
        if isinstance(error, RuntimeError):  # the SDK's word for content that does not fit the tool's own schema
            return ToolFailure(cut(text_of(error).partition("\n")[0], LONGEST), reason="output_invalid")
        return ToolFailure(cut(why(error), LONGEST))


async def _pages(list_page: Any, kind: str) -> list[Definition]:
    """All pages of a list. One that turns in circles ends."""
    listed: list[Definition] = []
    cursors: set[str] = set()
    cursor: str | None = None
    while len(cursors) < MOST_PAGES and len(listed) < MOST_LISTED:
        page = await list_page(params=PaginatedRequestParams(cursor=cursor))
        listed += [_plain(one) for one in getattr(page, kind)]
        cursor = page.next_cursor
        if not cursor or cursor in cursors:
            break
        cursors.add(cursor)
    return listed[:MOST_LISTED]


def _plain(model: Any) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def why(error: BaseException) -> str:
    """In words: of a group, its first cause."""
    cause = trouble_in(error) or _cause(error)
    if isinstance(cause, OneToolError):
        return text_of(cause)
    if isinstance(cause, MCPError):
        return f"it refuses: {cause.message}"
    if isinstance(cause, ValidationError):
        return f"it answers with something that is not MCP: {_first_fault(cause)}"
    return words_for(cause)


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    return cut(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}", 200)


def _advice(status: int | None) -> str:
    match status:
        case 401 | 403:
            return "; it wants a login: see auth and headers in its block of the config"
        case 404:
            return "; there is no MCP server at this url"
        case _:
            return ""
