"""`ot.help`: the help page for an exact name, or else a list of matches.

Tools, packs, aliases and snippets are scored alike, best first:

3 + …   a name starts with the query
2 + …   all words of the query are in the name or, except for tools, in the text
… 1     words of the query are in the text, or a name is similar
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from onetool.core.call import can_run
from onetool.core.context import current_call
from onetool.core.registry import Snapshot
from onetool.core.signature import signature
from onetool.core.spec import ToolSpec
from onetool.core.text import count_tokens, cut_to_tokens
from onetool.packs.ot.listings import (
    LINE_TOKENS,
    Info,
    ListedTool,
    Listing,
    PackView,
    View,
    by_name,
    gist,
    packs_of,
    short_line,
)
from onetool.packs.ot.pages import PACK_TOKENS, joined_tool_pages, pack_page, tool_page

PREFIX, WORDS = 3.0, 2.0
WEAK = 0.2  # matches below this fraction of the best score (at most WORDS) are left out
CLOSE = 75.0  # of 100: `frirecrawl` is 95 from `firecrawl`, `web fecth` 89 from `web fetch`
SHORT, SHORT_ALIKE = 4, 0.7  # in short names, one typo is a large part: `gti` for `git`
ONE_WORD = 0.6  # a mistyped word of a longer name (`reserch` for `brv_research`) or of the text
TWO_MISTAKES = 7  # minimum length of words that may have two typos
MAX_COMPARED = 100  # characters of a query that are compared with names
_SIGNS = re.compile(r"[^\w]|_")


def tools_for(query: str, words: Mapping[str, str], results: Iterable[tuple[ToolSpec, float]]) -> list[str]:
    """Return the names of matching tools, best first. `results` are those of the search, with its own scores.

    `words` are the names in code of all visible tools. Longer prefixes score higher, with or without the pack.
    """
    text, scores = comparable(query), dict[str, float]()
    for spec, score in results:
        if spec.name in words:
            whole, own = comparable(words[spec.name]), comparable(words[spec.name].rpartition(".")[2])
            naming, describing = divmod(score, 1.0)
            if text and (whole.startswith(text) or own.startswith(text)):
                scores[spec.name] = PREFIX + len(text) / len(whole)
            else:
                scores[spec.name] = (WORDS if naming else 0.0) + describing
    minimum = min(max(scores.values(), default=0.0), WORDS) * WEAK
    return [name for name in _best_first(scores) if scores[name] >= minimum]


class Named(NamedTuple):
    """A pack, an alias or a snippet, prepared for matching."""

    name: str
    called: str
    """The name in comparable form."""
    words: frozenset[str]
    """The words of the name and description."""


def named(texts: Mapping[str, str]) -> list[Named]:
    """Return the entries for names and descriptions."""
    return [
        Named(name, called, frozenset((*called.split(), *comparable(text).split())))
        for name, text in texts.items()
        if (called := comparable(name))
    ]


def others_for(query: str, entries: Iterable[Named]) -> list[str]:
    """Return the names of matching packs, aliases or snippets, best first."""
    if not (text := comparable(query)[:MAX_COMPARED]):
        return []
    words = text.split()
    return _best_first({entry.name: score for entry in entries if (score := _score(text, words, entry))})


def comparable(name: str) -> str:
    """Return a name in comparable form: lower case, with spaces for punctuation."""
    return " ".join(_SIGNS.sub(" ", name.casefold()).split())


def _score(text: str, words: Sequence[str], entry: Named) -> float:
    from rapidfuzz import fuzz  # only needed for unknown names
    from rapidfuzz.distance import OSA

    called = entry.called
    if called.startswith(text):
        return PREFIX + len(text) / len(called)
    if entry.words.issuperset(words):
        return WORDS + len(set(words) & set(called.split())) / len(words)
    near = (
        SHORT_ALIKE
        if len(called) <= SHORT and any(2 * len(word) > SHORT and OSA.distance(word, called) == 1 for word in words)
        else 0.0
    )
    prefix = max((len(word) / len(called) for word in words if len(word) > 2 and called.startswith(word)), default=0.0)
    closest = max(fuzz.ratio(part, called, score_cutoff=CLOSE) for part in (text, *words))

    def is_mistyped(word: str, among: Iterable[str]) -> bool:
        return len(word) > SHORT and any(
            OSA.distance(word, one) <= (2 if min(len(word), len(one)) >= TWO_MISTAKES else 1) for one in among
        )

    is_close = any(is_mistyped(word, called.split()) for word in words) or all(
        word in entry.words or is_mistyped(word, entry.words) for word in words
    )
    return max(prefix, near, closest / 100, ONE_WORD if is_close else 0.0)


def _best_first(scores: dict[str, float]) -> list[str]:
    return sorted(scores, key=lambda name: (-scores[name], name))


# ot.help() without a query

CALLED = "Call tools in code as pack.tool(key=value). "
OVERVIEW = f"""\
# OneTool

