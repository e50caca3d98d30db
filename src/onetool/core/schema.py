"""JSON Schema (draft 2020-12): compile once, validate often, and say what is wrong."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from copy import deepcopy
from itertools import islice
from typing import Any, cast

import jsonschema_rs

from onetool.core.call import Problem
from onetool.core.errors import SchemaError
from onetool.core.schema_guard import guard
from onetool.core.schema_upgrade import upgrade
from onetool.core.schema_words import describe
from onetool.core.secrecy import secret_names

META_SCHEMA = "https://json-schema.org/draft/2020-12/schema"  # comes with the validator, is never fetched
MOST_PROBLEMS = 20
EXPLAIN_NODES = 2_000
# Keywords that may bring in properties from elsewhere: closing such a schema needs `unevaluatedProperties`.
_BORROWING = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas")
# A regular expression in a schema is a stranger's: small programs only, and a bounded search.
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=256 * 1024, dfa_size_limit=256 * 1024)


class CompiledSchema:
    """A schema that is ready: `check(value)` gives the problems, none when the value fits."""

    __slots__ = ("_explain_depth", "_known", "_secret", "_validator", "is_valid")

    def __init__(self, schema: Mapping[str, Any], *, closed: bool = False) -> None:
        self._explain_depth = guard(schema)
        self._known = properties_of(schema)
        self._secret = secret_names(schema)
        self._validator = _compile(close(schema) if closed else schema)
        self.is_valid = self._validator.is_valid

    def check(self, value: Any) -> list[Problem]:
        try:
            return [] if self.is_valid(value) else self._explain(value)
        except (ValueError, RecursionError) as error:
            # Not JSON data at all: an object, a set, a number as a key, half of a surrogate pair.
            return [Problem(path="", expected="JSON data", got=str(error))]

    def _explain(self, value: Any) -> list[Problem]:
        """What is wrong with it. Listing costs far more than telling that something is, so large values get less."""
        if self._explain_depth is not None and deeper_than(value, self._explain_depth):
            got = f"a value nested deeper than {self._explain_depth} levels, too deep to say where it is wrong"
            return [Problem(path="", expected="a value that fits its schema", got=got)]
        errors = [self._first_error(value)] if larger_than(value, EXPLAIN_NODES) else self._validator.iter_errors(value)
        problems = (problem for error in errors for problem in describe(error, self._secret, self._known))
        return list(islice(problems, MOST_PROBLEMS))

    def _first_error(self, value: Any) -> jsonschema_rs.ValidationError:
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return error
        raise AssertionError("a value was found invalid and then valid")


def _compile(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    try:
        return _validator(schema)
    except ValueError as error:
        with suppress(ValueError):
            return _validator(upgrade(schema))
        raise SchemaError(_words(error, schema)) from None


def _validator(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    thawed = deepcopy(dict(schema))  # the validator takes plain lists only
    return jsonschema_rs.Draft202012Validator(thawed, offline=True, pattern_options=_PATTERNS)


def _words(error: ValueError, schema: Mapping[str, Any]) -> str:
    """Everything that is wrong with a schema: the compiler stops at the first fault, the meta-schema finds them all."""
    if not isinstance(error, jsonschema_rs.ValidationError):
        return str(error)
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


def deeper_than(value: Any, depth: int) -> bool:
    level: list[Any] = [value]
    for _ in range(depth + 1):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def larger_than(value: Any, nodes: int) -> bool:
    """Whether it has more parts than that; stops counting there."""
    waiting: list[Any] = [value]
    while waiting:
        nodes -= 1
        children = _children(waiting.pop())
        if nodes < 0 or len(children) > nodes:
            return True
        waiting.extend(children)
    return False


def _children(value: Any) -> Collection[Any]:
    if isinstance(value, Mapping):
        return cast(Mapping[str, Any], value).values()
    return cast(list[Any], value) if isinstance(value, list | tuple) else ()
