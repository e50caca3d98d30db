"""Converts a module to its tools, prompts and resources.

These are the functions that `__all__` names, or else all public functions defined in the module. A function is a tool
unless it is marked as a prompt or resource. Its type hints become the schema, its docstring the description. The
handler converts validated JSON arguments to the types in the hints and calls the function.
"""

from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, wraps
from inspect import (
    Parameter,
    isasyncgenfunction,
    iscoroutinefunction,
    isfunction,
    isgeneratorfunction,
    signature,
    unwrap,
)
from types import FunctionType, ModuleType
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import msgspec

from onetool.core.call import WrongArgument
from onetool.core.errors import BadArguments, DefinitionError, Mistake, describe_error
from onetool.core.mismatch import described, place
from onetool.core.redaction import MASK, secret_names
from onetool.core.registry import Catalogue, Prompt, Resource
from onetool.core.spec import Handler, ToolSpec, is_address
from onetool.sdk.decorators import OfferMarks, marks_of, offer_marks_of, requirements_of
from onetool.sdk.docs import FunctionDocs, read_docs
from onetool.sdk.hints import HintMismatchError, HintReader, JsonForm
from onetool.sdk.hints.form import Schema, UnsupportedHintError, evaluated, inlined
from onetool.sdk.hints.records import NO_DEFAULT, RecordField, fields_of, property_schema, with_default


def pack_name(module: ModuleType) -> str:
    """Return the pack's name: `pack = "name"` in the module, else the module's own name."""
    name = getattr(module, "pack", None) or module.__name__.rpartition(".")[2]
    if not (isinstance(name, str) and name.isprintable() and name.strip() == name and "." not in name):
        raise DefinitionError(f"pack = {name!r}: a pack's name is a word without dots")
    return name


def docs_url(module: ModuleType) -> str | None:
    """Return `docs_url = "https://…"` of the module, the pack's documentation. Raises DefinitionError if invalid."""
    url = getattr(module, "docs_url", None)
    if url is not None and not is_address(url):
        raise DefinitionError(f"docs_url = {url!r:.100}: expected an address such as https://example.com/docs")
    return url


def tools_of(module: ModuleType) -> Catalogue:
    """Return the module's tools, prompts and resources in order, and a mistake for each unusable function."""
    pack, docs = pack_name(module), None
    entries: list[ToolSpec | Prompt | Resource] = []
    mistakes: list[Mistake] = []
    try:
        docs = docs_url(module)
    except DefinitionError as error:  # keep the tools
        mistakes.append(Mistake(message=str(error), file=module.__file__, key=pack))
    for name, function in _functions(module):
        try:
            spec, marks = tool_from_function(function, pack), offer_marks_of(function)
            called = marks_of(function).name or name  # the name in the module: `f = lambda …` is `f`
            spec = msgspec.structs.replace(spec, name=f"{pack}.{called}", defined_in=_location(function), docs_url=docs)
            entries.append(spec if marks is None else _offer(name, spec, marks))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - bad hints or docstrings affect only their own tool
            file, _, line = _location(function).rpartition(":")
            mistakes.append(Mistake(message=describe_error(error), file=file, line=int(line), key=f"{pack}.{name}"))
    return Catalogue(
        tools=tuple(entry for entry in entries if isinstance(entry, ToolSpec)),
        prompts=tuple(entry for entry in entries if isinstance(entry, Prompt)),
        resources=tuple(entry for entry in entries if isinstance(entry, Resource)),
        mistakes=tuple(mistakes),
    )


def _offer(name: str, spec: ToolSpec, marks: OfferMarks) -> Prompt | Resource:
    """Return a prompt or resource. Values aren't checked here, because the interface converts them."""
    spec = msgspec.structs.replace(spec, output_schema=None, hidden=True)
    if marks.uri is None:
        return Prompt(name=marks.name or name, spec=spec, title=marks.title)
    handler: Any = spec.handler

    def tagged(value: Any) -> dict[str, Any]:  # distinguishes bytes from text, which look alike in plain data
        return {"blob" if isinstance(value, bytes) else "text" if isinstance(value, str) else "data": value}

    async def read_async(**args: Any) -> Any:
        return tagged(await handler(**args))

    reader: Handler = read_async if spec.is_async else lambda **args: tagged(handler(**args))
    spec = msgspec.structs.replace(spec, handler=reader)
    offer = Resource(uri=marks.uri, name=marks.name or name, spec=spec, mime_type=marks.mime_type)
    if len(set(offer.variables)) < len(offer.variables):
        raise DefinitionError(f"its URI has a variable twice: {offer.uri}")
    known, variables = set(spec.input_schema["properties"]), set(offer.variables)
    if variables - known or set(spec.input_schema.get("required", ())) - variables:
        shown = list(offer.variables)
        raise DefinitionError(f"the variables in its URI {shown} are not its parameters {sorted(known)}")
    return offer


