"""The lists of a server, page by page. One tool that MCP does not allow must not cost all the others."""

from collections.abc import Callable
from typing import Any

from mcp import MCPError
from mcp.client import Client
from mcp_types import ListToolsResult, PaginatedRequestParams, Tool
from pydantic import ValidationError

from onetool.sources.mcp_servers.memory import Definition, Offers

MOST_PAGES, MOST_LISTED = 200, 5_000

Note = Callable[[str], None]


async def tools_of(client: Client, note: Note) -> list[Definition]:
    if client.server_capabilities.tools is None:
        return []
    try:
        return await _pages(client.session.list_tools, "tools")
    except ValidationError:
        return await _pages(_Tolerant(client, note), "tools")


async def offers_of(client: Client, note: Note) -> Offers:
    """Its prompts and resources: no reason to do without its tools."""
    has, session = client.server_capabilities, client.session
    try:
        prompts = await _pages(session.list_prompts, "prompts") if has.prompts else []
        resources = await _pages(session.list_resources, "resources") if has.resources else []
        templates = await _pages(session.list_resource_templates, "resource_templates") if has.resources else []
    except (MCPError, ValidationError) as error:
        note(f"its prompts and resources can't be listed: {type(error).__name__}")
        return Offers()
    return Offers(prompts=tuple(prompts), resources=tuple(resources), templates=tuple(templates))


def plain(model: Any) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


async def _pages(list_page: Any, kind: str) -> list[Definition]:
    """All pages of a list. One that turns in circles ends."""
    listed: list[Definition] = []
    cursors: set[str] = set()
    cursor: str | None = None
    while len(cursors) < MOST_PAGES and len(listed) < MOST_LISTED:
        page = await list_page(params=PaginatedRequestParams(cursor=cursor))
        listed += [plain(one) for one in getattr(page, kind)]
        cursor = page.next_cursor
        if not cursor or cursor in cursors:
            break
        cursors.add(cursor)
    return listed[:MOST_LISTED]


class _Tolerant:
    """A page of tools without those that are none.

    The SDK takes a page as a whole or not at all, and has no door for this: parts of it are used that are not promised.
    """

    def __init__(self, client: Client, note: Note) -> None:
        self._session: Any = client.session
        self._note = note

    async def __call__(self, params: PaginatedRequestParams) -> ListToolsResult:
        data: dict[str, Any] = {"method": "tools/list", "params": plain(params)}
        options: dict[str, Any] = {}
        self._session._stamp(data, options)
        raw = await self._session._dispatcher.send_raw_request(data["method"], data["params"], options)
        if not isinstance(raw.get("tools"), list):
            return ListToolsResult.model_validate(raw, by_name=False)  # which says what is wrong with it
        cursor = raw.get("nextCursor")
        page = ListToolsResult(
            tools=[tool for one in raw["tools"] if (tool := self._tool(one)) is not None],
            next_cursor=cursor if isinstance(cursor, str) else None,
        )
        return self._session._absorb_tool_listing(page, complete=not params.cursor and not cursor)

    def _tool(self, listed: Any) -> Tool | None:
        try:
            return Tool.model_validate(listed, by_name=False)
        except ValidationError as error:
            name = listed.get("name") if isinstance(listed, dict) else listed
            fault = error.errors(include_url=False, include_input=False)[0]
            self._note(f"this is no tool: {name!r:.100}: {'.'.join(map(str, fault['loc']))}: {fault['msg']:.100}")
            return None
