"""Converts the arguments of a call to the arguments for the tool, or reports what is wrong with them.

Local tools are strict. For the tools of MCP servers (`lenient`), the server decides: arguments that contradict the
schema are sent anyway. Strings are first converted to numbers, JSON or one-item lists where the schema asks for these
and no information is lost. Code is checked against the schema before it runs. Only arguments that fail the strict check
are processed here, so correct calls have no overhead.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import islice
from math import isfinite
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from onetool.core.call import ToolCall, WrongArgument
from onetool.core.errors import SchemaError, cut
from onetool.core.json_data import data_in
from onetool.core.redaction import MASK
from onetool.core.schema import UNKNOWN, larger_than, properties_of
from onetool.core.spec import ToolSpec
from onetool.core.text import MAX_NAME, MAX_UNKNOWN
from onetool.core.type_names import resolve_definition, types_of

LEVELS = 8  # nested schemas that are followed
MAX_NUMBER = 300  # characters
MAX_RECORDED = 1000  # larger arguments are masked in records of calls with wrong names
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(_INTEGER.pattern + r"(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}

Schema = Mapping[str, Any]


class Taken(NamedTuple):
    """The arguments for the tool, and where they contradict the schema.

    `findings` are the problems and the arguments that the schema does not list. `warnings` are for the caller.
    """

    args: Mapping[str, Any]
    problems: list[WrongArgument]
    findings: list[WrongArgument]
    warnings: tuple[str, ...] = ()


def taken(spec: ToolSpec, args: Mapping[str, Any], problems: list[WrongArgument] | None = None) -> Taken:
    """Return the arguments for the tool. `problems` is the result of the schema check, if already known."""
    problems = spec.arguments.check(args) if problems is None else problems
    if not problems or not spec.lenient or not isinstance(args, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - from outside
        return Taken(args, problems, problems)
    found = {problem.path: problem for problem in problems if problem.got == UNKNOWN}
    wrong = [problem.path for problem in problems if problem.got != UNKNOWN]
    partly = {name for name in found for path in wrong if path == name or path.startswith((f"{name}.", f"{name}["))}
    unlisted = {name: found[name] for name in args if name in found and name not in partly}
    near = {name: f" ({one.hint})" for name, one in unlisted.items() if (one.hint or "").startswith("did you mean")}
    passed = [] if is_closed(spec.input_schema) else [name for name in unlisted if name not in near]
    sent = {name: coerced(spec, name, value) for name, value in args.items()}
    left = spec.arguments.check({name: value for name, value in sent.items() if name not in passed})
    findings = [*(unlisted[name] for name in passed), *left]
    warnings = (
        f"{name}: {spec.name} does not list this argument{near.get(name, '')}; it was sent on to the server"
        for name in unlisted
    )
    return Taken(sent, findings if left else [], findings, tuple(warnings))


def recorded_call(call: ToolCall, spec: ToolSpec | None) -> ToolCall:
    """Return the record of a failed call, with only the first wrong names, and long ones truncated.

    Large values in such a call are masked: no message shows them, and searching them for secrets is slow.
    """
    args = call.args
    if not isinstance(args, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - from outside
        return call
    if spec is not None:
        try:  # checks only the names
            wrong = spec.arguments.wrong_members(args) if spec.prepare is None else spec.arguments.long_names(args)
        except SchemaError:  # reported by the check of the arguments
            return call
        if not wrong:
            return call
    known = () if spec is None else spec.order
    others = islice((name for name in args if name not in known), MAX_UNKNOWN)
    kept = {
        cut(str(name), MAX_NAME): MASK if larger_than(args[name], MAX_RECORDED) else args[name]
        for name in (*(name for name in known if name in args), *others)
    }
    return replace(call, name=call.name if spec else cut(call.name, MAX_NAME), args=kept)


def is_closed(schema: Schema) -> bool:
    """Return whether a schema explicitly forbids other arguments."""
    return schema.get("additionalProperties") is False or schema.get("unevaluatedProperties") is False


def coerced(spec: ToolSpec, name: str, value: Any) -> Any:
    """Return one argument, with strings converted to the types in the schema."""
    schema = spec.input_schema
    if name not in properties_of(schema):
        return value
    return _coerced(value, schema["properties"][name], schema, LEVELS)


def _coerced(value: Any, schema: Any, root: Schema, levels: int) -> Any:
    part: Any = resolve_definition(schema, root)
    if levels == 0 or not isinstance(part, Mapping):
        return value
    known = cast(Schema, part)
    if isinstance(value, str):
        read = _convert(value, types_of(part, root))
        return [read] if isinstance(read, str) and _wants_texts(known, root) else read
    if isinstance(value, list):
        return [_coerced(item, known.get("items"), root, levels - 1) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        inner: Any = known.get("properties")
        named = cast(Schema, inner if isinstance(inner, Mapping) else {})
        fields = cast(dict[str, Any], value).items()
        return {name: _coerced(item, named.get(name), root, levels - 1) for name, item in fields}
    return value


def _wants_texts(schema: Schema, root: Schema) -> bool:
    """Return whether the schema accepts a list of strings, but not a single string."""
    kinds = types_of(schema, root)
    if "array" not in kinds or "string" in kinds:
        return False
    arms = [resolve_definition(arm, root) for word in ("anyOf", "oneOf") for arm in schema.get(word) or ()]
    lists = [cast(Schema, one) for one in (schema, *arms) if isinstance(one, Mapping)]
    return any("string" in types_of(one.get("items"), root) for one in lists)


def _convert(text: str, kinds: set[str]) -> Any:
    """Convert a string to one of these types. Return it unchanged if its type is right or information would be lost."""
    if "string" in kinds:
        return text
    if kinds & {"integer", "number"} and len(text) <= MAX_NUMBER:
        if _INTEGER.fullmatch(text):
            return int(text)
        if "number" in kinds and _NUMBER.fullmatch(text):
            return number if isfinite(number := float(text)) and Decimal(repr(number)) == Decimal(text) else text
    if "boolean" in kinds and text in _BOOLEANS:
        return _BOOLEANS[text]
    data: Any = data_in(text)
    is_wanted = ("array" if isinstance(data, list) else "object" if isinstance(data, dict) else "") in kinds
    return cast(Any, data) if is_wanted else text