def _functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    listed: Iterable[str] | None = getattr(module, "__all__", None)
    own = listed is None
    for name in [name for name in vars(module) if not name.startswith("_")] if listed is None else listed:
        value: Any = getattr(module, name, None)
        if value is None:
            raise DefinitionError(f"__all__ names {name!r}, which is not in the module")
        # Or a wrapped function: `functools.cache` returns an object.
        is_function = isfunction(value) or (hasattr(value, "__wrapped__") and isfunction(unwrap(value)))
        if is_function and (not own or value.__module__ == module.__name__):
            yield name, value


def _location(function: Callable[..., Any]) -> str:
    code = unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


# The hints of a function

_PROMISES = (abc.Awaitable, abc.Coroutine)
_STREAMS = (abc.Iterable, abc.Iterator, abc.Generator, abc.AsyncIterable, abc.AsyncIterator, abc.AsyncGenerator)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the hints by name, with hints written as text resolved. Unknown names stay text."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - evaluating text may raise anything
        names = names_of(function)
        return {name: evaluated(hint, names) for name, hint in function.__annotations__.items()}


def names_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the names that the function's hints can use."""
    return getattr(unwrap(function), "__globals__", {})


def arguments_of(parameters: Mapping[str, Parameter], hints: Mapping[str, Any]) -> Iterator[RecordField]:
    """Yield the arguments by name, regardless of how Python passes them. `*args` is an array."""
    for name, parameter in parameters.items():
        hint = hints.get(name, Any)
        if parameter.kind is Parameter.VAR_POSITIONAL:
            # `*args: int` takes any number of ints; `*args: *tuple[int, str]` takes exactly these two.
            if get_origin(hint) is Unpack:
                hint = get_args(hint)[0]
            else:
                hint = tuple[get_args(hint)] if getattr(hint, "__unpacked__", False) else list[hint]
            yield RecordField(name, name, hint, required=False)
        elif parameter.kind is not Parameter.VAR_KEYWORD:
            if type(parameter.default).__name__ == "FieldInfo":  # from pydantic; the function would get it as a value
                advice = "write it into the hint, Annotated[…, Field(…)]"
                raise UnsupportedHintError("a default of Field(…)", advice, name)
            required = parameter.default is Parameter.empty
            yield RecordField(name, name, hint, required, NO_DEFAULT if required else parameter.default)
        elif get_origin(hint) is Unpack:
            yield from fields_of(get_args(hint)[0])


# Calling the function

Arrange = Callable[[dict[str, Any]], tuple[list[Any], dict[str, Any]]]
"""Converts arguments by name to positional and keyword arguments."""


def bind_handler(function: Callable[..., Any], arrange: Arrange) -> Handler:
    """Return the function itself if it takes JSON values by name, else a wrapper that converts and arranges them."""
    if isasyncgenfunction(function):

        @wraps(function)
        async def collect_async(**arguments: Any) -> list[Any]:
            positional, named = arrange(arguments)
            return [item async for item in function(*positional, **named)]

        return collect_async

    if isgeneratorfunction(function):  # return the items of a generator as a list

        @wraps(function)
        def collect(**arguments: Any) -> list[Any]:
            positional, named = arrange(arguments)
            return list(function(*positional, **named))

        return collect

    if arrange is _by_name:
        return function
    if iscoroutinefunction(function):

        @wraps(function)
        async def call_async(**arguments: Any) -> Any:
            positional, named = arrange(arguments)
            return await function(*positional, **named)

        return call_async

    @wraps(function)
    def call(**arguments: Any) -> Any:
        positional, named = arrange(arguments)
        return function(*positional, **named)

    return call


