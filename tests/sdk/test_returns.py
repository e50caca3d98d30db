"""What a signature says of a return value: by its hint, its docstring, or the literals in its source."""

from dataclasses import dataclass
from typing import Any, TypedDict

from helpers import each

from onetool.core.signature import signature
from onetool.sdk.pack import tool_from_function


class Row(TypedDict):
    id: int
    name: str


@dataclass
class Page:
    items: list[Row]
    total: int


def by_typed_dict() -> Row:
    """x."""
    return {"id": 1, "name": "a"}


def by_dataclass() -> Page:
    """x."""
    return Page([], 0)


def hint_wins() -> dict[str, int]:
    """x.

    Returns:
        {other, fields}
    """
    return {"a": 1}


def by_braces() -> dict:
    """x.

    Returns:
        A record {id: int, name, price: float, tags: list of words}, the newest.
    """
    return load()


def by_braces_of_each() -> list[dict[str, Any]]:
    """x.

    Returns:
        {name, state} of each.
    """
    return load()


def by_keys() -> dict:
    """x.

    Returns:
        A dict with the keys `date`, "open" and close.
    """
    return load()


def by_lines() -> dict:
    """x.

    Returns:
        What was found:
        - id (int): The number.
        - title (str): The words.
    """
    return load()


def by_literal(n: int = 1) -> dict:
    """x."""
    names = [str(n)]
    if not n:
        return None
    return {"items": [{"name": name, "n": 1, "at": load()} for name in names], "total": len(names), "ok": n > 1}


def by_variable():
    """x."""
    result = {"id": 1, "text": f"{load}"}
    print(result)
    return result


def two_literals(n: int) -> list:
    """x."""
    return [{"a": 1}] if n else []


def changed_later():
    """x."""
    result = {"id": 1}
    result["more"] = 2
    return result


def not_all_literals(n: int) -> dict:
    """x."""
    return {"a": 1} if n > 1 else load()


def inner_function() -> dict:
    """x."""

    def inner():
        return {"no": 1}

    return inner()


def load() -> Any:
    return {}


@each(
    ("function", "shape"),
    [
        (by_typed_dict, "{id: int, name}"),
        (by_dataclass, "{items: [{id: int, name}], total: int}"),
        (hint_wins, "{str: int}"),
        (by_braces, "{id: int, name, price: float, tags}"),
        (by_braces_of_each, "[{name, state}]"),
        (by_keys, "{date, open, close}"),
        (by_lines, "{id: int, title}"),
        (by_literal, "{items: [{name, n: int, at}], total: int, ok: bool}"),
        (by_variable, "{id: int, text}"),
        (two_literals, "list"),
        (changed_later, ""),
        (not_all_literals, "dict"),
        (inner_function, "dict"),
        (lambda: {"a": 1}, ""),
        (dict.copy, None),
    ],
)
def test_the_shape_of_a_return_value(function, shape):
    if shape is None:
        from onetool.sdk.returns import described_returns

        assert described_returns(function, None) is None
        return
    assert signature(tool_from_function(function, "p")).partition(" -> ")[2] == shape
