"""Secrets by name: from the secrets file or mapping first, then from the environment. They never show themselves.

This is not where a file is parsed: who makes a `Secrets` hands it plain text by name.
"""

import os
import re
import shlex
import stat
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

import msgspec

SHORTEST = 4  # shorter values would blot out half of an innocent text
UNMISTAKABLE = 8  # characters that no other text has by chance
MASK = "***"
LONGEST = 16 * 1024  # characters of a value that is told while we run …
MOST_TOLD = 500  # … and how many of these are known at a time: masking gets slower with each
ODD = (TypeError, ValueError, OverflowError, RecursionError)  # what is no JSON


KEYRING_SERVICE = "onetool"


class Secret(str):
    """A text to use but not to show: `repr` gives the placeholder that it was written as, or a mask.

    It is the plain text for everyone who uses it. `str(secret)` and formatting give the value; printing a structure
    that holds one does not.
    """

    shown: str

    def __new__(cls, value: str, shown: str = MASK) -> Self:
        secret = super().__new__(cls, value)
        secret.shown = shown
        return secret

    def __repr__(self) -> str:
        return repr(self.shown)


class _Known:
    """The values that are masked. Those of the config stay; of those that are told by and by, the newest."""

    def __init__(self, values: Iterable[str]) -> None:
        self.lasting = set(values)
        self.told: dict[str, None] = {}
        self.revision = 0  # another one after every change
        self._made: tuple[int, re.Pattern[str] | None] = (-1, None)

    def add(self, value: str) -> None:
        if value not in self.lasting:
            self.lasting.add(value)
            self.revision += 1

    def tell(self, value: str) -> None:
        if value in self.lasting or value in self.told or len(value) > LONGEST:
            return
        self.told[value] = None
        if len(self.told) > MOST_TOLD:
            self.told.pop(next(iter(self.told)), None)  # another thread may have been faster
        self.revision += 1

    def join(self, other: "_Known") -> None:
        self.lasting |= other.lasting
        self.told |= other.told
        self.revision += 1

    def pattern(self) -> "re.Pattern[str] | None":
        revision, made = self.revision, self._made
        if made[0] != revision:
            made = self._made = revision, _pattern_of((*self.lasting, *self.told))
        return made[1]


class Secrets:
    """Looks secrets up, and takes them out of texts that leave the house.

    An empty value counts as not set: `TOKEN=` is the usual way to unset a variable, and must not become a token.
    """

    def __init__(
        self, values: Mapping[str, str] | None = None, *, env: Mapping[str, str] | None = None, file: Path | None = None
    ) -> None:
        self.file = file  # where the values came from, for whoever adds one
        self._values = dict(values or {})
        self._env = {} if env is None else env
        self._known = _Known(self._values.values())  # all of the file's, and those of the environment looked up

    def get(self, name: str) -> str | None:
        """The secret of that name: from the file or mapping, else the environment, else the system's keyring."""
        value = self._values.get(name) or self._env.get(name) or _from_keyring(name) or None
        if value:
            self._known.add(value)
        return value

    def kept(self, name: str) -> str | None:
        """The same without the environment: for tools that others may have written, and that send it away."""
        value = self._values.get(name) or _from_keyring(name) or None
        if value:
            self._known.add(value)
        return value

    def know(self, value: str) -> None:
        """Mask this one, too: a token that a server gave, say. A mere word is not: it would spoil everybody's texts."""
        if len(value) >= UNMISTAKABLE and not value.isalpha() and not value.isdigit():
            self._known.tell(value)

    def join(self, other: "Secrets") -> None:
        """What one of them masks the other masks, too, from now on: of two configs, the one may know what is new."""
        if other._known is not self._known:
            self._known.join(other._known)
            other._known = self._known

    def where(self, name: str, environment: bool = True) -> str | None:
        """Where a secret comes from, in a word; None when there is none."""
        if self._values.get(name):
            return "file" if self.file else "config"
        if environment and self._env.get(name):
            return "environment"
        return "keyring" if _from_keyring(name) else None

    def names(self) -> list[str]:
        """Those of the file or mapping. The environment's are not listed: most of it is no secret."""
        return sorted(self._values)

    def redact(self, text: str) -> str:
        """The text with every known secret value masked, the longest first, also where it stands escaped."""
        pattern = self._known.pattern()
        return pattern.sub(MASK, text) if pattern else text

    def redact_data(self, value: Any) -> Any:
        """The same for data: every text in it, however deep. Most have none in them, which one look at all can tell."""
        pattern = self._known.pattern()
        if pattern is None:
            return value
        if isinstance(value, str):
            return pattern.sub(MASK, value)
        try:
            if pattern.search(msgspec.json.encode(value).decode()) is None:
                return value
        except ODD:  # it is walked through, as far as it can be
            pass
        return _masked(value, pattern)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.where(name) is not None

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.names())})"


def _masked(value: Any, pattern: "re.Pattern[str]") -> Any:
    if isinstance(value, str):
        return pattern.sub(MASK, value)
    if isinstance(value, dict):
        return {pattern.sub(MASK, key): _masked(item, pattern) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, pattern) for item in value]
    if isinstance(value, int | float) and len(digits := str(value)) >= UNMISTAKABLE and pattern.search(digits):
        return MASK  # a secret of digits, which somebody took for a number
    return value


def too_open(file: Path) -> str | None:
    """The command that mends a secrets file which others may read; None when they can't, or when there is no file."""
    if os.name == "nt":  # modes say nothing there
        return None
    try:
        mode = file.stat().st_mode
    except OSError:
        return None
    open_to_others = stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO)
    return f"chmod 600 {shlex.quote(str(file))}" if open_to_others else None


def _from_keyring(name: str) -> str | None:
    """From the system's keyring, where the optional library for it is installed and the system has one."""
    keyring = load_keyring()
    if keyring is None:
        return None
    try:
        return keyring.get_password(KEYRING_SERVICE, name)
    except Exception:  # noqa: BLE001 - a locked or missing keyring is no keyring, whatever its backend raises
        return None


@cache
def load_keyring() -> Any:
    """The library, or None. Asked only for secrets that are nowhere else: it is slow to import."""
    try:
        import keyring
    except ImportError:
        return None
    return keyring


def _pattern_of(values: tuple[str, ...]) -> re.Pattern[str] | None:
    forms = {form for value in values if len(value) >= SHORTEST for form in _forms(value)}
    if not forms:
        return None
    return re.compile("|".join(_as_pattern(form) for form in sorted(forms, key=lambda form: (-len(form), form))))


def _as_pattern(form: str) -> str:
    """A short one is masked only where it stands by itself: the secret `test` must not spoil the word `testing`."""
    text = re.escape(form)
    return text if len(form) >= UNMISTAKABLE else rf"(?<![A-Za-z0-9]){text}(?![A-Za-z0-9])"


def _forms(value: str) -> set[str]:
    """A value as it may stand in a text: as it is, inside a JSON string, inside a URL."""
    import json
    from urllib.parse import quote, quote_plus

    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    in_url = {
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
    }
    return {value} | in_json | in_url