def _arrangement(
    parameters: Mapping[str, Parameter], forms: Mapping[str, JsonForm], others: JsonForm | None
) -> Arrange:
    """Choose the cheapest sufficient arrangement, once for all calls.

    `forms` are the forms of the named arguments, `others` is that of all arguments for `**kwargs`.
    """
    converts = {name: form for name, form in forms.items() if not form.as_is}
    others = None if others is None or others.as_is else others
    convert = _converting(converts, forms, others) if converts or others else _by_name
    # Positional arguments: those before `*args`, if there is one, or before `/`.
    listed = list(parameters.values())
    kinds = [parameter.kind for parameter in listed]
    if Parameter.VAR_POSITIONAL in kinds:
        by_position = listed[: kinds.index(Parameter.VAR_POSITIONAL) + 1]
    else:
        by_position = [parameter for parameter in listed if parameter.kind is Parameter.POSITIONAL_ONLY]
    if not by_position:
        return convert

    def arrange(arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        _, named = convert(arguments)
        positional: list[Any] = []
        for parameter in by_position:
            value = named.pop(parameter.name, parameter.default)
            if parameter.kind is Parameter.VAR_POSITIONAL:
                positional += () if value is Parameter.empty else value
            elif value is Parameter.empty:
                raise BadArguments(f"{parameter.name}: expected a value (required), got nothing")
            else:
                positional.append(value)
        return positional, named

    return arrange


def _by_name(arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    return [], arguments


def _converting(converts: Mapping[str, JsonForm], forms: Mapping[str, JsonForm], others: JsonForm | None) -> Arrange:
    def convert(arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        for name, value in arguments.items():
            form = converts.get(name)
            if form is None and others is not None and name not in forms:
                form = others
            if form is not None and type(value) is not form.exact:
                try:
                    arguments[name] = form.convert(value)
                except HintMismatchError as wrong:
                    steps = wrong.under(name).path
                    path = place(steps)
                    if wrong.message:
                        raise BadArguments(f"{path}: {wrong.message}") from None
                    names: dict[str, Any] = {str(step): {} for step in steps} | {name: form.schema}
                    got = MASK if secret_names({"properties": names}) else described(wrong.got)
                    raise BadArguments(str(WrongArgument(path=path, expected=wrong.expected, got=got))) from None
        return [], arguments

    return convert


# From a function to a ToolSpec


def tool_from_function(function: Callable[..., Any], pack: str) -> ToolSpec:
    """Return the tool `<pack>.<function>`. Raises UnsupportedHintError, a TypeError, for an unusable hint."""
    spec, arrange = read_function(function, pack)
    return msgspec.structs.replace(spec, handler=bind_handler(function, arrange))


def read_function(function: Callable[..., Any], pack: str) -> tuple[ToolSpec, Arrange]:
    """Return the tool without its handler, and how the handler arranges the arguments.

    Both are the same for this method of any other object.
    """
    marks, docs = marks_of(function), read_docs(function)
    parameters, hints = signature(function).parameters, hints_of(function)
    name = marks.name or function.__name__
    input_schema, forms, others = _input(HintReader(names_of(function)), parameters, hints, docs)

    @cache
    def documented_schema() -> Mapping[str, Any] | None:
        from onetool.sdk.returns import described_returns  # imports a parser, which startup does not need

        return described_returns(function, docs.returns)

    spec = ToolSpec(
        description=docs.description,
        input_schema=input_schema,
        output_schema=_output_schema(function, hints, docs.returns),
        documented_schema=documented_schema,
        requires=requirements_of(function),
        **{**msgspec.structs.asdict(marks), "name": f"{pack}.{name}", "examples": marks.examples or docs.examples},
    )
    return spec, _arrangement(parameters, forms, others)


def _input(
    reader: HintReader, parameters: Mapping[str, Parameter], hints: Mapping[str, Any], docs: FunctionDocs
) -> tuple[Schema, dict[str, JsonForm], JsonForm | None]:
    """Return the schema of all arguments, the form of each, and the form of additional arguments, if allowed."""
    forms: dict[str, JsonForm] = {}
    schema: Schema = {"type": "object", "properties": {}}
    required: list[str] = []
    for field in arguments_of(parameters, hints):
        form = with_default(_parameter_form(reader, field.key, field.hint), field.default)
        forms[field.key] = form
        schema["properties"][field.key] = property_schema(form, docs.parameters.get(field.key), field.default)
        if field.required:
            required.append(field.key)
    if required:
        schema["required"] = required
    others: JsonForm | None = None
    for name, parameter in parameters.items():  # `**kwargs`, unless its hint lists the keys
        if parameter.kind is Parameter.VAR_KEYWORD and get_origin(hints.get(name)) is not Unpack:
            others = _parameter_form(reader, name, hints.get(name, Any))
            schema["additionalProperties"] = others.schema or True
    if reader.definitions:
        schema["$defs"] = reader.definitions
    return schema, forms, others


def _parameter_form(reader: HintReader, name: str, hint: Any) -> JsonForm:
    try:
        return reader.form(hint)
    except UnsupportedHintError as error:
        raise UnsupportedHintError(error.hint, error.advice, name, error.problem) from None


def _output_schema(function: Callable[..., Any], hints: Mapping[str, Any], description: str | None) -> Schema | None:
    """Return the schema of the value after `core.plain`: a list for a generator, the result for an awaitable. None if
    the hint has no JSON form.
    """
    hint, reader = hints.get("return", Any), HintReader(names_of(function), is_output=True)
    origin, args = get_origin(hint), get_args(hint)
    if args and origin in _STREAMS and (isgeneratorfunction(function) or isasyncgenfunction(function)):
        hint = list[args[0]]
    elif args and origin in _PROMISES:
        hint = args[-1]
    try:
        schema = reader.form(hint).schema
    except UnsupportedHintError:
        return None
    if not schema or schema == {"type": "null"}:
        return None
    schema = inlined(schema, reader.definitions)
    return {**schema, "description": description} if description else schema
