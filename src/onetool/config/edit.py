"""Changes the text of a config file in one place: adds and removes servers and allowed hosts.

Comments, order and layout of everything else stay. The places come from the YAML parser; what was made is read once
more, and has to be the same data but for the change. Works on texts; touches no file.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from onetool.config.convert import plain
from onetool.config.node import Findings
from onetool.config.yaml_nodes import VARIABLE, ConfigFileError, compose, node_of, plain_value, yaml_1_1_advice

WIDEST = 100  # a longer list gets a line for each item
BY_HAND = "it is written in a way that can't be changed from here; please edit it by hand"

Place = tuple[yaml.Node, yaml.Node]  # a key and its value
Ways = Callable[["ConfigText"], Iterator[str]]
"""The ways to change a text, the nicest first."""

_UNPARSEABLE = re.compile(r"\$\{" + VARIABLE + r"\}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_UNQUOTED = re.compile(r"[A-Za-z0-9_./$][\w./${}@:+=,?&%-]*(?<!:)", re.ASCII)


def _edited(text: str, candidates: Ways, key: str, value: Any) -> str:
    """The first candidate text whose data differs in this value only. Raises ConfigFileError if there is none."""
    expected = {**_data_of(text), key: value}
    for new in candidates(ConfigText(text)):
        try:
            data = _data_of(new)
        except ConfigFileError:
            continue
        if {**data, key: data.get(key) or type(value)()} == expected:
            return new
    raise ConfigFileError(BY_HAND)


def _data_of(text: str) -> dict[str, Any]:
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
        lines = _lines_of(members, self.indent_of(mapping), self.unit())
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

    def filled(self, entry: Place, members: Mapping[str, Any]) -> str:
        """A key with nothing behind it, or `{}`."""
        key, value = entry
        begin, end = value.start_mark.index, value.end_mark.index
        if self.root is not None and self.root.flow_style:
            return self.spliced(begin, end, f" {_quoted(members)}" if begin == end else _quoted(members))
        lines = _lines_of(members, self.indent_at(key.start_mark.index) + "  ", "  ")
        line = self.line_end(end)
        rest = self.text[end:line]
        rest = rest if rest.endswith("\n") else rest + self.newline
        return self.spliced(begin, line, rest + self.joined(lines))

    def replaced(self, entry: Place, mapping: yaml.MappingNode, name: str, block: Mapping[str, Any]) -> str:
        key, value = entry
        if mapping.flow_style:
            begin, end = value.start_mark.index, value.end_mark.index
            return self.spliced(begin, end, f" {_quoted(block)}" if begin == end else _quoted(block))
        lines = _lines_of({name: block}, self.indent_of(mapping), self.unit())
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


def _lines_of(members: Mapping[str, Any], indent: str, unit: str) -> list[str]:
    """A mapping as lines: one for each scalar and each short list."""
    lines: list[str] = []
    for name, value in members.items():
        head = f"{indent}{_scalar(name)}:"
        if isinstance(value, Mapping) and value:
            lines += [head, *_lines_of(value, indent + unit, unit)]
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
        return isinstance(plain_value(text), str) and yaml_1_1_advice(text) is None
    except ValueError:
        return False


def _quoted(value: Any) -> str:
    """What is JSON is YAML too. Characters that are better not seen are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


# Entries of `servers`


SERVERS_KEY = "servers"

Block = Mapping[str, Any]


def put_servers(text: str, servers: Mapping[str, Block]) -> str:
    """The text with these servers: new ones behind those that are there, known ones in the place of the old."""
    there = _servers_of(text)
    for name in servers.keys() & there.keys():
        text = _edited(text, _replacing(name, servers[name]), SERVERS_KEY, {**_servers_of(text), name: servers[name]})
    new = {name: block for name, block in servers.items() if name not in there}
    return _edited(text, _adding(new), SERVERS_KEY, {**_servers_of(text), **new}) if new else text


def drop_server(text: str, name: str) -> str:
    """The text without this server."""
    rest = {other: block for other, block in _servers_of(text).items() if other != name}
    return _edited(text, _dropping(name), SERVERS_KEY, rest)


def switch_server(text: str, name: str, on: bool) -> str:
    """The text with this server switched on or off: by the keys that its block has, else by a new `enabled`."""
    servers = _servers_of(text)
    block = servers.get(name)
    if not isinstance(block, dict):
        raise ConfigFileError(BY_HAND)
    changes = {key: value for key, value in (("enabled", on), ("disabled", not on)) if key in block}
    for key, value in (changes or {"enabled": on}).items():
        block = {**block, key: value}
        text = _edited(text, _setting(name, key, value), SERVERS_KEY, {**servers, name: block})
    return text


def servers_yaml(servers: Mapping[str, Block]) -> str:
    """The servers by themselves, to look at or to paste."""
    return "\n".join([*_lines_of({SERVERS_KEY: servers}, "", "  "), ""])


# Edits: each yields candidate texts, the preferred one first


