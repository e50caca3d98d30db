"""`Contents`, an in-memory snapshot of all bundles and tools of a store.

A `Contents` is made of `FileRow`s, whether these come from a folder or from a database, and is immutable: `following`
creates the next one, which shares all unchanged parts. Readers need no lock, and see a change to several files
completely or not at all. A tool stays JSON, beside the fields that lists and names need.

If two files claim the same bundle or tool, the one with the usual name wins, then the first by path; the other one is
reported. So all processes agree, whatever the order in which they have read the files.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from time import time_ns
from typing import NamedTuple

import msgspec

from onetool.sources.bundles.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from onetool.sources.bundles.model import Bundle, Tool
from onetool.sources.bundles.queries import ListQuery, get_id, is_live
from onetool.sources.bundles.store.overlay import Overlay, UnknownOverlay, read_overlay
from onetool.sources.bundles.store.paths import OVERLAY, bundle_file, bundle_folders, folder_of, is_tool, tool_file
from onetool.sources.bundles.store.text import body_of, bundle_body, tool_body

NO_BUNDLE = "its bundle can't be used"
NO_BUNDLE_FILE = "it is missing, and there are tools in its folder"
BUILT_IN = "the built-in bundles"
AS_BEFORE = "until it can be read, switches stay as they were"
ALL_OFF = "until it can be read, all packs, servers and tools of the config are disabled, because it may disable any"

decode_bundle = msgspec.json.Decoder(Bundle).decode
_decode_tool = msgspec.json.Decoder(Tool).decode


class FileRow(msgspec.Struct, frozen=True, gc=False):
    """A file as it is stored: its content as compact JSON, or the reason why it can't be used.

    `stamp` identifies the state of the file in the folder; 0 in a database, or if the file may change unnoticed.
    """

    path: str
    body: bytes
    stamp: int = 0
    reason: str = ""


def read_row(path: str, text: bytes, mtime_ns: int = 0, stamp: int = 0) -> FileRow:
    """Read the text of a file, which people may have written."""
    try:
        if is_tool(path):
            body = tool_body(text, folder_of(path), mtime_ns)
        elif path == OVERLAY:
            body = msgspec.json.encode(read_overlay(text))
        else:
            body = bundle_body(text, folder_of(path), mtime_ns)
    except UnicodeEncodeError:  # can't be stored or shown
        reason = "a string contains a lone surrogate (an escape such as \\ud800): remove it"
        return FileRow(path, b"", stamp, reason)
    except InvalidError as error:
        return FileRow(path, b"", stamp, str(error))
    return FileRow(path, body, stamp)


def written_row(path: str, text: bytes, stamp: int = 0) -> FileRow:
    """Return the row of a file that this process has written."""
    data = msgspec.json.decode(text)
    return FileRow(path, msgspec.json.encode(data) if path == OVERLAY else body_of(data), stamp)


class KeptTool(msgspec.Struct, frozen=True, gc=False):
    """A tool as JSON, with the fields that lists and names need."""

    id: str
    bundle_id: str
    slug: str
    version: str
    is_enabled: bool
    function: str | None  # the function that the tool calls
    tags: tuple[str, ...]
    modified_at: str
    path: str
    body: bytes

    def of(self, bundle_id: str, row: FileRow) -> "KeptTool":
        return self if bundle_id == self.bundle_id else msgspec.structs.replace(self, bundle_id=bundle_id)

    def tool(self) -> Tool:
        return _decode_tool(b'{"bundleID":"%b",%b' % (self.bundle_id.encode(), self.body[1:]))


class _Function(msgspec.Struct):
    func: str


class _Head(msgspec.Struct, rename="camel", gc=False):
    id: str
    slug: str
    version: str
    type: str
    modified_at: str
    tags: tuple[str, ...] = ()
    is_enabled: bool = True
    python_impl: _Function | None = None
    go_impl: _Function | None = None

    def of(self, bundle_id: str, row: FileRow) -> KeptTool:
        impl = self.go_impl if self.type == "go" else self.python_impl
        place = (self.id, bundle_id, self.slug, self.version, self.is_enabled, impl.func if impl else None)
        return KeptTool(*place, self.tags, self.modified_at, row.path, row.body)


Item = _Head | KeptTool | Bundle
_decode_head = msgspec.json.Decoder(_Head).decode


class KeptBundle(NamedTuple):
    bundle: Bundle
    folder: str


Versions = dict[tuple[str, str], KeptTool]
"""The tools of one bundle, by slug and version."""

Files = dict[str, dict[str, FileRow]]
"""All files, by folder and path."""


class Contents:
    def __init__(self, reserved: Collection[str] = ()) -> None:
        """Create empty contents. `reserved` are the ids of built-in bundles and tools."""
        self.reserved = reserved
        self.revision = time_ns() // 1000  # starts at the current time, so that it never repeats earlier ones
        self.files: Files = {}
        self.bundles: dict[str, KeptBundle] = {}
        self.tools: dict[str, Versions] = {}  # by bundle id
        self.by_id: dict[str, KeptTool] = {}
        self.refused: dict[str, str] = {}  # reasons, by path, for files that are fine by themselves
        self.overlay: Overlay = UnknownOverlay()

    # Reading

    @cached_property
    def in_order(self) -> list[KeptTool]:
        return sorted(self.by_id.values(), key=get_id)

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions that tools call."""
        return frozenset(row.function for row in self.by_id.values() if row.function is not None)

    def bundle(self, id: str) -> Bundle | None:
        found = self.bundles.get(id)
        return None if found is None else found.bundle

    def tool(self, bundle_id: str, slug: str, version: str) -> KeptTool | None:
        return self.tools.get(bundle_id, {}).get((slug, version))

    def listed_bundles(self, query: ListQuery) -> Iterator[Bundle]:
        return query.bundles(sorted((kept.bundle for kept in self.bundles.values()), key=get_id))

    def listed_tools(self, query: ListQuery) -> Iterator[KeptTool]:
        rows = self.in_order
        if query.bundle_ids:
            rows = sorted((row for id in {*query.bundle_ids} for row in self.tools.get(id, {}).values()), key=get_id)
        return query.tools(rows, {id for id, kept in self.bundles.items() if is_live(kept.bundle)})

    def rows(self) -> Iterator[FileRow]:
        return (row for files in self.files.values() for row in files.values())

    def file(self, path: str) -> FileRow | None:
        return self.files.get(folder_of(path), {}).get(path)

    def mistakes(self) -> list[tuple[str, str]]:
        """Return the paths of files that can't be used, with the reasons, without tools that only miss their bundle."""
        reasons = {path: why for path, why in self.refused.items() if why != NO_BUNDLE}
        reasons |= {row.path: row.reason for row in self.rows() if row.reason}
        if OVERLAY in reasons:
            what = ALL_OFF if isinstance(self.overlay, UnknownOverlay) else AS_BEFORE
            reasons[OVERLAY] = f"{reasons[OVERLAY]}; {what}"
        return sorted(reasons.items())

    # For changes

    def existing_bundle(self, id: str) -> KeptBundle:
        found = self.bundles.get(id)
        if found is None:
            raise NotFoundError(f"there is no bundle {id}")
        return found

    def open_bundle(self, id: str) -> KeptBundle:
        """Return a bundle whose tools may be changed."""
        found = self.existing_bundle(id)
        refuse_closed(found.bundle)
        return found

    def existing_tool(self, home: KeptBundle, slug: str, version: str) -> KeptTool:
        """Return a tool. Raises NotFoundError, or ConflictError if its file can't be used."""
        found = self.tool(home.bundle.id, slug, version)
        if found is None:
            broken = self.file(tool_file(home.folder, slug, version))
            if broken is not None and broken.reason:
                raise broken_file(broken)
            raise NotFoundError(f"there is no tool {slug}@{version} in the bundle {home.bundle.slug}")
        return found

    def new_tool_file(self, home: KeptBundle, slug: str, version: str, but: str = "") -> str:
        """Return the path for a new tool. Raises ConflictError if the tool, or a file with this path `but` the tool's
        own, exists.
        """
        if self.tool(home.bundle.id, slug, version) is not None:
            raise ConflictError(f"the bundle {home.bundle.slug} already has a tool {slug}@{version}", "exists")
        path = tool_file(home.folder, slug, version)
        if (file := self.file(path)) is not None and path != but:
            if file.reason:
                raise broken_file(file)
            found = next((row for row in self.tools.get(home.bundle.id, {}).values() if row.path == path), None)
            what = self.refused.get(path, "") if found is None else f"it contains {found.slug}@{found.version}"
            raise ConflictError(f"bundles/{path} is in the way: {what}", "exists")
        return path

    def tool_names(self, home: KeptBundle) -> list[str]:
        """Return the tools in a bundle's folder, including files that can't be used."""
        rows = {row.path: f"{row.slug}@{row.version}" for row in self.tools.get(home.bundle.id, {}).values()}
        paths = sorted(path for path in self.files.get(home.folder, {}) if path != bundle_file(home.folder))
        return [rows.get(path) or path.rpartition("/")[2] for path in paths]

    def new_folder(self, bundle: Bundle) -> str:
        """Return the folder for a new bundle."""
        used = {kept.folder for kept in self.bundles.values()}
        for folder in bundle_folders(bundle.slug, bundle.id):
            if folder not in used and folder in self.files:
                raise folder_in_the_way(folder)
            if folder not in used:
                return folder
        raise ConflictError(f"the folders for the bundle {bundle.id} contain other bundles: move these away", "exists")

    def refuse_ids(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            if tool.id in self.by_id or tool.id in self.reserved:
                raise ConflictError(f"another tool already has the id {tool.id}", "exists")

    # The next contents

    def following(self, rows: Iterable[FileRow], gone: Iterable[str] = (), *, is_complete: bool = True) -> "Contents":
        """Return the contents with these rows instead of those with the same paths, and without the paths `gone`.

        Unless they are complete, nothing is known of a file without a row.
        """
        files, copied, changed = dict(self.files), set[str](), set[str]()

        def folder(path: str) -> dict[str, FileRow]:
            name = folder_of(path)
            if name not in copied:
                copied.add(name)
                files[name] = dict(files.get(name, {}))
            return files[name]

        for row in rows:
            old = files.get(folder_of(row.path), {}).get(row.path)
            if old != row:
                folder(row.path)[row.path] = row
                if old is None or (old.body, old.reason) != (row.body, row.reason):
                    changed.add(folder_of(row.path))
        for path in gone:
            if path in files.get(folder_of(path), {}):
                del folder(path)[path]
                changed.add(folder_of(path))
        is_first = is_complete and isinstance(self.overlay, UnknownOverlay) and "" not in self.files
        if not copied and not is_first:
            return self
        new = Contents.__new__(Contents)
        new.__dict__.update(self.__dict__)
        new.files = {name: rows for name, rows in files.items() if rows}
        if changed or is_first:
            for computed in ("in_order", "functions"):
                new.__dict__.pop(computed, None)
            new.revision += 1
            if "" in changed or is_first:
                new.overlay = _read_overlay(new.file(OVERLAY), self.overlay)
            _derive(new, self, changed - {""})
        return new


def _read_overlay(file: FileRow | None, before: Overlay) -> Overlay:
    """Return the settings in a file; if the file can't be used, those before."""
    try:
        return Overlay() if file is None else before if file.reason else read_overlay(file.body)
    except InvalidError:  # a damaged mirror
        return before


def _derive(new: Contents, old: Contents, changed: set[str]) -> None:
    """Set the bundles and tools of `new`, which has the files. Only folders that depend on the `changed` are read."""
    folders = changed | {folder_of(path) for path in new.refused}
    bundle_ids = {kept.folder: id for id, kept in old.bundles.items()}
    known: dict[str, KeptTool] = {}  # by path
    found: dict[str, list[tuple[Item, FileRow]]] = {}
    todo, refused = list(folders), dict[str, str]()
    while todo:
        folder = todo.pop()
        found[folder] = []
        known |= {row.path: row for row in old.tools.get(bundle_ids.get(folder, ""), {}).values()}
        for row in new.files.get(folder, {}).values():
            try:
                if not row.reason:
                    kept = known.get(row.path)
                    item = kept if kept is not None and kept.body == row.body else _read_item(row)
                    found[folder].append((item, row))
            except (msgspec.DecodeError, RecursionError) as error:  # a damaged mirror
                refused[row.path] = str(error)
        for item, _ in found[folder]:  # the other folders that claim the same
            tool, bundle = old.by_id.get(item.id), old.bundles.get(item.id)
            other = folder_of(tool.path) if tool else bundle.folder if bundle else folder
            if other not in folders:
                folders.add(other)
                todo.append(other)
    new.refused = refused
    homes = _derive_bundles(new, old, found)
    new.tools = {id: tools for id, tools in old.tools.items() if old.bundles[id].folder not in folders}
    new.by_id = dict(old.by_id)
    for kept in known.values():
        del new.by_id[kept.id]
    tools = [(item, row) for items in found.values() for item, row in items if not isinstance(item, Bundle)]
    names = {(folder_of(row.path), item.slug, item.version) for item, row in tools}
    if len(names) < len(tools) or len({item.id for item, _ in tools}) < len(tools):  # else the order doesn't matter
        tools.sort(key=lambda one: (not _has_usual_name(*one), one[1].path))
    for item, row in tools:
        home = homes.get(folder_of(row.path))
        if home is None:
            new.refused[row.path] = NO_BUNDLE
            continue
        versions = new.tools.setdefault(home.bundle.id, {})
        taken, same = new.by_id.get(item.id), versions.get((item.slug, item.version))
        if item.id in new.reserved or taken is not None:
            new.refused[row.path] = _clash(f"the tool {item.id}", taken.path if taken else None, is_id=True)
        elif same is not None:
            new.refused[row.path] = _clash(f"the tool {item.slug}@{item.version}", same.path, is_id=False)
        else:
            versions[item.slug, item.version] = new.by_id[item.id] = item.of(home.bundle.id, row)
    new.tools = {id: versions for id, versions in new.tools.items() if versions}
    for folder, items in found.items():
        if folder not in homes and items and bundle_file(folder) not in new.files.get(folder, {}):
            new.refused[bundle_file(folder)] = NO_BUNDLE_FILE


def _derive_bundles(
    new: Contents, old: Contents, found: Mapping[str, list[tuple[Item, FileRow]]]
) -> dict[str, KeptBundle]:
    """Set the bundles of `new`, and return those of the folders that were read, by folder."""
    new.bundles = {id: kept for id, kept in old.bundles.items() if kept.folder not in found}
    homes: dict[str, KeptBundle] = {}
    bundles = [(item, row) for items in found.values() for item, row in items if isinstance(item, Bundle)]
    for bundle, row in sorted(bundles, key=lambda one: (not _has_usual_name(*one), one[1].path)):
        taken = new.bundles.get(bundle.id)
        if bundle.id in new.reserved or taken is not None:
            where = None if taken is None else bundle_file(taken.folder)
            new.refused[row.path] = _clash(f"the bundle {bundle.id}", where, is_id=True)
        else:
            folder = folder_of(row.path)
            new.bundles[bundle.id] = homes[folder] = KeptBundle(bundle, folder)
    return homes


def _read_item(row: FileRow) -> "_Head | Bundle":
    return _decode_head(row.body) if is_tool(row.path) else decode_bundle(row.body)


def _has_usual_name(item: Item, row: FileRow) -> bool:
    """Return whether the file has the name that the store would give it, and thus wins over a copy."""
    folder = folder_of(row.path)
    if isinstance(item, Bundle):
        return folder in bundle_folders(item.slug, item.id)
    return row.path == tool_file(folder, item.slug, item.version)


def _clash(item: str, path: str | None, *, is_id: bool) -> str:
    """Return why the second of two files with the same id or name, such as a copy, can't be used."""
    text = f"{item} is in {path or BUILT_IN} already"
    if is_id:
        return f'{text}; remove the line "id" from this file to give it a new id'
    return f"{text}; give this one another name, or remove it"


def broken_file(file: FileRow) -> ConflictError:
    """Return the error for an existing file that can't be used."""
    return ConflictError(f"bundles/{file.path} can't be used: {file.reason}; repair it, or move it away", "broken")


def folder_in_the_way(folder: str) -> ConflictError:
    advice = "its bundle.json can't be used: repair it, or move it away"
    return ConflictError(f"bundles/{folder} is in the way: {advice}", "broken")


def refuse_closed(bundle: Bundle) -> None:
    """Raise ForbiddenError for a bundle whose tools may not be changed."""
    if bundle.soft_deleted_at is not None:
        raise ForbiddenError(f"the bundle {bundle.slug} is deleted; PUT on the bundle itself restores it", "deleted")
    if not bundle.is_enabled:
        raise ForbiddenError(f"the bundle {bundle.slug} is disabled; enable it first", "disabled")
