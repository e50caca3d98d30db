"""Fills the template of a snippet so that no value can become code.

A template is Python with `{{ name }}` where values go. Each of them is first replaced by a mark, a name that occurs
nowhere else, and the code is parsed: the tree shows whether a mark stands for a value, inside of a string, or in a
comment. Then the value is written accordingly: as a literal, escaped, or on one line.
"""

import ast
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from onetool.script.parse import parse, syntax_error

PLACE = re.compile(r"\{\{[ \t]*([^\W\d]\w*)[ \t]*\}\}")
UNSUPPORTED = re.compile(r"\{%.*?%\}|\{#.*?#\}|\{\{.*?\}\}|\{[%{#]", re.DOTALL)
BINDS_TIGHTER = re.compile(r"[ \t]*(?:\*\*|[.\[(])")  # … than a sign: -2 ** 2, and 5.real is not a number
FORMAT = re.compile(r"[\w .,%+#<>=^:/-]*\Z")
RAW = re.compile(r"(?<!\w)(?:[rR]|[fFbB][rR]|[rR][fFbB])['\"]")
OCTAL = re.compile(r"\\[0-7]{1,2}\Z")  # a digit right behind it would belong to it
SHOWN = 40


class BodyError(ValueError):
    """The template can't be filled."""


class MarkPlace(NamedTuple):
    """The place of one mark: a `literal` has the source of its string, else of the outermost f-string around it."""

    kind: str  # code, literal, format, comment
    source: str = ""
    is_bytes: bool = False
    has_fields: bool = False  # braces have a meaning here
    in_f_string: bool = False


def fill_template(body: str, values: Mapping[str, Any]) -> str:
    """Return the code of a template with these values."""
    if (why := template_error(body, values)) is not None:
        raise BodyError(why)
    prefix = "onetool_value"
    while prefix in body:
        prefix += "_"
    names: list[str] = []

    def mark(found: re.Match[str]) -> str:
        names.append(found[1])
        return f"{prefix}{len(names)}_"

    code = PLACE.sub(mark, body)
    if not names:
        return code
    places = _places(code, re.compile(rf"{prefix}(\d+)_"))

    def value_at(found: re.Match[str]) -> str:
        name, place = names[int(found[1]) - 1], places[int(found[1])]
        try:
            return _written(values[name], place, code[: found.start()], code[found.end() :])
        except BodyError as error:
            raise BodyError(f"line {code.count(chr(10), 0, found.start()) + 1}: {name}: {error}") from None

    return re.sub(rf"{prefix}(\d+)_", value_at, code)


def template_error(body: str, names: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a template whose parameters have these names, or None."""
    for found in UNSUPPORTED.finditer(body):
        line = body.count("\n", 0, found.start()) + 1
        place = PLACE.fullmatch(found[0])
        if place is None:
            shown = found[0] if len(found[0]) <= SHOWN else f"{found[0][:SHOWN]}…"
            return f"line {line}: {shown!r} is not supported: write Python around {{{{ name }}}}"
        if place[1] not in names:
            return f"line {line}: it uses {place[1]}, which is not a parameter"
    return None


def _places(code: str, mark: re.Pattern[str]) -> dict[int, MarkPlace]:
    """Return the places of the marks in the code, by number."""
    tree = parse(code)
    if tree is None:
        error = syntax_error(code)
        raise BodyError("it can't be parsed" if error is None else f"line {error.lineno}: {mark.sub('…', error.msg)}")
    places: dict[int, MarkPlace] = {}
    _find(tree, code, mark, places, "", False)
    for found in mark.finditer(code):
        if int(found[1]) not in places:
            other = code[: found.start()] + found[0] * 2 + code[found.end() :]
            if (changed := parse(other)) is None or ast.dump(changed) != ast.dump(tree):
                line = code.count("\n", 0, found.start()) + 1
                raise BodyError(f"line {line}: a value can't be a part of a name: leave a space, or put it into quotes")
            places[int(found[1])] = MarkPlace("comment")
    return places


def _find(
    node: ast.AST, code: str, mark: re.Pattern[str], places: dict[int, MarkPlace], outer: str, is_format: bool
) -> None:
    """Add the places of the marks below a node. `outer` is the source of the outermost f-string around it."""
    for child in ast.iter_child_nodes(node):
        source, in_format = outer, is_format
        if isinstance(child, ast.Name) and (found := mark.fullmatch(child.id)):
            places[int(found[1])] = MarkPlace("code", in_f_string=bool(outer))
        elif isinstance(child, ast.Constant) and isinstance(child.value, str | bytes):
            is_bytes = isinstance(child.value, bytes)
            text = child.value.decode("latin-1") if isinstance(child.value, bytes) else child.value
            in_fields = isinstance(node, ast.JoinedStr)
            source = outer or ast.get_source_segment(code, child) or ""
            kind = "format" if in_fields and is_format else "literal"
            for found in mark.finditer(text):
                places[int(found[1])] = MarkPlace(kind, source, is_bytes, in_fields, bool(outer))
        elif isinstance(child, ast.JoinedStr):
            source = outer or ast.get_source_segment(code, child) or ""
            in_format = isinstance(node, ast.FormattedValue) and child is node.format_spec
        _find(child, code, mark, places, source if isinstance(child, ast.JoinedStr) else outer, in_format)


def _written(value: Any, place: MarkPlace, before: str, after: str) -> str:
    """Return the text of a value at its place between this code."""
    if place.kind == "code":
        return _in_code(value, place, after)
    text = value if isinstance(value, str) else "" if value is None else python_literal(value)
    if place.kind == "comment":
        return "".join(char if char.isprintable() else " " for char in text)
    if place.kind == "format":
        if not FORMAT.match(text):
            raise BodyError(f"{text!r} is not a format")
        return text
    if (len(before) - len(before.rstrip("\\"))) % 2:
        raise BodyError("a backslash comes right before it: write it as two")
    if place.is_bytes:
        text = text.encode().decode("latin-1")
    if RAW.search(place.source):
        if not text.isprintable() or not {"'", '"', "\\"}.isdisjoint(text) or (place.is_bytes and not text.isascii()):
            raise BodyError(f"a raw string has no escapes and can't contain {text!r}")
        written = text
    else:
        written = "".join(_escaped(char, place) for char in text)
        if text[:1].isdigit() and OCTAL.search(before):
            written = f"\\x{ord(text[0]):02x}" + written[1:]
    return written.replace("{", "{{").replace("}", "}}") if place.has_fields else written


def _in_code(value: Any, place: MarkPlace, after: str) -> str:
    if place.in_f_string and not isinstance(value, int | float | None):
        raise BodyError("text and data can't stand in the braces of an f-string: put them into a variable first")
    literal = python_literal(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"({literal})" if is_number and BINDS_TIGHTER.match(after) else literal


def _escaped(char: str, place: MarkPlace) -> str:
    # A quote that occurs nowhere in the source of the string can't end it.
    if char == "\\" or (char in "'\"" and char in place.source):
        return f"\\{char}"
    if place.is_bytes and char > "\x7f":
        return f"\\x{ord(char):02x}"
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def python_literal(value: Any) -> str:
    """Return plain data as a Python literal."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{python_literal(key)}: {python_literal(part)}' for key, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(python_literal, value))}]"
    return repr(value)
