"""`${name}` in the strings of a template: parsed once, when a tool is defined, and filled in for each call.

A name in argSchema stands for an argument, any other for a secret of the app. This is decided when the tool is defined,
so no caller can give a secret's name a value. In a tool with several requests `${steps.login.user.0.id}` stands for a
part of the value of the step `login`. Values that contain `${…}` are not expanded again. `$${name}` stands for
the characters `${name}`. Before `{`, two dollars stand for one, so `$$${price}` is a dollar and a price. Other dollars
are literal.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import Any, NamedTuple

from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.schema_keywords import in_place_subschemas
from onetool.core.text import did_you_mean
from onetool.http.allowed_hosts import binding_command, secret_need
from onetool.http.definition import DEFAULT_REQUEST_BYTES
from onetool.http.errors import UnmetNeedError

Lookup = Callable[[str], str | None]

STEPS = "steps"  # the first part of the names of step values
MARK = "\ufdd0"  # a Unicode noncharacter, so no valid text contains it

# Matches begin at the first dollar of a run only, and are bounded, so a string of only `$` or `${` takes linear time.
_PLACEHOLDER = re.compile(r"(?<!\$)(\$+)\{([^{}]{0,200}\})?")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_UNFIT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f\"\\]")


class TemplateError(ValueError):
    """A template that can never work. `pointer` is the place of the mistake below `httpImpl` (RFC 6901).

    `others` are mistakes in other parts of the template.
    """

    def __init__(self, message: str, pointer: str, others: "Iterable[TemplateError]" = ()) -> None:
        super().__init__(message)
        self.pointer = pointer
        self.others = tuple(others)

    @property
    def all(self) -> "list[TemplateError]":
        return [self, *self.others]


class TemplateErrors:
    """The mistakes in the parts of a template."""

    def __init__(self) -> None:
        self._found: list[TemplateError] = []

    @contextmanager
    def part(self, pointer: str = "") -> Iterator[None]:
        """Keep a TemplateError of the block for `raise_all`. `pointer` is the place of the part."""
        try:
            yield
        except TemplateError as error:
            self._found += [TemplateError(str(one), f"{pointer}{one.pointer}") for one in error.all]

    def raise_all(self) -> None:
        """Raise the first mistake, with the others, if there is any."""
        if self._found:
            first, *others = self._found
            raise TemplateError(str(first), first.pointer, others)


@contextmanager
def refused_at(pointer: str) -> Iterator[None]:
    """Turn a RequestRefusedError into a TemplateError with this pointer."""
    try:
        yield
    except ToolFailure as failure:
        raise TemplateError("; ".join([str(failure), *failure.hints]), pointer) from None


class Placeholder(NamedTuple):
    name: str
    is_secret: bool
    step: str | None = None  # for a value of a step: its name

    def bad(self, why: str) -> ToolFailure:
        """Return the error for an invalid value, without the value itself, which may be secret."""
        if self.step is not None:
            return ToolFailure(f"the value {self.name} {why}", reason="upstream_error")
        if self.is_secret:
            return ToolFailure(f"the secret {self.name} {why}", hints=[f"run: {binding_command(self.name)}"])
        error = BadArguments(f"the argument `{self.name}` {why}")
        error.argument = self.name  # nothing was sent
        return error


class Values(dict[str, Any]):
    """The values of one call by name, without absent arguments. They may be filled in up to the size of a request."""

    def __init__(self, max_bytes: int = DEFAULT_REQUEST_BYTES) -> None:
        super().__init__()
        self._left = self._max_bytes = max_bytes

    def count(self, size: int, placeholder: Placeholder) -> None:
        """Count text that is filled in for a placeholder. Raise an error if the request gets too large."""
        self._left -= size
        if self._left < 0:
            limit = f"{self._max_bytes:,} bytes (limits.maxRequestBytes)"
            why = placeholder.bad(f"makes the request larger than the tool may send: {limit}")
            raise ToolFailure(str(why), reason="too_large", hints=("the tool's limits.maxRequestBytes can be raised",))


class TemplateText:
    """A string with placeholders. `alone` is its only placeholder, if the string consists of nothing else."""

    __slots__ = ("alone", "pieces", "placeholders")

    def __init__(self, pieces: Iterable[str | Placeholder]) -> None:
        self.pieces = tuple(piece for piece in pieces if piece != "")
        self.placeholders = tuple(piece for piece in self.pieces if isinstance(piece, Placeholder))
        self.alone = self.placeholders[0] if len(self.pieces) == len(self.placeholders) == 1 else None

    @property
    def literal(self) -> str:
        return "".join(piece for piece in self.pieces if isinstance(piece, str))

    @property
    def marked(self) -> str:
        """The string with a mark for each placeholder, so that it can be split like any string."""
        return "".join(piece if isinstance(piece, str) else MARK for piece in self.pieces)

    def changed(self, change: Callable[[str], str]) -> "TemplateText":
        """Return a copy with everything but the placeholders changed."""
        return TemplateText(piece if isinstance(piece, Placeholder) else change(piece) for piece in self.pieces)

    def fill(self, values: Values, escape: Callable[[Placeholder, str], str]) -> str | None:
        """Fill in the escaped values. Return None if one of them is absent or null."""
        filled: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, Placeholder):
                value = values.get(piece.name)
                if value is None:
                    return None
                filled.append(text := escape(piece, as_text(piece, value)))
                values.count(len(text), piece)
            else:
                filled.append(piece)
        return "".join(filled)

    def fill_whole(self, values: Values, escape: Callable[[Placeholder, str], str], whole: str) -> str:
        """Fill in the escaped values of a required string. Raise an error if one of them is absent or null."""
        filled = self.fill(values, escape)
        if filled is None:
            absent = next(placeholder for placeholder in self.placeholders if values.get(placeholder.name) is None)
            raise absent.bad(f"is required: it is part of {whole}")
        return filled


def unmarked(part: str, placeholders: Iterator[Placeholder]) -> TemplateText:
    """Return a part of a marked string with its placeholders, taken from `placeholders` in order."""
    first, *others = part.split(MARK)
    pieces: list[str | Placeholder] = [first]
    for other in others:
        pieces += [next(placeholders), other]
    return TemplateText(pieces)


def parse_text(text: str, arguments: Collection[str], pointer: str) -> TemplateText:
    """Parse the placeholders of a string. Raise TemplateError if one of them is invalid."""
    if MARK in text:
        raise TemplateError("contains U+FDD0, which is not a character", pointer)
    pieces: list[str | Placeholder] = []
    end = 0
    for found in _PLACEHOLDER.finditer(text):
        dollars = len(found[1])
        pieces.append(text[end : found.start()] + "$" * (dollars // 2))
        if dollars % 2 == 0:
            end = found.end(1)  # an escaped placeholder: the brace and the rest are literal
            continue
        if found[2] is None:
            raise TemplateError("`${` has no `}` after its name; for the characters themselves write `$${`", pointer)
        pieces.append(_placeholder(found[2][:-1], arguments, pointer))
        end = found.end()
    return TemplateText([*pieces, text[end:]])


class StepNames(NamedTuple):
    """The names of a tool's steps as seen from one of them: only earlier steps have values."""

    before: tuple[str, ...]
    others: tuple[str, ...]  # the step itself and all later steps

    def why_unknown(self, name: str) -> str | None:
        """Return why this step has no value; None if it has one."""
        if name in self.before:
            return None
        known = did_you_mean(name, self.before) or (
            f"earlier steps: {', '.join(self.before)}" if self.before else "this is the first step"
        )
        if name in self.others:
            return f"the step `{name}` has no value yet: only steps before this one have; {known}"
        return f"there is no step `{name}`; {known}"


