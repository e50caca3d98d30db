"""The menu `search`: two tools, `search` and `call`, for models that should not write code."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from onetool.app.describe import call_description, search_description
from onetool.core.call import ToolCall, new_id
from onetool.core.signature import FoundTool, found_lines, signature
from onetool.core.spec import ToolSpec
from onetool.interfaces.mcp.client import ClientCaller
from onetool.interfaces.mcp.content import as_json, from_result, text_block
from onetool.interfaces.mcp.menus.entry import ArgumentCheck, MenuEntry

if TYPE_CHECKING:
    from onetool.app import App

LIMIT = 5
HELP = "ot.help"
SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "what the tool should do"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": LIMIT},
    },
    "required": ["query"],
}
CALL = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "args": {"type": "object", "additionalProperties": True}},
    "required": ["name"],
}


def entries(app: "App", allowed: Collection[str] | None) -> list[MenuEntry]:
    return [_search(app, allowed), _call(app, allowed)]


def _search(app: "App", allowed: Collection[str] | None) -> MenuEntry:
    listing = {
        "name": "search",
        "title": "Search tools",
        "description": search_description(_packs(app, allowed)),
        "inputSchema": SEARCH,
        "annotations": {"readOnlyHint": True},
    }
    check = ArgumentCheck(listing)

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        check(args)
        found = app.search(args["query"], args.get("limit", LIMIT), allowed)
        has_help = allowed is None or HELP in allowed
        return {"content": [text_block(_as_lines([spec for spec, _ in found], has_help))]}

    return MenuEntry(listing=listing, call=call)


def _as_lines(found: list[ToolSpec], has_help: bool) -> str:
    if not found:
        return "Nothing fits. Try other words."
    tools = [FoundTool(spec.name, signature(spec, exact=True), spec.description) for spec in found]
    help_on = f'call(name="{HELP}", args={as_json({"query": found[0].name})})'
    about = f"All about one: {help_on}. " if has_help else ""
    return "\n".join(found_lines(tools, f"{about}More: a larger limit, or other words."))


def _packs(app: "App", allowed: Collection[str] | None) -> list[str]:
    """Also of servers that are still starting."""
    starting = [] if app.servers is None else app.servers.packs(allowed)
    return [*dict.fromkeys([*(tool.pack for tool in app.catalog.tools(allowed).held), *starting])]


def _call(app: "App", allowed: Collection[str] | None) -> MenuEntry:
    listing = {
        "name": "call",
        "title": "Call a tool",
        "description": call_description(),
        "inputSchema": CALL,
    }
    check = ArgumentCheck(listing)

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        check(args)
        wanted = ToolCall(new_id(), args["name"], args.get("args", {}), "mcp")
        result = await app.call(wanted, allowed, caller.progress)
        return await from_result(
            result, app.config.results.inline_bytes, app.runtime.store_result, app.runtime.read_result, _read_on
        )

    return MenuEntry(listing=listing, call=call)


def _read_on(handle: str, offset: int) -> str:
    return f'call(name="ot.result", args={{"handle": "{handle}", "offset": {offset}}})'