{CALLED}To find tools:

- ot.search("what you want to do"): the best matching tools
- ot.tools(pattern="word"): tools by name; ot.packs(): their packs
- ot.aliases(): shorter names of tools
- ot.snippets(): code templates, called as $name key=value
- ot.help("name"): details of any of these, or a search that allows typos
- ot.signature("pack.tool"): the signature of a tool in one line

Info levels of ot.tools, ot.packs, ot.aliases, ot.snippets and of matches in ot.help:
- info="list": names only
- info="min": names with descriptions (default)
- info="full": everything

Examples:
- ot.tools(pattern="file", info="list")
- ot.help("fs.read_file")
- ot.call("any name", {{"key": "value"}}): any tool, even if its name is not valid in Python

Tips:
- Large results are returned as handles: ot.result(handle="…", offset=101), or search="regex" for matching lines.
- Code computes with the value of a handle: rows = ot.load("…").
- Do the whole job in one run: loop, filter, and return only what you need.
- Is something missing? See ot.health() and ot.servers() for the state, ot.stats() for past calls.
- ot.reload() reloads the config."""

IN_CODE = ("$", "in one run", "Code computes")  # phrases that mark lines about code


def overview(tools: set[str], runs: bool) -> str:
    """Return the parts of the overview that apply to the caller's tools and ability to run code."""
    parts: list[str] = []
    for part in OVERVIEW.split("\n\n"):
        lines = part.split("\n")
        kept = [
            line
            for line in lines
            if tools.issuperset(re.findall(r"ot\.\w+", line)) and (runs or not any(word in line for word in IN_CODE))
        ]
        if kept[:1] == lines[:1] and len(kept) >= min(len(lines), 2):  # no heading without content
            parts.append("\n".join(kept))
    return "\n\n".join(parts) if runs else "\n\n".join(parts).replace(CALLED, "")


# ot.help(query)

MAX_TOOLS, MAX_OTHERS = 5, 3  # matches of each kind
MAX_TOKENS = 350  # of the list of matches; names may take more than estimated
MAX_PAGES = 3  # full pages of each kind
MAX_NAMES = 50  # in one query
SEARCHED = 50  # results requested from the search
MAX_QUERY = 1_000  # characters of a query; longer ones are truncated
MAX_SHOWN = 80  # characters of a query in the output


class Help:
    def __init__(self, view: View, listing: Listing) -> None:
        self._view = view
        self._listing = listing
        self._last: _VisibleNames | None = None

    def help(
        self, query: str | list[str], info: Info, catalogue: Snapshot, allowed: Collection[str] | None
    ) -> str | list[str]:
        names = self._names(catalogue, allowed)
        if isinstance(query, str):
            query = query.strip()[:MAX_QUERY]
            words = query.replace(",", " ").split()
            if len(words) > 1 and query not in names.packs and all(word in names.packs for word in words):
                query = words
        if not isinstance(query, str):
            queries = [*dict.fromkeys(query[:MAX_NAMES])]
            if len(queries) > 1:
                return self._several(queries, info, names, catalogue, allowed)
            query = queries[0].strip() if queries else ""
        if not query:
            return overview({"ot.call", *(tool.word for tool in names.tools)}, names.runs)
        if exact := names.pages(query):
            return "\n\n".join(exact)
        matches = self._matches(query, names, allowed)
        if not any(matches.values()):
            return f"No matches found for {query[:MAX_SHOWN]!r}. See ot.tools() or ot.packs() for lists."
        if info == "list":
            return [name for group in matches.values() for name in group]
        if info == "min":
            return _in_short(query, names, matches)
        return self._several(
            [name for group in matches.values() for name in group[:MAX_PAGES]], info, names, catalogue, allowed
        )

    def _several(
        self,
        queries: list[str],
        info: Info,
        names: "_VisibleNames",
        catalogue: Snapshot,
        allowed: Collection[str] | None,
    ) -> str:
        """Return the help for several names. Packs share a budget, and tools what they have in common."""
        room = PACK_TOKENS // max(1, sum(name in names.packs for name in queries))
        tools = [names.by_name[name] for name in queries if name in names.by_name]
        pages = [joined_tool_pages(tools, names.view.has_documents)] if len(tools) > 1 else []
        for name in queries:
            if len(tools) > 1 and name in names.by_name:
                continue
            page = "\n\n".join(names.pages(name, room)) or self.help(name, info, catalogue, allowed)
            pages.append(page if isinstance(page, str) else "\n".join(page))
        return "\n\n".join(pages)

    def others(self, query: str, catalogue: Snapshot, allowed: Collection[str] | None) -> Iterator[tuple[str, str]]:
        """Yield the names of matching snippets and aliases, each with a line about it."""
        if not self._view.aliases and not self._view.snippets(catalogue, allowed):
            return
        names = self._names(catalogue, allowed)
        for kind, sign in (("Snippets", "$"), ("Aliases", "")):
            for name in others_for(query, names.others[kind])[:MAX_OTHERS]:
                yield sign + name, names.line(kind, sign + name).removeprefix("- ")

    def _names(self, catalogue: Snapshot, allowed: Collection[str] | None) -> "_VisibleNames":
        """Return the visible names, computed once for each catalogue."""
        tools, names = self._listing.of(catalogue, allowed), self._last
        context = current_call.get()
        runs = context is None or context.in_code or (context.call.source != "ask" and can_run())
        if names is None or names.tools is not tools or names.runs is not runs:
            names = self._last = _VisibleNames(self._view, tools, catalogue, allowed, runs)
        return names

    def _matches(self, query: str, names: "_VisibleNames", allowed: Collection[str] | None) -> dict[str, list[str]]:
        """Return the matching names by kind."""
        text = query.removeprefix("$")
        results = self._view.search(text, SEARCHED, allowed)
        tools = [] if query.startswith("$") else tools_for(text, names.words, results)
        others = {kind: others_for(text, entries)[:MAX_OTHERS] for kind, entries in names.others.items()}
        others["Snippets"] = [f"${name}" for name in others["Snippets"]]
        return {"Tools": [names.by_name[name].word for name in tools[:MAX_TOOLS]], **others}


