"""Changes servers and allowed hosts in the text of a config. Writes no file.

ruamel.yaml makes the change, but reformats other lines, too, so only the changed lines are merged into the old text.
The result is parsed again: its data may differ in the change only.
"""

import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString as Quoted
from ruamel.yaml.scalarstring import FoldedScalarString, LiteralScalarString
from ruamel.yaml.tokens import CommentToken

from onetool.config.pin import FILE_REFUSED, names_secret_file
from onetool.config.read import ANY_PLACEHOLDER, ConfigFileError, data_of
from onetool.core.yaml import plain_value

SERVERS, HOSTS = "servers", "allowedHosts"
MAX_WIDTH = 100  # a longer list gets one line per item
NOT_EDITABLE = "Its YAML layout can't be edited automatically; edit it by hand"

Changes = dict[tuple[Any, ...], Any]  # by path; all in the same section
_REMOVED: Any = object()


class _NewKey(str):
    """A marker instead of a value, which renames the key."""

    __slots__ = ()


OLD_SCALAR = re.compile(  # which YAML 1.1 reads as booleans and numbers
    r"(?i:yes|no|on|off)\Z|[-+]?(?:0[0-9_]+|0b[01_]+|[1-9][0-9]*_[0-9_]*|[1-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)\Z"
)
_NOTE = re.compile(r"\s*(#.*|---\s*|\.\.\.\s*)?", re.DOTALL)  # a line without data


def put_servers(text: str, servers: Mapping[str, Any]) -> str:
    """Return the text with these servers: new ones after the others, known ones in the same place.

    Blocks may have been written by others, so they may not refer to secret files of this machine.
    """
    for name, block in servers.items():
        if names_secret_file(block):
            raise ConfigFileError(f"Server {name}: {FILE_REFUSED}")
    known = servers.keys() & _data_of(text)[SERVERS].keys()
    for name in known:
        text = _edit(text, {(SERVERS, name): servers[name]})
    new = {(SERVERS, name): block for name, block in servers.items() if name not in known}
    return _edit(text, new) if new else text


def drop_server(text: str, name: str) -> str:
    return _edit(text, {(SERVERS, name): _REMOVED})


def rename_server(text: str, name: str, new: str) -> str:
    """Return the text with another name for this server, in the same place."""
    if new in _data_of(text)[SERVERS]:
        raise ConfigFileError(f"a server named {new} already exists")
    return _edit(text, {(SERVERS, name): _NewKey(new)})


def server_block(text: str, name: str) -> Any:
    return _data_of(text)[SERVERS].get(name)


def switch_server(text: str, name: str, on: bool) -> str:
    """Return the text with this server enabled or disabled, by the keys of its block or else by a new `enabled`."""
    block = _data_of(text)[SERVERS].get(name)
    if not isinstance(block, dict):
        raise ConfigFileError(NOT_EDITABLE)
    changes = {key: value for key, value in (("enabled", on), ("disabled", not on)) if key in block}
    for key, value in (changes or {"enabled": on}).items():
        text = _edit(text, {(SERVERS, name, key): value})
    return text


def put_host(text: str, host: str, private: bool) -> str:
    """Return the text with this host added at the end. Other entries of the host are removed."""
    text = drop_host(text, host)
    entry = {"host": host, "allowPrivate": True} if private else host
    return _edit(text, {(HOSTS, len(_data_of(text)[HOSTS])): entry})


def drop_host(text: str, host: str) -> str:
    hosts = [entry.get("host") if isinstance(entry, dict) else entry for entry in _data_of(text)[HOSTS]]
    for at in reversed([at for at, one in enumerate(hosts) if str(one).lower() == host.lower()]):
        text = _edit(text, {(HOSTS, at): _REMOVED})
    return text


def servers_yaml(servers: Mapping[str, Any]) -> str:
    """Return the servers as YAML, to look at or to paste."""
    return "".join(_yaml_lines(_for_ruamel({SERVERS: servers})))


