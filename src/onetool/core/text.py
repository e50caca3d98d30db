"""Names, strings and times: similar names, lookalike characters, lone surrogates, storable names, times as strings.

Times are ISO 8601 strings in UTC. Spans are strings such as 30d. `lazy_pattern` is for rarely used regular expressions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, AnyStr, cast
from unicodedata import category, normalize
from unicodedata import name as name_of


class _LazyPattern:
    """A pattern that is compiled on first use. Methods are cached."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._pattern, self._flags), name)
        setattr(self, name, value)
        return value


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled on first use: compiling all patterns took 6 % of a short command's time."""
    return cast(re.Pattern[AnyStr], _LazyPattern(pattern, flags))


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates with U+FFFD, and surrogate pairs with their characters."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def replace_all_surrogates(value: Any) -> Any:
    """Replace surrogates in all strings of some data, including keys. Containers become plain lists and dicts."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return {
            replace_surrogates(key) if isinstance(key, str) else key: replace_all_surrogates(one) for key, one in items
        }
    if isinstance(value, list | tuple):
        return [replace_all_surrogates(one) for one in cast(list[Any], value)]
    return value


# Invisible characters and lookalikes

# Among printable characters: blank ones, and modifiers of the character before them.
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef"
_MAYBE = lazy_pattern(r"[^\n -~]")
_HIDDEN = lazy_pattern(f"[{_BLANK}]")
_CONTROL = lazy_pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MAX_ODD_WORDS = 100  # maximum number of words compared
SHORTEST_LOOKALIKE = 3  # letters: many shorter foreign words, such as the Russian for "and", look Latin
_NAME = lazy_pattern(r"[^\s/@:,;()\"'<>\[\]{}=]+")
_DOT = lazy_pattern("[.\u3002\uff0e\uff61]")
_WORD = lazy_pattern(r"[^\W\d_]+")
_ALIKE = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "FULLWIDTH", "MATHEMATICAL")

# Pairs of a Cyrillic, Greek, Armenian or other letter and the Latin letter that looks the same.
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


def escape_invisible(text: str) -> str:
    """Escape invisible characters and terminal controls, such as \u202e."""
    return text if text.isascii() and text.isprintable() else _MAYBE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    sign, before = found[0], found.string[found.start() - 1 : found.start()]
    if not sign.isprintable() or _HIDDEN.match(sign):
        return _code(sign)
    # A combining mark without a letter is drawn over the preceding character.
    is_stray = category(sign) in ("Mn", "Me") and (not before or category(before)[0] not in "LMN")
    return _code(sign) if is_stray else sign


def _code(sign: str) -> str:
    code = ord(sign)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def mixed_script_words(text: str) -> Iterator[str]:
    """Yield the words that mix letters of similar scripts, with the foreign letters escaped."""
    if text.isascii():
        return
    for found in _WORD.finditer(text):
        word = found[0]
        if not word.isascii() and len({name_of(sign, "").partition(" ")[0] for sign in word} & {*_ALIKE}) > 1:
            yield _spelt(word)


def latin_lookalikes(text: str, shortest: int = 1) -> Iterator[str]:
    """Yield the foreign words of at least `shortest` letters that look Latin, with the foreign letters escaped."""
    if text.isascii():
        return
    for found in _WORD.finditer(text):
        if len(found[0]) >= shortest and not found[0].isascii() and skeleton(found[0]).isascii():
            yield _spelt(found[0])


def suspicious_words(text: str, most: int) -> list[str]:
    """Return warnings about words in the text that could be mistaken for others, at most `most` of each kind."""
    mixed = dict.fromkeys(islice(mixed_script_words(text), MAX_ODD_WORDS))
    alike = dict.fromkeys(islice(latin_lookalikes(text, SHORTEST_LOOKALIKE), MAX_ODD_WORDS))
    return [
        *(f"letters of several alphabets in {word}" for word in islice(mixed, most)),
        *(f"no Latin letters in {word}" for word in islice((word for word in alike if word not in mixed), most)),
    ]


def has_controls(value: Any) -> bool:
    """Return whether a string or key in the data has control characters other than tabs and line ends."""
    if isinstance(value, str):
        return _CONTROL.search(value) is not None
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return any(has_controls(part) for item in items for part in item)
    return isinstance(value, list | tuple) and any(map(has_controls, cast(list[Any], value)))


def hosts_in_ascii(text: str) -> Iterator[str]:
    """Yield the non-ASCII host names in a text, in their DNS form."""
    if text.isascii():
        return
    for found in _NAME.finditer(text):
        if not found[0].isascii() and len(labels := _DOT.split(found[0])) > 1:
            codes = (
                label if label.isascii() else f"xn--{label.lower().encode('punycode').decode()}" for label in labels
            )
            yield ".".join(codes)


def visible(text: object) -> str:
    """Return a text on one line, with invisible and direction-changing characters escaped."""
    return escape_invisible(str(text)).replace("\n", "\\n")


def shown_line(text: str) -> str:
    """Return a visible line, followed by notes on lookalike letters and on hosts in their DNS form."""
    odd = [f"lookalike letters: {word}" for word in dict.fromkeys((*mixed_script_words(text), *latin_lookalikes(text)))]
    odd += [f"that is {host}" for host in dict.fromkeys(hosts_in_ascii(text))]
    return visible(f"{text} ({'; '.join(odd)})" if odd else text)


def _spelt(word: str) -> str:
    return "".join(sign if sign.isascii() else _code(sign) for sign in word)


def skeleton(name: str) -> str:
    """Return a string that is equal for names that look the same."""
    seen = normalize("NFKC", "".join(sign for sign in name if sign.isprintable() and not _HIDDEN.match(sign)))
    return seen.translate(_LIKE).translate(_LIKE)  # twice: lookalikes of I are also lookalikes of l


def lookalikes(names: Iterable[str]) -> list[tuple[str, ...]]:
    groups: dict[str, dict[str, None]] = {}
    for name in names:
        groups.setdefault(skeleton(name), {})[name] = None
    return [tuple(group) for group in groups.values() if len(group) > 1]


# Similar names

MAX_NAME = 256  # characters of a name in a call, unless a longer name is registered
MAX_UNKNOWN = 10  # described unknown arguments of a call; others are counted
MAX_NEAREST = 3
MAX_COMPARED = 200  # characters; longer names aren't typos, and comparing them takes long
CLEARLY_BETTER = 15.0  # names that score this much less than the best one are not suggested
CLOSE = 65.0  # of 100: `pth` is 86 from `path`, `nwo` 67 from `now`, `weather` 62 from `health`


def nearest(name: str, known: Iterable[str], most: int = MAX_NEAREST) -> list[str]:
    """Return the known names that are similar to a name, best first.

    Dotted names are also compared by their last part: `read_fil` finds `fs.read_file`.
    """
    if len(name) > MAX_COMPARED:
        return []
    from rapidfuzz import fuzz, process, utils  # only needed for errors

    names = list(dict.fromkeys(known))
    best: dict[str, float] = {}
    for words in (names, [one.rpartition(".")[2] for one in names]):
        found = process.extract(
            name, words, scorer=fuzz.ratio, processor=utils.default_process, score_cutoff=CLOSE, limit=most
        )
        for _, score, index in found:
            best[names[index]] = max(score, best.get(names[index], 0.0))
    floor = max(best.values(), default=0.0) - CLEARLY_BETTER
    return sorted((one for one in best if best[one] > floor), key=best.__getitem__, reverse=True)[:most]


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return "did you mean …?" with similar names, or None."""
    names = nearest(name, known)
    return f"did you mean {' or '.join(names)}?" if names else None


