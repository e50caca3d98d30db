"""ToolSpec, the type of every tool, and the conversion of declared definitions. Only `sources/` knows where tools come
from.

    {name, description, type: "function", handler, parameters, implementation: {type: mock | builtin | internal, …}}

`implementation.handler` names the function that runs; the top-level `handler` is a required label.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from onetool.core.call import MAX_RETRIES, is_retries, is_seconds
from onetool.core.errors import DefinitionError, SchemaError, describe_error
from onetool.core.json_data import freeze
from onetool.core.mismatch import described
from onetool.core.redaction import secret_names
from onetool.core.text import did_you_mean

if TYPE_CHECKING:
    from onetool.core.inferred_schema import LastResults
    from onetool.core.schema import CompiledSchema

Handler = Callable[..., Any]
"""Takes the validated arguments by name; returns the value, or an awaitable of it."""

NOTHING: Mapping[str, Any] = freeze({})
FROM_DOCUMENT = "x-from-document"  # in an output schema: it describes the values, and a mismatch is only a warning
NO_PARAMETERS: Mapping[str, Any] = freeze({"type": "object", "properties": {}})


def is_address(url: Any) -> bool:
    """Return whether a string is a web address that can be shown on one line."""
    return isinstance(url, str) and re.fullmatch(r"https?://[^\s/][^\s]*", url) is not None and url.isprintable()


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """A command or library that a tool needs."""

    kind: Literal["cli", "lib"]
    name: str
    minimum: str | None = None  # the oldest supported version
    version_flag: str | None = None  # the option that prints a command's version
    install: str | None = None  # how to install it

    def to_dict(self) -> dict[str, str]:
        facts = {"kind": self.kind, "name": self.name, "minimum": self.minimum, "install": self.install}
        return {key: value for key, value in facts.items() if value is not None}


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True, weakref=True):
    """A tool: its name, its input and output schemas, its properties, and its handler."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = NO_PARAMETERS
    output_schema: Mapping[str, Any] | None = None
    structured_schema: Mapping[str, Any] | None = None  # of the structured content in MCP, if that differs
    handler: Handler | None = None
    source: str = "local"  # "local", or "proxy:<server>"
    server_listing: Mapping[str, Any] = NOTHING  # further fields from its MCP server: title, annotations, _meta …
    settings_of: str | None = None  # the pack whose settings apply, if not its own
    defined_in: str | None = None  # file and line, if known
    timeout: float | None = None  # seconds; None: the executor's default
    retries: int | None = None  # None: the executor's default if the tool is idempotent, else 0
    pure: bool = False  # same arguments, same value, no side effects: may be cached
    idempotent: bool = False  # safe to repeat
    read_only: bool | None = None  # has no side effects; None: unknown
    parallel: bool = False  # may run in parallel with other calls of the same step
    hidden: bool = False  # callable, but not listed
    task: Literal["optional", "required"] | None = None  # support for running as an MCP task
    enabled: bool = True
    off: str | None = None  # why the tool is disabled, and how to enable it, if known
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    requires: tuple[Requirement, ...] = ()
    docs_url: str | None = None  # the pack's documentation, if the pack declares it
    kept_as: str | None = None  # the tool's ID in its store, if any
    prepare: "ToolSpec | None" = None  # gets the arguments as `args`; returns the arguments to validate
    lenient: bool = False  # a server checks the arguments, and may accept more than the schema
    strict: bool = True  # refuse code that contradicts the schema before it runs
    documented_schema: Callable[[], Mapping[str, Any] | None] | None = None  # from the docstring or source
    observed: "LastResults | None" = (
        None  # types of the last values, if no type is declared: for help, never for checks
    )

    def __post_init__(self) -> None:
        # A frozen struct may still contain mutable dicts, so freeze the contents, too.
        msgspec.structs.force_setattr(self, "input_schema", freeze(self.input_schema))
        msgspec.structs.force_setattr(self, "output_schema", freeze(self.output_schema))
        msgspec.structs.force_setattr(self, "structured_schema", freeze(self.structured_schema))
        msgspec.structs.force_setattr(self, "server_listing", freeze(self.server_listing))
        for name in ("tags", "examples", "requires"):
            msgspec.structs.force_setattr(self, name, tuple(getattr(self, name)))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The input schema, by the name in definitions and provider formats."""
        return self.input_schema

    @cached_property
    def arguments(self) -> "CompiledSchema":
        """The input schema, compiled on first use. Refuses unknown arguments unless the schema allows them."""
        return _compiled(self.input_schema, closed=True, lenient=self.lenient)

    def argument(self, name: str) -> "CompiledSchema":
        """Return the schema of one argument, compiled on first use."""
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

    @property
    def output_may_differ(self) -> bool:
        """Whether values that don't match the output schema are given, with a warning."""
        return self.output_schema is not None and self.output_schema.get(FROM_DOCUMENT) is True

    def compile(self) -> None:
        """Compile both schemas now, which may take a second. Invalid schemas raise SchemaError only on use."""
        with suppress(SchemaError):
            _ = self.arguments, self.output

    @cached_property
    def secrets(self) -> frozenset[str]:
        """The names of the arguments with secret values."""
        return secret_names(self.input_schema)

    @cached_property
    def is_async(self) -> bool:
        """Whether the handler runs on the event loop, not in a thread."""
        from inspect import iscoroutinefunction

        return iscoroutinefunction(self.handler) or iscoroutinefunction(getattr(self.handler, "__call__", None))  # noqa: B004

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The parameters in the order of display and of positional arguments: required ones first."""
        properties: Mapping[str, Any] = self.input_schema.get("properties") or {}
        required: list[str] = self.input_schema.get("required") or []
        return tuple(sorted(properties, key=lambda name: name not in required))

    @property
    def effect(self) -> str:
        return effect_of(True if self.pure else self.read_only, self.idempotent)

    @property
    def pack(self) -> str:
        """The part of the name before the first dot; `config` for names without a dot."""
        pack, dot, _ = self.name.partition(".")
        return pack if dot else "config"

    def summary(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "inputSchema": self.input_schema}


def effect_of(read_only: bool | None, idempotent: bool) -> str:
    """Return `reads`, `changes`, or an empty string if unknown, with `repeatable` for changes that can be repeated."""
    if read_only:
        return "reads"
    marks = ["changes"] if read_only is False else []
    return ", ".join([*marks, "repeatable"] if idempotent else marks)


def _compiled(schema: Mapping[str, Any], *, closed: bool, lenient: bool = False) -> "CompiledSchema":
    from onetool.core.schema import CompiledSchema  # imports the validator, which listing tools does not need

    return CompiledSchema(schema, closed=closed, lenient=lenient)


# Handlers of declared tools

Handlers = Mapping[str, Handler]


def handler_for(implementation: Mapping[str, Any], known: Mapping[str, Handlers], tool: str | None) -> Handler:
    kind = implementation["type"]
    if kind == "mock":
        return _Mock(implementation["mock_response"])
    handlers, name = known[kind], implementation["handler"]
    if name not in handlers:
        near = did_you_mean(name, handlers) or f"known: {', '.join(sorted(handlers)) or 'none'}"
        raise DefinitionError(f"implementation.handler: no {kind} handler {name!r} ({near})", tool=tool)
    return handlers[name]


class _Mock:
    """A handler that always returns the same value."""

    def __init__(self, response: Any) -> None:
        self.response = deepcopy(response)

    async def __call__(self, **_: Any) -> Any:
        return deepcopy(self.response)  # callers may change the value


def signature_mismatches(handler: Handler, parameters: Mapping[str, Any]) -> list[str]:
    """Return the differences between the declared parameters and the function's own, with which calls would fail."""
    if isinstance(handler, _Mock):
        return []
    try:
        known = inspect.signature(handler).parameters
    except (TypeError, ValueError):
        return []  # some compiled functions have no signature
    declared = cast(Mapping[str, Any], parameters.get("properties") or {})
    required = cast(list[str], parameters.get("required") or [])
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    takes = f"it takes {', '.join(known) or 'none'}"
    errors = [
        f"parameters.properties.{name}: the handler takes no such argument ({did_you_mean(name, known) or takes})"
        for name in declared
        if name not in known and not open_ended
    ]
    return errors + [
        f"parameters: the handler needs {name}, so it must be declared and required"
        for name, parameter in known.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and name not in required
    ]


