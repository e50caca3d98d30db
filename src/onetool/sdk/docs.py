"""Reads docstrings: description, parameters, return value and examples, in Google, NumPy and reST style.

The style is detected by the headings, because trying all parsers on every docstring would take longer than everything
else that is done for a tool.
"""

import re
from collections.abc import Callable
from functools import cache
from inspect import cleandoc
from typing import Any, Literal

import msgspec

from onetool.core.text import lazy_pattern

Parse = Callable[[str], Any]

_GOOGLE = lazy_pattern(
    r"^(Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters|Returns?|Yields?"
    r"|Raises|Except|Exceptions|Attributes|Examples?):[ \t]*$",
    re.MULTILINE,
)
_NUMPY = lazy_pattern(
    r"^(Parameters|Params|Arguments|Other Parameters|Returns?|Yields?|Raises|Warns|Attributes|Examples?|Notes?|See Also"
    r"|References)[ \t]*\n-{3,}[ \t]*$",
    re.MULTILINE,
)
_REST = lazy_pattern(
    r"^:(?:param(?:eter)?|arg(?:ument)?|key(?:word)?|type|attribute|i?var|returns?|rtype|yields?|raises?|exception)\b[^:\n]*:",
    re.MULTILINE,
)
_STYLES: tuple[tuple[str, Any, Literal["google", "numpy", "rest"]], ...] = (
    ("\n---", _NUMPY, "numpy"),
    (":", _GOOGLE, "google"),
    ("\n:", _REST, "rest"),
)
# `Returns: the text` on one line; the parser expects the text below.
_ONE_LINE = lazy_pattern(r"^(Returns?|Yields?|Raises):[ \t]+(?=\S)", re.MULTILINE)
# The simplest sections: `Args:` with names and descriptions, and `Returns:` without a type. They are parsed here:
# importing the docstring library takes a tenth of the time of a short command.
_ARG = lazy_pattern(r"    ([a-z_]\w*): (\S[^\n]*(?:\n {8}\S[^\n]*)*)(?:\n|$)")
_PLAIN = lazy_pattern(
    r"(?:Args:\n((?:    [a-z_]\w*: \S[^\n]*(?:\n {8}\S[^\n]*)*(?:\n|$))+))?"
    r"(?:\n?Returns:\n((?!\s*[^:\s]+:|[^:]*\]:)(?:    \S[^\n]*(?:\n|$))+))?"
)


class FunctionDocs(msgspec.Struct, frozen=True):
    """A parsed docstring. `description` is the text without the sections, as shown to models."""

    description: str = ""
    parameters: dict[str, str] = {}
    returns: str | None = None
    examples: tuple[str, ...] = ()


def read_docs(function: Callable[..., Any]) -> FunctionDocs:
    """Return a function's docs. Without a docstring, the description is the function's name."""
    docs = read_text(function.__doc__ or "")
    if docs.description:
        return docs
    return msgspec.structs.replace(docs, description=function.__name__.replace("_", " ").strip())


def read_text(docstring: str) -> FunctionDocs:
    """Parse any docstring. Unreadable parts are left out: a broken docstring never stops a pack from loading."""
    text = _ONE_LINE.sub(r"\1:\n    ", cleandoc(docstring)) if docstring else ""
    if not text:
        return FunctionDocs()
    # Search for the characters in each kind of heading first: this is faster than the patterns, most of which are
    # rarely needed.
    for sign, heading, style in _STYLES:
        if sign in f"\n{text}" and (match := heading.search(text)):
            if heading is _GOOGLE and (plain := _PLAIN.fullmatch(text, match.start())):
                parameters = {name: _one_line(lines) for name, lines in _ARG.findall(plain[1] or "")}
                return FunctionDocs(text[: match.start()].strip(), parameters, _one_line(plain[2]) or None)
            return _read_sections(text, match.start(), _parser(style))
    return FunctionDocs(text)


def _read_sections(text: str, start: int, parse: Parse) -> FunctionDocs:
    description = text[:start].strip()
    try:
        docs = parse(text)
    except Exception:  # noqa: BLE001 - people write docstrings, so they may contain anything
        return FunctionDocs(description)
    parameters: dict[str, str] = {}
    for param in docs.params:
        if line := _one_line(param.description):  # `x, y : float` describes both; reST escapes stars
            parameters |= {name.strip(" \\*`"): line for name in param.arg_name.split(",")}
    returns = _one_line(docs.returns.description) if docs.returns else ""
    examples: list[str] = []  # code with its description
    for example in docs.examples:
        parts = (getattr(example, "snippet", None), example.description)
        examples.append("\n".join(part.strip() for part in parts if part and part.strip()))
    return FunctionDocs(description, parameters, returns or None, tuple(filter(None, examples)))


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


@cache
def _parser(style: Literal["google", "numpy", "rest"]) -> Parse:
    if style == "rest":
        from docstring_parser.rest import parse

        return parse
    if style == "numpy":
        from docstring_parser.numpydoc import NumpydocParser

        return NumpydocParser().parse

    from docstring_parser.google import DEFAULT_SECTIONS, GoogleParser, Section, SectionType

    parameters, returns = SectionType.MULTIPLE, SectionType.SINGULAR_OR_MULTIPLE
    more = [
        Section("Keyword Args", "param", parameters),
        Section("Keyword Arguments", "param", parameters),
        Section("Other Parameters", "param", parameters),
        Section("Return", "returns", returns),
        Section("Yield", "yields", returns),
    ]
    return GoogleParser([*DEFAULT_SECTIONS, *more]).parse
