"""Takes what has changed in the tables into the index of this replica, in one transaction.

A note in the index says how far it has followed. Other processes may use the same index: who finds another note than it
has counted on changes nothing, and asks again. A row that this version can't read is left out, and told.
"""

from collections.abc import Callable

import msgspec

from onetool.sources.bundles.database.tables import Followed, TableChanges, TableRow
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.files.overlay import (
    UNKNOWN,
    BuiltIn,
    Overlay,
    overlay_as_before,
    read_overlay,
    switches_text,
)
from onetool.sources.bundles.index import Index, IndexTransaction, PathTakenError, Stamp
from onetool.sources.bundles.index.rows import read_bundle
from onetool.sources.bundles.store import read_tool

FOLLOWED = "followed"
SWITCHES = "switches of built-in bundles"
NEWER = "a newer OneTool may have written it: update this one"


def followed(noted: str | None) -> Followed | None:
    if noted is None:
        return None
    born, _, revision = noted.rpartition(" ")
    return Followed(born, int(revision))


def take_in(index: Index, found: TableChanges, built_in: BuiltIn) -> bool:
    """Whether the index is at that revision now; if not, it has followed to another one than `found` begins at."""
    known = index.stamps() if found.is_whole else {}
    as_before = overlay_as_before(index, built_in) if _overlay(found.switches) is None else []
    with index.changing() as changes:
        if followed(changes.noted(FOLLOWED)) != found.base:
            return False
        if found.is_whole:
            _drop_others(changes, found, known)
        for id, is_bundle in found.gone:
            changes.drop(_path(id, is_bundle))
        is_same_store = found.base is not None and found.base.born == found.to.born
        for row in found.bundles:
            if not is_same_store or _is_new(row, known.get(_path(row.id, True))):
                _put(changes, row, True, _put_bundle)
        for row in found.tools:
            if not is_same_store or _is_new(row, known.get(_path(row.id, False))):
                _put(changes, row, False, _put_tool)
        if found.has_switches:
            _switch(changes, found, built_in, as_before)
        if found.base != found.to:
            changes.note(FOLLOWED, f"{found.to.born} {found.to.revision}")
    return True


def keep_switches(index: Index, built_in: BuiltIn) -> None:
    """The built-in bundles of this process, with the switches that the index knows: the tables can't be asked."""
    before = overlay_as_before(index, built_in)
    with index.changing() as changes:
        changes.built_in(before)


def _drop_others(changes: IndexTransaction, found: TableChanges, known: dict[str, Stamp]) -> None:
    there = {_path(row.id, True) for row in found.bundles} | {_path(row.id, False) for row in found.tools}
    for path in known:
        if path not in there and path != SWITCHES:
            changes.drop(path)


def _is_new(row: TableRow, known: Stamp | None) -> bool:
    return known is None or known.mtime_ns != row.revision


def _put(
    changes: IndexTransaction, row: TableRow, is_bundle: bool, put: Callable[[IndexTransaction, TableRow], None]
) -> None:
    try:
        put(changes, row)
    except (msgspec.DecodeError, PathTakenError) as error:
        why = str(error) if isinstance(error, PathTakenError) else f"{error}; {NEWER}"
        changes.put_broken(_path(row.id, is_bundle), _stamp(row), why)


def _put_bundle(changes: IndexTransaction, row: TableRow) -> None:
    changes.put_bundle(read_bundle(row.body), _path(row.id, True), _stamp(row))


def _put_tool(changes: IndexTransaction, row: TableRow) -> None:
    tool, path = read_tool(row.body), _path(row.id, False)
    other = changes.path_of_tool(tool.bundle_id, tool.slug, tool.version)
    if other is not None and other != path:
        changes.drop(other)  # it has got another name, and comes later
    changes.put_tool(tool, path, _stamp(row))


def _overlay(body: bytes | None) -> Overlay | None:
    """None: it can't be read."""
    try:
        return Overlay() if body is None else read_overlay(body)
    except InvalidError:
        return None


def _switch(changes: IndexTransaction, found: TableChanges, built_in: BuiltIn, as_before: BuiltIn) -> None:
    """Where they can't be read, they stay as they were; where nothing is known of them, everything is switched off."""
    overlay = _overlay(found.switches)
    changes.drop(SWITCHES)
    if overlay is not None:
        changes.built_in(overlay.over(built_in), others=switches_text(overlay))
        return
    is_known = changes.switches() not in (None, UNKNOWN)
    changes.put_broken(SWITCHES, Stamp(found.to.revision, 0, 0), NEWER)
    changes.built_in(as_before, others=None if is_known else UNKNOWN)


def _path(id: str, is_bundle: bool) -> str:
    """What the index knows a row by."""
    return f"bundles/{id}" if is_bundle else f"tools/{id}"


def _stamp(row: TableRow) -> Stamp:
    return Stamp(row.revision, 0, 0)
