"""The view of the app for the pack `ot`, and the pack's lists of tools, packs, aliases and snippets as plain data."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from onetool.core.call import Page
from onetool.core.context import current_call
from onetool.core.errors import cut
from onetool.core.registry import Snapshot
from onetool.core.signature import as_identifier, signature
from onetool.core.spec import ToolSpec
from onetool.core.text import cut_to_tokens
from onetool.core.type_names import resolve_definition, returned_type, type_with_fields

if TYPE_CHECKING:
    from onetool.services.journal.summary import Summary

Info = Literal["list", "min", "full"]


class View(Protocol):
    """The parts of the app that the pack `ot` uses.

    Tools come from the catalogue that the running call started with.
    """

    @property
    def version(self) -> str: ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """Aliases and their target tools."""
        ...

    def snippets(self, catalogue: Snapshot, allowed: Collection[str] | None) -> Mapping[str, Any]: ...

    @property
    def instructions(self) -> Mapping[str, str]:
        """The instructions of packs."""
        ...

    @property
    def has_documents(self) -> bool:
        """Whether Python packs without a docs_url have a page in the default documentation."""
        ...

    def spellings(self, catalogue: Snapshot) -> Mapping[str, str]:
        """Return the name in code for every tool."""
        ...

    def search(
        self, query: str, limit: int, allowed: Collection[str] | None, pack: str | None = None
    ) -> list[tuple[ToolSpec, float]]: ...

    def snippet(self, name: str) -> str:
        """Return a snippet's definition and an example, as text."""
        ...

    def servers(self, allowed: Collection[str] | None) -> list[dict[str, Any]]: ...

    def server_packs(self, allowed: Collection[str] | None) -> list[str]:
        """Return the names of MCP servers in code, including those whose tools are not known yet."""
        ...

    async def health(self, allowed: Collection[str] | None) -> dict[str, Any]: ...

    def page(self, handle: str, offset: int, limit: int, search: str | None, fuzzy: bool, column: int) -> Page:
        """Return some lines of a stored result of the running call's caller."""
        ...

    def load(self, handle: str) -> Any:
        """Return the value of a stored result of the running call's caller. Raises ToolFailure."""
        ...

    def publish(self, topic: str, message: str) -> str: ...

    def reload(self) -> None:
        """Reload everything, or nothing after a mistake. Raises ToolFailure with the reason."""

    def stats(self, period: str, tool: str | None, allowed: Collection[str] | None) -> "Summary":
        """Return the stats of allowed tools. Raises ToolFailure if they can't be read."""
        ...

    def write_report(self, path: str, stats: "Summary") -> str:
        """Write a report of the stats to a file in an allowed folder and return its path. Raises ToolFailure."""
        ...


# The running call


def current_catalogue() -> tuple[Snapshot, Collection[str] | None]:
    """Return the catalogue and the allow-list of the running call."""
    context = current_call.get()
    if context is None or context.environment is None:
        return Snapshot({}), None
    return context.tools or context.environment.snapshot(), context.allowed


# Lists as plain data

MAX_PATTERN = 1_000  # characters of a pattern; longer ones are truncated


def normalized(pattern: str) -> str:
    return pattern.strip()[:MAX_PATTERN].casefold()


def contains(pattern: str, *texts: str) -> bool:
    return not pattern or any(pattern in text.casefold() for text in texts)


# ot.tools

