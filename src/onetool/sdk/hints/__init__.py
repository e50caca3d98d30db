"""Converts type hints to JSON Schema, and JSON values to the hinted types.

form       JsonForm, the result for one hint; `$defs`; hints written as text
values     text, numbers, dates, paths, enums, unions, lists, tuples, sets and dicts
records    classes with fields: dataclass, TypedDict, NamedTuple, msgspec.Struct

This module also handles Annotated hints (bounds, lengths, patterns, descriptions) and pydantic's models, which have
their own schemas and conversions. The constraints of msgspec.Meta, annotated_types and pydantic's Field are recognised
by their attribute names, which are the same. Pydantic is imported only for hints that use it.
"""

import operator
from collections import abc
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from math import isfinite
from types import UnionType
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from onetool.sdk.hints.form import (
    REF,
    Convert,
    HintForms,
    HintMismatchError,
    JsonForm,
    Schema,
    UnsupportedHintError,
    adopt,
    alias_value,
    evaluated,
    free_name,
    hint_text,
    identifier,
    reference,
)
from onetool.sdk.hints.records import NO_DEFAULT, as_data, is_record, record_form
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

# Pydantic's models

_HOOK = "__get_pydantic_core_schema__"


def _model_form(hints: HintForms, hint: Any) -> JsonForm:
    from pydantic import TypeAdapter, ValidationError

    try:
        adapter: Any = TypeAdapter(hint)
        # `core.plain` dumps a model by its field names, unless the model is configured otherwise.
        by_alias = not hints.is_output or bool(getattr(hint, "model_config", {}).get("serialize_by_alias"))
        mode = "serialization" if hints.is_output else "validation"
        schema = adapter.json_schema(ref_template=REF + "{model}", mode=mode, by_alias=by_alias)
    except Exception as error:  # noqa: BLE001 - pydantic has a dozen exceptions for models without a schema
        raise UnsupportedHintError(hint, f"pydantic reports: {str(error).splitlines()[0]}") from None

    def convert(value: Any) -> Any:
        try:
            # As JSON, not as Python data: strict models accept a date as text only in JSON.
            return adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            message = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            message = message.replace("Input should be", "expected", 1)
            raise HintMismatchError("", message=message, path=tuple(first["loc"])) from None

    return JsonForm(adopt(hints.definitions, identifier(hint_text(hint)), schema), convert)


# Annotated

Test = Callable[[Any, Any], bool]

_BOUNDS: dict[str, tuple[str, Test, str]] = {
    "ge": ("minimum", operator.ge, "at least {}"),
    "gt": ("exclusiveMinimum", operator.gt, "more than {}"),
    "le": ("maximum", operator.le, "at most {}"),
    "lt": ("exclusiveMaximum", operator.lt, "less than {}"),
    # With a tolerance: 0.3 is a multiple of 0.1, but not in binary fractions.
    "multiple_of": (
        "multipleOf",
        lambda value, step: abs(value / step - round(value / step)) < 1e-9,
        "a multiple of {}",
    ),
}
_LENGTHS: dict[str, tuple[str, Test, str]] = {
    "min_length": ("min", lambda value, limit: len(value) >= limit, "a length of at least {}"),
    "max_length": ("max", lambda value, limit: len(value) <= limit, "a length of at most {}"),
}
_OTHERS: dict[str, tuple[str, Test, str]] = {
    "aware": ("", lambda value, _: value.tzinfo is not None, "a value with a time zone"),
    "naive": ("", lambda value, _: value.tzinfo is None, "a value without a time zone"),
    "func": ("", lambda value, test: bool(test(value)), "a value that passes {}"),
}
_TESTS = {**_BOUNDS, **_LENGTHS, **_OTHERS}
_COUNTED = {"string": "Length", "array": "Items", "object": "Properties"}


