"""The pack `ot`: OneTool's own services as tools.

They are passed in, and the tools made for them: this is no module of functions that is a pack as it stands.
"""

from typing import TYPE_CHECKING

from onetool.core.spec import ToolSpec
from onetool.sdk import LogSpan, tool
from onetool.sdk.signature import tool_from_function
from onetool.services.results.query import Page, query

if TYPE_CHECKING:
    from onetool.services.results import Results

pack = "ot"

__all__ = ["ot_tools"]


def ot_tools(results: "Results", page_bytes: int) -> list[ToolSpec]:
    """The tools of the pack, for an app that has these services. A page of a result is small enough to be sent."""

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
            return query(results.read(handle), offset, limit, search, fuzzy, page_bytes)

    return [tool_from_function(result, pack)]
