"""The arguments of a call as far as its text says them, and what is literally wrong with them."""

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from onetool.core.arguments import meant
from onetool.core.call import Problem
from onetool.core.lenient import coerced, is_closed, taken
from onetool.core.nearest import did_you_mean
from onetool.core.schema_parts import stands_alone
from onetool.core.spec import ToolSpec

# Keywords beside `properties` that make one argument's fate depend on others: then it is the whole call or nothing.
ENTANGLED = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas",
     "dependencies", "minProperties", "maxProperties", "patternProperties", "propertyNames", "unevaluatedProperties",
     "enum", "const"}
)  # fmt: skip
DEFINITIONS = frozenset({"$defs", "definitions"})


class _Unknown:
    """A value that only the run will know."""


UNKNOWN: Any = _Unknown()


class Arguments(NamedTuple):
    """What a call gives."""

    literals: Mapping[str, Any]
    given: frozenset[str]
    complete: bool = True  # nothing more comes from `*` or `**`
    wrong: str | None = None  # too many, or two for one

    @classmethod
    def of(cls, node: ast.Call, spec: ToolSpec) -> "Arguments":
        values: dict[str, Any] = {}
        wrong = None
        plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        complete = len(plain) == len(node.args) and all(keyword.arg for keyword in node.keywords)
        if len(plain) > len(spec.order):
            wrong = f"takes {len(spec.order)} arguments at the most, got {len(plain)}"
        if len(plain) == len(node.args):  # else nobody knows which is which
            values = {name: literal(argument) for name, argument in zip(spec.order, plain, strict=False)}
        for keyword in node.keywords:
            if keyword.arg is not None:
                name = meant(spec, keyword.arg)
                wrong = f"got {name} twice" if name in values else wrong
                values[name] = literal(keyword.value)
        literals = {name: value for name, value in values.items() if value is not UNKNOWN}
        return cls(literals, frozenset(values), complete, wrong)


def literal(node: ast.expr) -> Any:
    """The value that an expression literally is, as it would reach the tool; UNKNOWN for everything else."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return _all_known([literal(item) for item in items])
        case ast.Dict(keys=keys, values=items):
            names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
            values = _all_known([literal(item) for item in items])
            if values is UNKNOWN or not all(isinstance(name, str) for name in names):
                return UNKNOWN
            return dict(zip(names, values, strict=True))
        case _:
            return UNKNOWN


def _all_known(values: list[Any]) -> Any:
    return UNKNOWN if any(value is UNKNOWN for value in values) else values


def problems_with(spec: ToolSpec, arguments: Arguments) -> Iterator[Problem]:
    """What the call itself would find, and never more than that."""
    if arguments.complete and len(arguments.literals) == len(arguments.given):
        yield from taken(spec, arguments.literals).problems
    elif ENTANGLED.isdisjoint(spec.input_schema):
        yield from _wrong_names(spec, arguments)
        yield from _wrong_values(spec, arguments)


def _wrong_names(spec: ToolSpec, arguments: Arguments) -> Iterator[Problem]:
    if spec.input_schema.get("additionalProperties", False) is False:  # {} takes anything
        for name in sorted(arguments.given.difference(spec.order)):
            known, near = ", ".join(sorted(spec.order)), did_you_mean(name, spec.order)
            if near is None and spec.lenient and not is_closed(spec.input_schema):
                continue  # it is sent on
            hint = near or (f"known: {known}" if known else "it takes no arguments")
            yield Problem(path=name, expected="", got="unknown argument", hint=hint)
    if arguments.complete:
        for name in spec.input_schema.get("required") or ():
            if name not in arguments.given:
                yield Problem(path=name, expected="a value (required)", got="nothing")


def _wrong_values(spec: ToolSpec, arguments: Arguments) -> Iterator[Problem]:
    if not _can_stand_alone(spec):
        return
    for name, value in arguments.literals.items():
        if name in spec.order and name not in spec.secrets:
            given = coerced(spec, name, value) if spec.lenient else value
            for problem in spec.argument(name).check(given):
                joint = "" if not problem.path or problem.path.startswith("[") else "."
                path = f"{name}{joint}{problem.path}"
                yield Problem(path=path, expected=problem.expected, got=problem.got, hint=problem.hint)


@lru_cache(maxsize=4096)
def _can_stand_alone(spec: ToolSpec) -> bool:
    """Whether the schema of one argument means the same alone: it refers to shared definitions only."""
    properties: Mapping[str, Any] = spec.input_schema.get("properties") or {}
    if any(isinstance(one, Mapping) and not DEFINITIONS.isdisjoint(one) for one in properties.values()):
        return False
    return stands_alone(spec.input_schema)
