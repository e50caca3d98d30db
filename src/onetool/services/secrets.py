"""Secrets by name: from the secrets file or mapping first, then from the environment. They are masked when printed.

This module doesn't parse files: `Secrets` gets plain text by name.
"""

import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Self

import msgspec

from onetool.core.errors import ToolFailure
from onetool.core.redaction import MASK
from onetool.core.text import lazy_pattern

MIN_LENGTH = 4  # shorter values would mask parts of unrelated text
UNMISTAKABLE = 8  # characters: unlikely to occur elsewhere by chance
UNMISTAKABLE_NUMBER = 10 ** (UNMISTAKABLE - 1)
MAX_NUMBER = 10**100  # larger ones aren't secrets, and Python limits the digits of a number
MAX_LENGTH = 16 * 1024  # characters of a value added at run time …
MAX_RECENT = 300  # … the number of these values …
MAX_CHARACTERS = 512 * 1024  # … and their total length: each makes masking slower
NOT_JSON = (TypeError, ValueError, OverflowError, RecursionError)  # raised for data that is not JSON

_PERCENT = lazy_pattern("%[0-9A-F]{2}")
_IN_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "'": "\\u0027"})  # JSON for a page
_ESCAPED = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;"})  # `html` takes milliseconds to load
_QUOTES = [{}, {34: "&quot;"}, {34: "&quot;", 39: "&#x27;"}, {34: "&#34;", 39: "&#39;"}, {34: "&quot;", 39: "&#039;"}]

KEYRING_SERVICE = "onetool"
RELOAD_NOTE = "a server with `watch: false`, or one that other machines can reach, then needs a reload"


class Secret(str):
    """A string that `repr` hides: it returns the placeholder that stood for the string, or a mask.

    `str(secret)` and formatting give the value; printing a structure that contains a secret does not.
    """

    shown: str

    def __new__(cls, value: str, shown: str = MASK) -> Self:
        secret = super().__new__(cls, value)
        secret.shown = shown
        return secret

    def __repr__(self) -> str:
        return repr(self.shown)


Fits = Callable[[tuple[str, ...]], bool]
"""Returns whether a secret is about to be sent to one of these hosts."""


class SecretHostError(ToolFailure):
    """A refusal to use a secret for anything but requests to its hosts."""

    def __init__(self, name: str, hosts: tuple[str, ...]) -> None:
        super().__init__(
            f"the secret {name} is only for requests to {', '.join(hosts)}",
            reason="denied",
            hints=[f"its `hosts` are in the secrets file: add a host with onetool auth set {name} --host …"],
        )


class _Known:
    """The values to mask: all values of the config, and the most recently used values added later.

    The text is searched for each encoded form of each value in turn. Searching a megabyte for one
    form takes a fraction of a millisecond, and a single pattern of all forms would take ten times as long as all these
    searches. Only short values, which must be separate words, are combined in a pattern.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._lock = Lock()  # servers and tools add values from their own threads
        self.lasting = set(values)
        self.recent: dict[str, tuple[str, ...]] = {}  # value -> its forms; the most recently used last
        self._cache: tuple[int, tuple[str, ...], re.Pattern[str] | None] = (-1, (), None)

    def add(self, value: str) -> None:
        if value not in self.lasting:
            with self._lock:
                self.lasting.add(value)

    def add_recent(self, value: str) -> None:
        if value in self.lasting or len(value) > MAX_LENGTH:
            return
        with self._lock:
            recent = self.recent.copy()
            recent[value] = recent.pop(value, None) or _longest_first(_forms(value))
            while len(recent) > MAX_RECENT or sum(map(len, recent)) > MAX_CHARACTERS:
                del recent[next(iter(recent))]
            self.recent = recent  # readers see the old or the new dict

    def join(self, other: "_Known") -> None:
        with self._lock:
            self.lasting |= other.lasting
            self.recent = self.recent | other.recent

    def occurs_in(self, text: str) -> bool:
        forms, short = self._compiled()
        for form in forms:  # a plain loop: every call does this
            if form in text:
                return True
        if short is not None and short.search(text) is not None:
            return True
        return any(form in text for forms in self.recent.values() for form in forms)

    def mask(self, text: str, spared: Collection[str] = ()) -> str:
        """Mask every known value in the text, except the `spared` forms."""
        forms, short = self._compiled()
        spans: list[tuple[int, int]] = []
        for group in (*self.recent.values(), forms):
            for form in group:
                if form in text and form not in spared:
                    spans += (found.span() for found in re.finditer(re.escape(form), text))
        if short is not None:
            spans += (found.span() for found in short.finditer(text) if found[0] not in spared)
        if not spans:
            return text
        parts: list[str] = []
        end = 0  # of the text handled so far
        for start, stop in sorted(spans):  # overlapping spans get one mask, so that no part of a secret remains
            if start >= end:
                parts += (text[end:start], MASK)
            end = max(end, stop)
        return "".join((*parts, text[end:]))

    def forms_in(self, text: str) -> set[str]:
        """Return all forms of every value that occurs in the text in any form."""
        found: set[str] = set()
        for value in (*self.lasting, *self.recent):
            forms = _forms(value) if len(value) >= UNMISTAKABLE else _encodings(value)
            if any(form in text for form in forms):
                found |= forms
        return found

    def _compiled(self) -> "tuple[tuple[str, ...], re.Pattern[str] | None]":
        """Return the forms of long values, and a pattern for short values."""
        number = len(self.lasting)  # it only grows
        compiled = self._cache
        if compiled[0] != number:
            with self._lock:
                values = tuple(self.lasting)
                forms = {form for value in values if len(value) >= UNMISTAKABLE for form in _forms(value)}
                compiled = self._cache = len(values), _longest_first(forms), _pattern_of(values)
        return compiled[1], compiled[2]


def is_too_short(value: str) -> bool:
    """Return whether a value is so short that it may occur in other text, and can't be masked reliably."""
    return 0 < len(value) < UNMISTAKABLE


