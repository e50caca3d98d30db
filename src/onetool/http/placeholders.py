"""`${name}` in the texts of a template: parsed once, when a tool is defined, and filled in for each call.

A name of the argSchema stands for an argument, any other for a secret of the app; which of the two is decided here, so
that no caller can give a secret's name a value. In a tool of several requests `${steps.login.user.0.id}` stands for a
part of what the step `login` gave. One pass: a value that contains `${…}` is data. `$${name}` stands for
the characters `${name}`. Before `{`, every two dollars are one, so that `$$${price}` is a dollar and a price. A dollar
elsewhere is a dollar.
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
from onetool.http.errors import UnmetNeedError

Values = Mapping[str, Any]  # what stands for each name in one call; an absent argument is not in it
Lookup = Callable[[str], str | None]

STEPS = "steps"  # the first part of the name of a step's value
MARK = "\ufdd0"  # no character, and promised never to become one

# Looked for from the first dollar of a row only, and with a bound: a text of nothing but `$` or `${` takes no longer.
_PLACEHOLDER = re.compile(r"(?<!\$)(\$+)\{([^{}]{0,200}\})?")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_UNFIT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f\"\\]")


class TemplateError(ValueError):
    """A template that can't ever work. `pointer` says where it is wrong, from `httpImpl` on (RFC 6901)."""

    def __init__(self, message: str, pointer: str) -> None:
        super().__init__(message)
        self.pointer = pointer


@contextmanager
def refused_at(pointer: str) -> Iterator[None]:
    """Turn a RequestRefusedError into a TemplateError with this pointer: the template can never work."""
    try:
        yield
    except ToolFailure as failure:
        raise TemplateError("; ".join([str(failure), *failure.hints]), pointer) from None


class Placeholder(NamedTuple):
    name: str
    is_secret: bool
    step: str | None = None  # the step that it is a value of, if it is one

    def bad(self, why: str) -> ToolFailure:
        """Return the error for a value that does not fit, without the value: it may be secret."""
        if self.step is not None:
            return ToolFailure(f"the value {self.name} {why}", reason="upstream_error")
        if self.is_secret:
            return ToolFailure(f"the secret {self.name} {why}", hints=[f"run: {binding_command(self.name)}"])
        wrong = BadArguments(f"the argument `{self.name}` {why}")
        wrong.argument = self.name  # nothing was sent
        return wrong


class TemplateText:
    """A text with placeholders. `alone` is its only placeholder if there is nothing else in it."""

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
        """The text with a mark for each placeholder, so that it can be split like any text."""
        return "".join(piece if isinstance(piece, str) else MARK for piece in self.pieces)

    def changed(self, change: Callable[[str], str]) -> "TemplateText":
        """Return a copy with everything but the placeholders changed."""
        return TemplateText(piece if isinstance(piece, Placeholder) else change(piece) for piece in self.pieces)

    def fill(self, values: Values, escape: Callable[[Placeholder, str], str]) -> str | None:
        """Fill in each value, escaped; None when one of them is absent, or null."""
        filled: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, Placeholder):
                value = values.get(piece.name)
                if value is None:
                    return None
                filled.append(escape(piece, as_text(piece, value)))
            else:
                filled.append(piece)
        return "".join(filled)

    def fill_whole(self, values: Values, escape: Callable[[Placeholder, str], str], whole: str) -> str:
        """Do the same for a text that can't be left out: it is part of a whole."""
        filled = self.fill(values, escape)
        if filled is None:
            absent = next(placeholder for placeholder in self.placeholders if values.get(placeholder.name) is None)
            raise absent.bad(f"is needed: it is part of {whole}")
        return filled


def unmarked(part: str, placeholders: Iterator[Placeholder]) -> TemplateText:
    """Return a part of a marked text with its placeholders, which are taken from those that are left."""
    first, *others = part.split(MARK)
    pieces: list[str | Placeholder] = [first]
    for other in others:
        pieces += [next(placeholders), other]
    return TemplateText(pieces)


