"""Texts that do not look like what they are: signs that nobody sees, and letters that pass for others."""

import re
from collections.abc import Iterable, Iterator
from unicodedata import name as name_of
from unicodedata import normalize

# Of those that count as printable: blank ones, and such as only change the sign before them.
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
_MAYBE = re.compile(r"[^\n -~]")
_HIDDEN = re.compile(f"[{_BLANK}]")
_WORD = re.compile(r"[^\W\d_]+")
_ALIKE = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "FULLWIDTH", "MATHEMATICAL")

# Cyrillic, Greek, Armenian and other letters, each before the Latin one that a font draws like it.
_PAIRS = (
    "\u0430a \u0435e \u043eo \u0440p \u0441c \u0443y \u0445x \u0456i \u0458j \u0455s \u04bbh \u0501d "
    "\u051bq \u051dw \u04cfl \u0410A \u0412B \u0415E \u041aK \u041cM \u041dH \u041eO \u0420P \u0421C "
    "\u0422T \u0423Y \u0425X \u0406I \u0408J \u0405S \u04c0I "
    "\u03bfo \u03bdv \u03b9i \u03b1a \u03c1p \u03c5u \u0391A \u0392B \u0395E \u0396Z \u0397H \u0399I "
    "\u039aK \u039cM \u039dN \u039fO \u03a1P \u03a4T \u03a5Y \u03a7X \u0585o \u057du \u0578n \u0570h "
    "\u0581g \u0251a \u0261g \u0131i "
    "Il 1l |l 0O"
)
_LIKE = {ord(pair[0]): pair[1] for pair in _PAIRS.split()}


def visible(text: str) -> str:
    """The text, in which whatever can't be seen, or would rule a terminal, is written as what it is: \\u202e."""
    return text if text.isascii() and text.isprintable() else _MAYBE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    if sign.isprintable() and not _HIDDEN.match(sign):
        return sign
    code = ord(sign)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def mixed(text: str) -> Iterator[str]:
    """The words in which letters of several scripts stand that can pass for one another, with the odd ones escaped."""
    if text.isascii():
        return
    for found in _WORD.finditer(text):
        word = found[0]
        if not word.isascii() and len({_script(sign) for sign in word} & {*_ALIKE}) > 1:
            yield "".join(sign if sign.isascii() else f"\\u{ord(sign):04x}" for sign in word)


def _script(sign: str) -> str:
    return name_of(sign, "").partition(" ")[0]


def skeleton(name: str) -> str:
    """The same for names that look the same."""
    seen = normalize("NFKC", "".join(sign for sign in name if sign.isprintable() and not _HIDDEN.match(sign)))
    return seen.translate(_LIKE).translate(_LIKE)  # what looks like an I looks like an l


def twins(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Those of several names that look alike."""
    groups: dict[str, dict[str, None]] = {}
    for name in names:
        groups.setdefault(skeleton(name), {})[name] = None
    return [tuple(group) for group in groups.values() if len(group) > 1]
