"""What a bundle and a tool of one are: as they stand in their files, and as REST shows them.

`BundleContent` and `ToolContent` are what a person gives; `Bundle` and `Tool` add what the store knows. What a tool's
type says of it (`httpImpl`, `limits` …) is kept and given back as it came; `http_of` and the like read it.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from onetool.handlers.http.impl import HttpImpl, Limits, Shape

SCHEMA_VERSION = "1"

Title = Annotated[str, Meta(max_length=200)]
Words = Annotated[str, Meta(max_length=10_000)]
Tag = Annotated[str, Meta(min_length=1, max_length=64)]
Kind = Literal["python", "go", "http", "script"]


class FunctionImpl(Shape, frozen=True, kw_only=True):
    """A function that is registered in the process: `pack.tool`."""

    func: Annotated[str, Meta(min_length=1, max_length=200)]


class ScriptImpl(Shape, frozen=True, kw_only=True):
    """Code in the language of `run`, with the tool's arguments as variables."""

    code: Annotated[str, Meta(min_length=1, max_length=256 * 1024)]


class BundleContent(Shape, frozen=True, kw_only=True):
    slug: str
    display_name: Title = ""
    description: Words = ""
    is_enabled: bool = True


class ToolContent(Shape, frozen=True, kw_only=True):
    type: Kind
    display_name: Title = ""
    description: Words = ""
    tags: Annotated[tuple[Tag, ...], Meta(max_length=64)] = ()
    is_enabled: bool = True
    parallel: bool = False  # may run beside other calls that a model makes in one step
    arg_schema: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    output_schema: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    http_impl: dict[str, Any] | None = None
    python_impl: dict[str, Any] | None = None
    go_impl: dict[str, Any] | None = None
    script_impl: dict[str, Any] | None = None
    limits: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class Bundle(BundleContent, frozen=True, kw_only=True, omit_defaults=False):
    id: str
    is_built_in: bool = False
    created_at: str  # 2026-11-15T16:00:00.000Z
    modified_at: str
    soft_deleted_at: str | None = None
    schema_version: str = SCHEMA_VERSION


class Tool(ToolContent, frozen=True, kw_only=True, omit_defaults=False):
    id: str
    bundle_id: str = msgspec.field(name="bundleID")
    slug: str
    version: str
    is_built_in: bool = False
    created_at: str
    modified_at: str
    schema_version: str = SCHEMA_VERSION


# Of each type: the key that says more of it, and its shape.
IMPLS: dict[str, tuple[str, type[Shape]]] = {
    "python": ("pythonImpl", FunctionImpl),
    "go": ("goImpl", FunctionImpl),
    "http": ("httpImpl", HttpImpl),
    "script": ("scriptImpl", ScriptImpl),
}


def http_of(tool: ToolContent) -> HttpImpl:
    return msgspec.convert(tool.http_impl, HttpImpl)


def function_of(tool: ToolContent) -> str:
    return msgspec.convert(tool.go_impl if tool.type == "go" else tool.python_impl, FunctionImpl).func


def code_of(tool: ToolContent) -> str:
    return msgspec.convert(tool.script_impl, ScriptImpl).code


def limits_of(tool: ToolContent) -> Limits:
    return msgspec.convert(tool.limits, Limits)


def shown(thing: Bundle | Tool) -> dict[str, Any]:
    """As a file and REST have it: without the keys of other types, and without `parallel` where it says nothing."""
    found: dict[str, Any] = msgspec.to_builtins(thing)
    if found.get("parallel") is False:
        del found["parallel"]
    for key, _ in IMPLS.values():
        if found.get(key, ...) is None:
            del found[key]
    return found