class Secrets:
    """A lookup of secrets by name, which also masks them in text.

    An empty value counts as not set: `TOKEN=` is the usual way to unset a variable.
    """

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        file: Path | None = None,
        hosts: Mapping[str, tuple[str, ...]] | None = None,
        files: Iterable[Path] = (),
    ) -> None:
        """Hold `values`. `hosts` restricts some of them to requests to these hosts; each of `files` holds one value."""
        self.file = file  # the source of the values, where new ones are added
        self.files = list(files)
        self._values = dict(values or {})
        self._hosts = dict(hosts or {})
        self._env = {} if env is None else env
        self.only: Collection[str] | None = None  # names to look up in the keyring; None: any
        self._known = _Known(self._values.values())  # values of the file, and values looked up in the environment

    def hosts(self, name: str) -> tuple[str, ...]:
        """Return the hosts that a secret is restricted to; empty if it is unrestricted."""
        return self._hosts.get(name, ())

    def get(self, name: str, fits: Fits | None = None) -> str | None:
        """Return a secret from the file or mapping, else the environment, else the system's keyring.

        A secret restricted to hosts raises SecretHostError unless `fits` accepts these hosts.
        """
        if (hosts := self.hosts(name)) and not (fits is not None and fits(hosts)):
            raise SecretHostError(name, hosts)
        value = self._values.get(name) or self._env.get(name) or self._from_keyring(name) or None
        if value:
            self._known.add(value)
        return value

    def get_stored(self, name: str) -> str | None:
        """Return a secret as `get` does, but not from the environment: the tool may be third-party code.

        Hosts are not checked: callers check `hosts` when they know the destination.
        """
        value = self._values.get(name) or self._from_keyring(name) or None
        if value:
            self._known.add(value)
        return value

    def mask_also(self, value: str) -> None:
        """Mask another value, such as a server's token, except plain words and numbers, which occur in other text."""
        if len(value) >= UNMISTAKABLE and not value.isalpha() and not value.isdigit():
            self._known.add_recent(value)

    def mask_always(self, value: str) -> None:
        """Mask a value permanently, such as OneTool's own password."""
        self._known.add(value)

    def join(self, other: "Secrets") -> None:
        """Share the masked values with another instance, such as that of a reloaded config."""
        if other._known is not self._known:
            self._known.join(other._known)
            other._known = self._known

    def where(self, name: str, environment: bool = True) -> str | None:
        """Return the source of a secret: file, config, environment or keyring. None if it is not set."""
        if self._values.get(name):
            return "file" if self.file else "config"
        if environment and self._env.get(name):
            return "environment"
        return "keyring" if self._from_keyring(name) else None

    def _from_keyring(self, name: str) -> str | None:
        return _from_keyring(name) if self.only is None or name in self.only else None

    def too_short(self) -> list[str]:
        """Return the names of stored secrets that are too short to be masked reliably."""
        return [name for name, value in self._values.items() if is_too_short(value)]

    def names(self) -> list[str]:
        """Return the names in the file or mapping, without the environment, most of which is not secret."""
        return sorted(self._values)

    def redact(self, text: str) -> str:
        """Mask every known secret in the text, including escaped forms."""
        return self._known.mask(text)

    def redact_data(self, value: Any, sent: Any = None) -> Any:
        """Mask every known secret in nested data. Most data has none, which one test of its JSON shows.

        `sent` is data from the caller that receives this data. Values in `sent` are not masked: a mask would confirm a
        guess.
        """
        known = self._known
        if not (known.lasting or known.recent) or not self._may_be_in(value):
            return value
        return _masked(value, known, known.forms_in("\n".join(_texts_in(sent))) if sent else ())

    def _may_be_in(self, value: Any) -> bool:
        known = self._known
        if isinstance(value, str):
            return known.occurs_in(value)
        try:
            text = msgspec.json.encode(value).decode()
        except NOT_JSON:  # mask it anyway, as far as possible
            return True
        # JSON escapes text a second time if it was escaped before.
        return known.occurs_in(text) or ("\\\\" in text and known.occurs_in(text.replace("\\\\", "\\")))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.where(name) is not None

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.names())})"


