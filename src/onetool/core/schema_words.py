"""What a validator found, in the words that a model needs to repair its call."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from jsonschema_rs import ValidationError

from onetool.core.call import Problem
from onetool.core.nearest import did_you_mean
from onetool.core.secrecy import MASK, sounds_secret

UNKNOWN = "unknown argument"
_SHOWN = 60  # characters of a wrong value that are worth showing
_LONGEST_PATH = 200
_ALTERNATIVES = 12  # enum members that are worth listing

Path = tuple[str | int, ...]

_EXPECTED: dict[str, Callable[[Any], str]] = {
    "Type": lambda kind: " or ".join(kind.types),
    "Enum": lambda kind: _one_of(kind.options),
    "Constant": lambda kind: _json(kind.expected_value),
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
    "BacktrackLimitExceeded": lambda _: "text that its pattern can check in time",
    "Format": lambda kind: f"a {kind.format}",
    "Custom": lambda _: "items that differ from each other",  # ours: uniqueItems, and no other
    "Contains": lambda _: "at least one matching item",
    "Not": lambda kind: f"anything but {_json(kind.schema)}",
    "FalseSchema": lambda _: "nothing here",
    "OneOfMultipleValid": lambda _: "a value that fits exactly one of the alternatives",
}


def describe(error: ValidationError, secret: frozenset[str], known: Iterable[str] = ()) -> list[Problem]:
    """One error as problems. `known` are the tool's parameters, for near misses; values of `secret` ones are masked."""
    kind: Any = error.kind
    path: Path = tuple(error.instance_path)
    name = type(kind).__name__
    if name == "Required":
        return [_problem((*path, kind.property), "a value (required)", "nothing")]
    if name in ("AdditionalProperties", "UnevaluatedProperties"):
        return [_unknown(path, extra, known) for extra in kind.unexpected]
    if name in ("AnyOf", "OneOfNotValid"):
        return _no_alternative(error, kind.context, secret, known)
    if name == "PropertyNames":
        return [_problem(path, "other property names", str(kind.error.message))]
    expected = _EXPECTED.get(name, lambda _: f"a value that fits `{kind.name}`")(kind)
    return [_problem(path, expected, _shown(error, path, secret))]


def _no_alternative(
    error: ValidationError, branches: list[list[ValidationError]], secret: frozenset[str], known: Iterable[str]
) -> list[Problem]:
    """Nothing fits. If one alternative has the right type, its own complaints help most; else say what would fit."""
    path: Path = tuple(error.instance_path)
    near = [errors for errors in branches if not any(_wrong_type_at(one, path) for one in errors)]
    if len(near) == 1:
        return [problem for one in near[0] for problem in describe(one, secret, known)]
    alternatives = [_alternative(errors, path) for errors in (near or branches)]
    expected = " or ".join(dict.fromkeys(text for text in alternatives if text)) or "one of its alternatives"
    return [_problem(path, expected, _shown(error, path, secret))]


def _wrong_type_at(error: ValidationError, path: Path) -> bool:
    return type(error.kind).__name__ in ("Type", "Constant", "Enum") and tuple(error.instance_path) == path


def _alternative(errors: list[ValidationError], path: Path) -> str:
    here = [one for one in errors if tuple(one.instance_path) == path]
    if not here:
        return ""
    kind: Any = here[0].kind
    if type(kind).__name__ == "Required":
        return f"an object with {kind.property}"
    expected = _EXPECTED.get(type(kind).__name__)
    return expected(kind) if expected else ""


def _unknown(path: Path, name: str, known: Iterable[str]) -> Problem:
    hint = None
    if not path:
        names = sorted(known)
        hint = did_you_mean(name, names) or (f"known: {', '.join(names)}" if names else "it takes no arguments")
    return Problem(path=_dotted((*path, name)), pointer=_pointer((*path, name)), expected="", got=UNKNOWN, hint=hint)


def _problem(path: Path, expected: str, got: str) -> Problem:
    return Problem(path=_dotted(path), pointer=_pointer(path), expected=expected, got=got)


def _shown(error: ValidationError, path: Path, secret: frozenset[str]) -> str:
    if any(step in secret or (isinstance(step, str) and sounds_secret(step)) for step in path):
        return MASK
    value: Any = error.instance
    if isinstance(value, Mapping):
        # A whole object may hold a secret; its keys say enough.
        return f"object with {', '.join(map(str, cast(Mapping[str, Any], value))) or 'nothing'}"[:_SHOWN]
    if isinstance(value, list):
        return f"array of {len(cast(list[Any], value))}"
    return f"{_type_name(value)} {_json(value)}" if value is not None else "null"


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return {"int": "integer", "float": "number", "str": "string"}.get(name := type(value).__name__, name)


def _one_of(options: list[Any]) -> str:
    shown = ", ".join(_json(option) for option in options[:_ALTERNATIVES])
    more = len(options) - _ALTERNATIVES
    return f"one of {shown}" + (f" and {more} more" if more > 0 else "")


def _json(value: Any) -> str:
    if isinstance(value, str):
        value = value[: _SHOWN + 1]  # of megabytes, no more than is shown
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _dotted(path: Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    return text if len(text) <= _LONGEST_PATH else text[: _LONGEST_PATH - 1] + "…"


def _pointer(path: Path) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)[:_LONGEST_PATH]