def parse_text(text: str, arguments: Collection[str], pointer: str) -> TemplateText:
    """Find the placeholders of a text; TemplateError when one of them can't be meant."""
    if MARK in text:
        raise TemplateError("contains U+FDD0, which is not a character", pointer)
    pieces: list[str | Placeholder] = []
    end = 0
    for found in _PLACEHOLDER.finditer(text):
        dollars = len(found[1])
        pieces.append(text[end : found.start()] + "$" * (dollars // 2))
        if dollars % 2 == 0:
            end = found.end(1)  # an escaped one: the brace and what follows are text
            continue
        if found[2] is None:
            raise TemplateError("`${` has no `}` after its name; for the characters themselves write `$${`", pointer)
        pieces.append(_placeholder(found[2][:-1], arguments, pointer))
        end = found.end()
    return TemplateText([*pieces, text[end:]])


class StepNames(NamedTuple):
    """The steps of a tool as one of them sees them: only those before it have values."""

    before: tuple[str, ...]
    others: tuple[str, ...]  # itself, and those after it

    def why_unknown(self, name: str) -> str | None:
        """Return why there is no value of this step; None if there is one."""
        if name in self.before:
            return None
        known = did_you_mean(name, self.before) or (
            f"there are {', '.join(self.before)}" if self.before else "there is none before this one"
        )
        if name in self.others:
            return f"the step `{name}` has no value yet: only steps before this one have; {known}"
        return f"there is no step `{name}`; {known}"


class KnownNames(dict[str, Any]):
    """The names that a template may use: the arguments, each with its schema, and the steps of a tool that has some."""

    def __init__(self, arg_schema: Any, steps: StepNames | None = None) -> None:
        super().__init__(dict.fromkeys(argument_names(arg_schema)) | dict(properties(arg_schema)))
        self.steps = steps


def _placeholder(name: str, arguments: Collection[str], pointer: str) -> Placeholder:
    steps = arguments.steps if isinstance(arguments, KnownNames) else None
    if steps is not None and name.partition(".")[0] == STEPS:
        _, step, *path = [*name.split("."), ""] if name == STEPS else name.split(".")
        if "[" in name:
            raise TemplateError(f"`${{{name}}}`: a number stands between dots, like `${{steps.list.0.id}}`", pointer)
        if not step or not all(path):
            how = "write `${steps.STEP}`, or a part, `${steps.STEP.id}`"
            raise TemplateError(f"`${{{name}}}` names no value: {how}", pointer)
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
    """Return the names that an argSchema knows, wherever it says them of the arguments themselves."""
    names: set[str] = set()
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping) or id(one) in seen:
            continue
        seen.add(id(one))
        names.update(properties(one))
        if isinstance(required := one.get("required"), list | tuple):
            names.update(name for name in required if isinstance(name, str))
        waiting += in_place_subschemas(one)
        if isinstance(ref := one.get("$ref"), str) and ref.startswith("#"):
            found: Any = schema
            for part in ref[1:].split("/")[1:]:
                found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
            waiting.append(found)
    return frozenset(names)


def properties(schema: Any) -> Mapping[str, Any]:
    """Return the schema of each property; nothing for a schema without properties."""
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def gather(placeholders: Iterable[Placeholder], args: Mapping[str, Any], secret: Lookup) -> dict[str, Any]:
    """Gather the values of one call. Raises ToolFailure for a secret that is not set; an absent argument is left out.

    Values of steps stand among the arguments, under the names of their placeholders.
    """
    values: dict[str, Any] = {}
    for name, is_secret, _ in placeholders:
        if not is_secret:
            if name in args:
                values[name] = args[name]
        elif value := secret(name):
            values[name] = str(value)  # and no kind of text that hides itself: JSON would not take it
        else:
            need = secret_need(name)
            unset = UnmetNeedError(
                f"the secret {name} is not set, and the tool's request needs it",
                [f"run: {need.command}", f"if an argument is meant, add `{name}` to the tool's argSchema"],
                [need],
            )
            unset.reason = "secret_missing"
            raise unset
    return values


def as_text(placeholder: Placeholder, value: Any) -> str:
    """Write a value as a part of a text: the way JSON writes it, without the quotes."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= one <= "\udfff" for one in value):
            raise placeholder.bad("has half of a character in it (a lone surrogate), which can't be sent")
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
    kind = {list: "a list", tuple: "a list", dict: "an object", float: "no number"}.get(type(value), "no text")
    raise placeholder.bad(f"is {kind}: here it can only be a text, a number, true or false")
