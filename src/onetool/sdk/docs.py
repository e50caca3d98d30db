"""What a docstring says of a function, of its parameters, and by way of example."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec


class FunctionDocs(msgspec.Struct, frozen=True):
    description: str
    parameters: dict[str, str]
    examples: tuple[str, ...] = ()


def read_docs(function: Callable[..., Any]) -> FunctionDocs:
    """Google, NumPy and reST style alike. A function without a docstring is described by its name."""
    text = inspect.getdoc(function)
    if not text:
        return FunctionDocs(function.__name__.replace("_", " "), {})
    from docstring_parser import parse

    docs = parse(text)
    description = "\n\n".join(part for part in (docs.short_description, docs.long_description) if part)
    parameters = {param.arg_name: _one_line(param.description) for param in docs.params if param.description}
    examples = tuple(example.description for example in docs.examples if example.description)
    return FunctionDocs(description or text, parameters, examples)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
