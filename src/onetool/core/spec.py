"""ToolSpec: one type for every tool. Only `sources/` knows where a tool came from."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onetool.core.errors import SchemaError
from onetool.core.json_data import freeze
from onetool.core.redaction import secret_names

if TYPE_CHECKING:
    from onetool.core.inferred_schema import SeenValues
    from onetool.core.schema import CompiledSchema

Handler = Callable[..., Any]
"""Takes the validated arguments by name; returns the value, or an awaitable of it."""

NO_PARAMETERS: Mapping[str, Any] = freeze({"type": "object", "properties": {}})


def is_address(url: Any) -> bool:
    """Whether it can be shown as the address of a page: on one line, and nothing else."""
    return isinstance(url, str) and re.fullmatch(r"https?://[^\s/][^\s]*", url) is not None and url.isprintable()


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """Something outside of Python's own that a tool can't work without: a command, or a library."""

    kind: Literal["cli", "lib"]
    name: str
    minimum: str | None = None  # the oldest version that will do
    version_flag: str | None = None  # how to ask a command for its version
    install: str | None = None  # what a person can do when it is missing

    def to_dict(self) -> dict[str, str]:
        """The requirement as plain data."""
        facts = {"kind": self.kind, "name": self.name, "minimum": self.minimum, "install": self.install}
        return {key: value for key, value in facts.items() if value is not None}


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True, weakref=True):
    """What a tool is: its name, what it takes and gives, how it behaves, and the handler that runs it."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = NO_PARAMETERS
    output_schema: Mapping[str, Any] | None = None
    structured_schema: Mapping[str, Any] | None = None  # of its structured content in MCP, where that is another value
    handler: Handler | None = None
    source: str = "local"  # "local", or "proxy:<server>"
    settings_of: str | None = None  # the pack whose settings it runs with, where that is not its own
    defined_in: str | None = None  # the file and line, where there is one
    timeout: float | None = None  # seconds; None means the executor's default
    retries: int | None = None  # further tries after a failure; None: the executor's default, if it is idempotent
    pure: bool = False  # same arguments, same value, no effect: may be cached
    idempotent: bool = False  # may be tried again
    read_only: bool = False  # changes nothing outside
    parallel: bool = False  # may run beside other calls of the same step
    hidden: bool = False  # callable, but in no list
    task: Literal["optional", "required"] | None = None  # may outlast the patience of whoever called
    enabled: bool = True
    off: str | None = None  # why it is not enabled, and what to do about that, where somebody knows
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    requires: tuple[Requirement, ...] = ()
    docs_url: str | None = None  # where its pack is documented, where the pack says so itself
    kept_as: str | None = None  # its id, where it is kept in a store
    prepare: "ToolSpec | None" = None  # gets the arguments as `args`; its value is what is validated in their place
    lenient: bool = False  # somebody else's server checks its arguments: it may take more than its schema says
    seen: "SeenValues | None" = None  # what its values looked like, where it does not say: for help, never for checks

    def __post_init__(self) -> None:
        # A frozen struct with a dict inside is not frozen; this one is, all the way down.
        msgspec.structs.force_setattr(self, "input_schema", freeze(self.input_schema))
        msgspec.structs.force_setattr(self, "output_schema", freeze(self.output_schema))
        msgspec.structs.force_setattr(self, "structured_schema", freeze(self.structured_schema))
        for name in ("tags", "examples", "requires"):
            msgspec.structs.force_setattr(self, name, tuple(getattr(self, name)))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The input schema, by the word that definitions and providers use."""
        return self.input_schema

    @cached_property
    def arguments(self) -> "CompiledSchema":
        """The input schema, compiled once, when first needed. Closed to further arguments unless it says otherwise."""
        return _compiled(self.input_schema, closed=True)

    def argument(self, name: str) -> "CompiledSchema":
        """The schema of one argument alone, compiled when first needed."""
        if name not in self._alone:
            schema: Any = self.input_schema["properties"][name]
            shared = {word: self.input_schema[word] for word in ("$defs", "definitions") if word in self.input_schema}
            self._alone[name] = _compiled({**shared, **schema} if isinstance(schema, Mapping) else {}, closed=False)
        return self._alone[name]

    @cached_property
    def _alone(self) -> "dict[str, CompiledSchema]":
        return {}

    @cached_property
    def output(self) -> "CompiledSchema | None":
        return None if self.output_schema is None else _compiled(self.output_schema, closed=False)

    def compile(self) -> None:
        """Compile both schemas now, which may take a second. Who uses a bad one gets the SchemaError."""
        with suppress(SchemaError):
            _ = self.arguments, self.output

    @cached_property
    def secrets(self) -> frozenset[str]:
        """Names of the arguments whose values must never be shown."""
        return secret_names(self.input_schema)

    @cached_property
    def is_async(self) -> bool:
        """Whether the handler runs on the loop; the others get a thread."""
        from inspect import iscoroutinefunction

        return iscoroutinefunction(self.handler) or iscoroutinefunction(getattr(self.handler, "__call__", None))  # noqa: B004

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Its parameters in the order in which they are shown, and can be given without a name: required ones first."""
        properties: Mapping[str, Any] = self.input_schema.get("properties") or {}
        required: list[str] = self.input_schema.get("required") or []
        return tuple(sorted(properties, key=lambda name: name not in required))

    @property
    def pack(self) -> str:
        """The part before the first dot; tools without one are listed under `config`."""
        pack, dot, _ = self.name.partition(".")
        return pack if dot else "config"

    def summary(self) -> dict[str, Any]:
        """What a list shows of it."""
        return {"name": self.name, "description": self.description, "inputSchema": self.input_schema}


def _compiled(schema: Mapping[str, Any], *, closed: bool) -> "CompiledSchema":
    from onetool.core.schema import CompiledSchema  # brings the validator, which listing tools does not need

    return CompiledSchema(schema, closed=closed)
