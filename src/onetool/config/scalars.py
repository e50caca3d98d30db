"""What an unquoted word of YAML means: the rules of YAML 1.2's core schema, without the surprises of 1.1.

A whole number with a leading zero stays text, which 1.2 would call decimal and 1.1 octal: nobody knows what is meant.
"""

import re

from onetool.config.source import Refused

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
    """The value of a scalar with this tag. Refused when it has none; the message does not repeat the text."""
    if tag == TEXT:
        return _whole_characters(text)
    if tag != PLAIN and tag not in _TYPES:
        raise unknown_tag()
    try:
        value = plain_value(text)
    except ValueError:
        raise Refused(f"a number of {len(text)} digits is too long", hint="quote it if text is meant") from None
    if tag in _TYPES and type(value) not in _TYPES[tag]:
        raise Refused(f"the value does not fit to its tag !!{tag.rpartition(':')[2]}", hint="remove the tag")
    return value


def unknown_tag() -> Refused:
    return Refused(
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


def trap(text: str) -> str | None:
    """What to write instead of an unquoted text that YAML 1.1, which most people know, reads as something else.

    A single `y` is none of these: nearly every reader takes it for text, and it is the name of many a coordinate.
    """
    if _OLD_BOOLEAN.match(text):
        return "write true or false"
    if _OLD_NUMBER.match(text):
        return "write the number in plain digits"
    return None


def _whole_characters(text: str) -> str:
    """The text, with the halves put together of characters that JSON writes as two escapes.

    The parser of C refuses such halves, that of Python leaves them apart.
    """
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise Refused(
            "half of a character: \\uD800 to \\uDFFF come in pairs", hint="write the character itself"
        ) from None