class KnownNames(dict[str, Any]):
    """The names that a template may use: the arguments with their schemas and, if the tool has several, the steps."""

    def __init__(self, arg_schema: Any, steps: StepNames | None = None) -> None:
        super().__init__(dict.fromkeys(argument_names(arg_schema)) | dict(properties(arg_schema)))
        self.steps = steps


def _placeholder(name: str, arguments: Collection[str], pointer: str) -> Placeholder:
    steps = arguments.steps if isinstance(arguments, KnownNames) else None
    if steps is not None and name.partition(".")[0] == STEPS:
        _, step, *path = [*name.split("."), ""] if name == STEPS else name.split(".")
        if "[" in name:
            raise TemplateError(f"`${{{name}}}`: write a number between dots, as in `${{steps.list.0.id}}`", pointer)
        if not step or not all(path):
            how = "write `${steps.STEP}`, or a part, `${steps.STEP.id}`"
            raise TemplateError(f"`${{{name}}}` does not refer to a value: {how}", pointer)
        if why := steps.why_unknown(step):
            raise TemplateError(f"`${{{name}}}`: {why}", pointer)
        return Placeholder(name, is_secret=False, step=step)
    if name in arguments and not _UNFIT_IN_NAMES.search(name):
        return Placeholder(name, is_secret=False)
    if _SECRET.fullmatch(name):
        return Placeholder(name, is_secret=True)
    raise TemplateError(
        f"`${{{name}}}` is not a property of argSchema, and can't be the name of a secret either;"
        " for the characters themselves write `$${`",
        pointer,
    )


