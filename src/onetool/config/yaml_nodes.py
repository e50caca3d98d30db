"""Parses YAML text into nodes that know their file and line, with limits on size and depth."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from onetool.config.node import BROKEN, Node
from onetool.config.yaml_text import (
    LIST,
    MAPPING,
    PLAIN,
    TEXT,
    ConfigFileError,
    possible_repairs,
    read_text,
    repaired,
    tagged_value,
    unknown_tag,
    yaml_1_1_advice,
)
from onetool.core.errors import Mistake

MAX_DEPTH = 100
MAX_NODES = 100_000
MEND_BUDGET = 8 * 1024 * 1024  # characters that mending may have read again

# Messages of the two parsers (C and Python), what they mean, and what helps. The first match counts.
# None repeats what stands in the file: it may be a file of secrets, and a password may begin with '*' or '!'.
_MESSAGES = [
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
    chances_left = min(possible_repairs(text), MEND_BUDGET // (len(text) or 1))
    while True:
        loader = kind(text)
        try:
            return loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            better = repaired(text, error.problem_mark.index) if error.problem_mark else None
            if better is None or not chances_left:
                raise _in_plain_words(error, text) from None
            text, chances_left = better, chances_left - 1
        except (yaml.YAMLError, ValueError, OverflowError):  # the parser of Python lets some of these through
            raise ConfigFileError("a character or a number that does not exist", line=1) from None
        finally:
            loader.dispose()


@cache
def _loader(base: type) -> Any:
    return type("BoundedLoader", (_Bounds, base), {})


class _Bounds:
    """Limits depth and number of nodes while composing."""

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


def too_deep(line: int) -> ConfigFileError:
    return ConfigFileError(f"nested more than {MAX_DEPTH} levels deep", line=line)


def too_many(line: int) -> ConfigFileError:
    return ConfigFileError(f"more than {MAX_NODES:,} values, counting what aliases repeat", line=line)


def line_of(node: yaml.Node | None) -> int:
    return node.start_mark.line + 1 if node else 1


def _in_plain_words(error: yaml.MarkedYAMLError, text: str) -> ConfigFileError:
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
    for sign, message, hint in _MESSAGES:
        if all(part in said for part in sign.split("|")):
            return _at(mark, text, message.format(**words), hint)
    return _at(mark, text, error.problem or "this is not YAML", None)


def _at(mark: Any, text: str, message: str, hint: str | None) -> ConfigFileError:
    if mark is None:
        return ConfigFileError(message, hint=hint, line=1)
    lines = len(text.splitlines()) or 1  # an error at the end of the file may be marked one line below it
    if mark.line >= lines:
        return ConfigFileError(f"{message}, at the end of the file", line=lines, hint=hint)
    return ConfigFileError(f"{message}, in column {mark.column + 1}", line=mark.line + 1, hint=hint)


# YAML nodes -> Node


KeyPath = tuple[str | int, ...]

_MERGE = "<<"


def read_yaml(path: Path) -> Node:
    """The root of the file; its value is None if the file is empty. Raises ConfigFileError if it is not YAML at all."""
    return node_of(read_text(path), str(path))


def node_of(text: str, file: str, base: type | None = None) -> Node:
    raw = compose(text, base)
    if raw is None:
        return Node(value=None, file=file, line=1)
    return _Reader(file).node(raw, (), line_of(raw))


class _Reader:
    """Converts the YAML nodes of one file. Aliases are expanded each time, so this is limited, too."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.count = 0
        self.depth = 0

    def node(self, raw: yaml.Node, path: KeyPath, line: int) -> Node:
        self.count += 1
        if self.count > MAX_NODES:
            raise too_many(line)
        if self.depth >= MAX_DEPTH:  # also the end of an alias that stands inside of its own anchor
            raise too_deep(line)
        self.depth += 1
        try:
            return self._node(raw, path, line)
        finally:
            self.depth -= 1

    def _node(self, raw: yaml.Node, path: KeyPath, line: int) -> Node:
        if isinstance(raw, yaml.MappingNode) and raw.tag == MAPPING:
            return self._mapping(raw, path, line)
        if isinstance(raw, yaml.SequenceNode) and raw.tag == LIST:
            items = [self.node(item, (*path, index), line_of(item)) for index, item in enumerate(raw.value)]
            return Node(value=items, file=self.file, line=line, path=path)
        if isinstance(raw, yaml.ScalarNode):
            return self._scalar(raw, path, line)
        return self._broken(path, line, unknown_tag())

    def _scalar(self, raw: yaml.ScalarNode, path: KeyPath, line: int) -> Node:
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
            name = _key_text(key)
            if name is None:
                mistakes.append(self._bad_key(key, path))
            elif name in entries:
                mistakes.append(self._twice(entries[name], line_of(key)))
            else:
                entries[name] = self.node(value, (*path, name), line_of(key))
        for source in merges:
            mistakes += self._merge(source, entries, path)
        return Node(value=entries, file=self.file, line=line, path=path, mistakes=tuple(mistakes))

    def _merge(self, source: yaml.Node, entries: dict[str, Node], path: KeyPath) -> list[Mistake]:
        """`<<: *base` or `<<: [*one, *two]`: adds what is not there yet, so that the mapping's own keys win."""
        mistakes: list[Mistake] = []
        for raw in source.value if isinstance(source, yaml.SequenceNode) else [source]:
            merged = self.node(raw, path, line_of(raw))
            if isinstance(merged.value, dict):
                mistakes += merged.mistakes
                for name, node in merged.value.items():
                    entries.setdefault(name, node)
            else:
                mistakes.append(merged.mistake("'<<' merges a mapping, and this is none", 'quote the key: "<<"'))
        return mistakes

    def _twice(self, first: Node, line: int) -> Mistake:
        message = f"this key is set twice, in line {first.line} and in line {line}"
        return Mistake(message=message, file=self.file, line=line, key=first.key, hint="remove one of them")

    def _bad_key(self, key: yaml.Node, path: KeyPath) -> Mistake:
        at = Node(value=BROKEN, file=self.file, line=line_of(key), path=path)
        if not isinstance(key, yaml.ScalarNode):
            return at.mistake("a key must be text, not a list or a mapping")
        return at.mistake(f"a key must be text, and {key.value or 'nothing'} is not", f'quote it: "{key.value}"')

    def _broken(self, path: KeyPath, line: int, why: ConfigFileError) -> Node:
        node = Node(value=BROKEN, file=self.file, line=line, path=path)
        return replace(node, mistakes=(node.mistake(why.message, why.hint),))


def _key_text(key: yaml.Node) -> str | None:
    try:
        value = tagged_value(key.value, key.tag) if isinstance(key, yaml.ScalarNode) else None
    except ConfigFileError:
        return None
    return value if isinstance(value, str) else None
