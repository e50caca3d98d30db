"""The tables of bundles: `TableTransaction` changes them, and `apply_changes` applies changes to a replica's contents.

A transaction records its changes, so that the replica need not read them again. A note in the contents records their
revision. Rows that this version can't read are left out and reported.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from onetool.database import Transaction
from onetool.http.definition import ToolLimits
from onetool.sources.bundles.contents import ContentsChange, PathTakenError, decode_tool, encode_tool
from onetool.sources.bundles.errors import ConflictError, InvalidError, NotFoundError
from onetool.sources.bundles.files.disk import Stamp
from onetool.sources.bundles.files.form import bundle_text, not_empty, tool_text
from onetool.sources.bundles.files.overlay import Overlay, UnknownOverlay, overlay_text, read_overlay
from onetool.sources.bundles.model import IMPLS, Bundle, Tool
from onetool.sources.bundles.names import check_slug, check_version
from onetool.sources.bundles.transaction import StoreTransaction

read_bundle = msgspec.json.Decoder(Bundle).decode
TOPIC = "bundles"
KEPT_REVISIONS = 10_000  # for which removed ids are recorded


class Followed(NamedTuple):
    """The identity of a store, and a revision."""

    born: str
    revision: int


class TableRow(NamedTuple):
    """The row of a bundle or tool: its JSON, and the revision of its last change."""

    id: str
    body: bytes
    revision: int


class TableChanges(NamedTuple):
    """The changes between two revisions, or with `is_whole` all rows."""

    base: Followed | None  # the revision that the contents must have
    to: Followed
    is_whole: bool
    bundles: list[TableRow]
    tools: list[TableRow]
    gone: list[tuple[str, bool]]  # removed ids, with True for bundles
    has_switches: bool  # `switches` has the current settings
    switches: bytes | None

    def is_empty(self) -> bool:
        return self.base == self.to and not (self.is_whole or self.has_switches)


def read_changes(work: Transaction, base: Followed | None, with_switches: bool = False) -> TableChanges:
    """Read the changes since the revision `base`. The transaction must be a snapshot."""
    to = read_followed(work)
    is_whole = base is None or base.born != to.born or not 0 <= to.revision - base.revision <= KEPT_REVISIONS
    since = (-1 if base is None or is_whole else base.revision,)
    if base == to and not with_switches:
        return TableChanges(base, to, False, [], [], [], False, None)
    rows = "SELECT id, body, revision FROM {} WHERE revision > %s"
    bundles = work.execute(rows.format("bundles"), since)
    tools = work.execute(rows.format("bundle_tools"), since)
    gone = [] if is_whole else work.execute("SELECT id, is_bundle FROM bundles_gone WHERE revision > %s", since)
    switches = work.execute(
        "SELECT body FROM bundle_switches WHERE revision > %s", (-1,) if with_switches or is_whole else since
    )
    return TableChanges(
        base,
        to,
        is_whole,
        [TableRow(*row) for row in bundles],
        [TableRow(*row) for row in tools],
        [(id, is_bundle) for id, is_bundle in gone],
        bool(switches) or with_switches or is_whole,
        switches[0][0] if switches else None,
    )


def read_followed(work: Transaction, lock: str = "") -> Followed:
    ((born, revision),) = work.execute(f"SELECT born, revision FROM bundle_store{lock}")  # noqa: S608 - constant SQL
    return Followed(born, revision)


class TableTransaction(StoreTransaction):
    """A transaction that changes the tables. Places are ids. It locks the revision's row, so changes don't overlap."""

    def __init__(self, work: Transaction, built_in: Collection[str] = ()) -> None:
        """Lock the store. `built_in` are ids of tools outside the tables."""
        super().__init__()
        self._work = work
        self._built_in = built_in
        base = read_followed(work, " FOR UPDATE")
        self._revision = base.revision + 1
        self.changes = TableChanges(base, base._replace(revision=self._revision), False, [], [], [], False, None)

    def finish(self) -> None:
        """Write the new revision, after the last change and before the commit."""
        if self.has_changed:
            self._work.execute("UPDATE bundle_store SET revision = %s", (self._revision,))
            self._work.notify(TOPIC, str(self._revision))

    @property
    def has_changed(self) -> bool:
        changes = self.changes
        return bool(changes.bundles or changes.tools or changes.gone or changes.has_switches)

    # Reading

    def bundle(self, id: str) -> tuple[Bundle, str] | None:
        found = self._work.execute("SELECT body FROM bundles WHERE id = %s", (id,))
        try:
            return (read_bundle(found[0][0]), id) if found else None
        except (msgspec.DecodeError, RecursionError) as error:
            raise _unreadable(f"the bundle {id}", error) from None

    def tool(self, bundle: Bundle, place: str, slug: str, version: str, /) -> tuple[Tool, str]:
        sql = "SELECT id, body FROM bundle_tools WHERE bundle = %s AND slug = %s AND version = %s"
        found = self._work.execute(sql, (bundle.id, slug, version))
        if not found:
            raise NotFoundError(f"there is no tool {slug}@{version} in the bundle {bundle.slug}")
        ((id, body),) = found
        try:
            return decode_tool(body), id
        except (msgspec.DecodeError, RecursionError) as error:
            raise _unreadable(f"the tool {slug}@{version}", error) from None

    def refuse_tool(self, bundle: Bundle, slug: str, version: str) -> None:
        sql = "SELECT id FROM bundle_tools WHERE bundle = %s AND slug = %s AND version = %s"
        if self._work.execute(sql, (bundle.id, slug, version)):
            raise ConflictError(f"the bundle {bundle.slug} already has a tool {slug}@{version}", "exists")

    def refuse_ids(self, tools: Iterable[Tool]) -> None:
        ids = [tool.id for tool in tools]
        found = self._work.execute("SELECT id FROM bundle_tools WHERE id = ANY(%s) LIMIT 1", (ids,))
        taken = [id for (id,) in found] or [id for id in ids if id in self._built_in]
        if taken:
            raise ConflictError(f"another tool already has the id {taken[0]}", "exists")

    def refuse_full(self, bundle: Bundle, place: str, /) -> None:
        sql = "SELECT slug, version FROM bundle_tools WHERE bundle = %s ORDER BY slug, version"
        if found := self._work.execute(sql, (bundle.id,)):
            raise ConflictError(not_empty(bundle, [f"{slug}@{version}" for slug, version in found]), "not_empty")

    def count(self) -> int:
        return self._work.execute("SELECT count(*) FROM bundle_tools")[0][0]

    def overlay(self) -> Overlay:
        found = self._work.execute("SELECT body FROM bundle_switches")
        try:
            return read_overlay(found[0][0]) if found else Overlay()
        except InvalidError as error:
            raise _unreadable("the settings of built-in bundles", error) from None

    # Writing

    def add_bundle(self, bundle: Bundle, tools: Sequence[Tool] = (), texts: Sequence[bytes] = ()) -> None:
        row = self._bundle_row(bundle)
        sql = "INSERT INTO bundles (id, slug, body, revision) VALUES (%s, %s, %s, %s)"
        self._work.execute(sql, (bundle.id, bundle.slug, row.body, row.revision))
        self._insert(tools)

    def change_bundle(
        self, place: str, bundle: Bundle | None, tools: Sequence[Tool] = (), texts: Sequence[bytes] = (), /
    ) -> None:
        if bundle is not None:
            row = self._bundle_row(bundle)
            sql = "UPDATE bundles SET slug = %s, body = %s, revision = %s WHERE id = %s"
            self._work.execute(sql, (bundle.slug, row.body, row.revision, place))
        self._insert(tools)

    def remove_empty_bundle(self, place: str, /) -> bool:
        if self._work.execute("SELECT id FROM bundle_tools WHERE bundle = %s LIMIT 1", (place,)):
            return False
        self._work.execute("DELETE FROM bundles WHERE id = %s", (place,))
        self._note_gone(place, is_bundle=True)
        return True

    def replace_tool(self, tool: Tool, place: str, /, *, is_renamed: bool = False) -> None:
        tool_text(tool)  # refuses data that a file can't contain
        row = TableRow(tool.id, encode_tool(tool), self._revision)
        sql = "UPDATE bundle_tools SET slug = %s, version = %s, body = %s, revision = %s WHERE id = %s"
        self._work.execute(sql, (tool.slug, tool.version, row.body, row.revision, place))
        self.changes.tools.append(row)

    def remove_tool(self, place: str, /) -> None:
        self._work.execute("DELETE FROM bundle_tools WHERE id = %s", (place,))
        self._note_gone(place, is_bundle=False)

    def replace_overlay(self, overlay: Overlay) -> None:
        body = overlay_text(overlay)
        sql = (
            "INSERT INTO bundle_switches (is_only, body, revision) VALUES (true, %s, %s) "
            "ON CONFLICT (is_only) DO UPDATE SET body = excluded.body, revision = excluded.revision"
        )
        self._work.execute(sql, (body, self._revision))
        self.changes = self.changes._replace(has_switches=True, switches=body)

    # Helpers

    def _bundle_row(self, bundle: Bundle) -> TableRow:
        bundle_text(bundle)  # refuses data that a file can't contain
        row = TableRow(bundle.id, msgspec.json.encode(bundle), self._revision)
        self.changes.bundles.append(row)
        return row

    def _insert(self, tools: Sequence[Tool]) -> None:
        sql = "INSERT INTO bundle_tools (id, bundle, slug, version, body, revision) VALUES (%s, %s, %s, %s, %s, %s)"
        rows = [TableRow(tool.id, encode_tool(tool), self._revision) for tool in tools]
        values = [
            (tool.id, tool.bundle_id, tool.slug, tool.version, row.body, row.revision)
            for tool, row in zip(tools, rows, strict=True)
        ]
        if len(values) == 1:
            self._work.execute(sql, values[0])
        elif values:
            self._work.execute_many(sql, values)
        self.changes.tools.extend(rows)

    def _note_gone(self, id: str, is_bundle: bool) -> None:
        sql = (
            "INSERT INTO bundles_gone (id, is_bundle, revision) VALUES (%s, %s, %s) "
            "ON CONFLICT (id, is_bundle) DO UPDATE SET revision = excluded.revision"
        )
        self._work.execute(sql, (id, is_bundle, self._revision))
        self._work.execute("DELETE FROM bundles_gone WHERE revision < %s", (self._revision - KEPT_REVISIONS,))
        self.changes.gone.append((id, is_bundle))


def _unreadable(what: str, error: Exception) -> ConflictError:
    return ConflictError(f"{what} can't be read here: {error}; it may have been written by a newer OneTool", "broken")


# Taking changes into the contents of a replica

SWITCHES = "switches of built-in bundles"
NEWER = "it may have been written by a newer OneTool: update this one"


def followed(note: str) -> Followed | None:
    if not note:
        return None
    born, _, revision = note.rpartition(" ")
    return Followed(born, int(revision))


def apply_changes(change: ContentsChange, changes: TableChanges) -> None:
    """Apply changes to the tables to a replica's contents."""
    if changes.is_whole:
        present = {_path(row.id, True) for row in changes.bundles} | {_path(row.id, False) for row in changes.tools}
        for path in [path for folder in change.files.values() for path in folder if path != SWITCHES]:
            if path not in present:
                change.drop(path)
    for id, is_bundle in changes.gone:
        change.drop(_path(id, is_bundle))
    is_same_store = changes.base is not None and changes.base.born == changes.to.born
    for rows, is_bundle in ((changes.bundles, True), (changes.tools, False)):
        for row in rows:
            known = change.file(_path(row.id, is_bundle))
            if not is_same_store or known is None or known.stamp.mtime_ns != row.revision:
                _put_row(change, row, is_bundle)
    if changes.has_switches:
        try:
            overlay = Overlay() if changes.switches is None else read_overlay(changes.switches)
        except InvalidError:  # the known switches remain, or else everything is disabled
            change.put_broken(SWITCHES, Stamp(changes.to.revision, 0, 0), NEWER)
            if not change.is_overlay_known:
                change.put_overlay(UnknownOverlay())
        else:
            change.drop(SWITCHES)
            change.put_overlay(overlay)
    change.put_note(f"{changes.to.born} {changes.to.revision}")


