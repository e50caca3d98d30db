"""Checks a declared tool definition and makes a ToolSpec with a handler of it.

    {name, description, type: "function", handler, parameters, implementation: {type: mock | builtin | internal, …}}

`implementation.handler` is the function that runs; the top-level `handler` is a required label.
"""

import inspect
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from onetool.core.call import MOST_RETRIES, is_retries, is_seconds
from onetool.core.errors import DefinitionError, SchemaError, describe_error
from onetool.core.schema_guard import check_size
from onetool.core.schema_keywords import upgrade
from onetool.core.spec import Handler, ToolSpec
from onetool.core.text import did_you_mean

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
    """A handler that always gives the same answer."""

    def __init__(self, response: Any) -> None:
        self.response = deepcopy(response)

    async def __call__(self, **_: Any) -> Any:
        return deepcopy(self.response)  # a caller that changes what it got must not change the next answer


def check_mock(spec: ToolSpec) -> None:
    """A mock's only answer should be one that the tool may give."""
    if isinstance(spec.handler, _Mock) and spec.output is not None:
        problems = spec.output.check(spec.handler.response)
        if problems:
            raise DefinitionError(f"implementation.mock_response: {'; '.join(map(str, problems))}", tool=spec.name)


def signature_mismatches(handler: Handler, parameters: Mapping[str, Any]) -> list[str]:
    """Where the declared parameters and the function's own do not go together: such a call could only fail."""
    if isinstance(handler, _Mock):
        return []
    try:
        known = inspect.signature(handler).parameters
    except (TypeError, ValueError):
        return []  # some compiled functions do not tell
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


HTTP_NOT_YET = "HTTP tools not yet supported (coming in v2)"  # a document fixes this text

_REQUIRED = ("name", "description", "type", "handler", "parameters", "implementation")
_FLAGS = ("pure", "idempotent", "read_only", "parallel", "hidden", "enabled")
_OPTIONAL = ("output_schema", "timeout", "retries", *_FLAGS, "tags", "examples")
_IMPLEMENTATION = {"mock": "mock_response", "builtin": "handler", "internal": "handler"}


