"""Texts that do not look like what they are: signs that nobody sees, and letters that pass for others."""

import re
from collections.abc import Iterable, Iterator
from unicodedata import category, normalize
from unicodedata import name as name_of

# Of those that count as printable: blank ones, and such as only change the sign before them.
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef"
_MAYBE = re.compile(r"[^\n -~]")
_HIDDEN = re.compile(f"[{_BLANK}]")
_NAME = re.compile(r"[^\s/@:,;()\"'<>\[\]{}=]+")
_DOT = re.compile("[.\u3002\uff0e\uff61]")
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
    if sign.isprintable() and not _HIDDEN.match(sign) and not _is_stray(found):
        return sign
    return _code(sign)


def _is_stray(found: re.Match[str]) -> bool:
    """A mark that belongs on a letter, and stands on none: it is drawn over whatever is before it."""
    if category(found[0]) not in ("Mn", "Me"):
        return False
    before = found.string[found.start() - 1 : found.start()]
    return not before or category(before)[0] not in "LMN"


def _code(sign: str) -> str:
    code = ord(sign)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def mixed(text: str) -> Iterator[str]:
    """The words in which letters of several scripts stand that can pass for one another, with the odd ones escaped."""
    if text.isascii():
        return
    for found in _WORD.finditer(text):
        word = found[0]
        if not word.isascii() and len({_script(sign) for sign in word} & {*_ALIKE}) > 1:
            yield _spelt(word)


def disguised(text: str) -> Iterator[str]:
    """Those, and the words that look like one of Latin letters altogether, with the odd ones escaped."""
    if text.isascii():
        return
    yield from mixed(text)
    for found in _WORD.finditer(text):
        if not found[0].isascii() and skeleton(found[0]).isascii():
            yield _spelt(found[0])


def hosts_in_ascii(text: str) -> Iterator[str]:
    """Of the names with a dot in a text those that have other letters, as the name system writes them."""
    if text.isascii():
        return
    for found in _NAME.finditer(text):
        if not found[0].isascii() and len(labels := _DOT.split(found[0])) > 1:
            yield ".".join(label if label.isascii() else _a_label(label) for label in labels)


def _a_label(label: str) -> str:
    return f"xn--{label.lower().encode('punycode').decode()}"


def _spelt(word: str) -> str:
    return "".join(sign if sign.isascii() else _code(sign) for sign in word)


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