def _put_row(change: ContentsChange, row: TableRow, is_bundle: bool) -> None:
    path = _path(row.id, is_bundle)
    try:
        if is_bundle:
            bundle = read_bundle(row.body)
            _check_row(row, bundle)
            change.put_bundle(bundle, path, _stamp(row))
            return
        tool = decode_tool(row.body)
        _check_row(row, tool)
        other = change.tool(tool.bundle_id, tool.slug, tool.version)
        if other is not None and other.path != path:
            change.drop(other.path)  # this tool was renamed, and its row follows
        change.put_tool(tool, path, _stamp(row), row.body)
    except (msgspec.DecodeError, RecursionError, PathTakenError, InvalidError) as error:
        why = str(error) if isinstance(error, PathTakenError | InvalidError) else f"{error}; {NEWER}"
        change.put_broken(path, _stamp(row), why)


def _check_row(row: TableRow, thing: Bundle | Tool) -> None:
    """Raise InvalidError or DecodeError for a row that OneTool didn't write."""
    if thing.id != row.id or thing.is_built_in or thing.source is not None:
        raise InvalidError(f"the row {row.id} contains {thing.id}, or a built-in or derived item")
    check_slug(thing.slug)
    if isinstance(thing, Tool):
        check_version(thing.version)
        impls = {"python": thing.python_impl, "go": thing.go_impl, "http": thing.http_impl, "script": thing.script_impl}
        msgspec.convert(impls[thing.type], IMPLS[thing.type][1])
        msgspec.convert(thing.limits, ToolLimits)


def _path(id: str, is_bundle: bool) -> str:
    """Return the path of a row in the contents."""
    return f"bundles/{id}" if is_bundle else f"tools/{id}"


def _stamp(row: TableRow) -> Stamp:
    return Stamp(row.revision, 0, 0)
