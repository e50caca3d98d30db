"""What a tool is known by: the words of its name, description, parameters and tags."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from onetool.core.schema_parts import inside
from onetool.core.spec import ToolSpec
from onetool.services.search.everyday import EVERYDAY
from onetool.services.search.words import words

Texts = tuple[list[str], ...]
"""The words of one tool, field by field: name, description, parameters, tags."""


def texts(spec: ToolSpec) -> Texts:
    # Somebody chose each word of a name or a tag: even `get` or `now` may be what tells two tools apart.
    return (
        words(spec.name),
        _telling(spec.description),
        _telling("\n".join(_said_of_parameters(spec.input_schema))),
        words("\n".join(spec.tags)),
    )


def _telling(text: str) -> list[str]:
    return [word for word in words(text) if word not in EVERYDAY]


def _said_of_parameters(schema: Any) -> Iterator[str]:
    """Names and descriptions, outer ones first. A schema may be anything: it is read here, not judged."""
    todo = deque([schema])
    while todo:
        node = todo.popleft()
        if isinstance(node, list):
            todo.extend(node)
        elif isinstance(node, Mapping):
            yield from _said_here(node)
            todo.extend(inside(node))


def _said_here(node: Mapping[str, Any]) -> Iterator[str]:
    description, properties = node.get("description"), node.get("properties")
    if isinstance(description, str):
        yield description
    if isinstance(properties, Mapping):
        yield from map(str, properties)
