"""Templates filled in a small world of their own: the values, and filters that can't make much out of little.

The engine knows one kind of number: 2.0 comes back as 2.
"""

import json
from collections.abc import Mapping
from typing import Any

from onetool.script.snippets.literals import as_text

FUEL = 100_000  # steps: a loop over some thousand items
LONGEST = 1_000_000  # characters of what comes out
PRIVATE = range(0xF0000, 0xFFFFE)  # characters that mean nothing to anybody; no text has them all
# What could tell of more than the values, fill the memory out of a number, or pass text on as if it were code.
NO_GLOBALS = ("cycler", "debug", "joiner", "namespace")
NO_FILTERS = ("batch", "e", "escape", "format", "indent", "pprint", "safe", "slice", "wordwrap")


class BodyError(ValueError):
    """The template can't be filled."""


def fill(body: str, values: Mapping[str, Any]) -> tuple[str, list[Any], str]:
    """The text with a mark in the place of each value that it puts out, those values, and the mark's character."""
    from minijinja import Environment, TemplateError  # 25 ms, for those who use snippets

    taken = body + json.dumps(values, ensure_ascii=False, default=str, skipkeys=True)
    mark = next(chr(code) for code in PRIVATE if chr(code) not in taken)
    out: list[Any] = []
    size = 0

    def emit(value: Any) -> str:
        nonlocal size
        text = as_text(value)
        if mark in text or hasattr(value, "__html__"):  # what a macro, a set block or a filter block has put together
            raise BodyError("what a block or a macro puts together can't be put out; write it where it belongs")
        size += len(text)
        if size > LONGEST:
            raise BodyError(f"it grows longer than {LONGEST:,} characters")
        out.append(value)
        return f"{mark}{len(out) - 1}{mark}"

    env = Environment(
        globals=values,
        filters={"join": _join, "replace": _replace, "tojson": _tojson},
        fuel=FUEL,
        undefined_behavior="strict",
        finalizer=emit,
        auto_escape_callback=lambda _: "html",  # so that the text of a macro is told from a value; marks have no HTML
        keep_trailing_newline=True,
        debug=False,
        pycompat=False,
    )
    for name in NO_GLOBALS:
        if name not in values:
            env.remove_global(name)
    for name in NO_FILTERS:
        env.remove_filter(name)
    try:
        text = env.render_str(body)
    except TemplateError as error:
        raise BodyError(_words(error, body, env, values)) from None
    if len(text) > LONGEST:
        raise BodyError(f"it grows longer than {LONGEST:,} characters")
    return text, out, mark


def _words(error: Any, body: str, env: Any, values: Mapping[str, Any]) -> str:
    if error.kind == "UndefinedError":
        strange = sorted(env.undeclared_variables_in_str(body) - set(values) - {"range", "dict"})
        return f"it uses {', '.join(strange) or 'something'}, which is not there"
    if error.kind == "OutOfFuel":
        return f"it takes more than {FUEL:,} steps"
    return str(error.message).replace("(in <string>:", "(line ").replace("\n", " ")


def _bounded(size: int) -> None:
    if size > LONGEST:
        raise BodyError(f"it grows longer than {LONGEST:,} characters")


def _join(value: Any, by: str = "") -> str:
    parts = [as_text(part) for part in value]
    _bounded(sum(map(len, parts)) + len(by) * len(parts))
    return by.join(parts)


def _replace(value: Any, old: str, new: str) -> str:
    text = as_text(value)
    _bounded(len(text) + (len(new) - len(old)) * text.count(old))
    return text.replace(old, new)


def _tojson(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