def accept(definition: Mapping[str, Any] | ToolSpec, builtins: Handlers, internals: Handlers) -> ToolSpec:
    """A ToolSpec from a definition or a ToolSpec. Raises DefinitionError with everything that is wrong."""
    tool = definition.name if isinstance(definition, ToolSpec) else None
    try:
        spec = definition if isinstance(definition, ToolSpec) else from_definition(definition, builtins, internals)
        tool = spec.name
        _check_spec(spec)
        _ = spec.arguments, spec.output  # compiled now, so that a bad schema is refused here
        check_mock(spec)
    except SchemaError as error:
        raise SchemaError(f"its JSON Schema is refused: {error}", tool=tool) from None
    except DefinitionError:
        raise
    except (TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        # Anything else is refused, without an effect on the other definitions.
        raise DefinitionError(f"not a definition: {describe_error(error)}", tool=tool) from None
    return spec


def _check_spec(spec: ToolSpec) -> None:
    """Check a ToolSpec that was made by hand: it may hold anything."""
    fields = {
        **{key: getattr(spec, key) for key in ("name", "description", *_FLAGS, "tags", "examples")},
        "parameters": spec.input_schema,
        **({} if spec.output_schema is None else {"output_schema": spec.output_schema}),
        **({} if spec.timeout is None else {"timeout": spec.timeout}),
        **({} if spec.retries is None else {"retries": spec.retries}),
    }
    errors = [*_text_errors(fields), *_schema_errors(fields), *_option_errors(fields)]
    if spec.handler is not None and not callable(spec.handler):
        errors.append(f"handler: expected a function, got {_kind(spec.handler)}")
    if errors:
        raise DefinitionError("; ".join(errors), tool=spec.name if isinstance(spec.name, str) else None)  # pyright: ignore[reportUnnecessaryIsInstance]


def from_definition(definition: Any, builtins: Handlers, internals: Handlers) -> ToolSpec:
    """Check a definition and make a ToolSpec of it. The error lists everything that is wrong."""
    if not isinstance(definition, Mapping):
        raise DefinitionError(f"a tool is a mapping with {', '.join(_REQUIRED)}; got {_kind(definition)}")
    fields = cast(Mapping[str, Any], definition)
    name = fields["name"] if isinstance(fields.get("name"), str) else None
    implementation = fields.get("implementation")
    if isinstance(implementation, Mapping) and cast(Mapping[str, Any], implementation).get("type") == "http":
        raise DefinitionError(HTTP_NOT_YET, tool=name, hint="HTTP tools live in bundles, not in the config")
    errors = _definition_errors(fields)
    if "implementation" in fields:
        errors += _implementation_errors(implementation)
    if errors:
        raise DefinitionError("; ".join([*errors, *_nested_schema_errors(fields)]), tool=name)
    handler = handler_for(cast(Mapping[str, Any], implementation), {"builtin": builtins, "internal": internals}, name)
    for key in ("parameters", "output_schema"):
        check_size(fields.get(key))  # before it is copied
    if wrong := signature_mismatches(handler, fields["parameters"]):
        raise DefinitionError("; ".join(wrong), tool=name)
    return ToolSpec(
        name=fields["name"],
        description=fields["description"],
        input_schema=upgrade(fields["parameters"]),
        output_schema=upgrade(fields.get("output_schema")),
        handler=handler,
        settings_of=_pack_of(cast(Mapping[str, Any], implementation)),
        timeout=fields.get("timeout"),
        retries=fields.get("retries"),
        tags=tuple(fields.get("tags", ())),
        examples=tuple(fields.get("examples", ())),
        **{flag: fields[flag] for flag in _FLAGS if flag in fields},
    )


def _pack_of(implementation: Mapping[str, Any]) -> str | None:
    """The pack of the builtin function, whose settings (such as allowed folders) the tool gets."""
    pack, dot, _ = str(implementation.get("handler", "")).partition(".")
    return pack if dot and implementation["type"] == "builtin" else None


def _definition_errors(fields: Mapping[str, Any]) -> list[str]:
    errors = [f"{key}: required, but missing" for key in _REQUIRED if key not in fields]
    errors += [_unknown(key, (*_REQUIRED, *_OPTIONAL)) for key in fields if key not in (*_REQUIRED, *_OPTIONAL)]
    if "type" in fields and fields["type"] != "function":
        errors.append(f'type: expected "function", got {_kind(fields["type"])}')
    return [*errors, *_text_errors(fields), *_schema_errors(fields), *_option_errors(fields)]


def _text_errors(fields: Mapping[str, Any]) -> list[str]:
    errors = [
        f"{key}: expected text, got {_kind(fields[key])}"
        for key in ("name", "description", "handler")
        if key in fields and not (isinstance(fields[key], str) and fields[key].strip())
    ]
    if isinstance(fields.get("name"), str) and not fields["name"].isprintable():
        errors.append("name: has characters that can't be printed")
    return errors


def _schema_errors(fields: Mapping[str, Any]) -> list[str]:
    errors = [
        f"{key}: expected a JSON Schema (a mapping), got {_kind(fields[key])}"
        for key in ("parameters", "output_schema")
        if key in fields and not isinstance(fields[key], Mapping)
    ]
    parameters = fields.get("parameters")
    if isinstance(parameters, Mapping):
        schema_type = cast(Mapping[str, Any], parameters).get("type")
        if schema_type != "object":
            got = "nothing" if schema_type is None else _kind(schema_type)
            errors.append(f'parameters.type: expected "object", got {got}')
    return errors


def _option_errors(fields: Mapping[str, Any]) -> list[str]:
    errors = [
        f"{flag}: expected true or false, got {_kind(fields[flag])}"
        for flag in _FLAGS
        if flag in fields and not isinstance(fields[flag], bool)
    ]
    for key in ("tags", "examples"):
        value = fields.get(key, [])
        if not (isinstance(value, list | tuple) and all(isinstance(item, str) for item in cast(list[Any], value))):
            errors.append(f"{key}: expected a list of texts, got {_kind(value)}")
    timeout = fields.get("timeout", 1)
    if not is_seconds(timeout) or timeout == float("inf"):
        errors.append(f"timeout: expected a number of seconds above 0, got {_kind(timeout)}")
    retries = fields.get("retries", 0)
    if not is_retries(retries):
        errors.append(f"retries: expected a number from 0 to {MOST_RETRIES}, got {_kind(retries)}")
    return errors


def _implementation_errors(implementation: Any) -> list[str]:
    if not isinstance(implementation, Mapping):
        return [f"implementation: expected a mapping with a type, got {_kind(implementation)}"]
    fields = cast(Mapping[str, Any], implementation)
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _IMPLEMENTATION:
        near = did_you_mean(str(kind), _IMPLEMENTATION) or f"known: {', '.join(_IMPLEMENTATION)}"
        return [f"implementation.type: expected mock, builtin or internal, got {_kind(kind)} ({near})"]
    needed = _IMPLEMENTATION[kind]
    errors = [_unknown(f"{key}", ("type", needed), "implementation.") for key in fields if key not in ("type", needed)]
    if needed not in fields:  # the key counts, not its value: null is a fine mock
        errors.append(f"implementation.{needed}: required for type {kind}, but missing")
    elif needed == "handler" and not isinstance(fields["handler"], str):
        errors.append(f"implementation.handler: expected the name of a function, got {_kind(fields['handler'])}")
    return errors


def _nested_schema_errors(fields: Mapping[str, Any]) -> list[str]:
    """What is wrong inside the schemas of a definition that is refused anyway, so that all errors are reported
    together.
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


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return repr(value) if value.strip() else "an empty text"
    if value is None or isinstance(value, bool | int | float):
        return "null" if value is None else str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else type(value).__name__
