"""Secrets by name: from the secrets file or mapping first, then from the environment. They are masked when printed.

This is not where a file is parsed: who makes a `Secrets` hands it plain text by name.
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
from onetool.core.os_files import HAS_OWNERS
from onetool.core.redaction import MASK
from onetool.core.text import lazy_pattern

MIN_LENGTH = 4  # shorter values would blot out half of an innocent text
UNMISTAKABLE = 8  # characters that no other text has by chance
UNMISTAKABLE_NUMBER = 10 ** (UNMISTAKABLE - 1)
MAX_NUMBER = 10**100  # nobody's secret; and Python does not write numbers of any length
MAX_LENGTH = 16 * 1024  # characters of a value that is told while we run …
MAX_TOLD = 300  # … how many of these are known at a time …
MAX_CHARACTERS = 512 * 1024  # … and how long they are together: masking gets slower with each
ODD = (TypeError, ValueError, OverflowError, RecursionError)  # what is not JSON


_PERCENT = lazy_pattern("%[0-9A-F]{2}")
_IN_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "'": "\\u0027"})  # JSON for a page
_ESCAPED = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;"})  # `html` takes milliseconds to load
_QUOTES = [{}, {34: "&quot;"}, {34: "&quot;", 39: "&#x27;"}, {34: "&#34;", 39: "&#39;"}, {34: "&quot;", 39: "&#039;"}]

KEYRING_SERVICE = "onetool"
RELOAD_NOTE = "a server with `watch: false`, or that other machines reach, then needs a reload"  # after a change


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


Fits = Callable[[tuple[str, ...]], bool]
"""Whether these hosts are where a secret is about to go."""


class SecretHostError(ToolFailure):
    """A secret that is for some hosts only was wanted for something else."""

    def __init__(self, name: str, hosts: tuple[str, ...]) -> None:
        super().__init__(
            f"the secret {name} is only for requests to {', '.join(hosts)}, and is not given to anything else",
            reason="denied",
            hints=[f"its `hosts` stand with it, in the secrets file: add one with onetool auth set {name} --host …"],
        )


class _Known:
    """The values that are masked. Those of the config stay; of those that are added later, the ones used last stay.

    Each is looked for as it is, and in the forms that it is written in elsewhere, one form after the other: a text of
    a megabyte is looked through for one of them in a fraction of a millisecond, and a pattern of all takes ten times
    as long as that together. Only short ones, which have to stand by themselves, are a pattern.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._lock = Lock()  # servers and tools tell from threads of their own
        self.lasting = set(values)
        self.recent: dict[str, tuple[str, ...]] = {}  # each with its forms, the one used last at the end
        self._made: tuple[int, tuple[str, ...], re.Pattern[str] | None] = (-1, (), None)

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
            while len(recent) > MAX_TOLD or sum(map(len, recent)) > MAX_CHARACTERS:
                del recent[next(iter(recent))]
            self.recent = recent  # whoever reads it has the one before, or this one

    def join(self, other: "_Known") -> None:
        with self._lock:
            self.lasting |= other.lasting
            self.recent = self.recent | other.recent

    def occurs_in(self, text: str) -> bool:
        forms, short = self._compiled()
        for form in forms:  # a plain loop: this is on the way of every call
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
        return _covered(text, spans) if spans else text

    def forms_in(self, text: str) -> set[str]:
        """Return all forms of every value that stands in this text, in whatever form it does."""
        found: set[str] = set()
        for value in (*self.lasting, *self.recent):
            forms = _forms(value) if len(value) >= UNMISTAKABLE else _written(value)
            if any(form in text for form in forms):
                found |= forms
        return found

    def _compiled(self) -> "tuple[tuple[str, ...], re.Pattern[str] | None]":
        """Return the forms of the long ones, and a pattern of the short ones."""
        number = len(self.lasting)  # it only grows
        made = self._made
        if made[0] != number:
            with self._lock:
                values = tuple(self.lasting)
                forms = {form for value in values if len(value) >= UNMISTAKABLE for form in _forms(value)}
                made = self._made = len(values), _longest_first(forms), _pattern_of(values)
        return made[1], made[2]


def is_too_short(value: str) -> bool:
    """Return whether other texts may well contain this value, so that it can't be masked reliably."""
    return 0 < len(value) < UNMISTAKABLE


