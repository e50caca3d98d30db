"""What a type annotation asks of a value, which kinds of YAML values it takes, and the words for both."""

from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from onetool.config.node import Node
from onetool.services.secrets import Secret

LONGEST = 40  # characters of a wrong text that an error repeats

_KINDS: dict[type, str] = {
    str: "text", bool: "bool", int: "whole", float: "fraction", NoneType: "nothing", list: "list", dict: "mapping",
}  # fmt: skip
_TAKES: dict[Any, set[str]] = {
    str: {"text"},
    Secret: {"text"},
    Path: {"text"},
    int: {"whole"},
    float: {"whole", "fraction"},
    bool: {"bool"},
    NoneType: {"nothing"},
}
_WORDS: dict[Any, str] = {
    str: "a text",
    Secret: "a text",
    Path: "a path",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "nothing",
}


class Choice(msgspec.Struct, frozen=True):
    """One type that will do, within limits."""

    type: Any
    limits: tuple[msgspec.Meta, ...] = ()


def choices_of(wanted: Any) -> list[Choice]:
    """`Annotated[int, …] | None` -> int within its limits, None."""
    if get_origin(wanted) in (Union, UnionType):
        return [choice for member in get_args(wanted) for choice in choices_of(member)]
    if get_origin(wanted) is Annotated:
        bare, *notes = get_args(wanted)
        return [Choice(bare, tuple(note for note in notes if isinstance(note, msgspec.Meta)))]
    return [Choice(wanted)]


def kind_of(value: Any) -> str:
    return next(_KINDS[kind] for kind in type(value).__mro__ if kind in _KINDS)


def takes(wanted: Any) -> set[str]:
    """The kinds of values that a type takes."""
    if wanted in _TAKES:
        return _TAKES[wanted]
    if get_origin(wanted) is Literal:
        return {kind_of(value) for value in get_args(wanted)}
    if get_origin(wanted) in (list, tuple):
        return {"list"}
    return {"mapping", "text"} if hasattr(wanted, "shorthand") else {"mapping"}


def empty_for(wanted: Any) -> list[Node] | dict[str, Node] | None:
    """What nothing at all means to this type: an empty list or mapping, where it takes one."""
    kinds = takes(wanted)
    if "mapping" in kinds:
        return {}
    return [] if "list" in kinds else None


def expected(wanted: Any) -> str:
    """The words for what was wanted: a whole number."""
    choices = [choice.type for choice in choices_of(wanted) if choice.type is not NoneType]
    return _listed([words for choice in choices for words in _words_for(choice)])


def got(node: Node, wanted: Any = Any) -> str:
    """The words for what came: the text 'abc'. Never a secret, nor what stands where one belongs."""
    if node.written:
        return f"the value of {node.written}"
    kind = kind_of(node.value)
    hidden = any(choice.type is Secret for choice in choices_of(wanted))
    if kind == "text":
        return "a text" if hidden else f"the text {_cut(node.value)!r}"
    if kind in ("whole", "fraction"):
        return "a number" if hidden else f"the number {_cut(str(node.value))}"
    return {"bool": str(node.value).lower(), "nothing": "nothing", "list": "a list", "mapping": "a mapping"}[kind]


def broken_limit(value: Any, limits: tuple[msgspec.Meta, ...]) -> str | None:
    """What the value should have been, when it is outside of its limits: at least 1."""
    for limit in limits:
        if limit.min_length is not None and len(value) < limit.min_length:
            return "not be empty"
        if limit.ge is not None and limit.le is not None and not limit.ge <= value <= limit.le:
            return f"be from {limit.ge} to {limit.le}"
        if limit.ge is not None and value < limit.ge:
            return f"be at least {limit.ge}"
        if limit.gt is not None and value <= limit.gt:
            return f"be more than {limit.gt}"
    return None


def _words_for(wanted: Any) -> list[str]:
    if get_origin(wanted) is Literal:
        return [str(value) for value in get_args(wanted)]
    if wanted in _WORDS:
        return [_WORDS[wanted]]
    return [{"list": "a list", "mapping": "a mapping", "text": "a text"}[kind] for kind in sorted(takes(wanted))]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _listed(words: list[str]) -> str:
    words = list(dict.fromkeys(words))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
