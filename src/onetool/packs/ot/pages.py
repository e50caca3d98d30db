"""The pages of `ot.help`: a tool in full, and a pack with what a model needs before its first call."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from onetool.core.signature import as_identifier, signature
from onetool.core.spec import ToolSpec
from onetool.core.text import count_tokens
from onetool.core.tool_lines import MAX_LINES, first_sentence, single_line, take_within, tool_line
from onetool.core.type_names import resolve_definition, returned_type, type_name, type_with_fields
from onetool.packs.ot.listings import ListedTool, PackView, example

DOCUMENTATION = "https://onetool.beycom.online/reference/tools/{slug}/"
SLUGS = {
    "brave": "brave-search",
    "code": "code-search",
    "db": "database",
    "ground": "grounding-search",
    "llm": "transform",
    "web": "web-fetch",
}
PACK_TOKENS = 3_400  # of the pages of all packs in one answer
DESCRIBED, NAMED = 250, 120  # for the tools of a pack that has too many of them


def documentation(pack: str) -> str:
    return DOCUMENTATION.format(slug=SLUGS.get(pack, pack))


def _documentation_line(pack: str, spec: ToolSpec | None, has_documents: bool) -> str:
    """Return a line with the documentation URL that the pack declares, else the default one of Python packs.

    `spec` is a tool of the pack. The tools of a server may not be known yet.
    """
    is_python = spec is not None and spec.source == "local" and spec.kept_as is None and spec.pack != "config"
    url = (spec and spec.docs_url) or (documentation(pack) if is_python and has_documents else None)
    return f"Documentation: {url}" if url else ""


def tool_page(tool: ListedTool, has_documents: bool) -> str:
    return "\n\n".join(_tool_parts(tool, has_documents))


def joined_tool_pages(tools: Sequence[ListedTool], has_documents: bool) -> str:
    """Return the pages of several tools. What is the same for all comes once, at the end."""
    pages = [_tool_parts(tool, has_documents) for tool in tools]
    shared = [part for part in pages[0] if all(part in page for page in pages)]
    texts: list[str] = []
    for tool, page in zip(tools, pages, strict=True):
        own = [part for part in page if part not in shared]
        if not tool.spec.examples:  # made of the signature, which says the same
            own = [part for part in own if not part.startswith("Example:")]
        texts.append("\n\n".join(own))
    return "\n\n".join([*texts, *(["# All of them", *shared] if shared else [])])


def _tool_parts(tool: ListedTool, has_documents: bool) -> list[str]:
    spec = tool.spec
    lines = list(_arguments(spec))
    description = spec.description.strip()
    if spec.source.startswith("proxy:"):  # indented, so that untrusted text can't imitate headings
        description = "\n".join(f"  {line}".rstrip() for line in description.splitlines())
    requires: list[str] = []
    for need in spec.requires:
        facts = ["command" if need.kind == "cli" else "library"]
        facts += [f"at least {need.minimum}"] if need.minimum else []
        facts += [f"to install it: {need.install}"] if need.install else []
        requires.append(f"- {need.name} ({'; '.join(facts)})")
    parts = [
        f"# {tool.word}",
        description,
        f"Signature: {signature(spec, tool.word)}",
        "\n".join(["Arguments:", *lines]) if lines else "Arguments: none",
        f"Returns: {single_line(returned_type(spec) or 'unknown')}",
        f"Effect: {spec.effect}" if spec.effect else "",
        "\n".join(["Example:", *(f"  {line}" for line in example(tool).splitlines())]),
        "\n".join(["Requires:", *requires]) if requires else "",
        f"Source: {spec.source}",
        _documentation_line(tool.pack, spec, has_documents),
    ]
    return [*filter(None, parts)]


def pack_page(pack: PackView, has_documents: bool, room: int = PACK_TOKENS) -> str:
    """Return the page of a pack, with as much about each of its tools as fits into `room` tokens."""
    first = min((tool.spec for tool in pack.tools), key=lambda spec: not spec.docs_url, default=None)
    empty = "Its tools are not known yet: see ot.servers()." if pack.source == "proxy" else "It has no tools."
    head = [
        "\n".join(filter(None, [f"# {pack.name}", _documentation_line(pack.name, first, has_documents)])),
        (pack.instructions or "").strip(),
    ]
    room -= sum(map(count_tokens, head))
    tools = "\n".join(["Tools:", *_tool_lines(pack, room)]) if pack.tools else empty
    return "\n\n".join(filter(None, [*head, tools, f"Source: {pack.source}"]))


def _tool_lines(pack: PackView, room: int) -> Iterator[str]:
    """Yield the lines about a pack's tools: a signature and a sentence for each, and what fits of the rest.

    Nothing ends in the middle of a sentence: what doesn't fit is left out, and the last line says how to get it.
    """
    lines = [f"- {tool_line(tool.spec, tool.word, whole=True)}" for tool in pack.tools]
    left = room - sum(map(count_tokens, lines))
    if left < 0 or len(lines) > MAX_LINES:
        yield from _some_lines(pack, lines)
        return
    more = [_rest(tool.spec) for tool in pack.tools]
    kept: list[list[str]] = [[] for _ in pack.tools]
    cut_short: dict[str, None] = {}
    for level in range(max(map(len, more))):  # first what the description says, then what it says of arguments
        for tool, parts, chosen in zip(pack.tools, more, kept, strict=True):
            if level < len(parts) and parts[level]:
                size = count_tokens(parts[level])
                if size > left:
                    cut_short[tool.word] = None
                else:
                    left -= size
                    chosen.append(parts[level])
    for line, chosen in zip(lines, kept, strict=True):
        yield "\n".join([line, *chosen])
    if cut_short:
        names = ", ".join(map(repr, take_within(NAMED, cut_short, at_least=1)))
        yield f"There is more about some of these: ot.help([{names}])"


def _some_lines(pack: PackView, lines: list[str]) -> Iterator[str]:
    """Yield lines for some tools of a large pack, then names, then a number."""
    described = list(take_within(DESCRIBED, lines[:MAX_LINES]))
    yield from described
    rest = [tool.word for tool in pack.tools[len(described) :]]
    named = list(take_within(NAMED, rest))
    more = f' … and {len(rest) - len(named):,} more: ot.tools(pattern="{pack.name}.")' if len(named) < len(rest) else ""
    yield f"- also {', '.join(named)}{more}"


def _rest(spec: ToolSpec) -> list[str]:
    """Return the rest of the description's first paragraph, the other ones, and lines about arguments, or ''."""
    first, _, others = spec.description.strip().partition("\n\n")
    rest = single_line(first).removeprefix(first_sentence(first, whole=True)).strip()
    told = [line for line in _arguments(spec) if "): " in line]
    parts = (rest, single_line(others), "\n  ".join(told))
    return [f"  {part}" if part else "" for part in parts]


def _arguments(spec: ToolSpec) -> Iterator[str]:
    schema = spec.input_schema
    required: Iterable[str] = schema.get("required") or ()
    for name in spec.order:
        part = resolve_definition(schema["properties"][name], schema)
        known: Mapping[str, Any] = part if isinstance(part, Mapping) else {}
        facts = [type_name(part, schema)]
        if name not in required:
            facts.append(f"default {known['default']!r:.60}" if "default" in known else "optional")
        lines = single_line(f"{known.get('description') or ''} {type_with_fields(part, schema)}")
        yield f"- {as_identifier(name)} ({', '.join(facts)}){f': {lines}' if lines else ''}"
