"""The menus: which tools a client sees in tools/list. The config chooses the menu, or the client does.

`run` is one tool that runs code: it costs a few hundred tokens, however many tools there are. `search` is three tools:
`search`, `call`, and `run` for many calls at once. `direct` is every tool under its name or alias, for small sets and
clients that select tools themselves.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.app.allow_lists import AllowLists
from onetool.app.describe import call_description, run_tool, search_description
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

# How a client reads on in a large result, by its handle and offset.
READ_ON_BY_CALL = 'call(name="ot.result", args={{"handle": "{}", "offset": {}}})'
READ_ON_BY_TOOL = 'the tool ot__result with {{"handle": "{}", "offset": {}}}'
TASK_GRACE = 0.1  # seconds that a call may take before it becomes a task

Call = Callable[[Mapping[str, Any], ClientCaller], Awaitable[dict[str, Any]]]


class MenuEntry(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A tool of a menu. After `task_after` seconds a client with tasks gets a task; None is never."""

    listing: Mapping[str, Any]
    call: Call
    task_after: float | None = None
    needs_task: bool = False
    also: tuple[str, ...] = ()  # further names that it answers to, though they are not listed

    @property
    def name(self) -> str:
        return self.listing["name"]

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Arguments that a client over HTTP repeats in a header of its own, each with the name of that header."""
        properties = self.listing["inputSchema"].get("properties", {})
        return {
            name: mark
            for name, schema in properties.items()
            if isinstance(schema, dict) and isinstance(mark := schema.get("x-mcp-header"), str)
        }


class ArgumentCheck:
    """Checks the arguments of the menu's own tools (run, search, call); others are checked by the executor."""

    def __init__(self, listing: Mapping[str, Any]) -> None:
        self._spec = ToolSpec(name=listing["name"], description="", input_schema=listing["inputSchema"])

    def __call__(self, args: Mapping[str, Any]) -> None:
        if problems := self._spec.arguments.check(args):
            listed = "; ".join(map(str, problems))
            raise BadArguments(f"Invalid arguments for {self._spec.name}: {listed}", hints=[signature(self._spec)])


class Menu(msgspec.Struct, frozen=True):
    """A menu, built once per catalogue. `full_bytes` is the size of a list of every tool, measured on demand."""

    listing: list[Mapping[str, Any]]
    entries: Mapping[str, MenuEntry]
    encoded: Callable[[], msgspec.Raw]  # the listing
    sent_bytes: Callable[[], int]
    full_bytes: Callable[[], int]


def menu(kind: str, app: "App", allowed: Collection[str] | None = None) -> Menu:
    """Make the menu of that kind, over the tools that the app has now."""
    entries = _ENTRIES[kind](app, allowed)
    listing = [entry.listing for entry in entries]
    encoded = cache(lambda: msgspec.Raw(encode(listing)))
    sent = cache(lambda: listing_bytes(listing))
    full = sent if kind == "direct" else cache(lambda: listing_bytes(one for _, one, _ in _listed(app, allowed)))
    by_name = {name: entry for entry in entries for name in (*entry.also, entry.name)}
    return Menu(listing, by_name, encoded, sent, full)


MAX_MENUS = 256  # that are kept; there is one for each allow-list


class Menus:
    """The menus that clients are shown, each made once per catalogue."""

    def __init__(self, app: "App", kind: str | None, allow_lists: AllowLists) -> None:
        """`kind` is for clients that have chosen none; None: the one of the config."""
        self._app = app
        self._kind = kind
        self._allow_lists = allow_lists
        self._made: dict[tuple[str, tuple[str, ...] | None], tuple[Snapshot, Menu]] = {}

    def kind_of(self, client: RemoteClient) -> str:
        return client.menu or self._kind or self._app.config.menu

    def of(self, client: RemoteClient) -> Menu:
        kind = client.menu or self._kind or self._app.config.menu
        catalogue = self._app.catalog.registry.snapshot()
        key = kind, client.principal.tools
        made = self._made.get(key)
        if made is None or made[0] is not catalogue:
            if len(self._made) >= MAX_MENUS:
                self._made.clear()
            made = self._made[key] = (catalogue, menu(kind, self._app, self._allow_lists.of(client.principal)))
        return made[1]

    def in_use(self) -> Collection[tuple[str, tuple[str, ...] | None]]:
        """Return the kinds that clients were shown, each with what these clients may call."""
        return tuple(self._made)


# The menu `run`

LARGE_RESULT = 20_000  # bytes: about two milliseconds
RUN_TASK_AFTER = 5.0  # seconds: code that is slower than this is better asked about than waited for