def argument_names(schema: Any) -> frozenset[str]:
    """Return the names of all arguments that an argSchema mentions at any place that applies to the arguments."""
    names: set[str] = set()
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        names.update(properties(node))
        if isinstance(required := node.get("required"), list | tuple):
            names.update(name for name in required if isinstance(name, str))
        waiting += in_place_subschemas(node)
        if isinstance(ref := node.get("$ref"), str) and ref.startswith("#"):
            target: Any = schema
            for part in ref[1:].split("/")[1:]:
                key = part.replace("~1", "/").replace("~0", "~")
                target = target.get(key) if isinstance(target, Mapping) else None
            waiting.append(target)
    return frozenset(names)


def properties(schema: Any) -> Mapping[str, Any]:
    """Return the schema of each property; empty for a schema without properties."""
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def gather(
    placeholders: Iterable[Placeholder],
    args: Mapping[str, Any],
    secret: Lookup,
    max_bytes: int = DEFAULT_REQUEST_BYTES,
) -> Values:
    """Return the values of one call, without absent arguments. Raise ToolFailure for a secret that is not set.

    Values of steps are among the arguments, under the names of their placeholders.
    """
    values = Values(max_bytes)
    for name, is_secret, _ in placeholders:
        if not is_secret:
            if name in args:
                values[name] = args[name]
        elif value := secret(name):
            values[name] = str(value)  # a plain str: subclasses that hide their text can't be encoded as JSON
        else:
            need = secret_need(name)
            unset = UnmetNeedError(
                f"the secret {name} is not set, and the tool's request needs it",
                [f"run: {need.command}", f"for an argument, add `{name}` to the tool's argSchema"],
                [need],
            )
            unset.reason = "secret_missing"
            raise unset
    return values


def as_text(placeholder: Placeholder, value: Any) -> str:
    """Return a value as text: as in JSON, without quotes."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise placeholder.bad("contains a lone surrogate, which can't be sent")
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        try:
            return int.__repr__(value)
        except ValueError:
            raise placeholder.bad("is a number with too many digits") from None
    if isinstance(value, float) and isfinite(value):
        return float.__repr__(value)
    kind = {list: "a list", tuple: "a list", dict: "an object", float: "not a number"}.get(type(value), "not a string")
    raise placeholder.bad(f"is {kind}: only a string, a number, true or false is allowed here")
