"""The tools of `ot` that tell what there is: what can be called, how, and under which names."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.nearest import or_rather
from onetool.core.signature import signature as signature_of
from onetool.packs.ot import shorthands
from onetool.packs.ot.filtering import Info
from onetool.packs.ot.grouping import grouped
from onetool.packs.ot.grouping import listed as packs_listed
from onetool.packs.ot.here import seen_from_here
from onetool.packs.ot.listing import Listed, Listing
from onetool.packs.ot.view import View
from onetool.sdk import LogSpan, tool

if TYPE_CHECKING:
    from onetool.packs.ot.help import Help

LONGEST_CALL = 600.0  # seconds: what is called has a limit of its own


def discovery_tools(view: View) -> list[Callable[..., Any]]:
    listing = Listing(view.words)

    @cache
    def helper() -> "Help":
        from onetool.packs.ot.help import Help  # not for those who only list tools

        return Help(view, listing)

    def found(name: str) -> Listed:
        catalogue, allowed = seen_from_here()
        if one := listing.find(view.aliases.get(name, name), catalogue, allowed):
            return one
        near = or_rather(name, [one.word for one in listing.of(catalogue, allowed)])
        raise ToolFailure(f"Tool not found: {name:.200}{near}", reason="not_found")

    @tool(read_only=True, examples=['ot.tools(pattern="file", info="full")'])
    def tools(pattern: str = "", info: Info = "min") -> list[str | dict[str, Any]]:
        """List the tools that can be called here, under the names to call them by.

        Args:
            pattern: Only tools with this in their name, in any case: "search", or "github." for all of a pack.
            info: "list" for names alone, "min" for what each is good for in a line or two, "full" for all that a
                call needs.

        Returns:
            Names; or {name, description} of each; or {name, signature, description, source} of each and, where they
            are known, `args` (a text for each argument), `returns`, `example` and `requires` (commands and libraries).
            Empty when nothing matches.
        """
        with LogSpan("ot.tools", pattern=pattern, info=info):
            return listing.tools(*seen_from_here(), pattern, info)

    @tool(read_only=True, examples=['ot.packs(pattern="git", info="full")'])
    def packs(pattern: str = "", info: Info = "min") -> list[str | dict[str, Any]]:
        """List the packs that the tools belong to.

        Args:
            pattern: Only packs with this in their name, in any case.
            info: "list" for names alone, "min" for {name, source, tool_count}, "full" for instructions and tools, too.

        Returns:
            Names; or {name, source, tool_count} of each, `source` is local or proxy (an MCP server); in full also
            `instructions`, where there are any, and `tools` with {name, description} of each.
        """
        with LogSpan("ot.packs", pattern=pattern, info=info):
            catalogue, allowed = seen_from_here()
            every = grouped(listing.of(catalogue, allowed), view.server_packs(allowed), dict(view.instructions))
            return packs_listed(every.values(), pattern, info)

    @tool(read_only=True)
    def aliases(pattern: str = "", info: Info = "min") -> list[str | dict[str, str]]:
        """List the aliases: shorter names that tools can be called by.

        Args:
            pattern: Only those with this in their name or target, in any case.
            info: "list" for names alone, "min" for "name -> target", "full" for {name, target}.
        """
        with LogSpan("ot.aliases", pattern=pattern, info=info):
            catalogue, allowed = seen_from_here()
            every = view.aliases
            if allowed is not None:  # of what may be used
                every = {name: to for name, to in every.items() if listing.find(to, catalogue, allowed)}
            return shorthands.aliases(every, pattern, info)

    @tool(read_only=True)
    def snippets(pattern: str = "", info: Info = "min") -> list[str] | str:
        """List the snippets: templates of code that are called as `$name key=value`, alone and not inside of code.

        Args:
            pattern: Only those with this in their name or description, in any case.
            info: "list" for names alone, "min" for "name: description", "full" for parameters, body and an example,
                as one text.
        """
        with LogSpan("ot.snippets", pattern=pattern, info=info):
            return shorthands.snippets(view, pattern, info)

    @tool(read_only=True, examples=['ot.help("fs.read_file")', 'ot.help("fetch a web page")'])
    def help(query: str = "", info: Info = "min") -> str | list[str]:
        """Explain a tool, a pack, an alias or a $snippet; or find what was meant, typos included.

        Args:
            query: Its name, or words for what is wanted. Without one: how to find your way.
            info: How much of each match to tell, where nothing is called exactly so: "list", "min" or "full".

        Returns:
            Text; with info="list" the names that match.
        """
        with LogSpan("ot.help", query=query, info=info):
            return helper().help(query, info, *seen_from_here())

    @tool(read_only=True, examples=['ot.search("read a file")'])
    def search(query: str, limit: int = 5) -> list[dict[str, Any]]:
        """Find tools by what they do, in plain words, the best first.

        Args:
            query: What the tool should do.
            limit: How many at the most.

        Returns:
            {name, signature, description, score} of each. Empty when nothing fits.
        """
        if limit < 1:
            raise BadArguments(f"limit must be >= 1, got {limit}")
        with LogSpan("ot.search", query=query, limit=limit):
            catalogue, allowed = seen_from_here()
            best = [
                (one, score)
                for spec, score in view.search(query, limit, allowed)
                if (one := listing.find(spec.name, catalogue, allowed))  # others have come since this run began
            ]
            return [
                {
                    "name": one.word,
                    "signature": signature_of(one.spec, one.word),
                    "description": one.gist,
                    "score": round(score, 3),
                }
                for one, score in best
            ]

    @tool(read_only=True, examples=['ot.signature("fs.read_file")'])
    def signature(name: str) -> str:
        """Tell how a tool is called, in one line.

        Args:
            name: The tool, as code calls it or under its own name.
        """
        with LogSpan("ot.signature", name_=name):
            one = found(name)
            return signature_of(one.spec, one.word)

    @tool(timeout=LONGEST_CALL)
    async def call(name: str, args: Mapping[str, Any] | None = None) -> Any:
        """Call any tool by its name, also one whose name Python can't say.

        Args:
            name: The tool, as code calls it or under its own name.
            args: Its arguments by their names.
        """
        from onetool.sdk import call_tool

        with LogSpan("ot.call", tool=name):
            return await call_tool(found(name).spec.name, **(args or {}))

    return [tools, packs, aliases, snippets, help, search, signature, call]