def _masked(value: Any, known: _Known, spared: Collection[str]) -> Any:
    if isinstance(value, str):
        return known.mask(value, spared)
    if isinstance(value, dict):
        return {
            known.mask(key, spared) if isinstance(key, str) else key: _masked(item, known, spared)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(item, known, spared) for item in value]
    if isinstance(value, int | float) and UNMISTAKABLE_NUMBER <= abs(value) < MAX_NUMBER and value == int(value):
        digits = str(int(value))  # a secret of digits that was parsed as a number
        return value if known.mask(digits, spared) == digits else MASK
    return value


def _texts_in(value: Any) -> Iterator[str]:
    """Yield every string in nested data, including keys, and numbers as strings."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield str(name)
            yield from _texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts_in(item)
    elif isinstance(value, str) or (isinstance(value, int) and abs(value) < MAX_NUMBER):
        yield str(value)


def too_open(file: Path) -> str | None:
    """Return a command that protects a secrets file from other users; None if that isn't needed."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return None
    open_to_others = stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO)
    if not open_to_others:
        return None
    from shlex import quote

    return f"chmod 600 {quote(str(file))}"


def _from_keyring(name: str) -> str | None:
    """Return a secret from the system's keyring, if there is one and its optional library is installed."""
    keyring = load_keyring()
    if keyring is None:
        return None
    try:
        return keyring.get_password(KEYRING_SERVICE, name)
    except Exception:  # noqa: BLE001 - backends raise anything if the keyring is locked or missing
        return None


@cache
def load_keyring() -> Any:
    """Return the library, or None. Called only for secrets found nowhere else: the import is slow."""
    try:
        import keyring
    except ImportError:
        return None
    return keyring


def _pattern_of(values: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return a pattern for short secrets as separate words: the secret `test` must not mask a part of `testing`."""
    forms = {form for value in values if MIN_LENGTH <= len(value) < UNMISTAKABLE for form in _encodings(value)}
    if not forms:
        return None
    alternatives = "|".join(map(re.escape, _longest_first(forms)))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])")


def _longest_first(forms: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _forms(value: str) -> set[str]:
    """Return the forms of a value in text: in JSON, a URL or HTML, or encoded as Base64 or hexadecimal digits."""
    raw = value.encode("utf-8", "surrogatepass")
    in_hex = raw.hex()
    percents = "".join(f"%{byte:02x}" for byte in raw)
    return _encodings(value) | _in_base64(raw) | {in_hex, in_hex.upper(), percents, percents.upper()}


def _encodings(value: str) -> set[str]:
    """Return the plain value, and its forms in a JSON string (also a nested one), in a URL, and in HTML."""
    import json
    from urllib.parse import quote, quote_plus

    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    in_json |= {json.dumps(text)[1:-1] for text in in_json} | {text.replace("/", "\\/") for text in in_json}
    in_json |= {text.translate(_IN_HTML) for text in in_json}
    in_url = {
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
    }
    in_url |= {_PERCENT.sub(lambda found: found[0].lower(), text) for text in in_url}
    in_page = {value.translate(_ESCAPED | quotes) for quotes in _QUOTES}
    return {value} | in_json | in_url | in_page


def _in_base64(raw: bytes) -> set[str]:
    """Return the three Base64 encodings, by the offset of the value, without characters that depend on other bytes."""
    from base64 import b64encode

    forms: set[str] = set()
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        forms.add(b64encode(b"\0" * before + raw).decode()[first:last])
    return forms | {form.replace("+", "-").replace("/", "_") for form in forms}