def _edit(text: str, changes: Changes) -> str:
    """Return the text with these values set or removed. Raises ConfigFileError if the text can't be edited."""
    section = next(iter(changes))[0]
    expected = _data_of(text)
    _change(expected, changes, lambda value: value)
    with suppress(YAMLError, LookupError, RecursionError):
        loaded = _yaml().load(_without_placeholders(text))
        data = CommentedMap() if loaded is None else loaded
        _drop_comment_lines(data)
        if section in data and not data[section]:
            data[section] = CommentedMap()
        before = [] if loaded is None else _yaml_lines(data)
        data[section] = data.get(section) or _for_ruamel([] if section == HOSTS else {})
        _change(data, changes, _for_ruamel)
        if not data[section] and data[section].fa.flow_style() is False:
            data[section] = None
        for new in _merged([*io.StringIO(text)], before, _yaml_lines(data)):
            with suppress(ConfigFileError):
                if _data_of(new) == expected:
                    return new
    raise ConfigFileError(NOT_EDITABLE)


def _data_of(text: str) -> dict[str, Any]:
    data = _unshared(data_of(text))
    if not isinstance(data, dict | None):
        raise ConfigFileError("The config must be a mapping")
    data = data or {}
    for key, kind, name in ((SERVERS, dict, "mapping"), (HOSTS, list, "list")):
        data[key] = data.get(key) or kind()
        if not isinstance(data[key], kind):
            raise ConfigFileError(f"{key} must be a {name}")
    return data