def or_rather(name: str, known: Iterable[str]) -> str:
    """Return the suffix `; did you mean …?` for a message, or an empty string."""
    question = did_you_mean(name, known)
    return f"; {question}" if question else ""


def line_of(error: UnicodeDecodeError) -> int:
    """Return the number of the line with the undecodable byte, starting at 1."""
    return error.object.count(b"\n", 0, error.start) + 1


# Estimating tokens

_TOKEN_PIECE = lazy_pattern(r"[A-Za-z]{1,7}|[0-9]{1,3}|[^\sA-Za-z0-9]|\n")


def count_tokens(text: str) -> int:
    plain = sum(map(str.isascii, text))
    return max(-(-plain // 4) + len(text) - plain, 3 * len(_TOKEN_PIECE.findall(text)) // 4)


def cut_to_tokens(text: str, most: int) -> str:
    if count_tokens(text) <= most:
        return text
    fits, too_long = 0, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if count_tokens(f"{text[:middle]}…") <= most:
            fits = middle
        else:
            too_long = middle
    return f"{text[:fits].rstrip()}…"


MAX_DISTINCT = 200  # characters, without the hash
_DISTINCT = lazy_pattern(r".*#[0-9a-f]{32}", re.DOTALL)


def distinct_name(name: str) -> str:
    """Return a storable name: printable and not too long. Changed names get a hash, so that they stay distinct."""
    if len(name) <= MAX_DISTINCT and name.isprintable():
        return name
    from hashlib import blake2b

    whole = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    signs = (sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in name[:MAX_DISTINCT])
    return f"{''.join(signs)}#{whole}"


def wanted_name(name: str) -> str:
    """Return the stored form of a name to search for; unchanged if it may already have that form."""
    is_kept = len(name) <= MAX_DISTINCT + 33 and name.isprintable() and _DISTINCT.fullmatch(name)
    return name if is_kept else distinct_name(name)


# Times

_SPAN = lazy_pattern(r"([0-9]{1,6})([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def read_time(text: str) -> float | None:
    """Parse an ISO 8601 date or time to seconds since 1970, by default in UTC. Return None if invalid."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def read_span(text: str) -> int | None:
    """Parse a span such as `30d` to seconds. Units are s, m (minutes), h, d and w. Return None if invalid."""
    match = _SPAN.fullmatch(text)
    return int(match[1]) * _SECONDS[match[2]] if match else None


LAST_SECOND = 253_402_300_799  # of the year 9999


def utc_text(seconds: float) -> str:
    """Format a time as `2027-01-01T12:00:00Z`. Times outside of the calendar become its first or last moment."""
    return f"{_to_the_second(int(seconds // 1))}Z"


def utc_text_ms(seconds: float) -> str:
    """Format a time as `2027-01-01T12:00:00.123Z`. The strings sort by time."""
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{_to_the_second(whole)}.{milliseconds:03}Z"


@lru_cache(64)
def _to_the_second(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "9999-12-31T23:59:59" if seconds > 0 else "0001-01-01T00:00:00"
