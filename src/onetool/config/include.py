"""A config file and those that it includes -> one root node. What two files both set is refused, not overridden."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_origin

from msgspec.structs import replace

from onetool.config.convert import BAD, convert, fields_of, report_mismatch, unknown_key
from onetool.config.model import Keys
from onetool.config.node import BROKEN, Findings, Node
from onetool.config.yaml_nodes import read_yaml
from onetool.config.yaml_text import ConfigFileError
from onetool.core.errors import Mistake

MAX_DEPTH = 10
ALSO = {"mcpServers": "servers"}  # the word of other clients: what is pasted from them works as it is

MayRead = Callable[[Path], bool]
Merge = Callable[[list[Node], Any, Findings], Node]


def read_files(path: Path, findings: Findings, may_read: MayRead = lambda _: True) -> tuple[Node, tuple[Path, ...]]:
    """The root of all files together, and the included ones. `may_read` is asked before one is opened."""
    files = Files(findings, may_read)
    files.add(path)
    return merge_roots(files.roots, str(path), findings), tuple(files.paths[1:])


class Files:
    """Reads each file once: the including one first, then those that it includes."""

    def __init__(self, findings: Findings, may_read: MayRead) -> None:
        self.findings = findings
        self._may_read = may_read
        self.roots: list[Node] = []
        self.paths: list[Path] = []
        self._read_already: set[str] = set()

    def add(self, path: Path, entry: Node | None = None, trail: tuple[str, ...] = ()) -> None:
        """Read a file, and go on with what it includes. `entry` is the one that named it, `trail` the way to here."""
        identity = os.path.realpath(path)
        if entry and identity in trail:
            circle = " -> ".join([*trail[trail.index(identity) :], identity])
            self.findings.error(entry, f"files include each other in a circle: {circle}", "remove one of the includes")
        elif entry and len(trail) > MAX_DEPTH:
            self.findings.error(entry, f"includes go more than {MAX_DEPTH} files deep", "name the file further up")
        elif identity not in self._read_already and self._may_read(path):
            self._read_already.add(identity)
            self.paths.append(path)
            self._read(path, entry, (*trail, identity))

    def _read(self, path: Path, entry: Node | None, trail: tuple[str, ...]) -> None:
        try:
            root = read_yaml(path)
        except ConfigFileError as refused:
            self.findings.add([mistake_of(refused, path, entry)])
            return
        self.findings.add(root.mistakes)
        if root.value is None or isinstance(root.value, dict):
            self.roots.append(replace(root, value=root.value or {}))
            self._include(self.roots[-1], trail)
        elif root.value is not BROKEN:
            report_mismatch(root, dict, self.findings)

    def _include(self, root: Node, trail: tuple[str, ...]) -> None:
        entries = root.value.get("include")
        paths = convert(entries, tuple[Path, ...], self.findings) if entries else ()
        if entries and paths is not BAD:
            for entry, path in zip(entries.value or (), paths, strict=True):
                self.add(Path(os.path.normpath(path)), entry, trail)


def mistake_of(refused: ConfigFileError, path: Path, entry: Node | None) -> Mistake:
    """A mistake at its line in the file; for a file that can't be read, at the entry that includes it."""
    if refused.line is None and entry:
        return entry.mistake(refused.message, refused.hint)
    return Mistake(message=refused.message, file=str(path), line=refused.line, hint=refused.hint)


def merge_roots(roots: list[Node], file: str, findings: Findings) -> Node:
    """One root of many: lists are joined, mappings united, and everything else may be set once."""
    fields = fields_of(Keys)
    found: dict[str, list[Node]] = {}
    for root in roots:
        for written, node in root.value.items():
            key = ALSO.get(written) or written
            if key not in fields:
                unknown_key(node, key, Keys, findings)
            elif key != "include":
                found.setdefault(key, []).append(node)
    together = {key: _merged(nodes, fields[key].type, findings) for key, nodes in found.items()}
    return Node(value=together, file=file, line=1)


def _merged(nodes: list[Node], wanted: Any, findings: Findings) -> Node:
    if len(nodes) == 1:
        return nodes[0]
    unite: Merge = {tuple: _joined, dict: _united}.get(get_origin(wanted) or wanted, _only_one)
    return unite(nodes, wanted, findings)


def _joined(nodes: list[Node], wanted: Any, findings: Findings) -> Node:
    items = [item for node in _of_kind(list, nodes, wanted, findings) for item in node.value]
    return replace(nodes[0], value=items)


def _united(nodes: list[Node], wanted: Any, findings: Findings) -> Node:
    entries: dict[str, Node] = {}
    for node in _of_kind(dict, nodes, wanted, findings):
        for key, entry in node.value.items():
            _only_one([entries.setdefault(key, entry), entry], wanted, findings)
    return replace(nodes[0], value=entries)


def _only_one(nodes: list[Node], _: Any, findings: Findings) -> Node:
    first = nodes[0]
    for node in nodes[1:]:
        if node is not first:
            both = f"{first.file}:{first.line} and {node.file}:{node.line}"
            where = "two files" if first.file != node.file else "two places"
            findings.error(node, f"set in {where}, {both}", "remove one of them")
    return first


def _of_kind(kind: type, nodes: list[Node], wanted: Any, findings: Findings) -> list[Node]:
    """The nodes of this kind; mistakes are reported for the others."""
    for node in nodes:
        if isinstance(node.value, kind):
            findings.add(node.mistakes)
        else:
            convert(node, wanted, findings)
    return [node for node in nodes if isinstance(node.value, kind)]
