"""Texts of a document in templates: nothing of them is ever taken for a placeholder."""

import re

_DOLLARS = re.compile(r"\$+(?=\{)")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


def as_it_is(text: str) -> str:
    """The template that stands for this text."""
    return _DOLLARS.sub(lambda found: found[0] * 2, text)


def hole(name: str) -> str:
    return f"${{{name}}}"


def is_header_name(text: str) -> bool:
    return bool(_HEADER.fullmatch(text))
