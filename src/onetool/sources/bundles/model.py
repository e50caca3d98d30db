"""Bundles and tools, in files and over REST; and the built-in packs as bundles.

`BundleContent` and `ToolContent` are written by users; `Bundle` and `Tool` add the fields of the store. The part for a
tool's type (`httpImpl`, `limits` …) is stored and returned unchanged, and read by `http_of` and similar functions.
Built-in bundles have fixed ids and are read-only; their tools have slugs with dashes and the version 1.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from onetool.core.spec import ToolSpec
from onetool.http.definition import CamelStruct, HttpImpl, ToolLimits
from onetool.sources.bundles.names import Id, Slug, Version, derived_id

SCHEMA_VERSION = "1"

READ_ONLY = {"readOnly": True}
Title = Annotated[str, Meta(max_length=200, description="The title that people see. Not part of any name.")]
Words = Annotated[str, Meta(max_length=10_000, description="The purpose, for people and models.")]
Tag = Annotated[str, Meta(min_length=1, max_length=64)]
Code = Annotated[str, Meta(min_length=1, max_length=256 * 1024, description="Code in the language of `run`.")]
Switch = Annotated[bool, Meta(description="Disabled tools can't be called; disabled bundles can't be changed.")]
ArgSchema = Annotated[dict[str, Any], Meta(description="JSON Schema (2020-12) of the arguments.")]
OutputSchema = Annotated[dict[str, Any], Meta(description="JSON Schema of the result; empty: any value.")]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time", **READ_ONLY})]
OwnId = Annotated[Id, Meta(extra_json_schema=READ_ONLY)]
BuiltIn = Annotated[bool, Meta(description="Only isEnabled can be changed.", extra_json_schema=READ_ONLY)]
Modified = Annotated[Time, Meta(description="The last change of the content. Enabling and disabling don't count.")]
Kind = Literal["python", "go", "http", "script"]


class FunctionImpl(CamelStruct, frozen=True, kw_only=True):
    """A call of a function that is registered in the process: `pack.tool`."""

    func: Annotated[str, Meta(min_length=1, max_length=200, description="A registered function: `pack.tool`.")]


class ScriptImpl(CamelStruct, frozen=True, kw_only=True):
    """Code in the language of `run`, with the tool's arguments as variables. Its last value is the result."""

    code: Code


class PreProcessor(CamelStruct, frozen=True, kw_only=True, tag="script", tag_field="type"):
    """Code that changes the arguments before they are validated. It runs in the sandbox and can't call tools.

    The variable `args` has the arguments, and the last value of the code replaces them.
    """

    code: Code


class ToolExample(CamelStruct, frozen=True, kw_only=True):
    """Example arguments of a call, for users and models."""

    name: Annotated[str, Meta(min_length=1, max_length=200, description="The title that people see.")]
    args: Annotated[dict[str, Any], Meta(description="The arguments of the call.")]
    description: Annotated[str, Meta(max_length=2_000)] = ""


class BundleSource(CamelStruct, frozen=True, kw_only=True):
    """The source of a read-only bundle: a pack, the tools declared in a config, or an MCP server."""

    kind: Literal["pack", "config", "server"]
    name: Annotated[str, Meta(description="The pack, the server, or the prefix of declared tools.")]


Origin = Annotated[BundleSource | None, Meta(description="For read-only bundles only.", extra_json_schema=READ_ONLY)]


class BundleContent(CamelStruct, frozen=True, kw_only=True):
    slug: Slug
    display_name: Title = ""
    description: Words = ""
    is_enabled: Switch = True


class ToolContent(CamelStruct, frozen=True, kw_only=True):
    type: Kind
    display_name: Title = ""
    description: Words = ""
    tags: Annotated[tuple[Tag, ...], Meta(max_length=64, description="Words for search and filters.")] = ()
    is_enabled: Switch = True
    parallel: Annotated[bool, Meta(description="Whether calls in one step of a model may run concurrently.")] = False
    arg_schema: ArgSchema = msgspec.field(default_factory=dict[str, Any])
    output_schema: OutputSchema = msgspec.field(default_factory=dict[str, Any])
    http_impl: dict[str, Any] | None = None
    python_impl: dict[str, Any] | None = None
    go_impl: dict[str, Any] | None = None
    script_impl: dict[str, Any] | None = None
    limits: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    pre_processors: Annotated[
        tuple[PreProcessor, ...], Meta(max_length=10, description="Code that changes the arguments before validation.")
    ] = ()
    examples: Annotated[
        tuple[ToolExample, ...], Meta(max_length=20, description="Changes don't count as changes of the tool.")
    ] = ()


