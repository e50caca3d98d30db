"""A connection that is open: what is asked of the server, and what its end looks like."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.client import Client
from mcp_types import (
    CallToolResult,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from onetool.core.errors import ToolFailure
from onetool.core.failure import cut, words_for
from onetool.sources.mcp_servers.child import Child
from onetool.sources.mcp_servers.faults import Ended, Refused, advice, failure, is_closed, is_cut_short
from onetool.sources.mcp_servers.flight import Flight, current_flight
from onetool.sources.mcp_servers.listing import offers_of, plain, tools_of
from onetool.sources.mcp_servers.memory import Definition, Offers
from onetool.sources.mcp_servers.oauth_trouble import trouble_in, watching

if TYPE_CHECKING:
    from onetool.sources.mcp_servers.trouble import Trouble
    from onetool.sources.mcp_servers.upstream import Upstream

CHANGED = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)
LAST_WORDS = 0.5  # seconds: the end of a process comes a moment after the end of what it says


class Link:
    """One connection. `way` is how it was opened."""

    client: Client

    def __init__(self, upstream: "Upstream", way: str) -> None:
        self.way = way
        self.tools: list[Definition] = []
        self.offers = Offers()
        self.changed = asyncio.Event()  # it has others than it told
        self.trouble: Trouble | None = None  # of a web server
        self._upstream = upstream
        self._child: Child | None = None
        self._over = asyncio.Event()

    def attend(self, child: Child) -> None:
        """The process is there; when it says no more, this is over."""
        self._child = child
        child.lines.at_end = self._over.set

    @property
    def version(self) -> str | None:
        info = self.client.server_info
        return None if info is None else cut(f"{info.name} {info.version or ''}".strip(), 100)

    # What is asked of it

    async def list_all(self) -> None:
        note = self._upstream.journal.note
        self.tools = await tools_of(self.client, note)
        self.offers = await offers_of(self.client, note)

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

    async def prompt(self, name: str, args: Mapping[str, str], flight: Flight) -> list[Any]:
        """Its messages, as plain data."""
        current_flight.set(flight)
        return [plain(message) for message in (await self.client.get_prompt(name, dict(args))).messages]

    async def resource(self, uri: str, flight: Flight) -> dict[str, Any]:
        """What it holds, as {"text": …}, {"blob": …}, or where it has several parts as {"data": […]}."""
        current_flight.set(flight)
        parts = [plain(part) for part in (await self.client.read_resource(uri)).contents]
        if len(parts) != 1:
            return {"data": parts}
        return {"blob": parts[0]["blob"]} if "blob" in parts[0] else {"text": parts[0].get("text", "")}

    async def heard(self, message: Any) -> None:
        if isinstance(message, CHANGED):
            self.changed.set()

    async def listen(self) -> None:
        """Servers of today tell of changes only to those who listen."""
        has = self.client.server_capabilities
        tells = [part is not None and bool(part.list_changed) for part in (has.tools, has.prompts, has.resources)]
        if not self.is_modern or not any(tells):
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

    @property
    def is_modern(self) -> bool:
        """Whether it has agreed on a revision of today. Not before it is open."""
        return hasattr(self, "client") and self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    # Its end

    @property
    def has_ended(self) -> bool:
        return self._over.is_set()

    async def ended(self) -> None:
        """Until it is over, and a process that ends has told how."""
        await self._over.wait()
        if self._child is not None:
            await self._child.exited(LAST_WORDS)

    def give_up(self) -> None:
        """It is of no use any more: the next call gets another one."""
        self._over.set()

    def is_over(self, error: BaseException, flight: Flight) -> bool:
        """Whether this is the end of the connection, and not an answer of the server."""
        return self.has_ended or is_closed(error) or self._is_forgotten(error, flight)

    def was_cut(self, error: BaseException, flight: Flight) -> bool:
        """Whether there will be no answer to this call; others may get theirs."""
        return self.is_over(error, flight) or is_cut_short(error) or flight.trouble.was_unheard

    def was_unheard(self, error: BaseException, flight: Flight) -> bool:
        """Whether the server can't have done anything: it was not reached, or has forgotten who we are."""
        return flight.trouble.was_unheard or self._is_forgotten(error, flight)

    def _is_forgotten(self, error: BaseException, flight: Flight) -> bool:
        # Servers of today have no sessions: theirs is a 404 for something else.
        return isinstance(error, MCPError) and flight.trouble.status == 404 and not self.is_modern

    def why_ended(self, flight: Flight | None = None) -> str:
        if self._child is not None:
            return self._child.why_ended()
        of_call = None if flight is None else flight.trouble.words
        return of_call or (self.trouble and self.trouble.words) or "the connection was closed"

    def told(self, error: BaseException) -> BaseException:
        """Why it could not be opened, or was lost, in words that tell what to do about it."""
        if isinstance(error, ToolFailure) or trouble_in(error) is not None:
            return error
        if self.trouble is not None and self.trouble.words:
            refused = Refused(self.trouble.words + advice(self.trouble))
            refused.status = self.trouble.status
            return refused
        if self._child is not None and self._child.lines.broke_off:
            return Ended(self._child.why_ended())
        return error

    def failure(self, error: BaseException, flight: Flight) -> ToolFailure:
        """Of a call that got an answer, though not the one that was wanted."""
        return failure(error, flight.trouble.words)
