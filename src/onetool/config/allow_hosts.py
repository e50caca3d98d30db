"""Entries of `allowedHosts` put into, or taken out of, the text of a config file."""

from collections.abc import Iterator
from typing import Any

import yaml

from onetool.config.edit import BY_HAND, ConfigText, Ways, data_of, edited, lines_of, quoted, scalar
from onetool.config.source import Refused

KEY = "allowedHosts"

Entry = str | dict[str, Any]


def entry_of(host: str, private: bool) -> Entry:
    """As it stands in the file: a host alone, or what says that private addresses are meant, too."""
    return {"host": host, "allowPrivate": True} if private else host


def host_of(entry: Any) -> str:
    """What an entry is about, in small letters."""
    return str(entry.get("host", "") if isinstance(entry, dict) else entry).lower()


def put_host(text: str, host: str, private: bool) -> str:
    """The text with this host behind the others. An entry of the same host that says less is replaced."""
    new = entry_of(host, private)
    if any(host_of(entry) == host.lower() for entry in _entries(text)):
        text = drop_host(text, host)
    return edited(text, _adding(new), KEY, [*_entries(text), new])


def drop_host(text: str, host: str) -> str:
    """The text without the entries of this host."""
    while (at := next((i for i, one in enumerate(_entries(text)) if host_of(one) == host.lower()), None)) is not None:
        rest = _entries(text)
        del rest[at]
        text = edited(text, _dropping(at), KEY, rest)
    return text


def _adding(entry: Entry) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        found = text.find(KEY)
        if text.root is None:
            yield from text.with_lines(len(text.text), lines_of({KEY: [entry]}, "", "  "), ("", text.newline))
        elif found is None:
            yield from text.added(text.root, {KEY: [entry]}, at_end=True)
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


def _dropping(at: int) -> Ways:
    def ways(text: ConfigText) -> Iterator[str]:
        found = text.find(KEY)
        if found is None or not isinstance(found[1], yaml.SequenceNode):
            raise Refused(BY_HAND)
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
    entries = data_of(text).get(KEY) or []
    if not isinstance(entries, list):
        raise Refused(f"{KEY} in it is no list")
    return list(entries)
