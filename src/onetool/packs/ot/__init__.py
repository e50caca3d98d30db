"""The pack `ot`: tools that list and explain tools, read large results and report usage and state.

The tools are made for one `View` of the app, so `ot` is not a module of functions like other packs.
"""

from collections.abc import Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from onetool.core.call import Page
from onetool.core.errors import ToolFailure, cut, message_of
from onetool.core.signature import signature as signature_of
from onetool.core.spec import ToolSpec
from onetool.core.text import or_rather
from onetool.packs.ot import listings
from onetool.packs.ot.listings import Info, ListedTool, Listing, View, contains, current_catalogue, normalized, packs_of
from onetool.sdk.decorators import TOOL_MARK, tool
from onetool.sdk.pack import Arrange, bind_handler, read_function

if TYPE_CHECKING:
    from onetool.packs.ot.help import Help
    from onetool.sdk import LogSpan

MAX_CALL_SECONDS = 600.0  # seconds; the called tool has its own limit


def _span(name: str, **fields: Any) -> "LogSpan":
    from onetool.sdk import LogSpan  # listing tools does not need it

    return LogSpan(name, **fields)


class DiscoveryTools:
    """The tools for finding and calling tools: each method with `@tool`. Models read the docstrings."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._listing = Listing(view.spellings)

    @cached_property
    def _helper(self) -> "Help":
        from onetool.packs.ot.help import Help  # listing tools does not need it

        return Help(self._view, self._listing)

    def _find(self, name: str) -> ListedTool:
        catalogue, allowed = current_catalogue()
        if listed := self._listing.find(self._view.aliases.get(name, name), catalogue, allowed):
            return listed
        near = or_rather(name, [tool.word for tool in self._listing.of(catalogue, allowed)])
        raise ToolFailure(f"Tool not found: {name:.200}{near}", reason="not_found")

    @tool(read_only=True, examples=['ot.tools(pattern="file", info="full")'])
    def tools(self, pattern: str = "", info: Info = "min") -> list[str | dict[str, Any]]:
        """List the tools that you can call, under the names that code uses.

        Args:
            pattern: Only tools with this text in their name, ignoring case: "search", or "github." for a whole pack.
            info: "list" for only names, "min" with a short description, "full" with everything needed for a call.

        Returns:
            Names; or {name, description}; or {name, signature, description, source} and, if known, `args` (a text for
            each argument), `returns`, `example` and `requires` (commands and libraries). Empty without matches.
        """
        with _span("ot.tools", pattern=pattern, info=info):
            return self._listing.tools(*current_catalogue(), pattern, info)

    @tool(read_only=True, examples=['ot.packs(pattern="git", info="full")'])
    def packs(self, pattern: str = "", info: Info = "min") -> list[str | dict[str, Any]]:
        """List the packs.

        Args:
            pattern: Only packs with this text in their name, ignoring case.
            info: "list" for only names, "min" for {name, source, tool_count}, "full" also for instructions and tools.

        Returns:
            Names; or {name, source, tool_count}, where `source` is local or proxy (an MCP server); in full also
            `instructions`, if any, and `tools` with {name, description}.
        """
        with _span("ot.packs", pattern=pattern, info=info):
            catalogue, allowed = current_catalogue()
            tools, servers = self._listing.of(catalogue, allowed), self._view.server_packs(allowed)
            packs = packs_of(tools, servers, dict(self._view.instructions))
            matches = [pack for pack in packs.values() if contains(normalized(pattern), pack.name)]
            if info == "list":
                return [pack.name for pack in matches]
            return [pack.in_short() if info == "min" else pack.in_full() for pack in matches]

    @tool(read_only=True)
    def aliases(self, pattern: str = "", info: Info = "min") -> list[str | dict[str, str]]:
        """List the aliases, which are shorter names for calling tools.

        Args:
            pattern: Only aliases with this text in their name or target, ignoring case.
            info: "list" for only names, "min" for "name -> target", "full" for {name, target}.
        """
        with _span("ot.aliases", pattern=pattern, info=info):
            catalogue, allowed = current_catalogue()
            every = self._view.aliases
            if allowed is not None:  # only for permitted tools
                every = {name: to for name, to in every.items() if self._listing.find(to, catalogue, allowed)}
            return listings.aliases(every, pattern, info)

    @tool(read_only=True)
    def snippets(self, pattern: str = "", info: Info = "min") -> list[str] | str:
        """List the snippets: code templates, called as `$name key=value`, but not inside of code.

        Args:
            pattern: Only snippets with this text in their name or description, ignoring case.
            info: "list" for only names, "min" for "name: description", "full" for a text with parameters, body and an
                example.
        """
        with _span("ot.snippets", pattern=pattern, info=info):
            return listings.snippets(self._view, pattern, info)

    @tool(read_only=True, examples=['ot.help("fs.read_file")', 'ot.help(["billing", "crm"])'])
    def help(self, query: str | list[str] = "", info: Info = "min") -> str | list[str]:
        """Explain a tool, a pack, an alias or a $snippet, or find the closest ones, allowing typos.

        Args:
            query: A name, several names, or words that describe what you need. A pack is listed with a line for each
                tool. Without a query, the result is an overview.
            info: The amount of detail for each match if no name equals the query: "list", "min" or "full".

        Returns:
            Text; with info="list" the matching names.
        """
        with _span("ot.help", query=query, info=info):
            return self._helper.help(query, info, *current_catalogue())

    @tool(read_only=True, examples=['ot.search("read a file")'])
    def search(self, query: str, limit: Annotated[int, Meta(ge=1)] | None = None, pack: str | None = None) -> list[str]:
        """Find tools by what they do, in plain words, best first.

        Args:
            query: What the tool should do.
            limit: The maximum number of tools. Default: 5, or fewer if their lines are long.
            pack: Only tools of this pack.

        Returns:
            For each tool, a line with signature and description; matching $snippets and aliases; and a line on how to
            see more. Empty without matches.
        """
        from onetool.core.tool_lines import SEARCH_LIMIT, ToolLine, found_lines, tool_line  # listing does not need it

        with _span("ot.search", query=query, limit=limit, **({} if pack is None else {"pack": pack})):
            catalogue, allowed = current_catalogue()
            lines = [
                ToolLine(listed.word, tool_line(listed.spec, listed.word))
                for spec, _ in self._view.search(query, limit or SEARCH_LIMIT, allowed, pack)
                if (listed := self._listing.find(spec.name, catalogue, allowed))  # the index may have newer tools
            ]
            if pack is None:
                lines += [ToolLine(name, line) for name, line in self._helper.others(query, catalogue, allowed)]
            if not lines:
                return []
            has_help = self._listing.find("ot.help", catalogue, allowed) is not None
            about = f"Details: ot.help({lines[0].name!r}). " if has_help else ""
            return found_lines(lines, about, is_limited=limit is not None)

    @tool(read_only=True, examples=['ot.signature("fs.read_file")'])
    def signature(self, name: str) -> str:
        """Return the signature of a tool in one line.

        Args:
            name: The tool, as code calls it or under its own name.
        """
        with _span("ot.signature", name_=name):
            listed = self._find(name)
            return signature_of(listed.spec, listed.word)

    @tool(timeout=MAX_CALL_SECONDS)
    async def call(self, name: str, args: Mapping[str, Any] | None = None) -> Any:
        """Call any tool by name, including names that are not valid in Python.

        Args:
            name: The tool, as code calls it or under its own name.
            args: Its arguments by their names.
        """
        from onetool.sdk import call_tool

        with _span("ot.call", tool=name):
            return await call_tool(self._find(name).spec.name, **(args or {}))

    @tool(timeout=MAX_CALL_SECONDS, examples=["ot.all(crm.list_customers, tier='bronze')"])
    async def all(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        limit: Annotated[int, Meta(ge=1)] | None = None,
        key: str | None = None,
    ) -> list[Any]:
        """Call a paginated tool and return the items of all pages as one list.

        Follows page numbers, offsets, cursors and page tokens, recognised by the names of the tool's arguments and
        results. In code, pass the tool itself, and its arguments by name.

        Args:
            tool: The tool in code, else its name.
            args: Its arguments by their names.
            limit: The maximum number of items. By default, more than 10,000 are an error.
            key: The name of the list with the items, if a result has several lists.
        """
        from onetool.core.paginator import MAX_PAGES, Paginator, PagingError
        from onetool.sdk import call_tool

        with _span("ot.all", tool=tool):
            spec = self._find(tool).spec
            pages = Paginator(spec, args or {}, limit, key)
            try:
                for _ in range(MAX_PAGES):
                    if pages.next_args is None:
                        return pages.items
                    pages.add(await call_tool(spec.name, **pages.next_args))
            except PagingError as error:
                raise ToolFailure(str(error)) from None
            raise ToolFailure(f"{spec.name} has more than {MAX_PAGES:,} pages: pass limit=… to get the first items")


# State, reports, reload

RESULT_SECONDS = 20.0  # a search takes up to five, and may wait as long for another one
HEALTH_SECONDS = 120.0  # servers may take a while to start
STATS_SECONDS = 60.0  # aggregating a million calls takes some seconds
RELOAD_SECONDS = 60.0  # packs may be slow to import
MAX_SHOWN = 300  # characters of an argument in an error
PERIODS = ("day", "week", "month", "all")


class StateTools:
    """The tools for state, results, stats and reload: each method with `@tool`."""

    def __init__(self, view: View) -> None:
        self._view = view

    @tool(read_only=True)
    def config(self) -> dict[str, Any]:
        """Return the configured aliases, snippets and MCP servers by name."""
        with _span("ot.config"):
            catalogue, allowed = current_catalogue()
            snippets = self._view.snippets(catalogue, allowed)
            return {
                "aliases": {name: to for name, to in self._view.aliases.items() if allowed is None or to in allowed},
                "snippets": {name: {"description": snippet.description} for name, snippet in snippets.items()},
                "servers": [server["name"] for server in self._view.servers(allowed)],
            }

    @tool(read_only=True, timeout=HEALTH_SECONDS)
    async def health(self) -> dict[str, Any]:
        """Report the state of OneTool: tools that failed to load, MCP servers that are not connected, and servers whose
        tools differ from the approved ones.

        Returns:
            `version`, `python`, `cwd`; `registry` with status and tool_count; `proxy` with status, server_count, the
            state of each of `servers`, and `errors` and `changed` tools, if any; `trust` if the project's folder is not
            trusted and therefore ignored; `findings` of `onetool check`.
        """
        with _span("ot.health"):
            return await self._view.health(current_catalogue()[1])

    @tool(read_only=True)
    def servers(self) -> list[dict[str, Any]]:
        """List the MCP servers with their states.

        Returns:
            {name, state, transport, tools} for each; also `version`, `error` and `changed`, if known.
        """
        with _span("ot.servers"):
            return self._view.servers(current_catalogue()[1])

    @tool(read_only=True)
    def version(self) -> str:
        """Return the version of OneTool."""
        with _span("ot.version"):
            return self._view.version

    @tool(read_only=True, timeout=RESULT_SECONDS)
    def result(
        self,
        handle: str,
        offset: int = 1,
        limit: int = 100,
        search: str | None = None,
        fuzzy: bool = False,
        column: int = 1,
    ) -> Page | str:
        """Read lines of a large, stored result: a page of them, or those that match a search.

        Args:
            handle: The handle that was returned instead of the result.
            offset: The number of the first line, starting at 1; with search, counted among the matching lines.
            limit: The maximum number of lines.
            search: A regular expression for the lines to return. "(?i)" at its start ignores case;
                look-around and back-references can't be used.
            fuzzy: Treat search as plain words and return up to 1000 lines with similar text, best first.
            column: The first character of the first line, starting at 1, for continuing inside a very long line.

        Returns:
            `lines`; for a search, their `numbers`; `total_lines` of the whole result; the number of lines `returned`;
            `offset`; and `has_more`: then continue at offset + returned. A page that is too large is `cut`: continue at
            `next`. For an unknown or expired handle, an error text. In code, use ot.load for the value itself.
        """
        from onetool.services.results import HandleNotFoundError, ResultExpiredError

        try:
            searched = {} if search is None else {"search": search}
            with _span("ot.result", handle=handle, offset=offset, limit=limit, **searched):
                return self._view.page(handle, offset, limit, search, fuzzy, column)
        except (HandleNotFoundError, ResultExpiredError) as error:
            return str(error)

    @tool(read_only=True, timeout=RESULT_SECONDS)
    def load(self, handle: str) -> Any:
        """Return the value of a stored result, for use in code.

        Args:
            handle: The handle that was returned instead of the result.

        Returns:
            The original value, data or text, of at most 32 MB. For a run without a value, its printed output.
        """
        with _span("ot.load", handle=handle):
            return self._view.load(handle)

    @tool(timeout=STATS_SECONDS, examples=['ot.stats(period="day")'])
    def stats(self, period: str = "all", tool: str | None = None, output: str | None = None) -> dict[str, Any] | str:
        """Report which tools were called, how often, how many calls failed, and the savings.

        Args:
            period: "day", "week", "month" or "all".
            tool: Only this tool.
            output: Also write a report with charts to this file (.html) in a folder that tools may use.

        Returns:
            `total_calls`, `success_rate` (percent), `context_saved` (tokens), `time_saved_ms`, `tools` with the same
            for each, `errors`, and more; `html_report`, if written. On failure, a text "Error: …".
        """
        with _span("ot.stats", period=period, tool=tool, output=output):
            if period not in PERIODS:
                known = ", ".join(PERIODS)
                shown = cut(period, MAX_SHOWN)
                return f"Error: Invalid period '{shown}'. Valid: {known}. Example: ot.stats(period='day')"
            try:
                report = self._view.stats(period, tool, current_catalogue()[1])
            except ToolFailure as failure:
                return f"Error: {message_of(failure)}"
            summary = {key: value for key, value in report.items() if key != "series"}  # only for charts
            if output is None:
                return summary
            try:
                return {**summary, "html_report": self._view.write_report(output, report)}
            except ToolFailure as failure:
                return f"Error: Cannot write to '{cut(output, MAX_SHOWN)}': {cut(message_of(failure), 1_000)}"

    @tool(read_only=False, examples=['ot.notify(topic="notes", message="Remember to review PR #123")'])
    def notify(self, topic: str, message: str) -> str:
        """Publish a message to a topic: append it to the topic's file in the config.

        Args:
            topic: The topic, such as "notes".
            message: The text.

        Returns:
            OK and the file, or the text "SKIP: no matching topic".
        """
        with _span("ot.notify", topic=topic):
            return self._view.publish(topic, message)

    @tool(read_only=False, timeout=RELOAD_SECONDS)
    def reload(self) -> str:
        """Reload the config, packs, prompts and all tools. If there is a mistake, nothing changes and the error
        describes it.

        A run keeps the tools that it started with, so call this alone.
        """
        with _span("ot.reload"):
            self._view.reload()
            return "OK: Configuration reloaded"


pack = "ot"
__all__ = ["ot_tools"]


def ot_tools(view: View) -> list[ToolSpec]:
    return [
        replace(spec, handler=bind_handler(getattr(owner, name), arrange))
        for owner in (DiscoveryTools(view), StateTools(view))
        for name, spec, arrange in _methods(type(owner))
    ]


@cache
def _methods(cls: type) -> list[tuple[str, ToolSpec, Arrange]]:
    """Read the methods with `@tool` of a class, once for all apps of this process."""
    unbound = object.__new__(cls)  # only the signatures of its methods are read
    return [
        (name, *read_function(getattr(unbound, name), pack))
        for name, function in vars(cls).items()
        if hasattr(function, TOOL_MARK)
    ]
