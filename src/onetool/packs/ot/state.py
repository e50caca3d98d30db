"""The tools of `ot` that tell how things are, and those few that change something: notes, reports, a reload."""

from collections.abc import Callable
from typing import Any

from onetool.core.errors import ToolFailure
from onetool.core.failure import cut, text_of
from onetool.packs.ot.here import seen_from_here
from onetool.packs.ot.view import View
from onetool.sdk import LogSpan, tool
from onetool.services.results.errors import HandleNotFoundError, ResultExpiredError
from onetool.services.results.query import Page

RESULT_SECONDS = 20.0  # a search takes five at the most, and may have to wait as long for another one
HEALTH_SECONDS = 120.0  # servers may take a while to start
STATS_SECONDS = 60.0  # a million calls take some seconds to sum up
RELOAD_SECONDS = 60.0  # packs may be slow to import
SHOWN = 300  # characters of what was asked for, in an error …
MOST_WORDS = 1_000  # … and of what is wrong with it
PERIODS = ("day", "week", "month", "all")


def state_tools(view: View) -> list[Callable[..., Any]]:
    @tool(read_only=True)
    def config() -> dict[str, Any]:
        """Show what is configured: aliases, snippets and MCP servers, by their names."""
        with LogSpan("ot.config"):
            allowed = seen_from_here()[1]
            return {
                "aliases": {name: to for name, to in view.aliases.items() if allowed is None or to in allowed},
                "snippets": {name: {"description": one.description} for name, one in view.snippets.items()},
                "servers": [server["name"] for server in view.servers(allowed)],
            }

    @tool(read_only=True, timeout=HEALTH_SECONDS)
    async def health() -> dict[str, Any]:
        """Tell how everything is doing: tools that could not be loaded, MCP servers that are not connected, and those
        whose tools are not as they were approved.

        Returns:
            `version`, `python`, `cwd`; `registry` with status, tool_count and mistakes; `proxy` with status,
            server_count and the state of each of `servers`, and where there are any, `errors` and `changed` tools;
            `trust` where the project's folder is not trusted and therefore not used.
        """
        with LogSpan("ot.health"):
            return await view.health(seen_from_here()[1])

    @tool(read_only=True)
    def servers() -> list[dict[str, Any]]:
        """List the MCP servers whose tools are used here, and how each is doing.

        Returns:
            {name, state, transport, tools} of each; `version`, `error` and `changed` where there are any.
        """
        with LogSpan("ot.servers"):
            return view.servers(seen_from_here()[1])

    @tool(read_only=True)
    def version() -> str:
        """Tell which version of OneTool this is."""
        with LogSpan("ot.version"):
            return view.version

    @tool(read_only=True, timeout=RESULT_SECONDS)
    def result(
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

            column: Where the first line begins, counted from 1: reads on inside a line that is too long to be sent.

        Returns:
            `lines`; of a search also their `numbers`; `total_lines` of the whole result; how many lines are `returned`,
            from which `offset`; and whether it `has_more`: then go on at offset + returned. A page that is too large to
            be sent is `cut`: go on at `next`. For a handle that is unknown or expired a text that says so.
        """
        asked = {} if search is None else {"search": search}
        try:
            with LogSpan("ot.result", handle=handle, offset=offset, limit=limit, **asked):
                return view.page(handle, offset, limit, search, fuzzy, column)
        except (HandleNotFoundError, ResultExpiredError) as gone:
            return str(gone)

    @tool(timeout=STATS_SECONDS, examples=['ot.stats(period="day")'])
    def stats(period: str = "all", tool: str | None = None, output: str | None = None) -> dict[str, Any] | str:
        """Tell what was called, how often, how it went, and what it saved.

        Args:
            period: "day", "week", "month" or "all".
            tool: Only this tool.
            output: Also write a report with charts to this file (.html), below a folder that tools may use.

        Returns:
            `total_calls`, `success_rate` (percent), `context_saved` (tokens), `time_saved_ms`, `tools` with the same
            for each, `errors`, and more; `html_report`, where one was written. An "Error: …" text if it can't be told.
        """
        with LogSpan("ot.stats", period=period, tool=tool, output=output):
            if period not in PERIODS:
                known = ", ".join(PERIODS)
                return f"Error: Invalid period '{cut(period, SHOWN)}'. Valid: {known}. Example: ot.stats(period='day')"
            try:
                told = view.stats(period, tool, seen_from_here()[1])
            except ToolFailure as failure:
                return f"Error: {text_of(failure)}"
            shown = {key: value for key, value in told.items() if key != "series"}  # that is for charts
            if output is None:
                return shown
            try:
                return {**shown, "html_report": view.write_report(output, told)}
            except ToolFailure as failure:
                return f"Error: Cannot write to '{cut(output, SHOWN)}': {cut(text_of(failure), MOST_WORDS)}"

    @tool(examples=['ot.notify(topic="notes", message="Remember to review PR #123")'])
    def notify(topic: str, message: str) -> str:
        """Publish a message to a topic: it is added to the file that the config has for that topic.

        Args:
            topic: Where it belongs, such as "notes".
            message: The text.

        Returns:
            OK and the file; or the text "SKIP: no matching topic".
        """
        with LogSpan("ot.notify", topic=topic):
            return view.publish(topic, message)

    @tool(timeout=RELOAD_SECONDS)
    def reload() -> str:
        """Read the config, the packs, the prompts and all tools again. What can't be used changes nothing, and is told.

        Runs that are under way keep what they began with: call it alone.
        """
        with LogSpan("ot.reload"):
            view.reload()
            return "OK: Configuration reloaded"

    return [config, health, servers, version, result, stats, notify, reload]