def _run(app: "App", allowed: Collection[str] | None, in_search: bool = False) -> MenuEntry:
    listing = run_tool(app.catalog, app.config, allowed, in_search)
    check = ArgumentCheck(listing)

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        check(args)
        caller.calls = CallLog(app.catalog.registry)
        try:
            result = await app.run(args["code"], allowed, source="mcp", progress=caller.progress, watch=caller.calls)
        except asyncio.CancelledError as stopped:  # nobody is answered; but a task can tell
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
        if blocks is not None:  # pictures and the like are no text, and no data
            return {"content": [*([text_block(result.printed)] if result.printed else []), *blocks]}
        size += len(encode(data))
    elif isinstance(data, str):
        size += len(data)
    if size > LARGE_RESULT:  # writing it out takes a while, and others wait for the loop
        reply = await asyncio.to_thread(runtime.reply, result)
    else:
        reply = runtime.reply(result)
    answer = from_reply(reply)
    if not runtime.config.run.structured or not result.ok:  # the text is the shorter form for a model
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
    starting = [] if app.servers is None else app.servers.packs(allowed)  # servers, of which nothing is known yet
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
        found = await asyncio.to_thread(app.search, args["query"], limit, allowed, pack)  # others wait for the loop
        if not found:
            return {"content": [text_block("Nothing fits. Try other words.")]}
        tools = [ToolLine(spec.name, tool_line(spec, exact=True)) for spec, _ in found]
        help_on = f'call(name="{HELP}", args={as_json({"query": tools[0].name})})'
        about = f"All about one: {help_on}. " if allowed is None or HELP in allowed else ""
        return {"content": [text_block("\n".join(found_lines(tools, about, "limit" in args)))]}

    return MenuEntry(listing=listing, call=call)


def _call(app: "App", allowed: Collection[str] | None) -> MenuEntry:
    listing = {
        "name": "call",
        "title": "Call a tool",
        "description": call_description(),
        "inputSchema": CALL_SCHEMA,
    }
    check = ArgumentCheck(listing)

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        check(args)
        wanted = ToolCall(new_id(), args["name"], args.get("args", {}), "mcp")
        result = await app.call(wanted, allowed, caller.progress)
        is_whole = caller.wants_whole and caller.channel is not None  # the results of tasks are kept in memory
        return await from_result(result, app.runtime, is_whole, READ_ON_BY_CALL.format)

    return MenuEntry(listing=listing, call=call)


# The menu `direct`


def _direct_entries(app: "App", allowed: Collection[str] | None) -> list[MenuEntry]:
    listed = _listed(app, allowed)
    in_apps = _names_in_apps(listed)
    return [
        _direct_entry(app, spec, listing, (own, *in_apps.get(spec.name, ())), allowed) for spec, listing, own in listed
    ]


def _names_in_apps(listed: "list[MenuTool]") -> dict[str, tuple[str, ...]]:
    """Return the names by which pages of servers (MCP Apps) call tools: the names that the servers gave them.

    MCP does not say whose page makes a call. So a name that several servers with pages use calls none of them, a server
    without pages is never meant, and the tools of all others are marked as not for pages in their listing.
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


MenuTool = tuple[ToolSpec, dict[str, Any], str]  # with its listing and its own name


def _listed(app: "App", allowed: Collection[str] | None) -> list[MenuTool]:
    """Return every tool with its listing, and its own name if it is listed under an alias."""
    from onetool.formats import ProviderNames, provider_tools  # the menu `run` does without

    specs = app.tools(allowed)
    listings = provider_tools(specs, "mcp")
    taken = {listing["name"] for listing in listings}
    aliases: dict[str, dict[str, Any]] = {}  # the first one of each tool that is not the name of another tool
    for alias, target in app.config.aliases.items():
        fits = ProviderNames([ToolSpec(name=alias, description="")], "mcp").to_provider(alias) == alias
        if fits and target not in aliases and alias not in taken:
            aliases[target] = {"name": alias}
    return [(spec, one | aliases.get(spec.name, {}), one["name"]) for spec, one in zip(specs, listings, strict=True)]


def _direct_entry(
    app: "App", spec: ToolSpec, listing: dict[str, Any], also: tuple[str, ...], allowed: Collection[str] | None
) -> MenuEntry:
    promise = promise_of(spec, listing.get("outputSchema"))

    async def call(args: Mapping[str, Any], caller: ClientCaller) -> dict[str, Any]:
        caller.can_run = False
        result = await app.call(ToolCall(new_id(), spec.name, args, "mcp"), allowed, caller.progress)
        if isinstance(result, ServerResult) and (error := protocol_error(result)) is not None:
            raise error
        is_whole = caller.wants_whole and caller.channel is not None
        return await from_result(result, app.runtime, is_whole, READ_ON_BY_TOOL.format, promise)

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
}


def listing_bytes(listing: Iterable[Mapping[str, Any]]) -> int:
    """Return the size of a list in bytes, encoded one by one so that other threads can run."""
    return 1 + sum(len(encode(one)) + 1 for one in listing)
