"""Reads the text of a YAML file, repairs two common slips, and gives unquoted scalars their values.

Scalars follow the core schema of YAML 1.2. A whole number with a leading zero stays a string: 1.2 reads it as decimal
and 1.1 as octal.

Two things that people write and that the parser rejects are repaired, each exactly where the parser failed:

- `{token: ${NAME}}`: inside braces the `{` of an unquoted placeholder starts a mapping. The placeholder gets quotes.
- `"\\\\ud83d\\\\ude00"`: JSON writes one character as two escapes, which YAML reads as two invalid characters.
"""

import re
from pathlib import Path

from onetool.core.text import line_of

MAX_BYTES = 4 * 1024 * 1024

# What YAML does not allow. Said the other way round, by what it allows, the class takes milliseconds to compile.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")


class ConfigFileError(Exception):
    """A file or a line in it can't be used. Without a line the mistake is reported where the file was named."""

    def __init__(self, message: str, *, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.hint = hint


def read_text(path: Path) -> str:
    """The file as text: UTF-8, with or without a byte order mark, of a size that a person could have written."""
    text = _decoded(_bytes_of(path))
    found = _UNPRINTABLE.search(text)
    if found:
        where = f"column {found.start() - text.rfind(chr(10), 0, found.start())}"
        message = f"the character U+{ord(found[0]):04X} in {where} can't stand in YAML"
        raise ConfigFileError(
            message, line=_line_at(text, found.start()), hint="remove it, or write it as an escape in quotes"
        )
    return text


def _bytes_of(path: Path) -> bytes:
    try:
        if not path.is_file():  # before opening it: a pipe or a device would keep us waiting
            path.stat()
            raise ConfigFileError(f"{path} is {'a folder' if path.is_dir() else 'no regular file'}, not a YAML file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigFileError(f"the file {path} does not exist") from None
    except PermissionError:
        raise ConfigFileError(f"no permission to read {path}", hint="check who owns it, and its mode: ls -l") from None
    except OSError as error:
        raise ConfigFileError(f"can't read {path}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise ConfigFileError(f"{path} is larger than {MAX_BYTES // 1024 // 1024} MiB")
    return data


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigFileError("the file is not UTF-8 text", line=line_of(error), hint="save it as UTF-8") from None


def _line_at(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1


# Repairs


VARIABLE = r"[A-Za-z_][A-Za-z0-9_.-]*"

PLACEHOLDER = re.compile(r"\$\{(" + VARIABLE + r")\}")
_BEFORE = re.compile(r"""(?:[\[{,]|[:?][ \t]|["']:|^)[ \t]*""")  # what can stand before an unquoted text
_AFTER = re.compile(r"(?:\$\{" + VARIABLE + r"\}|:(?=[^\s,\[\]{}])|(?<!\s)#|[^\s:#,\[\]{}]|[ \t]+(?=[^\s#,\[\]{}]))*")
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def possible_repairs(text: str) -> int:
    """Upper bound on the number of repairs."""
    return text.count("${") + text.count("\\u")


def repaired(text: str, index: int) -> str | None:
    """The text with the slip at this index repaired; None if it is something else."""
    return _with_quotes(text, index - 1) or _with_one_escape(text, index - 2)


def _with_quotes(text: str, dollar: int) -> str | None:
    if dollar < 0 or not PLACEHOLDER.match(text, dollar):
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


# Scalars


MAX_DIGITS = 1000  # more are no number that anybody wrote, and cost time wherever they go

Scalar = str | int | float | bool | None

PLAIN = "plain"  # stands for the tag of an unquoted scalar: its text decides what it is
TEXT = "tag:yaml.org,2002:str"
LIST = "tag:yaml.org,2002:seq"
MAPPING = "tag:yaml.org,2002:map"

_TYPES: dict[str, tuple[type, ...]] = {
    "tag:yaml.org,2002:int": (int,),
    "tag:yaml.org,2002:float": (float, int),
    "tag:yaml.org,2002:bool": (bool,),
    "tag:yaml.org,2002:null": (type(None),),
}

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_OCTAL = re.compile(r"0o[0-7]+\Z")
_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?\Z")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)\Z")

_OLD_BOOLEAN = re.compile(r"(?:yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)\Z")
_OLD_NUMBER = re.compile(
    r"""[-+]?(?:0[0-9_]+            # octal: 010
        | 0b[01_]+                  # binary
        | [1-9][0-9]*_[0-9_]*       # 1_000
        | [1-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?  # base 60: 1:30
        )\Z""",
    re.VERBOSE,
)


def tagged_value(text: str, tag: str) -> Scalar:
    """The value of a scalar with this tag. Raises ConfigFileError if it has none, without repeating the text."""
    if tag == TEXT:
        return _joined_surrogates(text)
    if tag != PLAIN and tag not in _TYPES:
        raise unknown_tag()
    try:
        value = plain_value(text)
    except ValueError:
        raise ConfigFileError(f"a number of {len(text)} digits is too long", hint="quote it if text is meant") from None
    if tag in _TYPES and type(value) not in _TYPES[tag]:
        raise ConfigFileError(f"the value does not fit to its tag !!{tag.rpartition(':')[2]}", hint="remove the tag")
    return value


def unknown_tag() -> ConfigFileError:
    return ConfigFileError(
        "'!' begins a tag that is not known here", hint="remove the tag, or quote a text that begins with '!'"
    )


def plain_value(text: str) -> Scalar:
    """The value of an unquoted scalar. A whole number of absurd length is a ValueError."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _WHOLE.match(text) or _OCTAL.match(text) or _HEX.match(text):
        return _whole(text)
    if _FLOAT.match(text):
        return float(text)
    if _INFINITE.match(text) or _NAN.match(text):
        return float(text.replace(".", ""))
    return text


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError("too many digits")
    return int(text, 0)


def yaml_1_1_advice(text: str) -> str | None:
    """Advice for an unquoted string that YAML 1.1 reads as another type.

    A single `y` is none of these: nearly every reader takes it for text, and it is the name of many a coordinate.
    """
    if _OLD_BOOLEAN.match(text):
        return "write true or false"
    if _OLD_NUMBER.match(text):
        return "write the number in plain digits"
    return None


def _joined_surrogates(text: str) -> str:
    """The text with surrogate pairs joined.

    The parser of C refuses such halves, that of Python leaves them apart.
    """
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigFileError(
            "half of a character: \\uD800 to \\uDFFF come in pairs", hint="write the character itself"
        ) from None