# Values for required arguments in examples.
STAND_INS: Mapping[Any, Any] = {"integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}}
SHORT = 200  # characters of a description in a list
LINE_TOKENS = 30  # tokens of a description in a list of matches


class ListedTool(msgspec.Struct, frozen=True):
    """A tool with its spelling in code and its lowercase names for matching."""

    word: str
    spec: ToolSpec
    gist: str
    names: tuple[str, ...]
    dotted: tuple[str, ...]  # the same with the pack, which is `config` for tools without one

    @property
    def pack(self) -> str:
        """The pack's name in code."""
        return self.word.partition(".")[0] if "." in self.spec.name else self.spec.pack


class Listing:
    """The list of tools, with spellings cached per catalogue. `spellings` returns the names in code."""

    def __init__(self, spellings: Callable[[Snapshot], Mapping[str, str]]) -> None:
        self._spellings = spellings
        self._last: tuple[Snapshot, list[ListedTool], dict[str, ListedTool]] | None = None

    def tools(
        self, catalogue: Snapshot, allowed: Collection[str] | None = None, pattern: str = "", info: Info = "min"
    ) -> list[Any]:
        """Return the tools whose names contain the pattern, in catalogue order."""
        part = normalized(pattern)
        matches = [
            tool
            for tool in self.of(catalogue, allowed)
            if any(part in name for name in (tool.dotted if "." in part else tool.names))
        ]
        if info == "list":
            return [tool.word for tool in matches]
        return [in_short(tool) if info == "min" else in_full(tool) for tool in matches]

    def of(self, catalogue: Snapshot, allowed: Collection[str] | None = None) -> list[ListedTool]:
        """Return all visible tools in catalogue order."""
        tools, _ = self._all(catalogue)
        if allowed is None:
            return tools
        permitted = frozenset(allowed)
        return [tool for tool in tools if tool.spec.name in permitted]

    def find(self, name: str, catalogue: Snapshot, allowed: Collection[str] | None = None) -> ListedTool | None:
        """Return the tool with this name, or with this name in code."""
        if catalogue.has(name):  # avoids listing the others
            spec = catalogue.get(name)
            is_visible = spec is not None and spec.enabled and not spec.hidden
            tool = _listed_tool(self._spellings(catalogue)[name], spec) if spec is not None and is_visible else None
        else:
            tool = self._all(catalogue)[1].get(name)
        return tool if tool is not None and (allowed is None or tool.spec.name in allowed) else None

    def _all(self, catalogue: Snapshot) -> tuple[list[ListedTool], dict[str, ListedTool]]:
        last = self._last
        if last is None or last[0] is not catalogue:
            spelled = self._spellings(catalogue)
            tools = [_listed_tool(spelled[spec.name], spec) for spec in catalogue if spec.enabled and not spec.hidden]
            last = self._last = (catalogue, tools, by_name(tools))
        return last[1:]


def by_name(tools: Iterable[ListedTool]) -> dict[str, ListedTool]:
    """Return the tools by name and by name in code. Tools without a dot are also found with the pack `config`."""
    under_pack = {f"{tool.pack}.{tool.word}": tool for tool in tools if "." not in tool.spec.name}
    return under_pack | {name: tool for tool in tools for name in (tool.spec.name, tool.word)}


def _listed_tool(word: str, spec: ToolSpec) -> ListedTool:
    names = tuple({word.casefold(), spec.name.casefold()})
    short = gist(spec.description)
    return ListedTool(
        word, spec, short, names, names if "." in spec.name else tuple(f"{spec.pack}.{name}" for name in names)
    )


def in_short(tool: ListedTool) -> dict[str, str]:
    return {"name": tool.word, "description": tool.gist}


def gist(description: str, limit: int = SHORT) -> str:
    """Return the first paragraph of a description, truncated."""
    first = description.strip().partition("\n\n")[0]
    return cut(" ".join(first.split()), limit)


def short_line(tool: ListedTool) -> str:
    """Return a tool's name and the beginning of its description."""
    return f"- {tool.word}: {cut_to_tokens(tool.gist, LINE_TOKENS)}"


def in_full(tool: ListedTool) -> dict[str, Any]:
    spec = tool.spec
    known = {
        "args": [*arguments(spec.input_schema, spec.order)],
        "returns": returned_type(spec),
        "effect": spec.effect,
        "example": example(tool),
        "requires": [need.to_dict() for need in spec.requires],
    }
    return {
        "name": tool.word,
        "signature": signature(spec, tool.word),
        "description": spec.description,
        "source": spec.source,
        **{key: value for key, value in known.items() if value},
    }


def arguments(schema: Mapping[str, Any], order: Iterable[str]) -> Iterator[str]:
    """Yield the descriptions of the arguments in signature order, with the fields of objects."""
    for name in order:
        part = schema["properties"][name]
        description = part.get("description") if isinstance(part, Mapping) else None
        details = " ".join(filter(None, (str(description or "").strip(), type_with_fields(part, schema))))
        if details:
            yield f"{as_identifier(name)}: {details}"


def example(tool: ListedTool) -> str:
    """Return the author's first example, or a call with the required arguments."""
    if tool.spec.examples:
        return tool.spec.examples[0]
    schema = tool.spec.input_schema
    args = (
        f"{as_identifier(name)}={_stand_in(schema['properties'][name], schema)!r}"
        for name in schema.get("required") or ()
    )
    return f"{tool.word}({', '.join(args)})"


def _stand_in(schema: Any, root: Mapping[str, Any]) -> Any:
    part = resolve_definition(schema, root)
    if not isinstance(part, Mapping):
        return "..."
    for key in ("default", "const"):
        if key in part:
            return part[key]
    if choices := part.get("enum") or part.get("examples"):
        return choices[0]
    kind = part.get("type")
    return STAND_INS.get(kind, "...") if isinstance(kind, str) else "..."


# ot.packs


class PackView(msgspec.Struct, frozen=True, kw_only=True):
    """A pack under its name in code."""

    name: str
    source: str  # local or proxy
    tools: tuple[ListedTool, ...] = ()
    instructions: str | None = None

    def in_short(self) -> dict[str, Any]:
        return {"name": self.name, "source": self.source, "tool_count": len(self.tools)}

    def in_full(self) -> dict[str, Any]:
        details = {"instructions": self.instructions} if self.instructions else {}
        return {**self.in_short(), **details, "tools": [in_short(tool) for tool in self.tools]}


def packs_of(tools: Iterable[ListedTool], servers: Iterable[str], instructions: dict[str, str]) -> dict[str, PackView]:
    """Return the packs by name, in the order of their tools, followed by servers whose tools are not known yet."""
    members: dict[str, list[ListedTool]] = {}
    for tool in tools:
        members.setdefault(tool.pack, []).append(tool)
    for name in servers:
        members.setdefault(name, [])
    packs: dict[str, PackView] = {}
    for name, listed in members.items():
        own = listed[0].spec.pack if listed else name
        packs[name] = PackView(
            name=name,
            source="proxy" if not listed or listed[0].spec.source.startswith("proxy:") else "local",
            tools=tuple(listed),
            instructions=instructions.get(own) or instructions.get(name),
        )
    return packs


# ot.aliases, ot.snippets


def aliases(targets: Mapping[str, str], pattern: str, info: Info) -> list[Any]:
    matches = {name: target for name, target in targets.items() if contains(normalized(pattern), name, target)}
    if info == "list":
        return list(matches)
    if info == "min":
        return [f"{name} -> {target}" for name, target in matches.items()]
    return [{"name": name, "target": target} for name, target in matches.items()]


def snippets(view: View, pattern: str, info: Info) -> list[str] | str:
    """List the snippets. In full, the result is one text with the definition of each."""
    part = normalized(pattern).removeprefix("$")
    snippets = view.snippets(*current_catalogue())
    matches = {name: item for name, item in snippets.items() if contains(part, name, item.description)}
    if info == "list":
        return list(matches)
    if info == "min":
        return [f"{name}: {item.description}" for name, item in matches.items()]
    if not matches:
        return f"No snippet matches {cut(pattern, 100)!r}."
    return "\n---\n".join(view.snippet(name).rstrip("\n") for name in matches)
