"""The steps of an HTTP tool that sends several requests: their names, their values, and when each of them is sent.

A step sees the values of those before it, as `${steps.NAME.…}` in its request and as `steps.NAME.…` in its condition.
What it names is checked when the tool is defined.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.redaction import mask_values
from onetool.core.text import did_you_mean
from onetool.http.auth import encoded_parts
from onetool.http.definition import RequestStep
from onetool.http.errors import with_message
from onetool.http.placeholders import (
    STEPS,
    KnownNames,
    Placeholder,
    StepNames,
    TemplateError,
    argument_names,
    parse_text,
)
from onetool.http.selector import Selector, SelectorError

ARGS = "args"
SHORTEST_CREDENTIAL = 4  # characters: a shorter text is too common to be masked wherever it stands
STAND_IN = "value"  # for a value that is not known yet

# JMESPath: nodes whose first part is about all the data, and whose others are about what the first one gives.
_NARROWING = ("subexpression", "index_expression", "pipe", "projection", "value_projection", "filter_projection")


def step_names(steps: Sequence[RequestStep], arg_schema: Any) -> list[StepNames]:
    """What each step sees. TemplateError for names that can't be."""
    names = tuple(step.name for step in steps)
    for number, name in enumerate(names):
        pointer = f"/requests/{number}/name"
        if not name.isidentifier():
            raise TemplateError(f"{name!r} is no name: that is letters, digits and `_`, and no digit first", pointer)
        if name in names[:number]:
            raise TemplateError(f"there are two steps `{name}`: give each a name of its own", pointer)
    for name in sorted(argument_names(arg_schema)):
        if name.partition(".")[0] == STEPS:
            what = f"argSchema has an argument {name!r}, and `${{{STEPS}.…}}` stands for what earlier requests gave"
            raise TemplateError(f"{what}: give the argument another name, like `step_list`", "/requests")
    return [StepNames(names[:number], names[number:]) for number in range(len(names))]


def values_for(placeholders: Iterable[Placeholder], values: Mapping[str, Any]) -> dict[str, Any]:
    """What stands for placeholders, by their names. What a step did not give is absent, like an optional argument."""
    found: dict[str, Any] = {}
    for placeholder in placeholders:
        value: Any = values
        for part in placeholder.name.split(".")[1:]:
            if isinstance(value, Mapping) and part in value:
                value = value[part]
            elif isinstance(value, list | tuple) and part.isdecimal() and len(part) < 10 and int(part) < len(value):
                value = value[int(part)]
            else:
                break
        else:
            found[placeholder.name] = value
    return found


def stand_ins(placeholders: Iterable[Placeholder]) -> dict[str, str]:
    """Something for each placeholder, to see whether all else of a request is there."""
    return {placeholder.name: f"{STAND_IN}-{number}" for number, placeholder in enumerate(placeholders)}


class CredentialMask:
    """Masks what steps gave and later ones log in with: a server may show what it got."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add(self, placeholders: Iterable[Placeholder], given: Mapping[str, Any]) -> None:
        for placeholder in placeholders:
            value = given.get(placeholder.name)
            if isinstance(value, str) and len(value) >= SHORTEST_CREDENTIAL:
                forms = encoded_parts(value) if len(value) > 2 * SHORTEST_CREDENTIAL else []
                self._texts |= dict.fromkeys([value, *forms])

    def __call__(self, value: Any) -> Any:
        return mask_values(value, self._texts) if self._texts else value


def failed_step(failure: ToolFailure, name: str, done: Sequence[str]) -> ToolFailure:
    """The failure of a step, which ends the call. As long as nothing was done, wrong arguments are just that."""
    before = f"done: {', '.join(f'`{one}`' for one in done)}" if done else "no step was done before it"
    message = f"step `{name}` failed: {failure}; {before}"
    if isinstance(failure, BadArguments) and not done:
        wrong = BadArguments(message, failure.reason, failure.hints)
        wrong.argument = failure.argument
        return wrong
    return with_message(failure, message)


class StepCondition(Selector):
    """`when` of a step: JMESPath over `{args, steps}`, or one placeholder.

    As in JMESPath, null, false, and what is empty count as no; anything else counts as yes, the number 0, too.
    """

    _WHAT, _DATA = "condition", "the arguments and steps"

    def __init__(self, text: str, arg_schema: Mapping[str, Any], steps: StepNames) -> None:
        self._hole: Placeholder | None = None
        if "${" in text:
            self._hole = _only_placeholder(text, KnownNames(arg_schema, steps))
            return
        try:
            super().__init__(text)
        except SelectorError as error:
            raise TemplateError(f"it is no JMESPath: {error}", "/when") from None
        for path in _roots(self.tree):
            _check_root(path, arg_schema, steps)

    async def holds(self, args: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        if self._hole is not None:
            given = args if self._hole.step is None else values_for([self._hole], values)
            value = given.get(self._hole.name)
        else:
            value = await asyncio.to_thread(self.now, {ARGS: dict(args), STEPS: dict(values)})
        return not (value is None or value is False or (isinstance(value, str | list | dict) and not value))


def _only_placeholder(text: str, names: KnownNames) -> Placeholder:
    placeholder = parse_text(text, names, "/when").alone
    if placeholder is None:
        raise TemplateError(
            "a condition is one placeholder, or JMESPath: `steps.find.id == null`, `args.force`", "/when"
        )
    if placeholder.is_secret:
        near = did_you_mean(placeholder.name, names) or "a condition is about arguments and steps"
        raise TemplateError(f"`${{{placeholder.name}}}` is no argument; {near}", "/when")
    return placeholder


def _roots(node: Any) -> Iterator[tuple[str, ...]]:
    """The names that an expression takes from all the data, as far as the second one: `steps.find`."""
    if not isinstance(node, dict) or node.get("type") == "expref":
        return
    kind, parts = node.get("type"), node.get("children") or []
    if kind in _NARROWING and parts[0]["type"] == "not_expression":
        raise TemplateError("`!a.b` means `(!a).b` in JMESPath: write `!(a.b)`", "/when")
    if kind == "field":
        yield (node["value"],)
    elif kind == "subexpression" and [part["type"] for part in parts[:2]] == ["field", "field"]:
        yield parts[0]["value"], parts[1]["value"]
    else:
        for part in parts[:1] if kind in _NARROWING else parts:
            yield from _roots(part)


def _check_root(path: tuple[str, ...], arg_schema: Mapping[str, Any], steps: StepNames) -> None:
    first, *rest = path
    if path == ("null",):  # no field has this name, and so it is what it says
        return
    if first in ("true", "false"):
        raise TemplateError(f"{first} is a name in JMESPath: write it between backticks, `{first}`", "/when")
    if first not in (ARGS, STEPS):
        raise TemplateError(f"{first!r} is nothing here: a condition begins with `args.` or `steps.`", "/when")
    if first == STEPS and rest and (why := steps.why_unknown(rest[0])):
        raise TemplateError(why, "/when")
    known = argument_names(arg_schema)
    if first == ARGS and rest and rest[0] not in known and not arg_schema.get("additionalProperties"):
        near = did_you_mean(rest[0], known) or f"there are {', '.join(sorted(known)) or 'none'}"
        raise TemplateError(f"there is no argument {rest[0]!r}; {near}", "/when")
