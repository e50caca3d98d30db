"""One more server in the text of a client's JSON file: comments, order and layout of everything else stay."""

import json
import re
from typing import Any

from onetool.interfaces.cli.clients.json_text import Document, Unreadable, Value, read_json
from onetool.interfaces.cli.clients.refused import Refused, taken


def json_snippet(section: str, name: str, entry: dict[str, Any]) -> str:
    return _dumped({section: {name: entry}}, "  ") + "\n"


def put_json(text: str, section: str, name: str, entry: dict[str, Any], *, force: bool) -> str:
    """The text with the entry in it; the same text if it is there already. Refused says why it can't be."""
    if not text.strip():
        return json_snippet(section, name, entry)
    try:
        before = read_json(text)
    except Unreadable as error:
        raise Refused(f"it is not JSON: {error}") from None
    new, replaced = _changed(text, before.root, section, name, entry, force)
    if new != text:
        _check(before, new, replaced, {section: {name: entry}})
    return new


def _changed(
    text: str, root: Value, section: str, name: str, entry: dict[str, Any], force: bool
) -> tuple[str, Value | None]:
    """The new text, and the value in the old one that it replaces."""
    if root.members is None:
        raise Refused("it holds no object")
    servers = root.members.get(section)
    if servers is None:
        return _added(text, root, root, section, {name: entry}), None
    if servers.members is None:
        raise Refused(f"{section} in it is no object")
    there = servers.members.get(name)
    if there is None:
        return _added(text, root, servers, name, entry), None
    if there.data == entry:
        return text, None
    if not force:
        raise taken(name)
    layout = _Layout(text, root)
    value = layout.indented(entry, layout.indent_at(there.start), _lines(text, there))
    return text[: there.start] + value + text[there.end :], there


def _added(text: str, root: Value, target: Value, key: str, data: dict[str, Any]) -> str:
    """The text with one more member at the end of an object."""
    layout = _Layout(text, root)
    members = list((target.members or {}).values())
    close = target.end - 1
    after = members[-1].end if members else target.filled
    comma = "," if members and not target.comma else ""
    many_lines = not members or _lines(text, target)
    if many_lines:
        indent = layout.indent_of_members(target)
        gap = text[target.filled : close]
        space, end = layout.newline + indent, gap if "\n" in gap else layout.newline + layout.indent_at(target.start)
    else:
        indent, space, end = "", " ", text[target.filled : close]
    member = f"{json.dumps(key)}: {layout.indented(data, indent, many_lines)}"
    return text[:after] + comma + text[after : target.filled] + space + member + end + text[close:]


def _lines(text: str, value: Value) -> bool:
    return "\n" in text[value.start : value.end]


class _Layout:
    """How the file is laid out: its line ends, and how deep it indents."""

    def __init__(self, text: str, root: Value) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        first = re.search(r"\n([ \t]+)\"", text[root.start : root.end])
        self.unit = first[1] if first else "  "

    def indent_at(self, place: int) -> str:
        """The indentation of the line that this place is on."""
        line = self.text[self.text.rfind("\n", 0, place) + 1 : place]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def indent_of_members(self, target: Value) -> str:
        inside = self.text[target.start : target.end]
        first = re.match(r"\{\s*\n([ \t]*)\"", inside)
        return first[1] if first else self.indent_at(target.start) + self.unit

    def indented(self, data: dict[str, Any], indent: str, many_lines: bool) -> str:
        if not many_lines:
            return json.dumps(data, ensure_ascii=False)
        return _dumped(data, self.unit).replace("\n", self.newline + indent)


def _dumped(data: Any, unit: str, indent: str = "") -> str:
    """Objects over several lines, lists in one: as people write such files."""
    if not isinstance(data, dict):
        return json.dumps(data, ensure_ascii=False)
    deeper = indent + unit
    members = [f"{deeper}{json.dumps(key)}: {_dumped(value, unit, deeper)}" for key, value in data.items()]
    return "{\n" + ",\n".join(members) + f"\n{indent}}}"


def _check(before: Document, new: str, replaced: Value | None, added: dict[str, dict[str, Any]]) -> None:
    """Read it once more: the same data with the entry, and every comment that did not stand in what it replaces."""
    ((section, servers),) = added.items()
    expected = {**before.root.data, section: {**before.root.data.get(section, {}), **servers}}
    gone = range(replaced.start, replaced.end) if replaced else range(0)
    comments = [comment for place, comment in before.comments if place not in gone]
    try:
        after = read_json(new)
    except Unreadable:
        after = None
    if after is None or after.root.data != expected or [comment for _, comment in after.comments] != comments:
        raise Refused("it is written in a way that can't be changed from here")
