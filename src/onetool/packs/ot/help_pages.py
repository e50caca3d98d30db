"""Writes the full help text of a tool, a pack, an alias or a snippet."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onetool.core.signature import (
    as_identifier,
    resolve_definition,
    returned_type,
    signature,
    type_name,
    type_with_fields,
)
from onetool.core.spec import Requirement, ToolSpec
from onetool.core.text import count_tokens, cut_to_tokens
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
DESCRIBED, NAMED = 250, 120  # tokens for the tools of a pack
LINE = 30  # tokens of a description, where many stand together


def documentation(pack: str) -> str:
    return DOCUMENTATION.format(slug=SLUGS.get(pack, pack))


def _documented(pack: str, own: str | None, has_documents: bool) -> str:
    """Where a pack is documented: its own address, else that of the documents, else nothing."""
    url = own or (documentation(pack) if has_documents else None)
    return f"Documentation: {url}" if url else ""


def of_tool(tool: ListedTool, has_documents: bool = True) -> str:
    spec = tool.spec
    lines = list(_arguments(spec))
    parts = [
        f"# {tool.word}",
        _indented(spec.description) if spec.source.startswith("proxy:") else spec.description.strip(),
        f"Signature: {signature(spec, tool.word)}",
        "\n".join(["Arguments:", *lines]) if lines else "Arguments: none",
        f"Returns: {_on_a_line(returned_type(spec) or 'not told')}",
        "\n".join(["Example:", *(f"  {line}" for line in example(tool).splitlines())]),
        "\n".join(["Requires:", *map(_requirement, spec.requires)]) if spec.requires else "",
        f"Source: {spec.source}",
        _documented(tool.pack, spec.docs_url, has_documents),
    ]
    return "\n\n".join(filter(None, parts))


def _requirement(need: Requirement) -> str:
    facts = ["command" if need.kind == "cli" else "library"]
    facts += [f"at least {need.minimum}"] if need.minimum else []
    facts += [f"to install it: {need.install}"] if need.install else []
    return f"- {need.name} ({'; '.join(facts)})"


def of_pack(pack: PackView, has_documents: bool = True) -> str:
    own = next((tool.spec.docs_url for tool in pack.tools if tool.spec.docs_url), None)
    parts = [
        f"# {pack.name}",
        (pack.instructions or "").strip(),
        "\n".join(["Tools:", *_listed(pack)]) if pack.tools else _no_tools(pack),
        f"Source: {pack.source}",
        _documented(pack.name, own, has_documents),
    ]
    return "\n\n".join(filter(None, parts))


def of_alias(name: str, target: str, tool: ListedTool | None) -> str:
    head = f"# {name}\n\nAn alias: {name} -> {target}"
    if tool is None:
        return f"{head}\n\nThere is no tool {target}, so it can't be used."
    return f'{head}\n\nUsage: {name}(…) is {signature(tool.spec, target)}\n\nAll about it: ot.help("{target}")'


def of_snippet(name: str, definition: str) -> str:
    return f"# ${name}\n\n{definition.rstrip()}"


def _listed(pack: PackView) -> Iterator[str]:
    """With what they do while there is room, then by their names, then by their number."""
    said = list(_as_many(DESCRIBED, (in_line(tool) for tool in pack.tools)))
    yield from said
    rest = [tool.word for tool in pack.tools[len(said) :]]
    named = list(_as_many(NAMED, rest))
    more = f' … and {len(rest) - len(named):,} more: ot.tools(pattern="{pack.name}.")' if len(named) < len(rest) else ""
    if rest:
        yield f"- also {', '.join(named)}{more}"


def _as_many(room: int, texts: Iterable[str]) -> Iterator[str]:
    """As so many tokens hold."""
    for text in texts:
        room -= count_tokens(text) + 1
        if room < 0:
            return
        yield text


def in_line(tool: ListedTool) -> str:
    return f"- {tool.word}: {cut_to_tokens(tool.gist, LINE)}"


def _indented(text: str) -> str:
    """Untrusted text, indented so that it can't imitate our headings."""
    return "\n".join(f"  {line}".rstrip() for line in text.strip().splitlines())


def _on_a_line(text: str) -> str:
    return " ".join(text.split())


def _no_tools(pack: PackView) -> str:
    return "Its tools are not known yet: ot.servers() tells why." if pack.source == "proxy" else "It has no tools."


def _arguments(spec: ToolSpec) -> Iterator[str]:
    schema = spec.input_schema
    required: Iterable[str] = schema.get("required") or ()
    for name in spec.order:
        part = resolve_definition(schema["properties"][name], schema)
        known: Mapping[str, Any] = part if isinstance(part, Mapping) else {}
        facts = [type_name(part, schema)]
        if name not in required:
            facts.append(f"default {known['default']!r:.60}" if "default" in known else "optional")
        lines = _on_a_line(f"{known.get('description') or ''} {type_with_fields(part, schema)}")
        yield f"- {as_identifier(name)} ({', '.join(facts)}){f': {lines}' if lines else ''}"
