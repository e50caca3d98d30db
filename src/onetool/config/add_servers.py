"""Servers put into, taken out of, or switched in the text of a config file."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from onetool.config.edit import BY_HAND, ConfigText, Ways, data_of, edited, lines_of, quoted
from onetool.config.source import Refused

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
        raise Refused(BY_HAND)
    changes = {key: value for key, value in (("enabled", on), ("disabled", not on)) if key in block}
    for key, value in (changes or {"enabled": on}).items():
        block = {**block, key: value}
        text = edited(text, _setting(name, key, value), KEY, {**servers, name: block})
    return text


def servers_yaml(servers: Mapping[str, Block]) -> str:
    """The servers by themselves, to look at or to paste."""
    return "\n".join([*lines_of({KEY: servers}, "", "  "), ""])


# What is done to the text: each gives the ways to do it, the nicest first


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
        raise Refused(f"{KEY} in it is no mapping")
    return servers
