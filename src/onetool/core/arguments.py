"""The arguments of a call as Python gives them, by position and by name, to arguments by name alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from onetool.core.spec import ToolSpec
from onetool.core.spelling import spelled


def by_name(spec: ToolSpec, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for each parameter. TypeError where there are too many, or two for one.

    A parameter whose name Python can't say may be given by its spelling: `from_` for `from`.
    """
    given = dict(zip(spec.order, args, strict=False))
    if len(args) > len(given):
        raise TypeError(f"{spec.name} takes {len(spec.order)} arguments at the most, got {len(args)}")
    for word, value in named.items():
        name = meant(spec, word)
        if name in given:
            raise TypeError(f"{spec.name} got {name} twice")
        given[name] = value
    return given


def meant(spec: ToolSpec, word: str) -> str:
    """The parameter that a word in code stands for; the word itself where it stands for none."""
    if word in spec.order:
        return word
    return next((name for name in spec.order if spelled(name) == word), word)
