"""A parameter of a function, or a field of a class: a form with a description and a default."""

from math import isfinite
from typing import Any

from onetool.core.errors import ToolFailure
from onetool.core.plain import plain
from onetool.sdk.hints.form import Form, Schema
from onetool.sdk.hints.unions import or_null

NOTHING: Any = object()
"""No default: None is one."""


def with_default(form: Form, default: Any) -> Form:
    """`city: str = None` takes null too, whatever its hint says."""
    return or_null(form) if default is None else form


def property_schema(form: Form, description: str | None, default: Any = NOTHING) -> Schema:
    schema = form.schema
    if description:
        schema = {**schema, "description": description}
    if default is not NOTHING:
        data = as_data(default)
        if data is not NOTHING:
            schema = {**schema, "default": data}
    return schema


def as_data(value: Any) -> Any:
    """A value as JSON; nothing, if it is an object that only Python knows."""
    if isinstance(value, float) and not isfinite(value):
        return NOTHING
    try:
        return plain(value)
    except ToolFailure:
        return NOTHING
