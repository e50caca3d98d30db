"""JSON Schemas (draft 2020-12) that are compiled once and validate values. Validation errors are described so that a
model can correct its call.

`uniqueItems` has an implementation that takes linear time, because the validator's own takes quadratic time.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import islice
from sys import maxsize
from typing import TYPE_CHECKING, Any, cast

from onetool.core.call import WrongArgument
from onetool.core.errors import MAX_SHOWN_VALUE, SchemaError, cut
from onetool.core.mismatch import TYPES, described, either, expected_types, one_of, place, shown
from onetool.core.redaction import MASK, secret_names, sounds_secret
from onetool.core.schema_guard import check_size, guard
from onetool.core.schema_keywords import upgrade
from onetool.core.text import MAX_NAME, MAX_UNKNOWN, did_you_mean

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, FancyRegexOptions, RegexOptions, ValidationError

EXACT = 2**53  # larger floats may stand for several integers
MAX_COMPARED_PARTS = 50_000  # of items compared by canonical text: about 0.1 s


class UniqueItems:
    """The keyword `uniqueItems` in the form that the validator requires."""

    def __init__(self, parent: Any, value: Any, path: Any) -> None:
        self._is_on = value is True

    def validate(self, instance: Any) -> None:
        if not self._is_on or not isinstance(instance, list | tuple):
            return
        items = cast(Sequence[Any], instance)
        kinds = set(map(type, items))  # only strings, or only integers, are fast to compare
        text_of = str if kinds == {str} else hex if kinds == {int} else _canonical_text
        if text_of is _canonical_text and larger_than(items, MAX_COMPARED_PARTS + 1):
            raise ValueError(f"it has more than {MAX_COMPARED_PARTS:,} parts to compare")
        if len(set(map(text_of, items))) < len(items):
            raise ValueError("it has equal items")


def _canonical_text(value: Any) -> str:
    """Return the same text for values that are equal in JSON Schema: 1 and 1.0, objects in any order, but not true and
    1.
    """
    if isinstance(value, str):
        return f'"{len(value)}:{value}'
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return hex(value)  # hex takes linear time, decimal quadratic time
    if isinstance(value, float):
        return hex(_whole(value)) if value.is_integer() else repr(value)
    if isinstance(value, Mapping):
        members = sorted(cast(Mapping[str, Any], value).items(), key=lambda member: member[0])
        return "{" + ",".join(f"{_canonical_text(name)}:{_canonical_text(part)}" for name, part in members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical_text, cast(Sequence[Any], value))) + "]"
    return f"{type(value).__name__} {value}"


def _whole(value: float) -> int:
    """Return the exact decimal value: 1e30 is 10**30 in JSON, but only close to that in Python."""
    if abs(value) < EXACT:
        return int(value)
    digits, _, exponent = repr(value).partition("e")
    whole, _, rest = digits.partition(".")
    return int(whole + rest) * 10 ** (int(exponent or 0) - len(rest)) if exponent else int(whole)


# Describing violations

UNKNOWN = "unknown argument"
_MAX_PATH = 200

ValuePath = tuple[str | int, ...]

_EXPECTED: dict[str, Callable[[Any], str]] = {
    "Type": lambda kind: expected_types(kind.types),
    "Enum": lambda kind: one_of(kind.options),
    "Constant": lambda kind: shown(kind.expected_value),
    "Minimum": lambda kind: f"at least {kind.limit}",
    "Maximum": lambda kind: f"at most {kind.limit}",
    "ExclusiveMinimum": lambda kind: f"more than {kind.limit}",
    "ExclusiveMaximum": lambda kind: f"less than {kind.limit}",
    "MultipleOf": lambda kind: f"a multiple of {kind.multiple_of}",
    "MinLength": lambda kind: f"at least {kind.limit} characters",
    "MaxLength": lambda kind: f"at most {kind.limit} characters",
    "MinItems": lambda kind: f"at least {kind.limit} items",
    "MaxItems": lambda kind: f"at most {kind.limit} items",
    "MinProperties": lambda kind: f"at least {kind.limit} properties",
    "MaxProperties": lambda kind: f"at most {kind.limit} properties",
    "Pattern": lambda kind: f"text that matches {kind.pattern}",
    "BacktrackLimitExceeded": lambda _: "a string that its pattern can check in time",
    "Format": lambda kind: f"a {kind.format}",
    "Custom": lambda _: "items that differ from each other",  # only uniqueItems is custom
    "Contains": lambda _: "at least one matching item",
    "Not": lambda kind: f"anything but {shown(kind.schema)}",
    "FalseSchema": lambda _: "no value",
    "OneOfMultipleValid": lambda _: "a value that fits exactly one of the alternatives",
}


def describe_violation(
    error: "ValidationError", secret: frozenset[str], known: Iterable[str] = (), max_unknown: int = MAX_UNKNOWN
) -> list[WrongArgument]:
    """Convert a validation error to problems. `known` parameters are suggested for similar names; values of `secret`
    ones are masked.
    """
    kind: Any = error.kind
    path: ValuePath = tuple(error.instance_path)
    name = type(kind).__name__
    if name == "Required":
        return [_problem((*path, kind.property), "a value (required)", "nothing")]
    if name in ("AdditionalProperties", "UnevaluatedProperties"):
        return _unknown(path, kind.unexpected, len(kind.unexpected), known, max_unknown)
    if name in ("AnyOf", "OneOfNotValid"):
        return _no_alternative(error, kind.context, secret, known)
    if name == "PropertyNames":
        return [_problem(path, "other property names", cut(str(kind.error.message), _MAX_PATH))]
    expected = _EXPECTED.get(name, lambda _: f"a value that fits `{kind.name}`")(kind)
    return [_problem(path, expected, _shown_value(error, path, secret))]


def _no_alternative(
    error: "ValidationError", branches: "list[list[ValidationError]]", secret: frozenset[str], known: Iterable[str]
) -> list[WrongArgument]:
    """Describe a value that matches no alternative.

    If one alternative has the right type, list its problems; else list the expected values.
    """
    path: ValuePath = tuple(error.instance_path)
    kinds = [
        [cast(Any, one.kind) for one in errors if tuple(one.instance_path) == path] for errors in branches
    ]  # errors about the value itself, not about a part
    near = [
        number
        for number, found in enumerate(kinds)
        if not any(type(kind).__name__ in ("Type", "Constant", "Enum") for kind in found)
    ]
    if len(near) == 1:
        return [problem for one in branches[near[0]] for problem in describe_violation(one, secret, known)]
    expected: dict[str, None] = {}
    for kind in (found[0] for number, found in enumerate(kinds) if found and (number in near or not near)):
        if type(kind).__name__ == "Required":
            expected[f"{TYPES['object']} with {kind.property}"] = None
        elif describe := _EXPECTED.get(type(kind).__name__):
            expected[describe(kind)] = None
    return [
        _problem(path, either(expected) if expected else "one of its alternatives", _shown_value(error, path, secret))
    ]


def _unknown(
    path: ValuePath, unknown: Iterable[str], count: int, known: Iterable[str], max_unknown: int
) -> list[WrongArgument]:
    """Describe the first unknown members and count the rest."""
    names = sorted(known)
    takes = f"known: {', '.join(names)}" if names else "it takes no arguments"
    problems = [
        WrongArgument(
            path=place((*path, name)),
            pointer=_pointer((*path, name)),
            expected="",
            got=UNKNOWN,
            hint=None if path else did_you_mean(name, names) or takes,
        )
        for name in islice(unknown, max_unknown)
    ]
    if count > max_unknown:
        problems.append(_problem(path, "", f"{count - max_unknown:,} more unknown arguments"))
    return problems


def _problem(path: ValuePath, expected: str, got: str) -> WrongArgument:
    return WrongArgument(path=place(path), pointer=_pointer(path), expected=expected, got=got)


def _shown_value(error: "ValidationError", path: ValuePath, secret: frozenset[str]) -> str:
    if any(step in secret or (isinstance(step, str) and sounds_secret(step)) for step in path):
        return MASK
    return described(error.instance)


def _pointer(path: ValuePath) -> str:
    steps = (str(step)[:_MAX_PATH].replace("~", "~0").replace("/", "~1") for step in path)
    return "".join(f"/{step}" for step in steps)[:_MAX_PATH]


# Compiled schemas

META_SCHEMA = "https://json-schema.org/draft/2020-12/schema"  # built into the validator, never fetched
MAX_PROBLEMS = 20
MAX_ERRORS = 10_000  # errors created at once: about 0.5 s
MAX_CHECKS = 2_000_000
CHEAP = 100  # with fewer checks for each part, values aren't measured
MAX_SLOW = 1_000_000  # slow checks: about 1 s
FEW_SLOW = 2  # the same for slow checks: interfaces accept half a million parts
SMALL = 200  # parts of a value that every schema accepts
MAX_LEVELS = 1_000  # limit when measuring depth
BEGINNING = 20  # list items that are explained if the whole is too large
MAX_COMPILE_ERROR = 300
# Keywords that may add properties from other schemas: closing such a schema needs `unevaluatedProperties`.
_BORROWING = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas")
# Regular expressions in schemas are untrusted: limit the compiled size and the backtracking.
_SIZE = 256 * 1024
_LEAVES = frozenset((str, int, float, bool, type(None)))
_KEYWORDS: dict[str, Any] = {"uniqueItems": UniqueItems}


class CompiledSchema:
    """A compiled schema. `check(value)` returns the problems, an empty list for a valid value."""

    __slots__ = (
        "_is_lenient",
        "_known",
        "_max_name",
        "_max_unknown",
        "_most",
        "_most_slow",
        "_names",
        "_only_known",
        "_secret",
        "_validator",
        "_verdict",
        "is_valid",
    )

    def __init__(self, schema: Mapping[str, Any], *, closed: bool = False, lenient: bool = False) -> None:
        check_size(schema)
        schema = upgrade(schema)
        self._verdict = guard(schema)
        self._known = properties_of(schema)
        self._names = frozenset(self._known)
        self._max_name = max((MAX_NAME, *map(len, self._known))) if closed else None  # only for arguments
        self._secret = secret_names(schema)
        schema = close_schema(schema) if closed else schema
        self._validator = _compile(schema)
        self._only_known = schema.get("additionalProperties") is False and "patternProperties" not in schema
        self._is_lenient = lenient
        self._max_unknown = MAX_PROBLEMS if lenient else MAX_UNKNOWN
        self.is_valid = self._validator.is_valid
        # A costly schema accepts only small values; usual schemas don't measure values.
        self._most = MAX_CHECKS // self.cost if self.cost > CHEAP else None
        # The maximum number of slow parts in a value, by depth for recursive schemas.
        by_depth = tuple(MAX_SLOW // slow if slow > FEW_SLOW else maxsize for slow in self._verdict.slow)
        self._most_slow = None if min(by_depth) == maxsize else by_depth

    @property
    def cost(self) -> int:
        """The maximum number of checks for one value."""
        return self._verdict.costs[0]

    def long_names(self, value: Mapping[str, Any]) -> list[WrongArgument]:
        """Return the arguments whose names are too long. Values are not read."""
        limit = self._max_name
        if limit is None or not (long := [name for name in value if len(str(name)) > limit]):
            return []
        got = f"its name has more than {limit} characters"
        return [
            WrongArgument(path=cut(str(name), MAX_SHOWN_VALUE), expected="", got=got) for name in long[:MAX_UNKNOWN]
        ]

    def wrong_members(self, value: Mapping[str, Any]) -> list[WrongArgument]:
        """Return problems with names that make checking the values unnecessary: names that are too long, or unknown
        names, if these are too many to describe or the value is large.
        """
        if problems := self.long_names(value):
            return problems
        count = len(value) - sum(name in value for name in self._known) if self._only_known else 0
        if not count or (count <= self._max_unknown and (self._is_lenient or not larger_than(value, MAX_ERRORS))):
            return []
        unknown = (name for name in value if name not in self._names)
        return _unknown((), unknown, count, self._known, self._max_unknown)

    def check(self, value: Any) -> list[WrongArgument]:
        try:
            if type(value) is dict or isinstance(value, Mapping):  # the abstract class is slower
                members = cast(Mapping[str, Any], value)
                if not self._names.issuperset(members) and (problems := self.wrong_members(members)):
                    return problems
            if self._most is not None and larger_than(value, self._most):
                return [WrongArgument(path="", expected=f"at most {self._most:,} values in all", got="more")]
            by_depth = self._most_slow
            if by_depth is not None and larger_than(value, SMALL, not self._verdict.compares_items):
                depth, deepest = depth_of(value, MAX_LEVELS) if self._verdict.recursive else 0, len(by_depth) - 1
                most = by_depth[depth] if depth <= deepest else by_depth[-1] * (deepest + 1) // (depth + 1)
                if larger_than(value, most, not self._verdict.compares_items):
                    what = "values in all" if self._verdict.compares_items else "numbers in all"
                    return [WrongArgument(path="", expected=f"at most {most:,} {what}", got="more")]
            return [] if self.is_valid(value) else self._explain(value)
        except (ValueError, RecursionError, OverflowError) as error:
            # Not JSON data: an object, a set, a number as a key, a lone surrogate.
            return [WrongArgument(path="", expected="JSON data", got=str(error)[:MAX_COMPILE_ERROR])]

    def _explain(self, value: Any) -> list[WrongArgument]:
        """Describe the problems. Listing all errors costs far more than finding one, so for large values only the
        beginning is explained.
        """
        if not self._explainable(value):
            value = beginning(value, BEGINNING)  # problems keep their paths
            if not self._explainable(value) or self.is_valid(value):
                got = "a value that does not, too large or too deep for details"
                return [WrongArgument(path="", expected="a value that fits its schema", got=got)]
        errors = self._validator.iter_errors(value)
        problems = (
            problem
            for error in errors
            for problem in describe_violation(error, self._secret, self._known, self._max_unknown)
        )
        return list(islice(problems, MAX_PROBLEMS))

    def _explainable(self, value: Any) -> bool:
        costs = self._verdict.costs
        depth = depth_of(value, len(costs)) if self._verdict.recursive else 0
        return depth < len(costs) and not larger_than(value, MAX_ERRORS // costs[depth])


@cache
def _engines() -> "tuple[RegexOptions, FancyRegexOptions]":
    from jsonschema_rs import FancyRegexOptions, RegexOptions

    size = {"size_limit": _SIZE, "dfa_size_limit": _SIZE}
    return RegexOptions(**size), FancyRegexOptions(backtrack_limit=2_000, **size)


def _compile(schema: Mapping[str, Any]) -> "Draft202012Validator":
    """Compile a schema. Raises SchemaError with all problems.

    Patterns run on the linear-time engine, or, if they need look-around, on the backtracking engine with a low step
    limit.
    """
    from jsonschema_rs import (
        Draft202012Validator,
        ValidationError,
    )  # 4 MB; a server imports it with its first call

    thawed = deepcopy(dict(schema))  # the validator requires plain lists
    refused = ValueError()
    for patterns in _engines():
        try:
            return Draft202012Validator(thawed, offline=True, pattern_options=patterns, keywords=_KEYWORDS)
        except ValueError as error:
            refused = error
    if not isinstance(refused, ValidationError):
        raise SchemaError(str(refused)[:MAX_COMPILE_ERROR]) from None
    # The compiler stops at the first problem; the meta-schema finds all of them.
    meta = Draft202012Validator({"$ref": META_SCHEMA}, offline=True)
    errors = [*islice(meta.iter_errors(thawed), MAX_PROBLEMS)] or [refused]
    problems = (str(problem) for one in errors for problem in describe_violation(one, frozenset()))
    raise SchemaError("; ".join(problems)) from None


def close_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Forbid additional properties, unless the schema mentions them: a tool takes no other arguments."""
    schema = {"properties": {}, **schema}  # needed by the validator for naming unexpected properties
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return schema
    keyword = "unevaluatedProperties" if any(name in schema for name in _BORROWING) else "additionalProperties"
    return {**schema, keyword: False}


