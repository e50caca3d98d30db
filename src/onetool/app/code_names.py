"""The names that code of `run` can use, for completion in editors: packs with their tools, functions, modules,
snippets.

Names are given as code writes them, which can differ from the names of the tools.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from onetool.config import Config
from onetool.core.registry import Snapshot
from onetool.core.signature import as_identifier, signature
from onetool.core.spec import ToolSpec
from onetool.core.type_names import type_name
from onetool.packs.ot.listings import gist
from onetool.script.names import LANGUAGE, RESERVED, ScriptNames
from onetool.script.rewrite import MODULES
from onetool.script.snippets import parameters, usage, visible_snippets


class CodeParameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A parameter of a tool or of a snippet."""

    name: str
    type: str
    required: bool
    description: str
    default: Any = UNSET


class CodeTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that code can call."""

    name: Annotated[str, Meta(description="The name after the dot, as code writes it.")]
    tool: Annotated[str, Meta(description="The name of the tool.")]
    signature: str
    summary: str
    parameters: list[CodeParameter]


class CodePack(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    tools: list[CodeTool]


class CodeSnippet(msgspec.Struct, frozen=True, kw_only=True):
    """A snippet; `usage` shows how to call it."""

    name: str
    description: str
    usage: str
    parameters: list[CodeParameter]


class CodeNames(msgspec.Struct, frozen=True, kw_only=True):
    """All names that code can use."""

    packs: list[CodePack]
    functions: Annotated[list[CodeTool], Meta(description="Tools without a pack.")]
    builtins: list[str]
    modules: list[str]
    snippets: list[CodeSnippet]
    aliases: Annotated[dict[str, str], Meta(description="Names for tools.")]


def code_names(catalogue: Snapshot, config: Config, allowed: Collection[str] | None) -> CodeNames:
    """Return the names that code may use; with an allow-list, only those that may be called."""
    names = ScriptNames(catalogue, config.aliases)

    def shown(spec: ToolSpec) -> bool:
        return spec.enabled and not spec.hidden and (allowed is None or spec.name in allowed)

    functions = {word: spec for word, spec in names.functions.items() if shown(spec)}
    return CodeNames(
        packs=sorted(_packs(names, config, shown), key=lambda pack: pack.name),
        functions=[_tool(word, word, spec) for word, spec in functions.items() if word not in config.aliases],
        builtins=sorted(word for word in RESERVED if word[0] != "_"),
        modules=sorted(MODULES),
        snippets=[
            CodeSnippet(
                name=name,
                description=snippet.description,
                usage=usage(name, snippet),
                parameters=[CodeParameter(**one) for one in parameters(snippet)],
            )
            for name, snippet in visible_snippets(config.snippets, names, allowed).items()
        ],
        aliases={word: spec.name for word, spec in functions.items() if word in config.aliases},
    )


def _packs(names: ScriptNames, config: Config, shown: Any) -> Iterator[CodePack]:
    for word in names.words():
        if (pack := names.pack(word)) is None:
            continue
        tools = {own: spec for own, spec in pack.tools.items() if spec not in LANGUAGE and shown(spec)}
        if tools:
            own_name = next(iter(tools.values())).pack
            texts = config.texts.packs.get(own_name)
            yield CodePack(
                name=word,
                description=gist(texts.instructions) if texts else "",
                tools=[_tool(own, f"{word}.{own}", spec) for own, spec in sorted(tools.items())],
            )


def _tool(name: str, whole: str, spec: ToolSpec) -> CodeTool:
    return CodeTool(
        name=name,
        tool=spec.name,
        signature=signature(spec, whole),
        summary=gist(spec.description),
        parameters=[_parameter(one, spec.input_schema) for one in spec.order],
    )


def _parameter(name: str, schema: Mapping[str, Any]) -> CodeParameter:
    part: Any = schema["properties"][name]
    facts: Mapping[str, Any] = part if isinstance(part, Mapping) else {}
    return CodeParameter(
        name=as_identifier(name),
        type=type_name(part, schema),
        required=name in (schema.get("required") or ()),
        description=gist(str(facts.get("description") or "")),
        default=facts.get("default", UNSET),
    )
