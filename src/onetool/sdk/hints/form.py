"""JsonForm: the JSON Schema of a type hint, and the conversion from JSON values to the hinted type."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol, Self, get_type_hints

import msgspec

from onetool.core.errors import OneToolError

Schema = dict[str, Any]
Convert = Callable[[Any], Any]


class JsonForm(msgspec.Struct, frozen=True):
    """The JSON Schema of a hint, and the conversion from JSON values to the hinted type.

    `convert` also checks the value, so that unions can find the matching alternative. With `as_is`, values that match
    the schema need no conversion. Nor do values of the type `exact`.
    """

    schema: Schema
    convert: Convert
    as_is: bool = False
    exact: type | None = None


class HintForms(Protocol):
    """The reader as used by the forms: it provides the forms of parts, and shared definitions."""

    is_output: bool  # the schema is for return values, as converted by `core.plain`
    definitions: dict[str, Schema]

    def form(self, hint: Any) -> JsonForm: ...

    def named(self, hint: Any, name: str, read: Callable[[], JsonForm]) -> JsonForm: ...


NO_FORM = "can't be represented in JSON"


class UnsupportedHintError(OneToolError, TypeError):
    """A hint that can't be used, with advice on what to use instead. Callers add the parameter."""

    def __init__(self, hint: Any, advice: str, parameter: str = "", problem: str = NO_FORM) -> None:
        self.hint = hint
        self.advice = advice
        self.problem = problem
        where = f"parameter {parameter!r}: " if parameter else ""
        super().__init__(f"{where}{hint_text(hint)} {problem}: {advice}")


class HintMismatchError(Exception):
    """A value that does not match a hint: the expected value, or the message of the constructor."""

    def __init__(self, expected: str, got: Any = None, message: str = "", path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message or expected)
        self.expected = expected
        self.got = got
        self.message = message
        self.path = path

    def under(self, step: str | int) -> Self:
        """Return the same mismatch with the container's key prepended to the path."""
        self.path = (step, *self.path)
        return self


def hint_text(hint: Any) -> str:
    """Return the text of a hint, approximately as written."""
    return hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)


def constructor_form(build: Callable[..., Any], expected: str) -> Convert:
    """Return a conversion that uses a built-in constructor, and reports `expected` instead of its messages."""

    def convert(value: Any) -> Any:
        try:
            return build(value)
        except (TypeError, ValueError, ArithmeticError):
            raise HintMismatchError(expected, value) from None

    return convert


# `$defs`: named types are defined once at the top of the schema, and referred to.

REF = "#/$defs/"


def reference(name: str) -> Schema:
    return {"$ref": REF + name}


def identifier(text: str) -> str:
    """Return a name that needs no escaping in references: `Page[int]` becomes `Page_int_`."""
    return "".join(char if char.isalnum() else "_" for char in text)


def free_name(definitions: dict[str, Schema], name: str, definition: Schema | None = None) -> str:
    """Return the name, with a number if another definition has it."""
    free, number = name, 1
    while free in definitions and (definition is None or definitions[free] != definition):
        number += 1
        free = f"{name}{number}"
    return free


def adopt(definitions: dict[str, Schema], name: str, schema: Schema) -> Schema:
    """Add a foreign schema: its definitions are merged, and an object becomes a definition itself."""
    schema = dict(schema)
    own: dict[str, Schema] = dict(schema.pop("$defs", {}))
    if "properties" in schema:
        own[name] = schema
        schema = reference(name)
    names = {old: free_name(definitions, old, definition) for old, definition in own.items()}
    changed = {REF + old: REF + new for old, new in names.items() if old != new}
    for old, definition in own.items():
        definitions[names[old]] = _replaced(definition, changed) if changed else definition
    return _replaced(schema, changed) if changed else schema


def inlined(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return a complete schema. A reference at the top is resolved, because readers expect `type` there."""
    name = schema.get("$ref", "").removeprefix(REF)
    if name and not _refers(definitions, REF + name):
        schema = definitions[name]
        definitions = {other: definition for other, definition in definitions.items() if other != name}
    return {**schema, "$defs": definitions} if definitions else schema


def _refers(part: Any, ref: str) -> bool:
    if isinstance(part, dict):
        return any(_refers(value, ref) for value in part.values())
    return any(_refers(value, ref) for value in part) if isinstance(part, list) else part == ref


def _replaced(part: Any, changed: dict[str, str]) -> Any:
    if isinstance(part, dict):
        return {key: _replaced(value, changed) for key, value in part.items()}
    if isinstance(part, list):
        return [_replaced(value, changed) for value in part]
    return changed.get(part, part) if isinstance(part, str) else part


# Hints written as text


def evaluated(hint: Any, names: dict[str, Any]) -> Any:
    """Evaluate a hint written as a string, even inside other hints. Unknown names stay strings."""
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"it": hint}), names, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - text is evaluated, so it may raise anything
        return hint


def alias_value(alias: Any) -> Any:
    """Return the value of a `type` alias. Before Python 3.12, recursive aliases are written as text."""
    value = alias.__value__
    return evaluated(value, vars(sys.modules[alias.__module__])) if isinstance(value, str) else value
