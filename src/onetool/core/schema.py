"""JSON Schema (draft 2020-12): compile once, validate often, and say what is wrong."""

from collections.abc import Collection, Mapping
from copy import deepcopy
from itertools import islice
from sys import maxsize
from typing import Any, cast

import jsonschema_rs

from onetool.core.call import Problem
from onetool.core.errors import SchemaError
from onetool.core.schema_guard import Verdict, check_size, guard
from onetool.core.schema_unique import UniqueItems
from onetool.core.schema_upgrade import upgrade
from onetool.core.schema_words import describe
from onetool.core.secrecy import secret_names

META_SCHEMA = "https://json-schema.org/draft/2020-12/schema"  # comes with the validator, is never fetched
MOST_PROBLEMS = 20
MOST_ERRORS = 10_000  # that a validator may have to make at once: about half a second
MOST_CHECKS = 2_000_000
CHEAP = 100  # checks for one part of a value that are not worth counting
MOST_SLOW = 1_000_000  # slow ones: about a second
FEW_SLOW = 2  # for one part that are not worth counting: the doors let half a million parts in
SMALL = 200  # parts that every schema takes
DEEPEST = 1_000  # levels that are counted
BEGINNING = 20  # items of a list that are worth explaining, where the whole is too large
LONGEST = 300
# Keywords that may bring in properties from elsewhere: closing such a schema needs `unevaluatedProperties`.
_BORROWING = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas")
# A regular expression in a schema is a stranger's: small programs only, and a bounded search.
_SIZE = 256 * 1024
_LINEAR = jsonschema_rs.RegexOptions(size_limit=_SIZE, dfa_size_limit=_SIZE)
_BOUNDED = jsonschema_rs.FancyRegexOptions(backtrack_limit=2_000, size_limit=_SIZE, dfa_size_limit=_SIZE)
_LEAVES = frozenset((str, int, float, bool, type(None)))
_KEYWORDS: dict[str, Any] = {"uniqueItems": UniqueItems}


