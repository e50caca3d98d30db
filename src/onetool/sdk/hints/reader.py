"""Which kind a hint is; each kind has a file of its own."""

from collections import abc
from collections.abc import Callable, Hashable
from enum import Enum
from types import UnionType
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin

from onetool.sdk.hints.choices import enum, literal
from onetool.sdk.hints.constraints import annotated
from onetool.sdk.hints.containers import ARRAYS, MAPPINGS, array, mapping, tuple_
from onetool.sdk.hints.definitions import free_name, identifier, reference
from onetool.sdk.hints.fields import is_record
from onetool.sdk.hints.form import Form, NoForm, Schema
from onetool.sdk.hints.models import is_model, model
from onetool.sdk.hints.names import alias_value, evaluated
from onetool.sdk.hints.records import record
from onetool.sdk.hints.scalars import OUTGOING, SCALARS, scalar_class
from onetool.sdk.hints.unions import union

_KINDS: dict[Any, Callable[["Reader", Any], Form]] = {
    Annotated: annotated,
    Literal: literal,
    Union: union,
    UnionType: union,
    tuple: tuple_,
    **dict.fromkeys(ARRAYS, array),
    **dict.fromkeys(MAPPINGS, mapping),
}
_ADVICE: dict[Any, str] = {
    abc.Callable: "a tool takes data, not functions: take a name, and look the function up",
    type: "take its name as text, or a Literal of those that there are",
    **dict.fromkeys((abc.Iterator, abc.Generator, abc.AsyncIterator, abc.AsyncIterable), "use a list"),
}
_USE_DATA = "use text, numbers, lists, dicts, or a class with typed fields (a dataclass, TypedDict or model)"


class Reader:
    """Reads the hints of one schema: what has a name is defined once, however often it is used."""

    def __init__(self, names: dict[str, Any] | None = None, outgoing: bool = False) -> None:
        self.outgoing = outgoing
        self._names = names or {}  # that a hint written as text may use
        self.definitions: dict[str, Schema] = {}
        self._scalars = OUTGOING if outgoing else SCALARS
        self._named: dict[Any, _Named] = {}

    def form(self, hint: Any) -> Form:
        """What a hint means to a caller. Raises NoForm, a TypeError, if it means nothing in JSON."""
        origin = get_origin(hint)
        if origin is None:
            origin = hint
            if not isinstance(hint, Hashable):
                raise NoForm(hint, _USE_DATA)
            if hint in self._scalars:
                return self._scalars[hint]
        kind = _KINDS.get(origin)
        if kind is not None:
            return kind(self, hint)
        if isinstance(origin, type):
            return self._class(origin, hint)
        return self._special(origin, hint)

    def named(self, hint: Any, name: str, read: Callable[[], Form], inline: bool = False) -> Form:
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

    def _class(self, cls: type, hint: Any) -> Form:
        if is_model(cls) and not (self.outgoing and is_record(cls)):  # pydantic's dataclasses leave like any other
            return model(self, hint)
        if is_record(cls):
            return record(self, hint)
        if issubclass(cls, Enum):
            return enum(cls)
        known = self._scalars.get(cls) or scalar_class(cls)
        if known is None:
            raise NoForm(hint, _ADVICE.get(cls, _USE_DATA))
        return known

    def _special(self, origin: Any, hint: Any) -> Form:
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
        raise NoForm(hint, _USE_DATA)

    def _text(self, text: str) -> Form:
        """A name is still text here if it was not known, or if what it names contains itself."""
        hint = evaluated(text, self._names)
        if isinstance(hint, str):
            raise NoForm(text, "nothing of that name is known when the function is read")
        return self.named(text, identifier(text), lambda: self.form(hint), inline=True)


def _either(constraints: tuple[Any, ...]) -> Any:
    return Union[constraints] if constraints else Any  # noqa: UP007 - there is no other way to write it for a tuple


def _aliased(alias: Any, hint: Any) -> Any:
    value, args = alias_value(alias), get_args(hint)
    return value[args] if args else value


class _Named:
    """A form that may still be in the making."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = False
        self.form: Form | None = None

    def reference(self) -> Form:
        as_is = self.form is not None and self.form.as_is
        return Form(reference(self.name), self._convert, as_is=as_is)

    def _convert(self, value: Any) -> Any:
        assert self.form is not None  # noqa: S101 - values come when all hints are read
        return self.form.convert(value)