def properties_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    properties = schema.get("properties")
    return tuple(cast(Mapping[str, Any], properties)) if isinstance(properties, Mapping) else ()


def depth_of(value: Any, most: int) -> int:
    """Return the nesting depth of a value, at most `most`."""
    level: list[Any] = [value]
    for depth in range(most):
        level = [child for item in level for child in _children(item)]
        if not level:
            return depth
    return most


def larger_than(value: Any, most: int, numbers_only: bool = False) -> bool:
    """Return whether a value has more than `most` parts, or numbers. Long numbers count as several."""
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, int):
            most -= 1 + part.bit_length() // 64
        elif not numbers_only or isinstance(part, float):
            most -= 1
        children = _children(part)
        if most < 0 or (len(children) > most and not numbers_only):
            return True
        waiting.extend(children)
    return False


def beginning(value: Any, most: int) -> Any:
    """Return the value with every list truncated to its first items."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, Mapping):
        return {name: beginning(part, most) for name, part in cast(Mapping[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [beginning(part, most) for part in cast(list[Any], value)[:most]]
    return value


def _children(value: Any) -> Collection[Any]:
    if type(value) in _LEAVES:  # the usual case; the test for a Mapping takes ten times as long
        return ()
    if isinstance(value, Mapping):
        return cast(Mapping[str, Any], value).values()
    return cast(list[Any], value) if isinstance(value, list | tuple) else ()
