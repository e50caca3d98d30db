"""The pack `ot`: OneTool's own services as tools.

They are passed in, and the tools made for them: this is no module of functions that is a pack as it stands.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from onetool.core.caller import owner
from onetool.core.spec import ToolSpec
from onetool.packs.ot.listing import Info, Listing, Words, seen_from_here
from onetool.sdk import LogSpan, tool
from onetool.sdk.signature import tool_from_function
from onetool.services.results.query import Page, query

if TYPE_CHECKING:
    from onetool.services.results import Results

pack = "ot"

HEALTH_SECONDS = 120.0  # servers may take a while to start

Health = Callable[[], Awaitable[dict[str, Any]]]

__all__ = ["ot_tools"]


def ot_tools(results: "Results", page_bytes: int, words: Words, look_after: Health) -> list[ToolSpec]:
    """The tools of the pack, for an app that has these services.

    A page of a result is small enough to be sent. `words` tells what code calls the tools of a catalogue,
    `look_after` how everything is doing.
    """
    listing = Listing(words)

    @tool(read_only=True, examples=['ot.tools(pattern="file", info="full")'])
    def tools(pattern: str = "", info: Info = "min") -> list[str | dict[str, Any]]:
        """List the tools that can be called here, under the names to call them by.

        Args:
            pattern: Only tools with this in their name, in any case: "search", or "github." for all of a pack.
            info: "list" for names alone, "min" for what each is good for in a line or two, "full" for all that a
                call needs.

        Returns:
            Names; or {name, description} of each; or {name, signature, description, source} of each and, where they
            are known, `args` (a text for each argument), `returns` and `example`. Empty when nothing matches.
        """
        with LogSpan("ot.tools", pattern=pattern, info=info):
            return listing.tools(*seen_from_here(), pattern, info)

    @tool(read_only=True)
    def result(handle: str, offset: int = 1, limit: int = 100, search: str | None = None, fuzzy: bool = False) -> Page:
        """Read lines of a large result that was stored behind a handle: a page of them, or those that match a search.

        Args:
            handle: The handle that came in place of the result.
            offset: The first line to return, counted from 1; with search, counted among the lines that match.
            limit: How many lines to return at most.
            search: A regular expression: only lines that match somewhere. "(?i)" at its start ignores case;
                look-around and back-references can't be used.
            fuzzy: Take search as plain words and return lines that contain something similar, the best first.

        Returns:
            `lines`; `total_lines` of the whole result; how many lines are `returned`, from which `offset`; and whether
            it `has_more`: then go on at offset + returned. Large pages end early; a line of over 2000 characters
            counts as several.
        """
        asked = {} if search is None else {"search": search}
        with LogSpan("ot.result", handle=handle, offset=offset, limit=limit, **asked):
            return query(results.read(handle, owner()), offset, limit, search, fuzzy, page_bytes)

    @tool(read_only=True, timeout=HEALTH_SECONDS)
    async def health() -> dict[str, Any]:
        """Tell how everything is doing: tools that could not be loaded, MCP servers that are not connected, and those
        whose tools are not as they were approved.

        Returns:
            `version`, `python`, `cwd`; `registry` with status, tool_count and mistakes; `proxy` with status,
            server_count and the state of each of `servers`, and where there are any, `errors` and `changed` tools.
        """
        with LogSpan("ot.health"):
            return await look_after()

    return [tool_from_function(function, pack) for function in (tools, result, health)]