def _adding(servers: Mapping[str, Block]) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        if text.root is None:
            yield from text.with_lines(len(text.text), _lines_of({SERVERS_KEY: servers}, "", "  "), ("", text.newline))
            return
        found = text.find(SERVERS_KEY)
        if found is None:
            yield from text.added(text.root, {SERVERS_KEY: servers}, at_end=True)
        elif not isinstance(found[1], yaml.MappingNode) or not found[1].value:
            yield text.filled(found, servers)
        else:
            yield from text.added(found[1], servers)

    return ways


def _replacing(name: str, block: Block) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        if (place := text.find(SERVERS_KEY, name)) is not None:
            yield text.replaced(place, text.mapping(SERVERS_KEY), name, block)

    return ways


def _dropping(name: str) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        if (place := text.find(SERVERS_KEY, name)) is not None:
            yield text.cut(place, text.mapping(SERVERS_KEY))

    return ways


def _setting(name: str, key: str, value: bool) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        if (place := text.find(SERVERS_KEY, name, key)) is not None:
            yield text.spliced(place[1].start_mark.index, place[1].end_mark.index, _quoted(value))
        else:
            yield from text.added(text.mapping(SERVERS_KEY, name), {key: value})

    return ways


def _servers_of(text: str) -> dict[str, Any]:
    servers = _data_of(text).get(SERVERS_KEY) or {}
    if not isinstance(servers, dict):
        raise ConfigFileError(f"{SERVERS_KEY} in it is no mapping")
    return servers


# Entries of `allowedHosts`


HOSTS_KEY = "allowedHosts"

Entry = str | dict[str, Any]


def entry_of(host: str, private: bool) -> Entry:
    """The entry for the file: a host, or a mapping that also allows private addresses."""
    return {"host": host, "allowPrivate": True} if private else host


def host_of(entry: Any) -> str:
    """What an entry is about, in small letters."""
    return str(entry.get("host", "") if isinstance(entry, dict) else entry).lower()


def put_host(text: str, host: str, private: bool) -> str:
    """The text with this host behind the others. An entry of the same host that says less is replaced."""
    new = entry_of(host, private)
    if any(host_of(entry) == host.lower() for entry in _entries(text)):
        text = drop_host(text, host)
    return _edited(text, _adding_hosts(new), HOSTS_KEY, [*_entries(text), new])


def drop_host(text: str, host: str) -> str:
    """The text without the entries of this host."""
    while (at := next((i for i, one in enumerate(_entries(text)) if host_of(one) == host.lower()), None)) is not None:
        rest = _entries(text)
        del rest[at]
        text = _edited(text, _dropping_host(at), HOSTS_KEY, rest)
    return text


def _adding_hosts(entry: Entry) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        found = text.find(HOSTS_KEY)
        if text.root is None:
            yield from text.with_lines(len(text.text), _lines_of({HOSTS_KEY: [entry]}, "", "  "), ("", text.newline))
        elif found is None:
            yield from text.added(text.root, {HOSTS_KEY: [entry]}, at_end=True)
        elif not isinstance(found[1], yaml.SequenceNode):  # nothing stands behind the key
            begin, end = found[1].start_mark.index, found[1].end_mark.index
            yield text.spliced(begin, end, f" [{_written(entry)}]" if begin == end else f"[{_written(entry)}]")
        elif found[1].flow_style:
            yield _added_in_brackets(text, found[1], _written(entry))
        else:
            line = f"{' ' * found[1].start_mark.column}- {_written(entry)}"
            yield from text.with_lines(text.line_end(text.end_of(found[1])), [line], ("",))

    return ways


def _added_in_brackets(text: ConfigText, found: yaml.SequenceNode, entry: str) -> str:
    if not found.value:
        at = found.start_mark.index + 1
        return text.spliced(at, at, entry)
    at, first = text.end_of(found.value[-1]), found.value[0].start_mark.index
    indent = text.newline + text.indent_at(first)
    is_spread = "\n" in text.text[found.start_mark.index : first]
    return text.spliced(at, at, f",{indent if is_spread else ' '}{entry}")


def _dropping_host(at: int) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        found = text.find(HOSTS_KEY)
        if found is None or not isinstance(found[1], yaml.SequenceNode):
            raise ConfigFileError(BY_HAND)
        items = found[1].value
        begin, end = items[at].start_mark.index, text.end_of(items[at])
        if not found[1].flow_style:
            yield text.spliced(text.text.rfind("\n", 0, begin) + 1, text.line_end(end), "")
        elif at + 1 < len(items):
            yield text.spliced(begin, items[at + 1].start_mark.index, "")
        elif at:
            yield text.spliced(text.end_of(items[at - 1]), end, "")
        else:
            yield text.spliced(begin, end, "")

    return ways


def _written(entry: Entry) -> str:
    if isinstance(entry, str):
        return _scalar(entry) if not set(entry) & set(",[]{}") else _quoted(entry)
    return f"{{host: {_quoted(entry['host'])}, allowPrivate: true}}"


def _entries(text: str) -> list[Any]:
    entries = _data_of(text).get(HOSTS_KEY) or []
    if not isinstance(entries, list):
        raise ConfigFileError(f"{HOSTS_KEY} in it is no list")
    return list(entries)
