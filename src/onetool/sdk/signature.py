"""A function -> ToolSpec: its signature is the schema, its docstring the description."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

from onetool.core.spec import ToolSpec
from onetool.sdk.annotations import arguments_of, hints_of, names_of, others_of, returned_by
from onetool.sdk.binding import bind
from onetool.sdk.decorators import marks_of
from onetool.sdk.docs import FunctionDocs, read_docs
from onetool.sdk.hints import Form, NoForm, Reader
from onetool.sdk.hints.definitions import inlined
from onetool.sdk.hints.form import Schema
from onetool.sdk.hints.property import property_schema, with_default
from onetool.sdk.requirements import requirements_of


def tool_from_function(function: Callable[..., Any], pack: str) -> ToolSpec:
    """The tool `<pack>.<function>`. Raises TypeError where a parameter's hint has no form in JSON."""
    marks, docs = marks_of(function), read_docs(function)
    parameters, hints = signature(function).parameters, hints_of(function)
    name = marks.name or function.__name__
    try:
        input_schema, forms, others = _input(Reader(names_of(function)), parameters, hints, docs)
    except NoForm as error:
        raise TypeError(f"{name}: {error}") from None
    return ToolSpec(
        name=f"{pack}.{name}",
        description=docs.description,
        input_schema=input_schema,
        output_schema=_output_schema(
            Reader(names_of(function), outgoing=True), returned_by(function, hints), docs.returns
        ),
        handler=bind(function, parameters, forms, others),
        timeout=marks.timeout,
        task=marks.task,
        pure=marks.pure,
        idempotent=marks.idempotent,
        read_only=marks.read_only,
        parallel=marks.parallel,
        hidden=marks.hidden,
        tags=marks.tags,
        examples=marks.examples or docs.examples,
        requires=requirements_of(function),
    )


def _input(
    reader: Reader, parameters: Mapping[str, Parameter], hints: Mapping[str, Any], docs: FunctionDocs
) -> tuple[Schema, dict[str, Form], Form | None]:
    """The schema of all arguments; the form of each; and that of further ones, if the function takes any."""
    forms: dict[str, Form] = {}
    schema: Schema = {"type": "object", "properties": {}}
    required: list[str] = []
    for field in arguments_of(parameters, hints):
        form = with_default(_form(reader, field.key, field.hint), field.default)
        forms[field.key] = form
        schema["properties"][field.key] = property_schema(form, docs.parameters.get(field.key), field.default)
        if field.required:
            required.append(field.key)
    if required:
        schema["required"] = required
    further = others_of(parameters, hints)
    others = _form(reader, *further) if further else None
    if others:
        schema["additionalProperties"] = others.schema or True
    if reader.definitions:
        schema["$defs"] = reader.definitions
    return schema, forms, others


def _form(reader: Reader, name: str, hint: Any) -> Form:
    try:
        return reader.form(hint)
    except NoForm as error:
        raise NoForm(error.hint, error.advice, parameter=name) from None


def _output_schema(reader: Reader, hint: Any, description: str | None) -> Schema | None:
    """Of the value after `core.plain`. A hint that says nothing, or nothing that JSON knows, gives none."""
    try:
        schema = reader.form(hint).schema
    except NoForm:
        return None
    if not schema or schema == {"type": "null"}:
        return None
    schema = inlined(schema, reader.definitions)
    return {**schema, "description": description} if description else schema
