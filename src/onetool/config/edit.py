"""The text of a config file, changed in one place: comments, order and layout of everything else stay.

The places come from the YAML parser; what was made is read once more, and has to be the same data but for the change.
Works on texts; touches no file.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from onetool.config.convert import plain
from onetool.config.node import Findings
from onetool.config.yaml_nodes import compose, node_of
from onetool.config.yaml_text import VARIABLE, ConfigFileError, plain_value, yaml_1_1_advice

WIDEST = 100  # a longer list gets a line for each item
BY_HAND = "it is written in a way that can't be changed from here; please edit it by hand"

Place = tuple[yaml.Node, yaml.Node]  # a key and its value
Ways = Callable[["ConfigText"], Iterator[str]]
"""The ways to change a text, the nicest first."""

_UNPARSEABLE = re.compile(r"\$\{" + VARIABLE + r"\}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_UNQUOTED = re.compile(r"[A-Za-z0-9_./$][\w./${}@:+=,?&%-]*(?<!:)", re.ASCII)


def edited(text: str, candidates: Ways, key: str, value: Any) -> str:
    """The first candidate text whose data differs in this value only. Raises ConfigFileError if there is none."""
    expected = {**data_of(text), key: value}
    for new in candidates(ConfigText(text)):
        try:
            data = data_of(new)
        except ConfigFileError:
            continue
        if {**data, key: data.get(key) or type(value)()} == expected:
            return new
    raise ConfigFileError(BY_HAND)


def data_of(text: str) -> dict[str, Any]:
    findings = Findings()
    data = plain(node_of(text, ""), findings)
    if findings.errors:
        raise ConfigFileError(findings.errors[0].message, line=findings.errors[0].line)
    if data is not None and not isinstance(data, dict):
        raise ConfigFileError("it holds no mapping")
    return data or {}


class ConfigText:
    """The text of a config with the positions of its YAML nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        # What the reader would mend is covered, character for character: so places in this are places in the text.
        root = compose(_UNPARSEABLE.sub(lambda found: "x" * len(found[0]), text))
        self.root = root if isinstance(root, yaml.MappingNode) else None

    def find(self, *path: str) -> Place | None:
        node, entry = self.root, None
        for name in path:
            members = node.value if isinstance(node, yaml.MappingNode) else []
            entry = next(((key, value) for key, value in members if self.reads(key) == name), None)
            node = entry[1] if entry else None
        return entry

    def reads(self, key: yaml.Node) -> str:
        """What a key says, also where some of it was covered."""
        written = self.text[key.start_mark.index : key.end_mark.index]
        return plain(node_of(written, ""), Findings()) if _UNPARSEABLE.search(written) else key.value

    def mapping(self, *path: str) -> yaml.MappingNode:
        entry = self.find(*path)
        if entry is None or not isinstance(entry[1], yaml.MappingNode):  # merged in from elsewhere, say
            raise ConfigFileError(BY_HAND)
        return entry[1]

    def added(self, mapping: yaml.MappingNode, members: Mapping[str, Any], at_end: bool = False) -> Iterator[str]:
        """One or more members behind the last one of a mapping; `at_end`: also behind the comments that follow."""
        if mapping.flow_style:
            yield self._added_in_braces(mapping, members)
            return
        lines = lines_of(members, self.indent_of(mapping), self.unit())
        last = self.line_end(self.end_of(mapping))
        if not at_end:
            yield from self.with_lines(last, lines, ("",))
        yield from self.with_lines(mapping.end_mark.index, lines, (self.newline, "") if at_end else ("",))

    def _added_in_braces(self, mapping: yaml.MappingNode, members: Mapping[str, Any]) -> str:
        begin, end = mapping.start_mark.index, mapping.end_mark.index
        indent = self.newline + self.indent_at(mapping.value[0][0].start_mark.index) if mapping.value else ""
        space = indent if indent and "\n" in self.text[begin:end] else " "
        entries = [f"{quoted(name)}: {quoted(member)}" for name, member in members.items()]
        if not mapping.value:
            return self.spliced(begin + 1, begin + 1, ", ".join(entries))
        at = self.end_of_entry(mapping.value[-1])
        return self.spliced(at, at, "".join(f",{space}{entry}" for entry in entries))

    def filled(self, entry: Place, members: Mapping[str, Any]) -> str:
        """A key with nothing behind it, or `{}`."""
        key, value = entry
        begin, end = value.start_mark.index, value.end_mark.index
        if self.root is not None and self.root.flow_style:
            return self.spliced(begin, end, f" {quoted(members)}" if begin == end else quoted(members))
        lines = lines_of(members, self.indent_at(key.start_mark.index) + "  ", "  ")
        line = self.line_end(end)
        rest = self.text[end:line]
        rest = rest if rest.endswith("\n") else rest + self.newline
        return self.spliced(begin, line, rest + self.joined(lines))

    def replaced(self, entry: Place, mapping: yaml.MappingNode, name: str, block: Mapping[str, Any]) -> str:
        key, value = entry
        if mapping.flow_style:
            begin, end = value.start_mark.index, value.end_mark.index
            return self.spliced(begin, end, f" {quoted(block)}" if begin == end else quoted(block))
        lines = lines_of({name: block}, self.indent_of(mapping), self.unit())
        begin, end = key.start_mark.index, self.end_of_entry(entry)
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
        place = self.find("servers")
        if place is None or not isinstance(place[1], yaml.MappingNode) or not place[1].value or place[1].flow_style:
            return "  "
        return " " * (place[1].value[0][0].start_mark.column - place[0].start_mark.column) or "  "


# Writing YAML


def lines_of(members: Mapping[str, Any], indent: str, unit: str) -> list[str]:
    """A mapping as lines: one for each scalar and each short list."""
    lines: list[str] = []
    for name, value in members.items():
        head = f"{indent}{scalar(name)}:"
        if isinstance(value, Mapping) and value:
            lines += [head, *lines_of(value, indent + unit, unit)]
        elif isinstance(value, list | tuple) and len(quoted(value)) > WIDEST:
            lines += [head, *(f"{indent}{unit}- {scalar(item)}" for item in value)]
        else:
            lines.append(f"{head} {scalar(value)}")
    return lines


def scalar(value: Any) -> str:
    if isinstance(value, str) and _UNQUOTED.fullmatch(value) and _stays_text(value):
        return value
    return quoted(value)


def _stays_text(text: str) -> bool:
    try:
        return isinstance(plain_value(text), str) and yaml_1_1_advice(text) is None
    except ValueError:
        return False


def quoted(value: Any) -> str:
    """What is JSON is YAML too. Characters that are better not seen are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
