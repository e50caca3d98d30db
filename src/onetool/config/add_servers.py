"""Servers put into, or taken out of, the text of a config file: comments, order and layout of everything else stay.

The places come from the YAML parser; what was made is read once more, and has to be the same data but for the servers.
Works on texts; touches no file.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from onetool.config.mend import NAME
from onetool.config.node import Findings
from onetool.config.scalars import plain_value, trap
from onetool.config.shape import plain
from onetool.config.source import Refused
from onetool.config.syntax import compose
from onetool.config.yaml_nodes import node_of

KEY = "servers"
WIDEST = 100  # a longer list gets a line for each item

Block = Mapping[str, Any]
Place = tuple[yaml.Node, yaml.Node]  # a key and its value

_STUMBLED_OVER = re.compile(r"\$\{" + NAME + r"\}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_UNQUOTED = re.compile(r"[A-Za-z0-9_./$][\w./${}@:+=,?&%-]*(?<!:)", re.ASCII)


def put_servers(text: str, servers: Mapping[str, Block]) -> str:
    """The text with these servers: new ones behind those that are there, known ones in the place of the old."""
    there = _servers_of(text)
    for name in servers.keys() & there.keys():
        text = _edited(text, _replacing(name, servers[name]), {**_servers_of(text), name: servers[name]})
    new = {name: block for name, block in servers.items() if name not in there}
    return _edited(text, _adding(new), {**_servers_of(text), **new}) if new else text


def drop_server(text: str, name: str) -> str:
    """The text without this server."""
    rest = {other: block for other, block in _servers_of(text).items() if other != name}
    return _edited(text, _dropping(name), rest)


def servers_yaml(servers: Mapping[str, Block]) -> str:
    """The servers by themselves, to look at or to paste."""
    return "\n".join([*_lines({KEY: servers}, "", "  "), ""])


# What is done to the text: each gives the ways to do it, the nicest first


def _adding(servers: Mapping[str, Block]) -> Callable[["_Text"], Iterator[str]]:
    def ways(text: _Text) -> Iterator[str]:
        if text.root is None:
            yield from text.with_lines(len(text.text), _lines({KEY: servers}, "", "  "), ("", text.newline))
            return
        found = text.find(KEY)
        if found is None:
            yield from text.added(text.root, {KEY: servers}, at_end=True)
        elif not isinstance(found[1], yaml.MappingNode) or not found[1].value:
            yield text.filled(found, servers)
        else:
            yield from text.added(found[1], servers)

    return ways


def _replacing(name: str, block: Block) -> Callable[["_Text"], Iterator[str]]:
    def ways(text: _Text) -> Iterator[str]:
        if (place := text.find(KEY, name)) is not None:
            yield text.replaced(place, text.servers(), name, block)

    return ways


def _dropping(name: str) -> Callable[["_Text"], Iterator[str]]:
    def ways(text: _Text) -> Iterator[str]:
        if (place := text.find(KEY, name)) is not None:
            yield text.cut(place, text.servers())

    return ways


def _edited(text: str, ways: Callable[["_Text"], Iterator[str]], servers: Mapping[str, Block]) -> str:
    """The first way that gives the same data with just these servers; Refused when there is none."""
    expected = {**_data(text), KEY: servers}
    for new in ways(_Text(text)):
        try:
            data = _data(new)
        except Refused:
            continue
        if {**data, KEY: data.get(KEY) or {}} == expected:
            return new
    raise Refused("it is written in a way that can't be changed from here; please edit it by hand")


def _servers_of(text: str) -> dict[str, Any]:
    servers = _data(text).get(KEY) or {}
    if not isinstance(servers, dict):
        raise Refused(f"{KEY} in it is no mapping")
    return servers


def _data(text: str) -> dict[str, Any]:
    findings = Findings()
    data = plain(node_of(text, ""), findings)
    if findings.errors:
        raise Refused(findings.errors[0].message, line=findings.errors[0].line)
    if data is not None and not isinstance(data, dict):
        raise Refused("it holds no mapping")
    return data or {}


class _Text:
    """A text, and where things stand in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        # What the reader would mend is covered, character for character: so places in this are places in the text.
        root = compose(_STUMBLED_OVER.sub(lambda found: "x" * len(found[0]), text))
        self.root = root if isinstance(root, yaml.MappingNode) else None

    def find(self, *path: str) -> Place | None:
        node, place = self.root, None
        for name in path:
            members = node.value if isinstance(node, yaml.MappingNode) else []
            place = next(((key, value) for key, value in members if self.reads(key) == name), None)
            node = place[1] if place else None
        return place

    def reads(self, key: yaml.Node) -> str:
        """What a key says, also where some of it was covered."""
        written = self.text[key.start_mark.index : key.end_mark.index]
        return plain(node_of(written, ""), Findings()) if _STUMBLED_OVER.search(written) else key.value

    def servers(self) -> yaml.MappingNode:
        place = self.find(KEY)
        if place is None or not isinstance(place[1], yaml.MappingNode):  # merged in from elsewhere, say
            raise Refused("it is written in a way that can't be changed from here; please edit it by hand")
        return place[1]

    def added(self, mapping: yaml.MappingNode, members: Mapping[str, Any], at_end: bool = False) -> Iterator[str]:
        """One or more members behind the last one of a mapping; `at_end`: also behind the comments that follow."""
        if mapping.flow_style:
            yield self._added_in_braces(mapping, members)
            return
        lines = _lines(members, self.indent_of(mapping), self.unit())
        last = self.line_end(self.end_of(mapping))
        if not at_end:
            yield from self.with_lines(last, lines, ("",))
        yield from self.with_lines(mapping.end_mark.index, lines, (self.newline, "") if at_end else ("",))

    def _added_in_braces(self, mapping: yaml.MappingNode, members: Mapping[str, Any]) -> str:
        begin, end = mapping.start_mark.index, mapping.end_mark.index
        indent = self.newline + self.indent_at(mapping.value[0][0].start_mark.index) if mapping.value else ""
        space = indent if indent and "\n" in self.text[begin:end] else " "
        entries = [f"{_quoted(name)}: {_quoted(member)}" for name, member in members.items()]
        if not mapping.value:
            return self.spliced(begin + 1, begin + 1, ", ".join(entries))
        at = self.end_of_entry(mapping.value[-1])
        return self.spliced(at, at, "".join(f",{space}{entry}" for entry in entries))

    def filled(self, place: Place, servers: Mapping[str, Block]) -> str:
        """`servers:` with nothing behind it, or `{}`."""
        key, value = place
        begin, end = value.start_mark.index, value.end_mark.index
        if self.root is not None and self.root.flow_style:
            return self.spliced(begin, end, f" {_quoted(servers)}" if begin == end else _quoted(servers))
        lines = _lines(servers, self.indent_at(key.start_mark.index) + "  ", "  ")
        line = self.line_end(end)
        rest = self.text[end:line]
        rest = rest if rest.endswith("\n") else rest + self.newline
        return self.spliced(begin, line, rest + self.joined(lines))

    def replaced(self, place: Place, mapping: yaml.MappingNode, name: str, block: Block) -> str:
        key, value = place
        if mapping.flow_style:
            begin, end = value.start_mark.index, value.end_mark.index
            return self.spliced(begin, end, f" {_quoted(block)}" if begin == end else _quoted(block))
        lines = _lines({name: block}, self.indent_of(mapping), self.unit())
        begin, end = key.start_mark.index, self.end_of_entry(place)
        return self.spliced(begin, end, self.newline.join(lines).lstrip(" "))

    def cut(self, place: Place, mapping: yaml.MappingNode) -> str:
        key, _ = place
        begin, end = key.start_mark.index, self.end_of_entry(place)
        if not mapping.flow_style:
            return self.spliced(self.text.rfind("\n", 0, begin) + 1, self.line_end(end), "")
        at = next(index for index, entry in enumerate(mapping.value) if entry[0] is key)
        if at + 1 < len(mapping.value):
            return self.spliced(begin, mapping.value[at + 1][0].start_mark.index, "")
        if at:
            return self.spliced(self.end_of_entry(mapping.value[at - 1]), end, "")
        comma = re.compile(r"\s*,").match(self.text, end)
        return self.spliced(begin, comma.end() if comma else end, "")

    # Places

    def with_lines(self, at: int, lines: list[str], gaps: tuple[str, ...]) -> Iterator[str]:
        """With whole lines at this place; once for each of the gaps before them."""
        begun = "" if at == 0 or self.text[at - 1] == "\n" else self.newline
        for gap in gaps:
            yield self.spliced(at, at, begun + gap + self.joined(lines))

    def joined(self, lines: list[str]) -> str:
        return "".join(line + self.newline for line in lines)

    def spliced(self, begin: int, end: int, new: str) -> str:
        return self.text[:begin] + new + self.text[end:]

    def end_of(self, node: yaml.Node) -> int:
        """Where a node's own text ends. A block's mark stands behind the comments that follow, which are another's."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self.end_of_entry(last) if isinstance(node, yaml.MappingNode) else self.end_of(last)
        return len(self.text[: node.end_mark.index].rstrip())

    def end_of_entry(self, place: Place) -> int:
        key, value = place
        return max(key.end_mark.index + 1, self.end_of(value))  # an alias is marked where its anchor stands

    def line_end(self, at: int) -> int:
        """The start of the next line."""
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end + 1

    def indent_at(self, at: int) -> str:
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def indent_of(self, mapping: yaml.MappingNode) -> str:
        return " " * mapping.value[0][0].start_mark.column

    def unit(self) -> str:
        """How deep this file indents its servers; two spaces where it has none."""
        place = self.find(KEY)
        if place is None or not isinstance(place[1], yaml.MappingNode) or not place[1].value or place[1].flow_style:
            return "  "
        return " " * (place[1].value[0][0].start_mark.column - place[0].start_mark.column) or "  "


# How it is written


def _lines(members: Mapping[str, Any], indent: str, unit: str) -> list[str]:
    """A mapping as lines: one for each scalar and each short list."""
    lines: list[str] = []
    for name, value in members.items():
        head = f"{indent}{_scalar(name)}:"
        if isinstance(value, Mapping) and value:
            lines += [head, *_lines(value, indent + unit, unit)]
        elif isinstance(value, list | tuple) and len(_quoted(value)) > WIDEST:
            lines += [head, *(f"{indent}{unit}- {_scalar(item)}" for item in value)]
        else:
            lines.append(f"{head} {_scalar(value)}")
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _UNQUOTED.fullmatch(value) and _stays_text(value):
        return value
    return _quoted(value)


def _stays_text(text: str) -> bool:
    try:
        return isinstance(plain_value(text), str) and trap(text) is None
    except ValueError:
        return False


def _quoted(value: Any) -> str:
    """What is JSON is YAML too. Characters that are better not seen are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
