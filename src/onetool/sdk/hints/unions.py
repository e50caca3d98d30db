"""Unions. A value is the first alternative that it fits, in the order in which the author wrote them."""

from types import NoneType
from typing import Any, get_args

from msgspec import UNSET, UnsetType

from onetool.sdk.hints.form import Convert, Form, Hints, Schema, Wrong
from onetool.sdk.hints.scalars import NULL

_ABSENT = (UnsetType, UNSET)  # msgspec's word for a field that is not there: no value stands for it

_WORDS = ("title", "description", "examples")


def union(hints: Hints, hint: Any) -> Form:
    alternatives = [arg for arg in get_args(hint) if arg not in _ABSENT]
    forms = [NULL if arg is NoneType else hints.form(arg) for arg in alternatives]
    if len(forms) == 1:
        return forms[0]
    return Form(_any_of(forms), _first_of(forms), as_is=all(form.as_is for form in forms))


def or_null(form: Form) -> Form:
    """The same, and null: what a default of None says of a hint that does not."""
    if not form.schema or form.schema == NULL.schema or NULL.schema in form.schema.get("anyOf", ()):
        return form
    return Form(_any_of([form, NULL]), _first_of([form, NULL]), as_is=form.as_is)


def _any_of(forms: list[Form]) -> Schema:
    """Alternatives that look the same to a caller, like text and a path, are one. Those of an alternative are ours."""
    schemas: list[Schema] = []
    for form in forms:
        inner = form.schema["anyOf"] if form.schema.keys() == {"anyOf"} else [form.schema]
        schemas += [schema for schema in inner if schema not in schemas]
    if {} in schemas:
        return {}
    if len(schemas) == 2 and NULL.schema in schemas:
        return _nullable(*schemas)
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _nullable(*schemas: Schema) -> Schema:
    """What is said of a value that may be null stands above both, where readers look for it."""
    words = {word: schema[word] for schema in schemas for word in _WORDS if word in schema}
    return {"anyOf": [{key: schema[key] for key in schema if key not in _WORDS} for schema in schemas], **words}


def _first_of(forms: list[Form]) -> Convert:
    nullable = any(form is NULL for form in forms)
    converts = [form.convert for form in forms if form is not NULL]

    def convert(value: Any) -> Any:
        if value is None and nullable:
            return None
        refusals: list[Wrong] = []
        for one in converts:
            try:
                return one(value)
            except Wrong as wrong:
                refusals.append(wrong)
        raise _nearest(refusals, value)

    return convert


def _nearest(refusals: list[Wrong], value: Any) -> Wrong:
    """What was wrong inside of the alternative that fitted best; if none fitted at all, everything that would have."""
    deepest = max(refusals, key=lambda wrong: len(wrong.path))
    expected = dict.fromkeys(wrong.expected for wrong in refusals if wrong.expected)
    if deepest.path or len(refusals) == 1 or not expected:
        return deepest
    return Wrong(" or ".join(expected), value)
