"""Adds and removes servers and allowed hosts in the text of a config file.

Comments, order and layout stay as they are. The new text is parsed again, and must hold the same data except for that
change. This module works on strings and opens no file.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from onetool.config.edit import BY_HAND, ConfigText, Ways, data_of, edited, lines_of, quoted, scalar
from onetool.config.yaml_text import ConfigFileError

KEY = "servers"

Block = Mapping[str, Any]


def put_servers(text: str, servers: Mapping[str, Block]) -> str:
    """The text with these servers: new ones behind those that are there, known ones in the place of the old."""
    there = _servers_of(text)
    for name in servers.keys() & there.keys():
        text = edited(text, _replacing(name, servers[name]), KEY, {**_servers_of(text), name: servers[name]})
    new = {name: block for name, block in servers.items() if name not in there}
    return edited(text, _adding(new), KEY, {**_servers_of(text), **new}) if new else text


def drop_server(text: str, name: str) -> str:
    """The text without this server."""
    rest = {other: block for other, block in _servers_of(text).items() if other != name}
    return edited(text, _dropping(name), KEY, rest)


def switch_server(text: str, name: str, on: bool) -> str:
    """The text with this server switched on or off: by the keys that its block has, else by a new `enabled`."""
    servers = _servers_of(text)
    block = servers.get(name)
    if not isinstance(block, dict):
        raise ConfigFileError(BY_HAND)
    changes = {key: value for key, value in (("enabled", on), ("disabled", not on)) if key in block}
    for key, value in (changes or {"enabled": on}).items():
        block = {**block, key: value}
        text = edited(text, _setting(name, key, value), KEY, {**servers, name: block})
    return text


def servers_yaml(servers: Mapping[str, Block]) -> str:
    """The servers by themselves, to look at or to paste."""
    return "\n".join([*lines_of({KEY: servers}, "", "  "), ""])


# Edits: each yields candidate texts, the preferred one first


def _adding(servers: Mapping[str, Block]) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        if text.root is None:
            yield from text.with_lines(len(text.text), lines_of({KEY: servers}, "", "  "), ("", text.newline))
            return
        found = text.find(KEY)
        if found is None:
            yield from text.added(text.root, {KEY: servers}, at_end=True)
        elif not isinstance(found[1], yaml.MappingNode) or not found[1].value:
            yield text.filled(found, servers)
        else:
            yield from text.added(found[1], servers)

    return ways


def _replacing(name: str, block: Block) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        if (place := text.find(KEY, name)) is not None:
            yield text.replaced(place, text.mapping(KEY), name, block)

    return ways


def _dropping(name: str) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        if (place := text.find(KEY, name)) is not None:
            yield text.cut(place, text.mapping(KEY))

    return ways


def _setting(name: str, key: str, value: bool) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        if (place := text.find(KEY, name, key)) is not None:
            yield text.spliced(place[1].start_mark.index, place[1].end_mark.index, quoted(value))
        else:
            yield from text.added(text.mapping(KEY, name), {key: value})

    return ways


def _servers_of(text: str) -> dict[str, Any]:
    servers = data_of(text).get(KEY) or {}
    if not isinstance(servers, dict):
        raise ConfigFileError(f"{KEY} in it is no mapping")
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
    return edited(text, _adding_hosts(new), HOSTS_KEY, [*_entries(text), new])


def drop_host(text: str, host: str) -> str:
    """The text without the entries of this host."""
    while (at := next((i for i, one in enumerate(_entries(text)) if host_of(one) == host.lower()), None)) is not None:
        rest = _entries(text)
        del rest[at]
        text = edited(text, _dropping_host(at), HOSTS_KEY, rest)
    return text


def _adding_hosts(entry: Entry) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        found = text.find(HOSTS_KEY)
        if text.root is None:
            yield from text.with_lines(len(text.text), lines_of({HOSTS_KEY: [entry]}, "", "  "), ("", text.newline))
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
        return scalar(entry) if not set(entry) & set(",[]{}") else quoted(entry)
    return f"{{host: {quoted(entry['host'])}, allowPrivate: true}}"


def _entries(text: str) -> list[Any]:
    entries = data_of(text).get(HOSTS_KEY) or []
    if not isinstance(entries, list):
        raise ConfigFileError(f"{HOSTS_KEY} in it is no list")
    return list(entries)
