"""Hints that were written as text: what they name."""

import sys
from types import SimpleNamespace
from typing import Any, get_type_hints


def evaluated(hint: Any, names: dict[str, Any]) -> Any:
    """The hint that a text stands for, also inside of another hint. Text that names nothing stays as it is."""
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"it": hint}), names, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - text is evaluated, so it may raise anything
        return hint


def alias_value(alias: Any) -> Any:
    """What a `type` alias stands for. Before Python 3.12 one that contains itself is written as text."""
    value = alias.__value__
    return evaluated(value, vars(sys.modules[alias.__module__])) if isinstance(value, str) else value
