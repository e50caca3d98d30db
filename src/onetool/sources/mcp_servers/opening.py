"""Opens a connection to a server, by the official SDK's client. Brings the SDK with it: a second of import.

The way that worked last is tried first, else today's, else the older ones.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp.client import Client
from mcp_types import Implementation

from onetool import __version__
from onetool.core.errors import ToolFailure
from onetool.sources.mcp_servers.asking import Asking
from onetool.sources.mcp_servers.faults import Ended, Refused, cause, why
from onetool.sources.mcp_servers.link import Link
from onetool.sources.mcp_servers.streams import MOST_UNANSWERED, Completed, Incoming, Outgoing

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.upstream import Upstream

# What the SDK has to say in its log is for its authors; what matters stands in the journal, in our words.
for noisy in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(noisy).addHandler(logging.NullHandler())

US = Implementation(name="onetool", title="OneTool", version=__version__)
OLD_WAYS = (400, 404, 405, 406, 415)  # what servers from before Streamable HTTP say to it


@asynccontextmanager
async def connected(upstream: "Upstream") -> "AsyncGenerator[Link]":
    """A connection, with what the server offers listed; within its time."""
    seconds = upstream.settings.connect_timeout
    with anyio.move_on_after(seconds) as limit:
        async with AsyncExitStack() as stack:
            link = await _first(upstream, stack)
            limit.deadline = float("inf")
            yield link
    if limit.cancelled_caught:
        raise ToolFailure(f"it gave no answer within {seconds:g} s (connect_timeout in its block of the config)")


async def _first(upstream: "Upstream", stack: AsyncExitStack) -> Link:
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
            upstream.journal.words.clear()
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
    found = cause(error)
    return isinstance(found, Ended) or way == "sse" or (isinstance(found, Refused) and found.status in OLD_WAYS)


@asynccontextmanager
async def _open(upstream: "Upstream", way: str) -> AsyncGenerator[Link]:
    link = Link(upstream, way)
    try:
        async with AsyncExitStack() as stack:
            streams = await stack.enter_async_context(_transport(upstream, link))
            link.client = await stack.enter_async_context(_client(upstream, link, streams))
            # Values are checked where those of all tools are, by a faster validator.
            link.client.session.validate_tool_result = _unchecked
            await link.list_all()
            listening = asyncio.create_task(link.listen())
            stack.callback(listening.cancel)
            yield link
    except (Exception, BaseExceptionGroup) as error:  # in one of the SDK's tasks, or in who waits for them
        raise link.told(error) from error


def _transport(upstream: "Upstream", link: Link) -> Any:
    settings = upstream.settings
    if settings.transport == "stdio":
        return _process(upstream, link)
    from onetool.sources.mcp_servers.oauth import http_auth
    from onetool.sources.mcp_servers.trouble import Trouble
    from onetool.sources.mcp_servers.web import reached

    link.trouble = Trouble()
    auth = http_auth(upstream.name, str(settings.url), settings.auth, upstream.folder, known=upstream.known)
    return reached(settings, link.way, auth, link.trouble)


@asynccontextmanager
async def _process(upstream: "Upstream", link: Link) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    child = await upstream.process()
    link.attend(child)
    try:
        unanswered = asyncio.Semaphore(MOST_UNANSWERED)
        yield Incoming(child.lines, upstream.journal, unanswered), Outgoing(child, unanswered)
    finally:
        await child.end()


def _client(upstream: "Upstream", link: Link, streams: Any) -> Client:
    asking = Asking(upstream.name, upstream.flights, upstream.journal)
    return Client(
        _there(Completed(streams[0], lambda: link.is_modern), streams[1]),
        mode="legacy" if link.way == "sse" else link.way,
        client_info=US,
        cache=None,
        elicitation_callback=asking.elicit,
        sampling_callback=asking.sample,
        logging_callback=asking.log,
        log_level="info",
        message_handler=link.heard,
    )


async def _unchecked(name: str, result: Any) -> None:
    """In place of the SDK's own check."""


@asynccontextmanager
async def _there(*streams: Any) -> AsyncGenerator[Any]:
    """The client opens its transport; ours is open, since it must outlast the client."""
    yield streams