class Secrets:
    """Looks up secrets by name and masks them in texts.

    An empty value counts as not set: `TOKEN=` is the usual way to unset a variable, and must not become a token.
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
        """`hosts` are of those values that are only for requests to them; `files` hold values of their own."""
        self.file = file  # where the values came from, for whoever adds one
        self.files = list(files)
        self._values = dict(values or {})
        self._hosts = dict(hosts or {})
        self._env = {} if env is None else env
        self.only: Collection[str] | None = None  # those that the keyring is asked for; None is any
        self._known = _Known(self._values.values())  # all of the file's, and those of the environment looked up

    def hosts(self, name: str) -> tuple[str, ...]:
        """Return the hosts that a secret is for; none where it is for anything."""
        return self._hosts.get(name, ())

    def get(self, name: str, fits: Fits | None = None) -> str | None:
        """Return the secret of that name: from the file or mapping, else the environment, else the system's keyring.

        One that is for some hosts only raises SecretHostError, unless `fits` says that it goes there.
        """
        if (hosts := self.hosts(name)) and not (fits is not None and fits(hosts)):
            raise SecretHostError(name, hosts)
        value = self._values.get(name) or self._env.get(name) or self._from_keyring(name) or None
        if value:
            self._known.add(value)
        return value

    def get_stored(self, name: str) -> str | None:
        """Return the same without the environment: for tools that others may have written, and that send it away.

        It is given for any host: who sends it looks at `hosts`, when it is known where it goes.
        """
        value = self._values.get(name) or self._from_keyring(name) or None
        if value:
            self._known.add(value)
        return value

    def mask_also(self, value: str) -> None:
        """Mask this value, too, such as a server's token. Plain words are not masked: they occur in other texts."""
        if len(value) >= UNMISTAKABLE and not value.isalpha() and not value.isdigit():
            self._known.add_recent(value)

    def mask_always(self, value: str) -> None:
        """Mask this one for good: our own password, say."""
        self._known.add(value)

    def join(self, other: "Secrets") -> None:
        """Have both mask what one of them masks, from now on: of two configs, the one may know what is new."""
        if other._known is not self._known:
            self._known.join(other._known)
            other._known = self._known

    def where(self, name: str, environment: bool = True) -> str | None:
        """Return where a secret comes from, in a word; None when there is none."""
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
        """Return the names in the file or mapping. The environment's are not listed: most of it is not a secret."""
        return sorted(self._values)

    def redact(self, text: str) -> str:
        """Mask every known secret value in the text, the longest first, also where it stands escaped."""
        return self._known.mask(text)

    def redact_data(self, value: Any, sent: Any = None) -> Any:
        """Mask them in data: every text in it, however deep. Most have none in them, which one look at all can tell.

        `sent` is what the caller, who gets this data, sent itself. It has the values that stand in there, so they are
        not masked for it: else a mask would tell it that a guess is right.
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
        except ODD:  # it is walked through, as far as it can be
            return True
        # What stands escaped in a text is escaped once more in there.
        return known.occurs_in(text) or ("\\\\" in text and known.occurs_in(text.replace("\\\\", "\\")))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.where(name) is not None

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.names())})"


def _covered(text: str, spans: list[tuple[int, int]]) -> str:
    """Put a mask over each span of the text. Those that overlap get one: a part of a secret must not be left over."""
    spans.sort()
    parts: list[str] = []
    end = 0  # of what is told or masked so far
    for start, stop in spans:
        if start >= end:
            parts += (text[end:start], MASK)
        end = max(end, stop)
    return "".join((*parts, text[end:]))


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
        digits = str(int(value))  # a secret of digits, which somebody took for a number
        return value if known.mask(digits, spared) == digits else MASK
    return value


def _texts_in(value: Any) -> Iterator[str]:
    """Yield every text in some data, names too, and numbers as they are written."""
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
    """Return the command that mends a secrets file which others may read; None if they can't, or there is no file."""
    if not HAS_OWNERS:  # modes say nothing there
        return None
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
    """Read it from the system's keyring, where the optional library for it is installed and the system has one."""
    keyring = load_keyring()
    if keyring is None:
        return None
    try:
        return keyring.get_password(KEYRING_SERVICE, name)
    except Exception:  # noqa: BLE001 - a locked or missing keyring is not a keyring, whatever its backend raises
        return None


@cache
def load_keyring() -> Any:
    """Return the library, or None. Asked only for secrets that are nowhere else: it is slow to import."""
    try:
        import keyring
    except ImportError:
        return None
    return keyring


def _pattern_of(values: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return a pattern for short secrets as separate words: the secret `test` must not mask a part of `testing`."""
    forms = {form for value in values if MIN_LENGTH <= len(value) < UNMISTAKABLE for form in _written(value)}
    if not forms:
        return None
    any_of_them = "|".join(map(re.escape, _longest_first(forms)))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{any_of_them})(?![A-Za-z0-9])")


def _longest_first(forms: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _forms(value: str) -> set[str]:
    """Return a value as it may stand in a text: in JSON, a URL or HTML, or encoded as Base64 or hexadecimal digits."""
    raw = value.encode("utf-8", "surrogatepass")
    in_hex = raw.hex()
    percents = "".join(f"%{one:02x}" for one in raw)
    return _written(value) | _in_base64(raw) | {in_hex, in_hex.upper(), percents, percents.upper()}


def _written(value: str) -> set[str]:
    """Return a value as it is, inside a JSON string (also a nested one), in a URL, and in HTML."""
    import json
    from urllib.parse import quote, quote_plus

    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    in_json |= {json.dumps(one)[1:-1] for one in in_json} | {one.replace("/", "\\/") for one in in_json}
    in_json |= {one.translate(_IN_HTML) for one in in_json}
    in_url = {
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
    }
    in_url |= {_PERCENT.sub(lambda found: found[0].lower(), one) for one in in_url}
    in_page = {value.translate(_ESCAPED | quotes) for quotes in _QUOTES}
    return {value} | in_json | in_url | in_page


def _in_base64(raw: bytes) -> set[str]:
    """Base64 has three spellings of it, by how many bytes stand before; of each what does not depend on neighbours."""
    from base64 import b64encode

    found: set[str] = set()
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        found.add(b64encode(b"\0" * before + raw).decode()[first:last])
    return found | {one.replace("+", "-").replace("/", "_") for one in found}
