"""Parses YAML text into nodes with file and line, and limits its size and depth.

Scalars follow the core schema of YAML 1.2. A whole number with a leading zero stays a string, because 1.2 reads it as
decimal and 1.1 as octal.

Two common notations that the parser rejects are repaired, each exactly where the parser failed:

- `{token: ${NAME}}`: inside braces the `{` of an unquoted placeholder starts a mapping. The placeholder gets quotes.
- `"\\ud83d\\ude00"`: JSON writes one character as two escapes, which YAML reads as two invalid characters.
"""

import re
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from onetool.config.node import BROKEN, Node
from onetool.core.errors import Mistake
from onetool.core.text import line_of

# The text of a file

MAX_BYTES = 4 * 1024 * 1024

# The characters that YAML forbids. A class of the allowed characters would take milliseconds to compile.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")


class ConfigFileError(Exception):
    """A file or a line in it can't be used. Without a line, the mistake is reported where the file was named."""

    def __init__(self, message: str, *, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.hint = hint


def read_text(path: Path) -> str:
    """Return the file as text: UTF-8, with or without a byte order mark, and of limited size."""
    try:
        if not path.is_file():  # checked first, because opening a pipe or a device would block
            path.stat()
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise ConfigFileError(f"{path} is {kind}: expected a YAML file")
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
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigFileError("the file is not UTF-8 text", line=line_of(error), hint="save it as UTF-8") from None
    found = _UNPRINTABLE.search(text)
    if found:
        where = f"column {found.start() - text.rfind(chr(10), 0, found.start())}"
        message = f"the character U+{ord(found[0]):04X} in {where} is not allowed in YAML"
        line = text.count("\n", 0, found.start()) + 1
        raise ConfigFileError(message, line=line, hint="remove it, or write it as an escape in quotes")
    return text


# Repairs

VARIABLE = r"[A-Za-z_][A-Za-z0-9_.-]*"

FILE = "file:"  # prefix of a placeholder for the content of a file: ${file:/run/secrets/key}
_NAMED = VARIABLE + "|" + FILE + r"[^{}\n]{1,1000}"

PLACEHOLDER = re.compile(r"\$\{(" + VARIABLE + r")\}")
FILE_PLACEHOLDER = re.compile(r"\$\{" + FILE + r"([^{}\n]{1,1000})\}")
ANY_PLACEHOLDER = re.compile(r"\$\{(" + _NAMED + r")\}")
_BEFORE = re.compile(r"""(?:[\[{,]|[:?][ \t]|["']:|^)[ \t]*""")  # what may precede an unquoted string
_AFTER = re.compile(r"(?:\$\{(?:" + _NAMED + r")\}|:(?=[^\s,\[\]{}])|(?<!\s)#|[^\s:#,\[\]{}]|[ \t]+(?=[^\s#,\[\]{}]))*")
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def repaired(text: str, index: int) -> str | None:
    """Return the text with the notation at this index repaired; None if the error is something else."""
    return _with_quotes(text, index - 1) or _with_one_escape(text, index - 2)


def _with_quotes(text: str, dollar: int) -> str | None:
    if dollar < 0 or not ANY_PLACEHOLDER.match(text, dollar):
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

MAX_DIGITS = 1000  # nobody writes longer numbers, and they cost time everywhere
Scalar = str | int | float | bool | None

PLAIN = "plain"  # the tag of an unquoted scalar, whose text decides its type
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
    """Return the value of a scalar with this tag. Raises ConfigFileError, without quoting the text."""
    if tag == TEXT:
        # The C parser refuses a lone surrogate; the Python parser leaves pairs apart.
        if text.isascii():
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise ConfigFileError(
                "a lone surrogate: \\uD800 to \\uDFFF must come in pairs", hint="write the character itself"
            ) from None
    if tag != PLAIN and tag not in _TYPES:
        raise unknown_tag()
    try:
        value = plain_value(text)
    except ValueError:
        raise ConfigFileError(
            f"a number of {len(text)} digits is too long", hint="quote it to make it a string"
        ) from None
    if tag in _TYPES and type(value) not in _TYPES[tag]:
        raise ConfigFileError(f"the value does not match its tag !!{tag.rpartition(':')[2]}", hint="remove the tag")
    return value


def unknown_tag() -> ConfigFileError:
    return ConfigFileError("unknown tag after '!'", hint="remove the tag, or quote a string that begins with '!'")


def plain_value(text: str) -> Scalar:
    """Return the value of an unquoted scalar. Raises ValueError for a whole number with too many digits."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _WHOLE.match(text) or _OCTAL.match(text) or _HEX.match(text):
        if len(text) > MAX_DIGITS:
            raise ValueError("too many digits")
        return int(text, 0)
    if _FLOAT.match(text):
        return float(text)
    if _INFINITE.match(text) or _NAN.match(text):
        return float(text.replace(".", ""))
    return text


def yaml_1_1_advice(text: str) -> str | None:
    """Return advice for an unquoted string that YAML 1.1 reads as another type.

    A single `y` gets none: nearly every parser reads it as text, and it is a common name of a coordinate.
    """
    if _OLD_BOOLEAN.match(text):
        return "write true or false"
    if _OLD_NUMBER.match(text):
        return "write the number in plain digits"
    return None


# Text -> the parser's nodes

MAX_DEPTH = 100
MAX_NODES = 100_000
REPAIR_BUDGET = 8 * 1024 * 1024  # characters that repairs may parse again

# Messages of the two parsers (C and Python), their meaning, and the fix. The first match counts. None quotes the file,
# which may contain secrets, and a password may begin with '*' or '!'.
_MESSAGES = [
    ("tab character", "a tab is not allowed here", "indent with spaces"),
    ("cannot start any token", "{char} can't begin a string", "quote the text"),
    (
        "mapping values are not allowed",
        "unexpected ':': a key is not allowed here",
        "check the indentation, or quote the text",
    ),
    ("quoted scalar|end of stream", "the quoted text of line {begin} is never closed", "add the closing quote"),
    ("flow|end of the file", "the bracket of line {begin} is never closed", "add the closing bracket"),
    ("',' or '}'", "expected ',' or '}}'", "quote a string that has brackets, braces or commas in it"),
    ("',' or ']'", "expected ',' or ']'", "quote a string that has brackets, braces or commas in it"),
    ("expected ':'", "a key without a ':'", "write key: value"),
    ("expected key", "the line does not fit the lines above it", "check the indentation"),
    ("<block end>", "the line does not fit the lines above it", "check the indentation"),
    ("'-' indicator", "the line does not fit the list above it", "begin it with '-', or check the indentation"),
    ("undefined alias", "'*' refers to an anchor that does not exist", "quote a string that begins with '*'"),
    ("duplicate anchor", "the anchor of line {begin} is used again", "give it another name"),
    ("another document", "a second document begins here", "a config is one document: remove the ---"),
    ("escape", "an unknown escape", r"in double quotes write \\ for a backslash, or use single quotes"),
    ("node content", "{char} is not allowed here", "quote the text"),
    ("<document start>", "{char} is not allowed here", "check the brackets before it"),
    ("tag", "unknown tag after '!'", "remove the tag, or quote a string that begins with '!'"),
]


def compose(text: str, base: type | None = None) -> yaml.Node | None:
    """Return the root node of the document in this text; None if the text is empty."""
    kind: Any = type("BoundedLoader", (_Bounds, base or getattr(yaml, "CSafeLoader", yaml.SafeLoader)), {})
    chances_left = min(text.count("${") + text.count("\\u"), REPAIR_BUDGET // (len(text) or 1))
    while True:
        loader = kind(text)
        try:
            return loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            better = repaired(text, error.problem_mark.index) if error.problem_mark else None
            if better is None or not chances_left:
                raise _in_plain_words(error, text) from None
            text, chances_left = better, chances_left - 1
        except (yaml.YAMLError, ValueError, OverflowError):  # the Python parser raises these
            raise ConfigFileError("an invalid character or number", line=1) from None
        finally:
            loader.dispose()


class _Bounds:
    """A mixin that limits depth and number of nodes while composing."""

    depth = 0
    count = 0

    def descend_resolver(self, parent: yaml.Node | None, _index: object) -> None:
        self.depth += 1
        self.count += 1
        if self.depth > MAX_DEPTH:
            raise too_deep(_line_of_node(parent))
        if self.count > MAX_NODES:
            raise too_many(_line_of_node(parent))

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def resolve(self, kind: type[yaml.Node], _value: object, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return PLAIN if implicit[0] else TEXT
        return LIST if kind is yaml.SequenceNode else MAPPING


def too_deep(line: int) -> ConfigFileError:
    return ConfigFileError(f"nested more than {MAX_DEPTH} levels deep", line=line)


def too_many(line: int) -> ConfigFileError:
    return ConfigFileError(f"more than {MAX_NODES:,} values, counting what aliases repeat", line=line)


def _line_of_node(node: yaml.Node | None) -> int:
    return node.start_mark.line + 1 if node else 1


def _in_plain_words(error: yaml.MarkedYAMLError, text: str) -> ConfigFileError:
    mark = error.problem_mark
    index = mark.index if mark else 0
    char = text[index : index + 1]
    problem = f"{error.context or ''} {error.problem or ''}"
    problem += " tab character" if char == "\t" else ""
    problem += " end of the file" if not text[index:].strip() else ""
    words = {
        "char": repr(char) if char.strip() else "the end of the line",
        "begin": error.context_mark.line + 1 if error.context_mark else 1,
    }
    for sign, message, hint in _MESSAGES:
        if all(part in problem for part in sign.split("|")):
            return _at(mark, text, message.format(**words), hint)
    return _at(mark, text, error.problem or "this is not YAML", None)


def _at(mark: Any, text: str, message: str, hint: str | None) -> ConfigFileError:
    if mark is None:
        return ConfigFileError(message, hint=hint, line=1)
    lines = len(text.splitlines()) or 1  # an error at the end of the file may be marked on the line below it
    if mark.line >= lines:
        return ConfigFileError(f"{message}, at the end of the file", line=lines, hint=hint)
    return ConfigFileError(f"{message}, in column {mark.column + 1}", line=mark.line + 1, hint=hint)


# YAML nodes -> Node

KeyPath = tuple[str | int, ...]
_MERGE = "<<"


def read_yaml(path: Path) -> Node:
    """Read the root of a file; its value is None if the file is empty. Raises ConfigFileError for invalid YAML."""
    return node_of(read_text(path), str(path))


def node_of(text: str, file: str, base: type | None = None) -> Node:
    raw = compose(text, base)
    if raw is None:
        return Node(value=None, file=file, line=1)
    return _Reader(file).node(raw, (), _line_of_node(raw))


class _Reader:
    """A converter of the YAML nodes of one file. Aliases are expanded each time, so their nodes count again."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.count = 0
        self.depth = 0

    def node(self, raw: yaml.Node, path: KeyPath, line: int) -> Node:
        self.count += 1
        if self.count > MAX_NODES:
            raise too_many(line)
        if self.depth >= MAX_DEPTH:  # also ends an alias inside its own anchor
            raise too_deep(line)
        self.depth += 1
        try:
            if isinstance(raw, yaml.MappingNode) and raw.tag == MAPPING:
                return self._mapping(raw, path, line)
            if isinstance(raw, yaml.SequenceNode) and raw.tag == LIST:
                items = [self.node(item, (*path, index), _line_of_node(item)) for index, item in enumerate(raw.value)]
                return Node(value=items, file=self.file, line=line, path=path)
        finally:
            self.depth -= 1
        if not isinstance(raw, yaml.ScalarNode):
            return self._broken(path, line, unknown_tag())
        try:
            value = tagged_value(raw.value, raw.tag)
        except ConfigFileError as refused:
            return self._broken(path, line, refused)
        advice = yaml_1_1_advice(value) if raw.tag == PLAIN and isinstance(value, str) else None
        return Node(value=value, file=self.file, line=line, path=path, trap=advice)

    def _mapping(self, raw: yaml.MappingNode, path: KeyPath, line: int) -> Node:
        entries: dict[str, Node] = {}
        mistakes: list[Mistake] = []
        merges: list[yaml.Node] = []
        for key, value in raw.value:
            if key.tag == PLAIN and key.value == _MERGE:
                merges.append(value)
                continue
            at = Node(value=BROKEN, file=self.file, line=_line_of_node(key), path=path)
            if not isinstance(key, yaml.ScalarNode):
                mistakes.append(at.mistake("a key must be a string, not a list or a mapping"))
                continue
            try:
                name = tagged_value(key.value, key.tag)
            except ConfigFileError:
                name = None
            if not isinstance(name, str):
                message = f"a key must be a string, but {key.value or 'nothing'} is not"
                mistakes.append(at.mistake(message, f'quote it: "{key.value}"'))
            elif name in entries:
                first = entries[name]
                message = f"this key is set twice, in line {first.line} and in line {at.line}"
                hint = "remove one of them"
                mistakes.append(Mistake(message=message, file=self.file, line=at.line, key=first.key, hint=hint))
            else:
                entries[name] = self.node(value, (*path, name), at.line)
        # `<<: *base` and `<<: [*one, *two]` add missing keys, so that the mapping's own keys win.
        for source in merges:
            for base in source.value if isinstance(source, yaml.SequenceNode) else [source]:
                merged = self.node(base, path, _line_of_node(base))
                if isinstance(merged.value, dict):
                    mistakes += merged.mistakes
                    for name, node in merged.value.items():
                        entries.setdefault(name, node)
                else:
                    mistakes.append(merged.mistake("'<<' can merge only mappings", 'quote the key: "<<"'))
        return Node(value=entries, file=self.file, line=line, path=path, mistakes=tuple(mistakes))

    def _broken(self, path: KeyPath, line: int, why: ConfigFileError) -> Node:
        node = Node(value=BROKEN, file=self.file, line=line, path=path)
        return replace(node, mistakes=(node.mistake(why.message, why.hint),))