class CompiledSchema:
    """A schema that is ready: `check(value)` gives the problems, none when the value fits."""

    __slots__ = ("_known", "_most", "_most_slow", "_secret", "_validator", "_verdict", "is_valid")

    def __init__(self, schema: Mapping[str, Any], *, closed: bool = False) -> None:
        check_size(schema)
        schema = upgrade(schema)
        self._verdict = guard(schema)
        self._known = properties_of(schema)
        self._secret = secret_names(schema)
        self._validator = _compile(close(schema) if closed else schema)
        self.is_valid = self._validator.is_valid
        # A costly schema takes small values only; for the usual ones nothing is counted.
        cost = self._verdict.costs[0]
        self._most = MOST_CHECKS // cost if cost > CHEAP else None
        self._most_slow = _most_slow(self._verdict)

    def check(self, value: Any) -> list[Problem]:
        try:
            if self._most is not None and larger_than(value, self._most):
                return [Problem(path="", expected=f"at most {self._most:,} values in all", got="more")]
            if self._most_slow is not None and (most := self._exceeded(value)) is not None:
                what = "values in all" if self._verdict.compares_items else "numbers in all"
                return [Problem(path="", expected=f"at most {most:,} {what}", got="more")]
            return [] if self.is_valid(value) else self._explain(value)
        except (ValueError, RecursionError, OverflowError) as error:
            # Not JSON data at all: an object, a set, a number as a key, half of a surrogate pair.
            return [Problem(path="", expected="JSON data", got=str(error)[:LONGEST])]

    def _exceeded(self, value: Any) -> int | None:
        """How many parts that are slow to check it may have, where it has more."""
        by_depth, numbers_only = self._most_slow or (maxsize,), not self._verdict.compares_items
        if not larger_than(value, SMALL, numbers_only):
            return None
        depth, deepest = depth_of(value, DEEPEST) if self._verdict.recursive else 0, len(by_depth) - 1
        most = by_depth[depth] if depth <= deepest else by_depth[-1] * (deepest + 1) // (depth + 1)
        return most if larger_than(value, most, numbers_only) else None

    def _explain(self, value: Any) -> list[Problem]:
        """What is wrong with it. Listing that costs far more than finding it, so of large values less is told."""
        if not self._explainable(value):
            value = beginning(value, BEGINNING)  # what is wrong in its beginning stands in the same place there
            if not self._explainable(value) or self.is_valid(value):
                got = "a value that does not, too large or too deep to say where"
                return [Problem(path="", expected="a value that fits its schema", got=got)]
        errors = self._validator.iter_errors(value)
        problems = (problem for error in errors for problem in describe(error, self._secret, self._known))
        return list(islice(problems, MOST_PROBLEMS))

    def _explainable(self, value: Any) -> bool:
        costs = self._verdict.costs
        depth = depth_of(value, len(costs)) if self._verdict.recursive else 0
        return depth < len(costs) and not larger_than(value, MOST_ERRORS // costs[depth])


def _most_slow(verdict: Verdict) -> tuple[int, ...] | None:
    """How many slow parts a value may have, by its depth where the schema is recursive. None: nothing is counted."""
    by_depth = tuple(MOST_SLOW // slow if slow > FEW_SLOW else maxsize for slow in verdict.slow)
    return None if min(by_depth) == maxsize else by_depth


def _compile(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Patterns run on the engine that is linear in time; what it can't do (look-around) gets few steps on the other."""
    thawed = deepcopy(dict(schema))  # the validator takes plain lists only
    for patterns in (_LINEAR, _BOUNDED):
        try:
            return jsonschema_rs.Draft202012Validator(
                thawed, offline=True, pattern_options=patterns, keywords=_KEYWORDS
            )
        except ValueError as error:
            refused = error
    raise SchemaError(_words(refused, schema)) from None


def _words(error: ValueError, schema: Mapping[str, Any]) -> str:
    """Everything that is wrong with a schema: the compiler stops at the first fault, the meta-schema finds them all."""
    if not isinstance(error, jsonschema_rs.ValidationError):
        return str(error)[:LONGEST]
    meta = jsonschema_rs.Draft202012Validator({"$ref": META_SCHEMA}, offline=True)
    errors = [*islice(meta.iter_errors(deepcopy(dict(schema))), MOST_PROBLEMS)] or [error]
    return "; ".join(str(problem) for one in errors for problem in describe(one, frozenset()))


def close(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Most schemas say nothing of further properties; for a tool's arguments nothing means none."""
    schema = {
        "properties": {},
        **schema,
    }  # without this key the validator does not say which properties were unexpected
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return schema
    keyword = "unevaluatedProperties" if any(name in schema for name in _BORROWING) else "additionalProperties"
    return {**schema, keyword: False}


def properties_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    properties = schema.get("properties")
    return tuple(cast(Mapping[str, Any], properties)) if isinstance(properties, Mapping) else ()


def depth_of(value: Any, most: int) -> int:
    """How deep it is nested; stops counting there."""
    level: list[Any] = [value]
    for depth in range(most):
        level = [child for item in level for child in _children(item)]
        if not level:
            return depth
    return most


def larger_than(value: Any, most: int, numbers_only: bool = False) -> bool:
    """Whether it has more parts, or numbers, than that; stops counting there. A long number is as much as several."""
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
    """The value with every list cut to its first items."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, Mapping):
        return {name: beginning(part, most) for name, part in cast(Mapping[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [beginning(part, most) for part in cast(list[Any], value)[:most]]
    return value


def _children(value: Any) -> Collection[Any]:
    if type(value) in _LEAVES:  # most are: asking for a Mapping takes ten times as long
        return ()
    if isinstance(value, Mapping):
        return cast(Mapping[str, Any], value).values()
    return cast(list[Any], value) if isinstance(value, list | tuple) else ()
