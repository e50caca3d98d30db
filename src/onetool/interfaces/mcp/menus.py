"""Menus: the tools that a client sees in tools/list. The config or the client chooses the menu.

`run` is one tool that runs code. It costs a few hundred tokens, for any number of tools. `search` has three tools:
`search`, `call`, and `run` for many calls at once. `direct` has every tool under its name or alias, for small sets and
for clients that select tools themselves. `bare` has the tools of one MCP server under its own names (`serve --bare`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onetool.app.allow_lists import AllowLists
from onetool.app.describe import call_description, run_tool, search_description
from onetool.config.model import BARE
from onetool.core.call import ServerResult, ToolCall, new_id
from onetool.core.errors import BadArguments
from onetool.core.registry import Snapshot
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.core.structured_content import HANDLE, RESULT
from onetool.core.tool_lines import MAX_LINES, SEARCH_LIMIT, ToolLine, found_lines, tool_line
from onetool.http.asgi import encode
from onetool.interfaces.mcp.client import ClientCaller, RemoteClient
from onetool.interfaces.mcp.content import (
    NOTES,
    as_json,
    content_blocks,
    from_reply,
    from_result,
    promise_of,
    protocol_error,
    text_block,
    with_notes,
)
from onetool.script.run_result import CallLog, RunResult
from onetool.sources.mcp_servers.apps import is_for_apps, not_for_apps, page_of

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.app.runtime import Runtime

log = logging.getLogger("onetool.mcp")

# How a client continues to read a large result, by handle and offset.
READ_ON_BY_CALL = 'call(name="ot.result", args={{"handle": "{}", "offset": {}}})'
READ_ON_BY_TOOL = 'the tool ot__result with {{"handle": "{}", "offset": {}}}'
TASK_GRACE = 0.1  # seconds that a call may take before it becomes a task

Call = Callable[[Mapping[str, Any], ClientCaller], Awaitable[dict[str, Any]]]


class MenuEntry(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A tool of a menu. Clients that support tasks get a task after `task_after` seconds; None means never."""

    listing: Mapping[str, Any]
    call: Call
    task_after: float | None = None
    needs_task: bool = False
    also: tuple[str, ...] = ()  # further names, which are not listed

    @property
    def name(self) -> str:
        return self.listing["name"]

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The arguments that HTTP clients repeat in headers, by name, with the names of the headers."""
        properties = self.listing["inputSchema"].get("properties", {})
        return {
            name: mark
            for name, schema in properties.items()
            if isinstance(schema, dict) and isinstance(mark := schema.get("x-mcp-header"), str)
        }


class ArgumentCheck:
    """A check of arguments for the menu's own tools (run, search, call). The executor checks those of other tools."""

    def __init__(self, listing: Mapping[str, Any]) -> None:
        self._spec = ToolSpec(name=listing["name"], description="", input_schema=listing["inputSchema"])

    def __call__(self, args: Mapping[str, Any]) -> None:
        if problems := self._spec.arguments.check(args):
            listed = "; ".join(map(str, problems))
            raise BadArguments(f"Invalid arguments for {self._spec.name}: {listed}", hints=[signature(self._spec)])


class Menu(msgspec.Struct, frozen=True):
    """A menu, built once per catalogue. `full_bytes` is the size of a list of all tools, computed on demand."""

    listing: list[Mapping[str, Any]]
    entries: Mapping[str, MenuEntry]
    encoded: Callable[[], msgspec.Raw]  # the listing
    sent_bytes: Callable[[], int]
    full_bytes: Callable[[], int]


def menu(kind: str, app: "App", allowed: Collection[str] | None = None) -> Menu:
    """Make a menu of this kind from the current tools of the app."""
    entries = _ENTRIES[kind](app, allowed)
    listing = [entry.listing for entry in entries]
    encoded = cache(lambda: msgspec.Raw(encode(listing)))
    sent = cache(lambda: listing_bytes(listing))
    full = sent if kind == "direct" else cache(lambda: listing_bytes(one for _, one, _ in _listed(app, allowed)))
    by_name = {name: entry for entry in entries for name in (*entry.also, entry.name)}
    return Menu(listing, by_name, encoded, sent, full)


MAX_MENUS = 256  # cached menus, one for each kind and allow-list