def _annotated_form(hints: HintForms, hint: Any) -> JsonForm:
    inner, *metadata = get_args(hint)
    if not hints.is_output and any(hasattr(fact, _HOOK) for fact in metadata):  # only pydantic can validate these
        return _model_form(hints, hint)
    form, facts = hints.form(inner), list[Any]()
    for fact in metadata:
        own = getattr(fact, "metadata", None)  # pydantic's Field holds its constraints in a list
        facts += [fact, *(own if isinstance(own, list) else ())]
    rules = [rule for fact in facts for rule in _rules(fact)]
    schema, is_complete = form.schema, True
    for name, limit in rules:
        schema, whole = _with_rule(schema, name, limit)
        is_complete = is_complete and whole
    schema = {**schema, **_description_of(facts)}
    return JsonForm(schema, _checked(form.convert, rules) if rules else form.convert, as_is=form.as_is and is_complete)


def _rules(fact: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(fact, type | str):
        return
    for name in (*_BOUNDS, *_LENGTHS, "pattern"):
        limit = getattr(fact, name, None)
        if limit is not None:
            yield name, getattr(limit, "pattern", limit)  # may be a compiled pattern
    zone = getattr(fact, "tz", None)
    if zone is not None:
        yield ("naive" if zone is False else "aware"), zone
    if type(fact).__name__ == "Predicate":
        yield "func", fact.func


def _description_of(facts: Iterable[Any]) -> Schema:
    """Return the descriptive keywords, such as the description. The last one wins, because it is closest to the use."""
    keywords: Schema = {}
    for fact in facts:
        if isinstance(fact, str):
            keywords["description"] = fact
            continue
        description = getattr(fact, "description", None) or getattr(fact, "documentation", None)
        texts = {"title": getattr(fact, "title", None), "description": description}
        keywords |= {name: text for name, text in texts.items() if isinstance(text, str)}
        if isinstance(examples := getattr(fact, "examples", None), list):
            keywords["examples"] = [data for data in map(as_data, examples) if data is not NO_DEFAULT]
        for name in ("extra_json_schema", "json_schema_extra"):
            if isinstance(extra := getattr(fact, name, None), dict):
                keywords |= extra
    return keywords


def _with_rule(schema: Schema, name: str, limit: Any) -> tuple[Schema, bool]:
    """Return the schema with the rule, and whether it expresses the rule for every type of the value."""
    if "anyOf" in schema:
        parts = [_with_rule(part, name, limit) for part in schema["anyOf"]]
        return {**schema, "anyOf": [part for part, _ in parts]}, all(whole for _, whole in parts)
    if schema.get("type") == "null":
        return schema, True
    kind, keyword = schema.get("type"), None
    if name in _BOUNDS:
        if kind in ("integer", "number") and isinstance(limit, int | float) and isfinite(limit):
            keyword = _BOUNDS[name][0]
    elif "contentEncoding" not in schema:  # a rule on bytes does not apply to the encoded text
        if name in _LENGTHS and kind in _COUNTED:
            keyword = _LENGTHS[name][0] + _COUNTED[kind]
        elif name == "pattern" and kind == "string":
            keyword = "pattern"
    return (schema, False) if keyword is None else ({**schema, keyword: limit}, True)


def _checked(convert: Convert, rules: list[tuple[str, Any]]) -> Convert:
    """Add checks that a schema can't express, such as for dates, decimals and the size of a set without duplicates."""
    tests = [(*_TESTS[name][1:], limit) for name, limit in rules if name in _TESTS]

    def convert_checked(value: Any) -> Any:
        converted = convert(value)
        for test, words, limit in tests:
            try:
                passes = converted is None or test(converted, limit)
            except (TypeError, AttributeError):
                # As in JSON Schema, rules ignore values of other kinds. But times with and without a zone are of one
                # kind and can't be compared; ignoring these would let everything pass.
                passes = type(converted) is not type(limit)
            if not passes:
                raise HintMismatchError(words.format(getattr(limit, "__name__", limit)), value)
        return converted

    return convert_checked


# The reader

_KINDS: dict[Any, Callable[["HintReader", Any], JsonForm]] = {
    Annotated: _annotated_form,
    Literal: literal_form,
    Union: union_form,
    UnionType: union_form,
    tuple: tuple_form,
    **dict.fromkeys(ARRAYS, array_form),
    **dict.fromkeys(MAPPINGS, mapping_form),
}
_ADVICE: dict[Any, str] = {
    abc.Callable: "a tool takes data, not functions: use a name, and look up the function",
    type: "use a name as text, or a Literal of the possible names",
    **dict.fromkeys((abc.Iterator, abc.Generator, abc.AsyncIterator, abc.AsyncIterable), "use a list"),
}
_DEFINE = "import or define it in this file, not under `if TYPE_CHECKING`"
_USE_DATA = "use text, numbers, lists, dicts, or a class with typed fields (a dataclass, TypedDict or model)"


class HintReader:
    """A reader for the hints of one schema. Named types are defined once."""

    def __init__(self, names: dict[str, Any] | None = None, is_output: bool = False) -> None:
        self.is_output = is_output
        self._names = names or {}  # names that hints written as text may use
        self.definitions: dict[str, Schema] = {}
        self._scalars = OUTGOING if is_output else SCALARS
        self._named: dict[Any, _Named] = {}

    def form(self, hint: Any) -> JsonForm:
        """Return the form of a hint. Raises UnsupportedHintError, a TypeError, if the hint has no JSON form."""
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
            is_model = hasattr(origin, _HOOK) or hasattr(origin, "__pydantic_validator__")
            if is_model and not (self.is_output and is_record(origin)):  # pydantic's dataclasses are dumped like others
                return _model_form(self, hint)
            if is_record(origin):
                return record_form(self, hint)
            if issubclass(origin, Enum):
                return enum_form(origin)
            known = self._scalars.get(origin) or scalar_class(origin)
            if known is None:
                raise UnsupportedHintError(hint, _ADVICE.get(origin, _USE_DATA))
            return known
        if hasattr(origin, "__supertype__"):
            return self.form(origin.__supertype__)
        if type(origin).__name__ == "TypeAliasType":  # typing's since 3.12, typing_extensions' before
            value, args = alias_value(origin), get_args(hint)
            aliased = value[args] if args else value
            return self.named(hint, origin.__name__, lambda: self.form(aliased), inline=True)
        if isinstance(origin, TypeVar):
            # Python has no other syntax for a union of the types in a tuple.
            either = Union[origin.__constraints__] if origin.__constraints__ else Any  # noqa: UP007
            return self.form(origin.__bound__ or either)
        if isinstance(origin, str | ForwardRef):  # still text: its name is unknown or recursive
            text = origin if isinstance(origin, str) else origin.__forward_arg__
            meaning = evaluated(text, self._names)
            if isinstance(meaning, str):
                raise UnsupportedHintError(text, _DEFINE, problem="is not defined")
            return self.named(text, identifier(text), lambda: self.form(meaning), inline=True)
        if getattr(origin, "_name", None) == "LiteralString":
            return self._scalars[str]
        raise UnsupportedHintError(hint, _USE_DATA)

    def named(self, hint: Any, name: str, read: Callable[[], JsonForm], inline: bool = False) -> JsonForm:
        """Return a form with a definition, so that it may contain itself. With `inline`, add a definition only for
        forms that do.
        """
        known = self._named.get(hint)
        if known is None:
            known = self._named[hint] = _Named(free_name(self.definitions, name))
            self.definitions[known.name] = {}  # reserves the name while the parts are read
            known.form = read()
            if inline and not known.used:
                del self.definitions[known.name], self._named[hint]
                return known.form
            self.definitions[known.name] = known.form.schema
        known.used = True
        return known.reference()


class _Named:
    """A named form, perhaps incomplete, that recursive hints refer to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = False
        self.form: JsonForm | None = None

    def reference(self) -> JsonForm:
        as_is = self.form is not None and self.form.as_is
        return JsonForm(reference(self.name), self._convert, as_is=as_is)

    def _convert(self, value: Any) -> Any:
        assert self.form is not None  # noqa: S101 - values are converted after all hints are read
        return self.form.convert(value)