def _unshared(value: Any) -> Any:
    """Return a copy in which no value occurs twice, as that of an alias does: a change is to affect one place."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def _change(data: Any, changes: Changes, written: Callable[[Any], Any]) -> None:
    for path, value in changes.items():
        *parents, last = map(written, path)
        node = data
        for key in parents:
            node = node[key]
        if value is _REMOVED:
            del node[last]
        elif isinstance(value, _NewKey):
            at, key, content = list(node).index(last), written(str(value)), node.pop(last)
            if isinstance(node, CommentedMap):
                comment = node.ca.items.pop(last, None)
                node.insert(at, key, content)
                if comment is not None:
                    node.ca.items[key] = comment
            else:
                node[key] = content
        elif isinstance(node, list):
            node.append(written(value))
        else:
            node[last] = written(value)


def _merged(old: list[str], before: list[str], after: list[str]) -> Iterator[str]:
    """Yield the old text with the change from `before` to `after` applied, once for each place where it may belong.

    ruamel.yaml writes `before` and `after` without the comments and blank lines of the old text, which stay.
    """
    begin = _count_equal(before, after)
    end = len(before) - _count_equal(before[begin:][::-1], after[begin:][::-1])
    places = _places(before, old)
    notes = {at for at, line in enumerate(old) if _NOTE.fullmatch(line)} - {*places.values()}
    newline = "\r\n" if old and old[0].endswith("\r\n") else "\n"
    new = [line[:-1] + newline for line in after[begin : len(after) - len(before) + end]]
    above = [at for at in range(begin) if new and at in places and _depth(before[at]) <= _depth(new[0])]
    if above and (shift := _depth(old[places[above[-1]]]) - _depth(before[above[-1]])):  # indented more
        new = [" " * (_depth(line) + shift) + line.lstrip() for line in new]

    gap = _gap(begin, places, notes)
    if begin < end:  # replace old lines, but keep the comments around them
        replaced = range(gap.stop, _gap(end, places, notes).start)
        if new and len({*replaced} - notes) > end - begin:
            return  # braces over several lines, which ruamel.yaml has joined
        spots = [(replaced, "")]
    elif new and new[0][0] not in " -":  # a new section: after a blank line, preferably below the comments
        spaces = [newline, ""] if before else [""]
        spots = [(range(at, at), space) for space in spaces for at in (gap.stop, gap.start)]
    else:  # preferably above the comments, which are mostly about what follows
        spots = [(range(at, at), "") for at in (gap.start, gap.stop)]
    for replaced, space in spots:
        head = [line if line.endswith("\n") else line + newline for line in old[: replaced.start]]
        text = "".join([*head, space, *new, *old[replaced.stop :]])
        yield text if not old or old[-1].endswith("\n") else text.removesuffix(newline)


def _gap(at: int, places: dict[int, int], notes: set[int]) -> range:
    """Return the range of comments and blank lines before this line in the old text."""
    low = high = places[at] if at in places else places[at - 1] + 1
    while low - 1 in notes:
        low -= 1
    while high in notes:
        high += 1
    return range(low, high)


def _places(before: list[str], old: list[str]) -> dict[int, int]:
    """Map lines of `before` to lines of `old`, as far as known; the ends count as lines."""
    (numbers, keys), (old_numbers, old_keys) = _keys(before), _keys(old)
    blocks = SequenceMatcher(None, keys, old_keys, autojunk=False).get_matching_blocks()
    places = {numbers[one.a + n]: old_numbers[one.b + n] for one in blocks for n in range(one.size)}
    places |= {-1: -1, len(before): len(old)}
    for at in sorted({*range(len(before))} - {*numbers}):  # inside a string of several lines
        if (place := places.get(at - 1, len(old)) + 1) < len(old) and old[place].strip() == before[at].strip():
            places[at] = place
    return places


def _count_equal(some: list[str], others: list[str]) -> int:
    """Return the number of equal lines at the beginning."""
    return next((at for at, one in enumerate(some) if others[at : at + 1] != [one]), len(some))


def _keys(lines: list[str]) -> tuple[list[int], list[Any]]:
    """Return the numbers of lines with data, and a key for each: its text and its parents, so that few are equal."""
    numbers, keys, parents = list[int](), list[Any](), [(-1.0, 0)]
    for at, line in enumerate(lines):
        if not _NOTE.fullmatch(line):
            text = "".join(line.split())
            depth = _depth(line) + (0.5 if text.startswith("-") else 0.0)  # a list may have the indentation of its key
            while parents[-1][0] >= depth:
                parents.pop()
            numbers.append(at)
            keys.append((parents[-1][1], text))
            parents.append((depth, hash(keys[-1])))
    return numbers, keys


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _yaml(indent: int = 2) -> YAML:
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, sys.maxsize
    yaml.indent(mapping=indent, sequence=indent + 2, offset=indent)
    return yaml


def _yaml_lines(data: CommentedMap) -> list[str]:
    """Return the data as lines of YAML, indented like its servers."""
    blocks = [one for one in (data.get(SERVERS), *data.values()) if isinstance(one, CommentedMap) and one]
    indent = next((one.lc.col for one in blocks if one.fa.flow_style() is False and one.lc.col), 2)
    stream = io.StringIO()
    _yaml(indent).dump(data, stream)
    return [*io.StringIO(re.sub("\ue000([^\ue000\ue001]+)\ue001", r"${\1}", stream.getvalue()))]


def _without_placeholders(text: str) -> str:
    """Mask the notation that our reader repairs: `${NAME}` in braces."""
    return ANY_PLACEHOLDER.sub("\ue000\\1\ue001", text)


def _drop_comment_lines(node: Any) -> None:
    """Drop all comments but those at the ends of lines: ruamel.yaml moves the others with the value above them."""
    if isinstance(node, CommentedMap | CommentedSeq):
        node.ca.end = []
        for key, child in node.items() if isinstance(node, CommentedMap) else enumerate(node):
            _drop_comment_lines(child)
            if isinstance(child, LiteralScalarString | FoldedScalarString):
                node.ca.items.pop(key, None)
        for tokens in [node.ca.comment or [], *node.ca.items.values()]:
            for at, token in enumerate(tokens):
                comment = token.value.partition("\n")[0] if isinstance(token, CommentToken) else ""
                tokens[at] = CommentToken(f"{comment}\n", CommentMark(0)) if comment else None


def _for_ruamel(value: Any) -> Any:
    """Return the value for ruamel.yaml, with short lists on one line and quotes around strings of ambiguous type."""
    if isinstance(value, Mapping):
        return CommentedMap((_for_ruamel(name), _for_ruamel(member)) for name, member in value.items())
    if isinstance(value, list | tuple):
        items = CommentedSeq(
            Quoted(_without_placeholders(one)) if isinstance(one, str) else _for_ruamel(one) for one in value
        )
        if len(json.dumps(value)) <= MAX_WIDTH:
            items.fa.set_flow_style()
        return items
    with suppress(ValueError):
        if not isinstance(value, str):
            return value
        is_plain = isinstance(plain_value(value), str) and not OLD_SCALAR.match(value) and value.isprintable()
        if is_plain and not value.startswith((":", "?")):  # {command: :x} can't be read
            return _without_placeholders(value)
    return Quoted(_without_placeholders(value))