class Bundle(BundleContent, frozen=True, kw_only=True, omit_defaults=False, repr_omit_defaults=True):
    id: OwnId
    is_built_in: BuiltIn = False
    created_at: Time  # 2026-11-15T16:00:00.000Z
    modified_at: Modified
    soft_deleted_at: Annotated[str | None, Meta(extra_json_schema={"format": "date-time", **READ_ONLY})] = None
    schema_version: Annotated[str, Meta(extra_json_schema=READ_ONLY)] = SCHEMA_VERSION
    source: Origin = None  # of derived bundles, see `sources.bundles.derived`


class Tool(ToolContent, frozen=True, kw_only=True, omit_defaults=False, repr_omit_defaults=True):
    id: OwnId
    bundle_id: OwnId = msgspec.field(name="bundleID")
    slug: Slug
    version: Version
    is_built_in: BuiltIn = False
    created_at: Time
    modified_at: Modified
    schema_version: Annotated[str, Meta(extra_json_schema=READ_ONLY)] = SCHEMA_VERSION
    source: Origin = None


# The key of each type's implementation, and its struct.
IMPLS: dict[str, tuple[str, type[CamelStruct]]] = {
    "python": ("pythonImpl", FunctionImpl),
    "go": ("goImpl", FunctionImpl),
    "http": ("httpImpl", HttpImpl),
    "script": ("scriptImpl", ScriptImpl),
}


def impl_of(tool: ToolContent) -> dict[str, Any] | None:
    """Return the implementation of the tool's type."""
    return {"http": tool.http_impl, "script": tool.script_impl, "go": tool.go_impl}.get(tool.type, tool.python_impl)


def http_of(tool: ToolContent) -> HttpImpl:
    return msgspec.convert(tool.http_impl, HttpImpl)


def function_of(tool: ToolContent) -> str:
    return (impl_of(tool) or {})["func"]


def function_name(tool: ToolContent) -> str | None:
    """Return the name of the function that the tool calls, if any."""
    return function_of(tool) if tool.type in ("python", "go") else None


def inherited(tool: ToolContent, function: ToolSpec | None) -> dict[str, Any]:
    """Return the schemas and description that a tool inherits from its function, by attribute of the tool."""
    if function is None:
        return {}
    offered = {
        "arg_schema": function.input_schema,
        "output_schema": function.output_schema,
        "description": function.description,
    }
    return {key: value for key, value in offered.items() if value and not getattr(tool, key)}


def code_of(tool: ToolContent) -> str:
    return msgspec.convert(tool.script_impl, ScriptImpl).code


def limits_of(tool: ToolContent) -> ToolLimits:
    return msgspec.convert(tool.limits, ToolLimits)


OMITTED_IF_EMPTY = ("parallel", "preProcessors", "examples", "source")  # left out when empty


def shown(thing: Bundle | Tool) -> dict[str, Any]:
    """Return the JSON for files and REST, without keys for other types of tools or empty `OMITTED_IF_EMPTY` keys."""
    found: dict[str, Any] = msgspec.to_builtins(thing)
    for key in OMITTED_IF_EMPTY:
        if not found.get(key, True):
            del found[key]
    for key, _ in IMPLS.values():
        if found.get(key, ...) is None:
            del found[key]
    return found


# The built-in packs as read-only bundles with fixed ids

VERSION = "1"
SINCE = "2026-01-01T00:00:00.000Z"  # older than all stored bundles


def built_in_id(name: str) -> str:
    """Return the id of a built-in pack or tool, which is the same on every machine."""
    return derived_id(f"built-in {name}")


def as_slug(name: str) -> str:
    return name.replace("_", "-")


def built_in_place(spec: ToolSpec) -> tuple[str, str, str]:
    """Return the bundle id, slug and version of a built-in tool."""
    return built_in_id(spec.pack), as_slug(spec.name.removeprefix(f"{spec.pack}.")), VERSION


def built_in_bundles(tools: Iterable[ToolSpec]) -> list[tuple[Bundle, list[Tool]]]:
    packs: dict[str, list[ToolSpec]] = {}
    for spec in tools:
        packs.setdefault(spec.pack, []).append(spec)
    bundles: list[tuple[Bundle, list[Tool]]] = []
    for pack, specs in packs.items():
        bundle = Bundle(
            id=built_in_id(pack),
            slug=as_slug(pack),
            display_name=pack,
            description=f"Built in: {', '.join(spec.name for spec in specs)}",
            is_built_in=True,
            created_at=SINCE,
            modified_at=SINCE,
        )
        bundles.append((bundle, []))
        for spec in specs:
            bundle_id, slug, version = built_in_place(spec)
            tool = Tool(
                id=built_in_id(spec.name),
                bundle_id=bundle_id,
                slug=slug,
                version=version,
                type="python",
                display_name=spec.name,
                description=spec.description,
                tags=spec.tags,
                arg_schema=deepcopy(dict(spec.input_schema)),
                output_schema=deepcopy(dict(spec.output_schema or {})),
                python_impl={"func": spec.name},
                is_built_in=True,
                created_at=SINCE,
                modified_at=SINCE,
            )
            bundles[-1][1].append(tool)
    return bundles
