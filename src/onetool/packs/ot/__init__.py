"""The pack `ot`: tools that list what there is, explain it, read large results and report what happened.

The tools are made for one `View` of the app, so `ot` is not a module of functions like other packs.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from onetool.core.call import Page
from onetool.core.errors import ToolFailure, cut, message_of
from onetool.core.signature import signature as signature_of
from onetool.core.spec import ToolSpec
from onetool.core.text import or_rather
from onetool.packs.ot import listings
from onetool.packs.ot.listings import Info, ListedTool, Listing, View, current_catalogue, packs_of
from onetool.packs.ot.listings import listed_packs as packs_listed
from onetool.sdk.decorators import TOOL_MARK, tool
from onetool.sdk.pack import tool_from_function

if TYPE_CHECKING:
    from onetool.packs.ot.help import Help
    from onetool.sdk import LogSpan


MAX_CALL_SECONDS = 600.0  # seconds: what is called has a limit of its own


def _span(name: str, **fields: Any) -> "LogSpan":
    from onetool.sdk import LogSpan  # listing tools does not need it

    return LogSpan(name, **fields)


class DiscoveryTools:
    """Each method with `@tool` is a tool; their docstrings are what models read."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._listing = Listing(view.spellings)

    @cached_property
    def _helper(self) -> "Help":
        from onetool.packs.ot.help import Help  # listing tools does not need it

        return Help(self._view, self._listing)

    def _found(self, name: str) -> ListedTool:
        catalogue, allowed = current_catalogue()
        if one := self._listing.find(self._view.aliases.get(name, name), catalogue, allowed):
            return one
        near = or_rather(name, [one.word for one in self._listing.of(catalogue, allowed)])
        raise ToolFailure(f"Tool not found: {name:.200}{near}", reason="not_found")

    @tool(read_only=True, examples=['ot.tools(pattern="file", info="full")'])
    def tools(self, pattern: str = "", info: Info = "min") -> list[str | dict[str, Any]]:
        """List the tools that you can call, under the names that code uses.

        Args:
            pattern: Only tools with this in their name, in any case: "search", or "github." for all of a pack.
            info: "list" for names alone, "min" for a short description of each, "full" for everything that a call
                needs.

        Returns:
            Names; or {name, description} of each; or {name, signature, description, source} of each and, where they
            are known, `args` (a text for each argument), `returns`, `example` and `requires` (commands and libraries).
            Empty when nothing matches.
        """
        with _span("ot.tools", pattern=pattern, info=info):
            return self._listing.tools(*current_catalogue(), pattern, info)

    @tool(read_only=True, examples=['ot.packs(pattern="git", info="full")'])
    def packs(self, pattern: str = "", info: Info = "min") -> list[str | dict[str, Any]]:
        """List the packs that the tools belong to.

        Args:
            pattern: Only packs with this in their name, in any case.
            info: "list" for names alone, "min" for {name, source, tool_count}, "full" for instructions and tools, too.

        Returns:
            Names; or {name, source, tool_count} of each, `source` is local or proxy (an MCP server); in full also
            `instructions`, where there are any, and `tools` with {name, description} of each.
        """
        with _span("ot.packs", pattern=pattern, info=info):
            catalogue, allowed = current_catalogue()
            every = packs_of(
                self._listing.of(catalogue, allowed), self._view.server_packs(allowed), dict(self._view.instructions)
            )
            return packs_listed(every.values(), pattern, info)

    @tool(read_only=True)
    def aliases(self, pattern: str = "", info: Info = "min") -> list[str | dict[str, str]]:
        """List the aliases: shorter names that tools can be called by.

        Args:
            pattern: Only those with this in their name or target, in any case.
            info: "list" for names alone, "min" for "name -> target", "full" for {name, target}.
        """
        with _span("ot.aliases", pattern=pattern, info=info):
            catalogue, allowed = current_catalogue()
            every = self._view.aliases
            if allowed is not None:  # of what may be used
                every = {name: to for name, to in every.items() if self._listing.find(to, catalogue, allowed)}
            return listings.aliases(every, pattern, info)

    @tool(read_only=True)
    def snippets(self, pattern: str = "", info: Info = "min") -> list[str] | str:
        """List the snippets: templates of code that are called as `$name key=value`, alone and not inside of code.

        Args:
            pattern: Only those with this in their name or description, in any case.
            info: "list" for names alone, "min" for "name: description", "full" for parameters, body and an example,
                as one text.
        """
        with _span("ot.snippets", pattern=pattern, info=info):
            return listings.snippets(self._view, pattern, info)

    @tool(read_only=True, examples=['ot.help("fs.read_file")', 'ot.help(["billing", "crm"])'])
    def help(self, query: str | list[str] = "", info: Info = "min") -> str | list[str]:
        """Explain a tool, a pack, an alias or a $snippet; or find the nearest ones, also with typos.

        Args:
            query: A name, several names, or words that say what you want. A pack is listed with a line for each tool.
                Leave it out for an overview.
            info: How much to show of each match when no name is exactly the query: "list", "min" or "full".

        Returns:
            Text; with info="list" the names that match.
        """
        with _span("ot.help", query=query, info=info):
            return self._helper.help(query, info, *current_catalogue())

    @tool(read_only=True, examples=['ot.search("read a file")'])
    def search(self, query: str, limit: Annotated[int, Meta(ge=1)] | None = None, pack: str | None = None) -> list[str]:
        """Find tools by what they do, in plain words, the best first.

        Args:
            query: What the tool should do.
            limit: How many at the most. If you leave it out: 5, and fewer if their lines are long.
            pack: Only tools of this pack.

        Returns:
            A line for each, its signature and what it does, and a line on how to see more. Empty when nothing fits.
        """
        from onetool.core.tool_lines import SEARCH_LIMIT, ToolLine, found_lines, tool_line  # listing does not need it

        with _span("ot.search", query=query, limit=limit, **({} if pack is None else {"pack": pack})):
            catalogue, allowed = current_catalogue()
            found = [
                ToolLine(one.word, tool_line(one.spec, one.word))
                for spec, _ in self._view.search(query, limit or SEARCH_LIMIT, allowed, pack)
                if (one := self._listing.find(spec.name, catalogue, allowed))  # others have come since this run began
            ]
            if not found:
                return []
            has_help = self._listing.find("ot.help", catalogue, allowed) is not None
            about = f"All about one: ot.help({found[0].name!r}). " if has_help else ""
            return found_lines(found, about, is_limited=limit is not None)

    @tool(read_only=True, examples=['ot.signature("fs.read_file")'])
    def signature(self, name: str) -> str:
        """Show the signature of a tool, in one line.

        Args:
            name: The tool, as code calls it or under its own name.
        """
        with _span("ot.signature", name_=name):
            one = self._found(name)
            return signature_of(one.spec, one.word)

    @tool(timeout=MAX_CALL_SECONDS)
    async def call(self, name: str, args: Mapping[str, Any] | None = None) -> Any:
        """Call any tool by its name, also one whose name is not valid in Python.

        Args:
            name: The tool, as code calls it or under its own name.
            args: Its arguments by their names.
        """
        from onetool.sdk import call_tool

        with _span("ot.call", tool=name):
            return await call_tool(self._found(name).spec.name, **(args or {}))

    @tool(timeout=MAX_CALL_SECONDS, examples=["ot.all(crm.list_customers, tier='bronze')"])
    async def all(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        limit: Annotated[int, Meta(ge=1)] | None = None,
        key: str | None = None,
    ) -> list[Any]:
        """Call a paginated tool and return the items of all pages as one list.

        Follows page and pages, offset and total, cursors and page tokens, as the tool's arguments and results show
        them. In code, pass the tool itself, and its arguments by their names.

        Args:
            tool: The tool; in code itself, else its name.
            args: Its arguments by their names.
            limit: How many items at the most; without it, more than 10,000 are an error.
            key: The list that holds the items, where a result has several.
        """
        from onetool.core.paginator import MAX_PAGES, Paginator, PagingError
        from onetool.sdk import call_tool

        with _span("ot.all", tool=tool):
            spec = self._found(tool).spec
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