# Definitions

HTTP_NOT_YET = "HTTP tools not yet supported (coming in v2)"  # this text is specified

_REQUIRED = ("name", "description", "type", "handler", "parameters", "implementation")
_FLAGS = ("pure", "idempotent", "read_only", "parallel", "hidden", "enabled")
_OPTIONAL = ("output_schema", "timeout", "retries", *_FLAGS, "tags", "examples")
_IMPLEMENTATION = {"mock": "mock_response", "builtin": "handler", "internal": "handler"}


def accept(definition: Mapping[str, Any] | ToolSpec, builtins: Handlers, internals: Handlers) -> ToolSpec:
    """Convert a definition to a ToolSpec, or check a ToolSpec. Raises DefinitionError with all problems."""
    tool = definition.name if isinstance(definition, ToolSpec) else None
    try:
        spec = definition if isinstance(definition, ToolSpec) else from_definition(definition, builtins, internals)
        tool = spec.name
        _check_spec(spec)
        _ = spec.arguments, spec.output  # compile now, so that invalid schemas are refused
        mock, output = spec.handler, spec.output
        if isinstance(mock, _Mock) and output is not None and (problems := output.check(mock.response)):
            raise DefinitionError(f"implementation.mock_response: {'; '.join(map(str, problems))}", tool=tool)
    except SchemaError as error:
        raise SchemaError(f"its JSON Schema is refused: {error}", tool=tool) from None
    except DefinitionError:
        raise
    except (TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        # Refuse only this definition; the others are still accepted.
        raise DefinitionError(f"not a definition: {describe_error(error)}", tool=tool) from None
    return spec


def _check_spec(spec: ToolSpec) -> None:
    """Check a ToolSpec that was created directly, whose fields may have any values."""
    fields = {
        **{key: getattr(spec, key) for key in ("name", "description", *_FLAGS, "tags", "examples")},
        "read_only": False if spec.read_only is None else spec.read_only,
        "parameters": spec.input_schema,
        **({} if spec.output_schema is None else {"output_schema": spec.output_schema}),
        **({} if spec.timeout is None else {"timeout": spec.timeout}),
        **({} if spec.retries is None else {"retries": spec.retries}),
    }
    errors = [*_text_errors(fields), *_schema_errors(fields), *_option_errors(fields)]
    if spec.handler is not None and not callable(spec.handler):
        errors.append(f"handler: expected a function, got {described(spec.handler)}")
    if errors:
        raise DefinitionError("; ".join(errors), tool=spec.name if isinstance(spec.name, str) else None)  # pyright: ignore[reportUnnecessaryIsInstance]


def from_definition(definition: Any, builtins: Handlers, internals: Handlers) -> ToolSpec:
    """Check a definition and convert it to a ToolSpec. The error lists all problems."""
    from onetool.core.schema_guard import check_size  # not needed for listing the tools of packs
    from onetool.core.schema_keywords import upgrade

    if not isinstance(definition, Mapping):
        raise DefinitionError(f"a tool is a mapping with {', '.join(_REQUIRED)}; got {described(definition)}")
    fields = cast(Mapping[str, Any], definition)
    name = fields["name"] if isinstance(fields.get("name"), str) else None
    implementation = fields.get("implementation")
    if isinstance(implementation, Mapping) and cast(Mapping[str, Any], implementation).get("type") == "http":
        raise DefinitionError(HTTP_NOT_YET, tool=name, hint="HTTP tools live in bundles, not in the config")
    known = (*_REQUIRED, *_OPTIONAL)
    errors = [f"{key}: required, but missing" for key in _REQUIRED if key not in fields]
    errors += [_unknown(key, known) for key in fields if key not in known]
    if "type" in fields and fields["type"] != "function":
        errors.append(f'type: expected "function", got {described(fields["type"])}')
    errors += [*_text_errors(fields), *_schema_errors(fields), *_option_errors(fields)]
    if "implementation" in fields:
        errors += _implementation_errors(implementation)
    if errors:
        raise DefinitionError("; ".join([*errors, *_nested_schema_errors(fields)]), tool=name)
    chosen = cast(Mapping[str, Any], implementation)
    handler = handler_for(chosen, {"builtin": builtins, "internal": internals}, name)
    for key in ("parameters", "output_schema"):
        check_size(fields.get(key))  # before copying
    if wrong := signature_mismatches(handler, fields["parameters"]):
        raise DefinitionError("; ".join(wrong), tool=name)
    kind, (pack, dot, _) = chosen["type"], str(chosen.get("handler", "")).partition(".")
    return ToolSpec(
        name=fields["name"],
        description=fields["description"],
        input_schema=upgrade(fields["parameters"]),
        output_schema=upgrade(fields.get("output_schema")),
        handler=handler,
        settings_of=pack if dot and kind == "builtin" else None,  # such as allowed folders
        timeout=fields.get("timeout"),
        retries=fields.get("retries"),
        tags=tuple(fields.get("tags", ())),
        examples=tuple(fields.get("examples", ())),
        **{flag: fields[flag] for flag in _FLAGS if flag in fields},
    )


def _text_errors(fields: Mapping[str, Any]) -> list[str]:
    errors = [
        f"{key}: expected a string, got {described(fields[key])}"
        for key in ("name", "description", "handler")
        if key in fields and not (isinstance(fields[key], str) and fields[key].strip())
    ]
    if isinstance(fields.get("name"), str) and not fields["name"].isprintable():
        errors.append("name: has characters that can't be printed")
    return errors


def _schema_errors(fields: Mapping[str, Any]) -> list[str]:
    errors = [
        f"{key}: expected a JSON Schema (an object), got {described(fields[key])}"
        for key in ("parameters", "output_schema")
        if key in fields and not isinstance(fields[key], Mapping)
    ]
    parameters = fields.get("parameters")
    if isinstance(parameters, Mapping):
        schema_type = cast(Mapping[str, Any], parameters).get("type")
        if schema_type != "object":
            got = "nothing" if schema_type is None else described(schema_type)
            errors.append(f'parameters.type: expected "object", got {got}')
    return errors


def _option_errors(fields: Mapping[str, Any]) -> list[str]:
    errors = [
        f"{flag}: expected true or false, got {described(fields[flag])}"
        for flag in _FLAGS
        if flag in fields and not isinstance(fields[flag], bool)
    ]
    for key in ("tags", "examples"):
        value = fields.get(key, [])
        if not (isinstance(value, list | tuple) and all(isinstance(item, str) for item in cast(list[Any], value))):
            errors.append(f"{key}: expected a list of strings, got {described(value)}")
    timeout = fields.get("timeout", 1)
    if not is_seconds(timeout) or timeout == float("inf"):
        errors.append(f"timeout: expected a number of seconds above 0, got {described(timeout)}")
    retries = fields.get("retries", 0)
    if not is_retries(retries):
        errors.append(f"retries: expected a number from 0 to {MAX_RETRIES}, got {described(retries)}")
    return errors


def _implementation_errors(implementation: Any) -> list[str]:
    if not isinstance(implementation, Mapping):
        return [f"implementation: expected an object with a type, got {described(implementation)}"]
    fields = cast(Mapping[str, Any], implementation)
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _IMPLEMENTATION:
        near = did_you_mean(str(kind), _IMPLEMENTATION) or f"known: {', '.join(_IMPLEMENTATION)}"
        return [f"implementation.type: expected mock, builtin or internal, got {described(kind)} ({near})"]
    needed = _IMPLEMENTATION[kind]
    errors = [_unknown(f"{key}", ("type", needed), "implementation.") for key in fields if key not in ("type", needed)]
    if needed not in fields:  # check the key, not the value: null is a valid mock
        errors.append(f"implementation.{needed}: required for type {kind}, but missing")
    elif needed == "handler" and not isinstance(fields["handler"], str):
        errors.append(f"implementation.handler: expected the name of a function, got {described(fields['handler'])}")
    return errors


def _nested_schema_errors(fields: Mapping[str, Any]) -> list[str]:
    """Return the problems in the schemas of a definition that is refused for other reasons, so that all errors are
    reported at once.
    """
    from onetool.core.schema import CompiledSchema

    errors: list[str] = []
    for key in ("parameters", "output_schema"):
        if isinstance(fields.get(key), Mapping):
            try:
                CompiledSchema(fields[key])
            except (SchemaError, RecursionError) as error:
                errors.append(f"{key}: its JSON Schema is refused: {error}")
    return errors


def _unknown(key: str, known: tuple[str, ...], prefix: str = "") -> str:
    near = did_you_mean(str(key), known) or f"known: {', '.join(known)}"
    return f"{prefix}{key}: unknown key ({near})"
