"""Two things that people write, that are plain enough, and that the YAML parser stumbles over.

- `{token: ${NAME}}`: inside braces or brackets the `{` of an unquoted placeholder begins a mapping. It gets quotes.
- `"\\ud83d\\ude00"`: JSON writes one character as a pair of escapes, which YAML takes for two wrong ones.

A text is mended only where the parser failed, exactly there; so nothing that can be read is ever changed. Lines stay.
"""

import re

NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"

_PLACEHOLDER = re.compile(r"\$\{" + NAME + r"\}")
_BEFORE = re.compile(r"""(?:[\[{,]|[:?][ \t]|["']:|^)[ \t]*""")  # what can stand before an unquoted text
_AFTER = re.compile(r"(?:\$\{" + NAME + r"\}|:(?=[^\s,\[\]{}])|(?<!\s)#|[^\s:#,\[\]{}]|[ \t]+(?=[^\s#,\[\]{}]))*")
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def chances(text: str) -> int:
    """How often this text can need mending, at most."""
    return text.count("${") + text.count("\\u")


def mended(text: str, index: int) -> str | None:
    """The text with the one thing mended that stopped the parser at this place; None when it was something else."""
    return _with_quotes(text, index - 1) or _with_one_escape(text, index - 2)


def _with_quotes(text: str, dollar: int) -> str | None:
    if dollar < 0 or not _PLACEHOLDER.match(text, dollar):
        return None
    line = text.rfind("\n", 0, dollar) + 1
    start = line + max(before.end() for before in _BEFORE.finditer(text[line:dollar]))
    after = _AFTER.match(text, dollar)
    end = after.end() if after else dollar
    quoted = text[start:end].replace("'", "''")
    return f"{text[:start]}'{quoted}'{text[end:]}"


def _with_one_escape(text: str, start: int) -> str | None:
    pair = _PAIR.match(text, start) if start >= 0 else None
    if not pair:
        return None
    code = 0x10000 + ((int(pair[1], 16) - 0xD800) << 10) + (int(pair[2], 16) - 0xDC00)
    return f"{text[:start]}\\U{code:08x}{text[pair.end() :]}"
