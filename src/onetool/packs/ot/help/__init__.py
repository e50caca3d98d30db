"""`ot.help`: all about what is called so, or else what may have been meant.

`overview` is for who asks nothing, `pages` have all about one thing, `matching` finds what a query may mean.
"""

from collections.abc import Collection
from typing import Any

from onetool.core.registry import Snapshot
from onetool.core.tokens import cut_to, tokens
from onetool.packs.ot.filtering import Info
from onetool.packs.ot.grouping import PackView, grouped
from onetool.packs.ot.help import pages
from onetool.packs.ot.help.matching import Names, others_for, tools_for
from onetool.packs.ot.help.overview import OVERVIEW
from onetool.packs.ot.listing import Listed, Listing, by_name, gist
from onetool.packs.ot.view import View

MOST_TOOLS, MOST_OTHERS = 5, 3  # of each kind that matches
MOST_TOKENS = 350  # of the matches in short; names may count for more than we guess
MOST_PAGES = 3  # of each kind, in full
SEARCHED = 20  # tools that are asked of the search
LONGEST = 1_000  # characters of a query: no name is longer, and no question
SHOWN = 80  # of them, in an answer


class Help:
    def __init__(self, view: View, listing: Listing) -> None:
        self._view = view
        self._listing = listing
        self._last: _There | None = None

    def help(self, query: str, info: Info, catalogue: Snapshot, allowed: Collection[str] | None) -> str | list[str]:
        query = query.strip()[:LONGEST]
        if not query:
            return OVERVIEW
        there = self._there(catalogue, allowed)
        if exact := there.called(query):
            return "\n\n".join(exact)
        found = self._matches(query, there, allowed)
        if info == "list":
            return [name for names in found.values() for name in names]
        if not any(found.values()):
            return _nothing(query)
        return _in_full(there, found) if info == "full" else _in_short(query, there, found)

    def _there(self, catalogue: Snapshot, allowed: Collection[str] | None) -> "_There":
        """Made once for each catalogue: another config is another catalogue, too."""
        tools, last = self._listing.of(catalogue, allowed), self._last
        if last is None or last.tools is not tools:
            last = self._last = _There(self._view, tools, allowed)
        return last  # not what stands there now: another thread may be about another catalogue

    def _matches(self, query: str, there: "_There", allowed: Collection[str] | None) -> dict[str, list[str]]:
        """What may be meant, by its kind."""
        said = query.removeprefix("$")
        found = self._view.search(said, SEARCHED, allowed)
        tools = [] if query.startswith("$") else tools_for(said, there.names, found)
        return {
            "Tools": [there.by_name[name].word for name, _ in tools[:MOST_TOOLS]],
            "Packs": _best(said, {name: pack.instructions or "" for name, pack in there.packs.items()}),
            "Snippets": [f"${name}" for name in _best(said, {n: s.description for n, s in there.snippets.items()})],
            "Aliases": _best(said, dict(there.aliases)),
        }


class _There:
    """All that has a name, for whoever asks."""

    def __init__(self, view: View, tools: list[Listed], allowed: Collection[str] | None) -> None:
        self.view = view
        self.tools = tools
        self.names = Names(tools)
        self.by_name = by_name(tools)
        self.aliases = view.aliases
        if allowed is not None:  # of what may be used
            self.aliases = {name: to for name, to in view.aliases.items() if to in self.by_name}
        self.snippets = view.snippets
        self.packs: dict[str, PackView] = grouped(tools, view.server_packs(allowed), dict(view.instructions))

    def called(self, name: str) -> list[str]:
        """The pages of what is called exactly so: mostly one, but an alias may have the name of a snippet."""
        found: list[str] = []
        if not name.startswith("$"):
            has_documents = self.view.has_documents
            found += [pages.of_tool(self.by_name[name], has_documents)] if name in self.by_name else []
            found += [pages.of_pack(self.packs[name], has_documents)] if name in self.packs else []
            if (target := self.aliases.get(name)) is not None:
                found.append(pages.of_alias(name, target, self.by_name.get(target)))
        snippet = name.removeprefix("$")
        if snippet in self.snippets:
            found.append(pages.of_snippet(snippet, self.view.snippet(snippet)))
        return found

    def line(self, kind: str, name: str) -> str:
        """One match in short."""
        if kind == "Packs":
            count = len(self.packs[name].tools)
            return f"- {name}: {count} tool{'' if count == 1 else 's'}, {self.packs[name].source}"
        if kind == "Snippets":
            return f"- {name}: {cut_to(gist(self.snippets[name[1:]].description), pages.LINE)}"
        if kind == "Aliases":
            return f"- {name} -> {self.aliases[name]}"
        return pages.in_line(self.by_name[name])


def _best(query: str, texts: dict[str, str]) -> list[str]:
    return [name for name, _ in others_for(query, texts)[:MOST_OTHERS]]


def _in_short(query: str, there: _There, found: dict[str, list[str]]) -> str:
    groups, room = list[str](), MOST_TOKENS
    for kind, names in found.items():
        lines = list[str]()
        for name in names:
            lines.append(there.line(kind, name))
            room -= tokens(lines[-1])
            if room < 0:
                break
        groups += ["\n".join([f"## {kind}", *lines])] if lines else []
    first = next(names[0] for names in found.values() if names)
    shown = query[:SHOWN]
    ways = {"ot.search": f"ot.search({shown!r}, limit=20)", "ot.tools": "ot.tools(pattern=…)"}
    usable = ", or ".join(call for name, call in ways.items() if name in there.by_name)
    more = f"All about one: ot.help({first!r}).{f' More matches: {usable}.' if usable else ''}"
    return "\n\n".join([f"Nothing is called exactly {shown!r}. What comes closest:", *groups, more])


def _in_full(there: _There, found: dict[str, list[str]]) -> str:
    texts: list[Any] = [page for names in found.values() for name in names[:MOST_PAGES] for page in there.called(name)]
    return "\n\n".join(dict.fromkeys(texts))


def _nothing(query: str) -> str:
    shown = query[:SHOWN]
    return f"No matches found for {shown!r}. Browse what there is with ot.tools() or ot.packs()."