class _VisibleNames:
    """The names that the caller may see, with their tools, packs, aliases and snippets."""

    def __init__(
        self, view: View, tools: list[ListedTool], catalogue: Snapshot, allowed: Collection[str] | None, runs: bool
    ) -> None:
        self.view = view
        self.tools = tools
        self.words = {tool.spec.name: tool.word for tool in tools}
        self.by_name = by_name(tools)
        self.aliases = view.aliases
        if allowed is not None:  # only for permitted tools
            self.aliases = {name: to for name, to in view.aliases.items() if to in self.by_name}
        self.runs = runs
        self.snippets = view.snippets(catalogue, allowed) if runs else {}
        self.packs: dict[str, PackView] = packs_of(tools, view.server_packs(allowed), dict(view.instructions))

    @cached_property
    def others(self) -> dict[str, list[Named]]:
        """The packs, snippets and aliases, prepared for matching."""
        return {
            "Packs": named({name: pack.instructions or "" for name, pack in self.packs.items()}),
            "Snippets": named({name: snippet.description for name, snippet in self.snippets.items()}),
            "Aliases": named(self.aliases),
        }

    def pages(self, name: str, room: int = PACK_TOKENS) -> list[str]:
        """Return the pages for an exact name: usually one, but an alias and a snippet may share a name.

        The page of a pack has about `room` tokens.
        """
        pages: list[str] = []
        if not name.startswith("$"):
            has_documents = self.view.has_documents
            pages += [tool_page(self.by_name[name], has_documents)] if name in self.by_name else []
            pages += [pack_page(self.packs[name], has_documents, room)] if name in self.packs else []
            if (target := self.aliases.get(name)) is not None:
                head, tool = f"# {name}\n\nAn alias: {name} -> {target}\n\n", self.by_name.get(target)
                usage = tool and f"Usage: {name}(…) is {signature(tool.spec, target)}"
                page = f'{usage}\n\nDetails: ot.help("{target}")'
                pages.append(head + (page if usage else f"There is no tool {target}, so it can't be used."))
        snippet = name.removeprefix("$")
        if snippet in self.snippets:
            pages.append(f"# ${snippet}\n\n{self.view.snippet(snippet).rstrip()}")
        return pages

    def line(self, kind: str, name: str) -> str:
        if kind == "Packs":
            count = len(self.packs[name].tools)
            return f"- {name}: {count} tool{'' if count == 1 else 's'}, {self.packs[name].source}"
        if kind == "Snippets":
            return f"- {name}: {cut_to_tokens(gist(self.snippets[name[1:]].description), LINE_TOKENS)}"
        if kind == "Aliases":
            return f"- {name} -> {self.aliases[name]}"
        return short_line(self.by_name[name])


def _in_short(query: str, names: _VisibleNames, matches: dict[str, list[str]]) -> str:
    groups, room = list[str](), MAX_TOKENS
    for kind, group in matches.items():
        lines = list[str]()
        for name in group:
            lines.append(names.line(kind, name))
            room -= count_tokens(lines[-1])
            if room < 0:
                break
        groups += ["\n".join([f"## {kind}", *lines])] if lines else []
    first = next(group[0] for group in matches.values() if group)
    shown = query[:MAX_SHOWN]
    calls = {"ot.search": f"ot.search({shown!r}, limit=20)", "ot.tools": "ot.tools(pattern=…)"}
    usable = ", or ".join(call for name, call in calls.items() if name in names.by_name)
    more = f"Details: ot.help({first!r}).{f' More matches: {usable}.' if usable else ''}"
    return "\n\n".join([f"No exact match for {shown!r}. Closest matches:", *groups, more])
