"""One YAML file -> a Node: keys checked, aliases and merges carried out, scalars read, every value with its line."""

from pathlib import Path

import yaml
from msgspec.structs import replace

from onetool.config.node import BROKEN, Node
from onetool.config.scalars import LIST, MAPPING, PLAIN, tagged_value, trap, unknown_tag
from onetool.config.source import Refused, read_text
from onetool.config.syntax import MAX_DEPTH, MAX_NODES, compose, line_of, too_deep, too_many
from onetool.core.errors import Mistake

Place = tuple[str | int, ...]

_MERGE = "<<"


def read_yaml(path: Path) -> Node:
    """The root of the file, its value None when the file is empty. Raises Refused when it is not YAML at all."""
    return node_of(read_text(path), str(path))


def node_of(text: str, file: str, base: type | None = None) -> Node:
    raw = compose(text, base)
    if raw is None:
        return Node(value=None, file=file, line=1)
    return _Reader(file).node(raw, (), line_of(raw))


class _Reader:
    """Walks the nodes of one file. Aliases are walked again wherever they stand, so this walk is bounded too."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.count = 0
        self.depth = 0

    def node(self, raw: yaml.Node, path: Place, line: int) -> Node:
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

    def _node(self, raw: yaml.Node, path: Place, line: int) -> Node:
        if isinstance(raw, yaml.MappingNode) and raw.tag == MAPPING:
            return self._mapping(raw, path, line)
        if isinstance(raw, yaml.SequenceNode) and raw.tag == LIST:
            items = [self.node(item, (*path, index), line_of(item)) for index, item in enumerate(raw.value)]
            return Node(value=items, file=self.file, line=line, path=path)
        if isinstance(raw, yaml.ScalarNode):
            return self._scalar(raw, path, line)
        return self._broken(path, line, unknown_tag())

    def _scalar(self, raw: yaml.ScalarNode, path: Place, line: int) -> Node:
        try:
            value = tagged_value(raw.value, raw.tag)
        except Refused as refused:
            return self._broken(path, line, refused)
        advice = trap(value) if raw.tag == PLAIN and isinstance(value, str) else None
        return Node(value=value, file=self.file, line=line, path=path, trap=advice)

    def _mapping(self, raw: yaml.MappingNode, path: Place, line: int) -> Node:
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

    def _merge(self, source: yaml.Node, entries: dict[str, Node], path: Place) -> list[Mistake]:
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

    def _bad_key(self, key: yaml.Node, path: Place) -> Mistake:
        at = Node(value=BROKEN, file=self.file, line=line_of(key), path=path)
        if not isinstance(key, yaml.ScalarNode):
            return at.mistake("a key must be text, not a list or a mapping")
        return at.mistake(f"a key must be text, and {key.value or 'nothing'} is not", f'quote it: "{key.value}"')

    def _broken(self, path: Place, line: int, why: Refused) -> Node:
        node = Node(value=BROKEN, file=self.file, line=line, path=path)
        return replace(node, mistakes=(node.mistake(why.message, why.hint),))


def _key_text(key: yaml.Node) -> str | None:
    try:
        value = tagged_value(key.value, key.tag) if isinstance(key, yaml.ScalarNode) else None
    except Refused:
        return None
    return value if isinstance(value, str) else None