class Menus:
    """A cache of menus, each made once per catalogue."""

    def __init__(self, app: "App", kind: str | None, allow_lists: AllowLists) -> None:
        """Make menus for the app. `kind` is for clients that choose none; None means the config's kind."""
        self._app = app
        self._kind = kind
        self._allow_lists = allow_lists
        self.is_bare = kind == BARE
        self._made: dict[tuple[str, tuple[str, ...] | None], tuple[Snapshot, Menu]] = {}

    def kind_of(self, client: RemoteClient) -> str:
        return BARE if self.is_bare else client.menu or self._kind or self._app.config.menu

    def of(self, client: RemoteClient) -> Menu:
        kind = self.kind_of(client)
        catalogue = self._app.catalog.registry.snapshot()
        key = kind, client.principal.tools
        made = self._made.get(key)
        if made is None or made[0] is not catalogue:
            if len(self._made) >= MAX_MENUS:
                self._made.clear()
            made = self._made[key] = (catalogue, menu(kind, self._app, self._allow_lists.of(client.principal)))
        return made[1]

    def in_use(self) -> Collection[tuple[str, tuple[str, ...] | None]]:
        """Return the kind and the allow-list of each menu that clients have seen."""
        return tuple(self._made)


# The menu `run`

LARGE_RESULT = 20_000  # bytes: about two milliseconds
RUN_TASK_AFTER = 5.0  # seconds, after which polling a task is better than waiting


def _run(app: "App", allowed: Collection[str] | None, in_search: bool = False) -> MenuEntry:
    listing = run_tool(app.catalog, app.config, allowed, in_search)
    check = ArgumentCheck(listing)

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        check(args)
        caller.calls = CallLog(app.catalog.registry)
        try:
            result = await app.run(args["code"], allowed, source="mcp", progress=caller.progress, watch=caller.calls)
        except asyncio.CancelledError as stopped:  # there is no response, but a task can report the calls
            caller.made = "; ".join(getattr(stopped, "__notes__", ()))
            raise
        answer = await _answer(app.runtime, result)
        if not result.meta.keys().isdisjoint(NOTES):
            answer = with_notes(answer, result)
        app.runtime.record_reply(
            result, [block["text"] if block["type"] == "text" else block for block in answer["content"]]
        )
        return answer

    return MenuEntry(listing=listing, call=call, task_after=RUN_TASK_AFTER)


async def _answer(runtime: "Runtime", result: RunResult) -> dict[str, Any]:
    data, size = result.data, len(result.printed)
    if isinstance(data, dict | list):
        blocks = await content_blocks(data, runtime.read_result) if result.ok else None
        if blocks is not None:  # images and the like are neither text nor data
            blocks = [*([text_block(result.printed)] if result.printed else []), *blocks]
            texts = [block["text"] for block in blocks if block["type"] == "text"]
            if sum(len(text.encode(errors="replace")) for text in texts) <= runtime.config.results.inline_bytes:
                return {"content": blocks}
            text = replace(result, data="\n".join(texts), printed="")
            answer = from_reply(await asyncio.to_thread(runtime.reply, text), runtime.config.results.link)
            return {**answer, "content": [*answer["content"], *(one for one in blocks if one["type"] != "text")]}
        size += len(encode(data))
    elif isinstance(data, str):
        size += len(data)
    if size > LARGE_RESULT:  # encoding takes long and would block the loop
        reply = await asyncio.to_thread(runtime.reply, result)
    else:
        reply = runtime.reply(result)
    answer = from_reply(reply, runtime.config.results.link)
    if not runtime.config.run.structured or not result.ok:  # the text is shorter for a model
        return answer
    return {**answer, "structuredContent": {HANDLE: reply.stored.handle} if reply.stored else {RESULT: result.data}}


# The menu `search`

HELP = "ot.help"
SEARCH_SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "what the tool should do"},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LINES, "default": SEARCH_LIMIT},
        "pack": {"type": "string", "description": "only tools of this pack"},
    },
    "required": ["query"],
}
CALL_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "args": {"type": "object", "additionalProperties": True}},
    "required": ["name"],
}


def _search(app: "App", allowed: Collection[str] | None) -> MenuEntry:
    starting = [] if app.servers is None else app.servers.packs(allowed)  # servers whose tools are unknown so far
    listing = {
        "name": "search",
        "title": "Search tools",
        "description": search_description([*dict.fromkeys([*app.catalog.packs(allowed), *starting])]),
        "inputSchema": SEARCH_SCHEMA,
        "annotations": {"readOnlyHint": True},
    }
    check = ArgumentCheck(listing)

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        check(args)
        limit, pack = args.get("limit", SEARCH_LIMIT), args.get("pack")
        found = await asyncio.to_thread(app.search, args["query"], limit, allowed, pack)  # keeps the loop free
        if not found:
            return {"content": [text_block("Nothing found. Try other words.")]}
        tools = [ToolLine(spec.name, tool_line(spec, exact=True)) for spec, _ in found]
        help_on = f'call(name="{HELP}", args={as_json({"query": tools[0].name})})'
        about = f"Details of a tool: {help_on}. " if allowed is None or HELP in allowed else ""
        return {"content": [text_block("\n".join(found_lines(tools, about, "limit" in args)))]}

    return MenuEntry(listing=listing, call=call)