RESULT_SECONDS = 20.0  # a search takes five at the most, and may have to wait as long for another one
HEALTH_SECONDS = 120.0  # servers may take a while to start
STATS_SECONDS = 60.0  # a million calls take some seconds to sum up
RELOAD_SECONDS = 60.0  # packs may be slow to import
SHOWN = 300  # characters of what was asked for, in an error …
MAX_WORDS = 1_000  # … and of what is wrong with it
PERIODS = ("day", "week", "month", "all")


class StateTools:
    """As above: each method with `@tool` is a tool."""

    def __init__(self, view: View) -> None:
        self._view = view

    @tool(read_only=True)
    def config(self) -> dict[str, Any]:
        """Show what is configured: aliases, snippets and MCP servers, by their names."""
        with _span("ot.config"):
            catalogue, allowed = current_catalogue()
            snippets = self._view.snippets(catalogue, allowed)
            return {
                "aliases": {name: to for name, to in self._view.aliases.items() if allowed is None or to in allowed},
                "snippets": {name: {"description": one.description} for name, one in snippets.items()},
                "servers": [server["name"] for server in self._view.servers(allowed)],
            }

    @tool(read_only=True, timeout=HEALTH_SECONDS)
    async def health(self) -> dict[str, Any]:
        """Report the state of OneTool: tools that could not be loaded, MCP servers that are not connected, and servers
        whose tools differ from those that were approved.

        Returns:
            `version`, `python`, `cwd`; `registry` with status and tool_count; `proxy` with status, server_count and
            the state of each of `servers`, and where there are any, `errors` and `changed` tools; `trust` where the
            project's folder is not trusted and therefore not used; `findings`, what `onetool check` lists.
        """
        with _span("ot.health"):
            return await self._view.health(current_catalogue()[1])

    @tool(read_only=True)
    def servers(self) -> list[dict[str, Any]]:
        """List the MCP servers whose tools are used here, and the state of each.

        Returns:
            {name, state, transport, tools} of each; `version`, `error` and `changed` where there are any.
        """
        with _span("ot.servers"):
            return self._view.servers(current_catalogue()[1])

    @tool(read_only=True)
    def version(self) -> str:
        """Show the version of OneTool."""
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
        """Read lines of a large result that was stored behind a handle: a page of them, or those that match a search.

        Args:
            handle: The handle that came in place of the result.
            offset: The first line to return, counted from 1; with search, counted among the lines that match.
            limit: How many lines to return at most.
            search: A regular expression: only lines that match somewhere. "(?i)" at its start ignores case;
                look-around and back-references can't be used.
            fuzzy: Take search as plain words and return lines that contain something similar, the best first, 1000 at
                the most.
            column: The first character to return of the first line, counted from 1: to go on inside a very long line.

        Returns:
            `lines`; of a search also their `numbers`; `total_lines` of the whole result; how many lines are `returned`,
            from which `offset`; and whether it `has_more`: then go on at offset + returned. A page that is too large to
            be sent is `cut`: go on at `next`. For a handle that is unknown or expired a text that says so. Code gets
            the value itself with ot.load.
        """
        from onetool.services.results import HandleNotFoundError, ResultExpiredError

        asked = {} if search is None else {"search": search}
        try:
            with _span("ot.result", handle=handle, offset=offset, limit=limit, **asked):
                return self._view.page(handle, offset, limit, search, fuzzy, column)
        except (HandleNotFoundError, ResultExpiredError) as gone:
            return str(gone)

    @tool(read_only=True, timeout=RESULT_SECONDS)
    def load(self, handle: str) -> Any:
        """Return the value of a stored result, so that code can compute with it.

        Args:
            handle: The handle that came in place of the result.

        Returns:
            The value as the run or the tool gave it, data or a text, of 32 MB at the most. Of a run that returned no
            value, what it printed.
        """
        with _span("ot.load", handle=handle):
            return self._view.load(handle)

    @tool(timeout=STATS_SECONDS, examples=['ot.stats(period="day")'])
    def stats(self, period: str = "all", tool: str | None = None, output: str | None = None) -> dict[str, Any] | str:
        """Report which tools were called, how often, how many calls failed, and what was saved.

        Args:
            period: "day", "week", "month" or "all".
            tool: Only this tool.
            output: Also write a report with charts to this file (.html), below a folder that tools may use.

        Returns:
            `total_calls`, `success_rate` (percent), `context_saved` (tokens), `time_saved_ms`, `tools` with the same
            for each, `errors`, and more; `html_report`, where one was written. If that fails, a text "Error: …".
        """
        with _span("ot.stats", period=period, tool=tool, output=output):
            if period not in PERIODS:
                known = ", ".join(PERIODS)
                return f"Error: Invalid period '{cut(period, SHOWN)}'. Valid: {known}. Example: ot.stats(period='day')"
            try:
                told = self._view.stats(period, tool, current_catalogue()[1])
            except ToolFailure as failure:
                return f"Error: {message_of(failure)}"
            shown = {key: value for key, value in told.items() if key != "series"}  # that is for charts
            if output is None:
                return shown
            try:
                return {**shown, "html_report": self._view.write_report(output, told)}
            except ToolFailure as failure:
                return f"Error: Cannot write to '{cut(output, SHOWN)}': {cut(message_of(failure), MAX_WORDS)}"

    @tool(read_only=False, examples=['ot.notify(topic="notes", message="Remember to review PR #123")'])
    def notify(self, topic: str, message: str) -> str:
        """Publish a message to a topic: append it to the file that the config names for that topic.

        Args:
            topic: Where it belongs, such as "notes".
            message: The text.

        Returns:
            OK and the file; or the text "SKIP: no matching topic".
        """
        with _span("ot.notify", topic=topic):
            return self._view.publish(topic, message)

    @tool(read_only=False, timeout=RELOAD_SECONDS)
    def reload(self) -> str:
        """Read the config, the packs, the prompts and all tools again. If there is a mistake, nothing changes and the
        error names it.

        A run that has begun keeps its tools: call this alone.
        """
        with _span("ot.reload"):
            self._view.reload()
            return "OK: Configuration reloaded"


pack = "ot"

__all__ = ["ot_tools"]


def ot_tools(view: View) -> list[ToolSpec]:
    return [
        tool_from_function(getattr(owner, name), pack)
        for owner in (DiscoveryTools(view), StateTools(view))
        for name, function in vars(type(owner)).items()
        if hasattr(function, TOOL_MARK)
    ]
