"""Text -> YAML's own nodes, within bounds, and its errors in plain words."""

from functools import cache
from typing import Any

import yaml

from onetool.config.mend import chances, mended
from onetool.config.scalars import LIST, MAPPING, PLAIN, TEXT
from onetool.config.source import Refused

MAX_DEPTH = 100
MAX_NODES = 100_000
MEND_BUDGET = 8 * 1024 * 1024  # characters that mending may have read again

# What the two parsers (of C and of Python) say, what that means, and what helps. The first that fits is taken.
# None repeats what stands in the file: it may be a file of secrets, and a password may well begin with '*' or '!'.
_WORDS = [
    ("tab character", "a tab can't stand here", "indent with spaces"),
    ("cannot start any token", "{char} can't begin a text", "quote the text"),
    ("mapping values are not allowed", "a ':' where no key can stand", "check the indentation, or quote the text"),
    ("quoted scalar|end of stream", "the quoted text of line {begin} is never closed", "add the closing quote"),
    ("flow|end of the file", "the bracket of line {begin} is never closed", "add the closing bracket"),
    ("',' or '}'", "expected ',' or '}}'", "quote a text that has brackets, braces or commas in it"),
    ("',' or ']'", "expected ',' or ']'", "quote a text that has brackets, braces or commas in it"),
    ("expected ':'", "a key without a ':'", "write key: value"),
    ("expected key", "the line does not fit in with those above it", "check the indentation"),
    ("<block end>", "the line does not fit in with those above it", "check the indentation"),
    ("'-' indicator", "the line does not fit in with the list above it", "begin it with '-', or check the indentation"),
    ("undefined alias", "'*' refers to an anchor that is not there", "quote a text that begins with '*'"),
    ("duplicate anchor", "the anchor of line {begin} is used again", "give it another name"),
    ("another document", "a second document begins here", "a config is one document: remove the ---"),
    ("escape", "an unknown escape", r"in double quotes write \\ for a backslash, or use single quotes"),
    ("node content", "{char} can't stand here", "quote the text"),
    ("<document start>", "{char} can't stand here", "check the brackets before it"),
    ("tag", "'!' begins a tag that is not known here", "remove the tag, or quote a text that begins with '!'"),
]


def compose(text: str, base: type | None = None) -> yaml.Node | None:
    """The root node of the one document in this text; None when there is nothing in it."""
    kind = _loader(base or getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    chances_left = min(chances(text), MEND_BUDGET // (len(text) or 1))
    while True:
        loader = kind(text)
        try:
            return loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            better = mended(text, error.problem_mark.index) if error.problem_mark else None
            if better is None or not chances_left:
                raise _in_plain_words(error, text) from None
            text, chances_left = better, chances_left - 1
        except (yaml.YAMLError, ValueError, OverflowError):  # the parser of Python lets some of these through
            raise Refused("a character or a number that does not exist", line=1) from None
        finally:
            loader.dispose()


@cache
def _loader(base: type) -> Any:
    return type("BoundedLoader", (_Bounds, base), {})


class _Bounds:
    """Counts nodes while they are composed, so that a hostile file costs no more than an honest one."""

    depth = 0
    count = 0

    def descend_resolver(self, parent: yaml.Node | None, _index: object) -> None:
        self.depth += 1
        self.count += 1
        if self.depth > MAX_DEPTH:
            raise too_deep(line_of(parent))
        if self.count > MAX_NODES:
            raise too_many(line_of(parent))

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def resolve(self, kind: type[yaml.Node], _value: object, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return PLAIN if implicit[0] else TEXT
        return LIST if kind is yaml.SequenceNode else MAPPING


def too_deep(line: int) -> Refused:
    return Refused(f"nested more than {MAX_DEPTH} levels deep", line=line)


def too_many(line: int) -> Refused:
    return Refused(f"more than {MAX_NODES:,} values, counting what aliases repeat", line=line)


def line_of(node: yaml.Node | None) -> int:
    return node.start_mark.line + 1 if node else 1


def _in_plain_words(error: yaml.MarkedYAMLError, text: str) -> Refused:
    mark = error.problem_mark
    index = mark.index if mark else 0
    char = text[index : index + 1]
    said = f"{error.context or ''} {error.problem or ''}"
    said += " tab character" if char == "\t" else ""
    said += " end of the file" if not text[index:].strip() else ""
    words = {
        "char": repr(char) if char.strip() else "the end of the line",
        "begin": error.context_mark.line + 1 if error.context_mark else 1,
    }
    for sign, message, hint in _WORDS:
        if all(part in said for part in sign.split("|")):
            return _at(mark, text, message.format(**words), hint)
    return _at(mark, text, error.problem or "this is not YAML", None)


def _at(mark: Any, text: str, message: str, hint: str | None) -> Refused:
    if mark is None:
        return Refused(message, hint=hint, line=1)
    lines = len(text.splitlines()) or 1  # an error at the end of the file may be marked one line below it
    if mark.line >= lines:
        return Refused(f"{message}, at the end of the file", line=lines, hint=hint)
    return Refused(f"{message}, in column {mark.column + 1}", line=mark.line + 1, hint=hint)