def _call(app: "App", allowed: Collection[str] | None) -> MenuEntry:
    listing = {"name": "call", "title": "Call a tool", "description": call_description(), "inputSchema": CALL_SCHEMA}
    check = ArgumentCheck(listing)

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        check(args)
        wanted = ToolCall(new_id(), args["name"], args.get("args", {}), "mcp")
        result = await app.call(wanted, allowed, caller.progress)
        is_whole = caller.wants_whole and caller.channel is not None  # results of tasks are kept in memory
        return await from_result(result, app.runtime, is_whole, READ_ON_BY_CALL.format)

    return MenuEntry(listing=listing, call=call)


# The menu `direct`


def _direct_entries(app: "App", allowed: Collection[str] | None) -> list[MenuEntry]:
    listed = _listed(app, allowed)
    in_apps = _names_in_apps(listed)
    return [
        _direct_entry(app, spec, listing, (own, *in_apps.get(spec.name, ())), allowed) for spec, listing, own in listed
    ]


def _bare_entries(app: "App", allowed: Collection[str] | None) -> list[MenuEntry]:
    return [
        _direct_entry(app, spec, {**listing, "name": spec.name.partition(".")[2]}, (), allowed, is_whole=True)
        for spec, listing, _ in _listed(app, allowed)
    ]


def _names_in_apps(listed: "list[MenuTool]") -> dict[str, tuple[str, ...]]:
    """Return the names by which pages of servers (MCP Apps) call tools: the servers' own names of their tools.

    MCP does not name the page that makes a call. So a name used by several servers with pages calls none of them, pages
    can't call servers without pages, and the listing marks all other tools as not callable by pages.
    """
    servers = {spec.source for spec, _, _ in listed if page_of(spec.server_listing.get("_meta"))}
    taken = {name for _, listing, own in listed for name in (listing["name"], own)}
    found: dict[str, list[str]] = {}
    for spec, listing, _ in listed if servers else ():
        if spec.source not in servers:
            listing["_meta"] = not_for_apps(listing.get("_meta", {}))
        elif is_for_apps(listing.get("_meta", {})):
            found.setdefault(spec.name.partition(".")[2], []).append(spec.name)
    return {tools[0]: (name,) for name, tools in found.items() if len(tools) == 1 and name not in taken}


MenuTool = tuple[ToolSpec, dict[str, Any], str]  # the tool, its listing and its own name


def _listed(app: "App", allowed: Collection[str] | None) -> list[MenuTool]:
    """Return every tool with its listing, and its own name if it is listed under an alias."""
    from onetool.formats import ProviderNames, provider_tools  # not needed by the menu `run`

    specs = app.tools(allowed)
    listings = provider_tools(specs, "mcp")
    taken = {listing["name"] for listing in listings}
    aliases: dict[str, dict[str, Any]] = {}  # the first alias of each tool that is not the name of another tool
    for alias, target in app.config.aliases.items():
        fits = ProviderNames([ToolSpec(name=alias, description="")], "mcp").to_provider(alias) == alias
        if fits and target not in aliases and alias not in taken:
            aliases[target] = {"name": alias}
    return [(spec, one | aliases.get(spec.name, {}), one["name"]) for spec, one in zip(specs, listings, strict=True)]


def _direct_entry(
    app: "App",
    spec: ToolSpec,
    listing: dict[str, Any],
    also: tuple[str, ...],
    allowed: Collection[str] | None,
    *,
    is_whole: bool = False,
) -> MenuEntry:
    """Return the entry of one tool. `is_whole` means that nothing is stored behind a handle."""
    promise = promise_of(spec, listing.get("outputSchema"))

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        caller.can_run = False
        result = await app.call(ToolCall(new_id(), spec.name, args, "mcp"), allowed, caller.progress)
        if isinstance(result, ServerResult) and (error := protocol_error(result)) is not None:
            raise error
        wants_whole = is_whole or (caller.wants_whole and caller.channel is not None)
        return await from_result(result, app.runtime, wants_whole, READ_ON_BY_TOOL.format, promise)

    return MenuEntry(
        listing=listing,
        call=call,
        task_after=None if spec.task is None else TASK_GRACE,
        needs_task=spec.task == "required",
        also=also,
    )


_ENTRIES: Mapping[str, Callable[["App", Collection[str] | None], list[MenuEntry]]] = {
    "run": lambda app, allowed: [_run(app, allowed)],
    "search": lambda app, allowed: [_search(app, allowed), _call(app, allowed), _run(app, allowed, in_search=True)],
    "direct": _direct_entries,
    BARE: _bare_entries,
}


def listing_bytes(listing: Iterable[Mapping[str, Any]]) -> int:
    """Return the size of a list in bytes. Encodes items one by one so that other threads can run."""
    return 1 + sum(len(encode(one)) + 1 for one in listing)
