"""HintReader: turns type hints into JSON Schema, and into conversions from JSON to what the function asks for.

form       JsonForm, the result for one hint; `$defs`; hints that are written as text
values     text, numbers, dates, paths, enums, unions, lists, tuples, sets and dicts
records    classes with fields: dataclass, TypedDict, NamedTuple, msgspec.Struct
annotated  Annotated, and pydantic's models, which describe and convert themselves
"""

from collections import abc
from collections.abc import Callable, Hashable
from enum import Enum
from types import UnionType
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin

from onetool.sdk.hints.annotated import annotated_form, is_model, model_form
from onetool.sdk.hints.form import (
    HintMismatchError,
    JsonForm,
    Schema,
    UnsupportedHintError,
    alias_value,
    evaluated,
    free_name,
    identifier,
    reference,
)
from onetool.sdk.hints.records import is_record, record_form
from onetool.sdk.hints.values import (
    ARRAYS,
    MAPPINGS,
    OUTGOING,
    SCALARS,
    array_form,
    enum_form,
    literal_form,
    mapping_form,
    scalar_class,
    tuple_form,
    union_form,
)

_KINDS: dict[Any, Callable[["HintReader", Any], JsonForm]] = {
    Annotated: annotated_form,
    Literal: literal_form,
    Union: union_form,
    UnionType: union_form,
    tuple: tuple_form,
    **dict.fromkeys(ARRAYS, array_form),
    **dict.fromkeys(MAPPINGS, mapping_form),
}
_ADVICE: dict[Any, str] = {
    abc.Callable: "a tool takes data, not functions: take a name, and look the function up",
    type: "take its name as text, or a Literal of those that there are",
    **dict.fromkeys((abc.Iterator, abc.Generator, abc.AsyncIterator, abc.AsyncIterable), "use a list"),
}
_USE_DATA = "use text, numbers, lists, dicts, or a class with typed fields (a dataclass, TypedDict or model)"


class HintReader:
    """Reads the hints of one schema: what has a name is defined once, however often it is used."""

    def __init__(self, names: dict[str, Any] | None = None, is_output: bool = False) -> None:
        self.is_output = is_output
        self._names = names or {}  # that a hint written as text may use
        self.definitions: dict[str, Schema] = {}
        self._scalars = OUTGOING if is_output else SCALARS
        self._named: dict[Any, _Named] = {}

    def form(self, hint: Any) -> JsonForm:
        """What a hint means to a caller. Raises UnsupportedHintError, a TypeError, if it means nothing in JSON."""
        origin = get_origin(hint)
        if origin is None:
            origin = hint
            if not isinstance(hint, Hashable):
                raise UnsupportedHintError(hint, _USE_DATA)
            if hint in self._scalars:
                return self._scalars[hint]
        kind = _KINDS.get(origin)
        if kind is not None:
            return kind(self, hint)
        if isinstance(origin, type):
            return self._class(origin, hint)
        return self._special(origin, hint)

    def named(self, hint: Any, name: str, read: Callable[[], JsonForm], inline: bool = False) -> JsonForm:
        """A form with a name: written once, and it may contain itself. `inline` ones are named only if they do."""
        known = self._named.get(hint)
        if known is None:
            known = self._named[hint] = _Named(free_name(self.definitions, name))
            self.definitions[known.name] = {}  # the name is taken while its parts are read
            known.form = read()
            if inline and not known.used:
                del self.definitions[known.name], self._named[hint]
                return known.form
            self.definitions[known.name] = known.form.schema
        known.used = True
        return known.reference()

    def _class(self, cls: type, hint: Any) -> JsonForm:
        if is_model(cls) and not (self.is_output and is_record(cls)):  # pydantic's dataclasses leave like any other
            return model_form(self, hint)
        if is_record(cls):
            return record_form(self, hint)
        if issubclass(cls, Enum):
            return enum_form(cls)
        known = self._scalars.get(cls) or scalar_class(cls)
        if known is None:
            raise UnsupportedHintError(hint, _ADVICE.get(cls, _USE_DATA))
        return known

    def _special(self, origin: Any, hint: Any) -> JsonForm:
        """What typing has beside classes: new types, aliases, variables."""
        if hasattr(origin, "__supertype__"):
            return self.form(origin.__supertype__)
        if type(origin).__name__ == "TypeAliasType":  # typing's since 3.12, typing_extensions' before
            return self.named(hint, origin.__name__, lambda: self.form(_aliased(origin, hint)), inline=True)
        if isinstance(origin, TypeVar):
            return self.form(origin.__bound__ or _either(origin.__constraints__))
        if isinstance(origin, str | ForwardRef):
            return self._text(hint if isinstance(hint, str) else hint.__forward_arg__)
        if getattr(origin, "_name", None) == "LiteralString":
            return self._scalars[str]
        raise UnsupportedHintError(hint, _USE_DATA)

    def _text(self, text: str) -> JsonForm:
        """A name is still text here if it was not known, or if what it names contains itself."""
        hint = evaluated(text, self._names)
        if isinstance(hint, str):
            raise UnsupportedHintError(text, "nothing of that name is known when the function is read")
        return self.named(text, identifier(text), lambda: self.form(hint), inline=True)


def _either(constraints: tuple[Any, ...]) -> Any:
    return Union[constraints] if constraints else Any  # noqa: UP007 - there is no other way to write it for a tuple


def _aliased(alias: Any, hint: Any) -> Any:
    value, args = alias_value(alias), get_args(hint)
    return value[args] if args else value


class _Named:
    """A named form that may still be being built: recursive hints refer to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = False
        self.form: JsonForm | None = None

    def reference(self) -> JsonForm:
        as_is = self.form is not None and self.form.as_is
        return JsonForm(reference(self.name), self._convert, as_is=as_is)

    def _convert(self, value: Any) -> Any:
        assert self.form is not None  # noqa: S101 - values come when all hints are read
        return self.form.convert(value)


__all__ = ["HintMismatchError", "HintReader", "JsonForm", "UnsupportedHintError"]
