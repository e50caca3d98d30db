"""`Contents`, an in-memory snapshot of all bundles and tools of a store.

A `Contents` is immutable: a `ContentsChange` creates the next one, which shares all unchanged parts. Readers need no
lock, and see a change to several files completely or not at all. A tool is kept as its JSON, beside the fields that
lists and names need.

Every bundle and tool belongs to a path. `put_…` replaces the previous content of the path, `drop` removes it. If two
paths claim the same bundle or tool, the second one is refused with `PathTakenError`, which names the first.

`BundleCache` stores the contents in a file, so that the next process reads only files with new stamps instead of
thousands. A cache that is missing, damaged or of another layout is ignored.
"""

import logging
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from time import monotonic, time_ns

import msgspec

from onetool.core.errors import Mistake
from onetool.core.os_files import read_cache, write_cache
from onetool.sources.bundles.files.disk import Stamp, folder_of
from onetool.sources.bundles.files.overlay import Overlay, UnknownOverlay
from onetool.sources.bundles.model import Bundle, Tool, function_name
from onetool.sources.bundles.queries import ListQuery, get_id, is_live

log = logging.getLogger("onetool.bundles")
encode_tool = msgspec.json.Encoder().encode
decode_tool = msgspec.json.Decoder(Tool).decode


class KeptTool(msgspec.Struct, frozen=True, gc=False, array_like=True):
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

    @classmethod
    def of(cls, tool: Tool, path: str, body: bytes | None = None) -> "KeptTool":
        place = (tool.id, tool.bundle_id, tool.slug, tool.version)
        facts = (tool.is_enabled, function_name(tool), tool.tags, tool.modified_at)
        return cls(*place, *facts, path, encode_tool(tool) if body is None else body)

    def tool(self) -> Tool:
        return decode_tool(self.body)


class KeptBundle(msgspec.Struct, frozen=True, gc=False, array_like=True):
    bundle: Bundle
    path: str


class KeptFile(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A file that was read: its bundle or tool, or the reason why the file can't be used."""

    path: str
    stamp: Stamp
    bundle: KeptBundle | None = None
    tool: KeptTool | None = None
    reason: str | None = None


Versions = dict[tuple[str, str], KeptTool]
"""The tools of one bundle, by slug and version."""


class Contents:
    def __init__(
        self,
        revision: int,
        bundles: dict[str, KeptBundle],
        tools: dict[str, Versions],
        files: dict[str, dict[str, KeptFile]],
        overlay: Overlay | None,
        note: str = "",
    ) -> None:
        """Create contents. `tools` are by bundle id, `files` by folder and path. `overlay` is None if not loaded yet.

        `note` records the last change to the database tables that this copy contains.
        """
        self.revision = revision
        self.bundles, self.tools, self.files = bundles, tools, files
        self.known_overlay, self.note = overlay, note

    @classmethod
    def empty(cls) -> "Contents":
        """Return empty contents. Revisions start at the current time, so that they never repeat earlier ones."""
        return cls(time_ns() // 1000, {}, {}, {}, None)

    @property
    def overlay(self) -> Overlay:
        return self.known_overlay or UnknownOverlay()

    @cached_property
    def by_id(self) -> dict[str, KeptTool]:
        return {row.id: row for versions in self.tools.values() for row in versions.values()}

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

    def mistakes(self) -> list[Mistake]:
        files = (file for folder in self.files.values() for file in folder.values())
        mistakes = [Mistake(file=file.path, message=file.reason) for file in files if file.reason is not None]
        return sorted(mistakes, key=lambda mistake: mistake.file or "")

    def file(self, path: str) -> KeptFile | None:
        return self.files.get(folder_of(path), {}).get(path)


class PathTakenError(Exception):
    """An error for a bundle or tool that another file already contains; `path` is None for built-in ones."""

    def __init__(self, item: str, path: str | None) -> None:
        super().__init__(f"{item} is in {path or 'the built-in bundles'} already")
        self.path = path


class ContentsChange:
    """A builder of the next contents. Its changes are invisible until `done`."""

    def __init__(self, base: Contents, reserved: frozenset[str] = frozenset()) -> None:
        """Start from `base`. `reserved` are the ids of built-in bundles and tools."""
        self._base, self._reserved = base, reserved
        self.bundles, self.tools, self.files = dict(base.bundles), dict(base.tools), dict(base.files)
        self._overlay, self._note = base.known_overlay, base.note
        self._ids: dict[str, KeptTool | None] = {}  # stored tools by id, and None for removed ones
        self._copied: set[str] = set()  # bundles and folders whose mappings were copied
        self._has_changed = self._has_stamped = False
        self.files_changed = 0

    def done(self) -> Contents:
        if not self._has_changed and not self._has_stamped:
            return self._base
        revision = self._base.revision + self._has_changed
        contents = Contents(revision, self.bundles, self.tools, self.files, self._overlay, self._note)
        if not self._has_changed:  # only stamps differ: keep the computed properties
            contents.__dict__.update({**self._base.__dict__, "files": self.files, "note": self._note})
        return contents

    # Changing

    def put_bundle(self, bundle: Bundle, path: str, stamp: Stamp) -> None:
        known = self.bundles.get(bundle.id)
        if bundle.id in self._reserved or (known is not None and known.path != path):
            raise PathTakenError(f"the bundle {bundle.id}", None if known is None else known.path)
        old = self.file(path)
        if old is not None and (old.bundle is None or old.bundle.bundle.id != bundle.id):
            self.drop(path)
        kept = KeptBundle(bundle, path)
        if known == kept:
            kept = known
        else:
            self.bundles[bundle.id], self._has_changed = kept, True
        self._put_file(KeptFile(path, stamp, bundle=kept))

    def put_tool(self, tool: Tool, path: str, stamp: Stamp, body: bytes | None = None) -> None:
        row = KeptTool.of(tool, path, body)
        for item, known in (
            (f"the tool {tool.id}", self.tool_of_id(tool.id)),
            (f"the tool {tool.slug}@{tool.version}", self.tool(tool.bundle_id, tool.slug, tool.version)),
        ):
            if known is not None and known.path != path:
                raise PathTakenError(item, known.path)
        if tool.id in self._reserved:
            raise PathTakenError(f"the tool {tool.id}", None)
        old = self.file(path)
        if old is not None and old.tool == row:
            row = old.tool
        else:
            if old is not None:
                self.drop(path)
            self._versions(tool.bundle_id)[tool.slug, tool.version] = row
            self._ids[tool.id], self._has_changed = row, True
        self._put_file(KeptFile(path, stamp, tool=row))

    def put_broken(self, path: str, stamp: Stamp, reason: str) -> None:
        """Record an unusable file with the reason, so that it is not read repeatedly."""
        old = self.file(path)
        if old is None or old.reason != reason:
            self.drop(path)
            self._has_changed = True
        self._put_file(KeptFile(path, stamp, reason=reason))

    def drop(self, path: str) -> None:
        """Remove a file and its content. The tools of a removed bundle stay, disabled."""
        old = self.file(path)
        if old is None:
            return
        folder = self._folder(folder_of(path))
        del folder[path]
        if not folder:
            del self.files[folder_of(path)]
            self._copied.discard(f"{folder_of(path)}/")
        self._has_changed, self.files_changed = True, self.files_changed + 1
        if old.tool is not None:
            row = old.tool
            del self._versions(row.bundle_id)[row.slug, row.version]
            self._ids[row.id] = None
            if not self.tools[row.bundle_id]:
                del self.tools[row.bundle_id]
                self._copied.discard(row.bundle_id)
        if old.bundle is not None:
            del self.bundles[old.bundle.bundle.id]

    def put_overlay(self, overlay: Overlay) -> None:
        if overlay != self._overlay:
            self._overlay, self._has_changed = overlay, True

    def keep_overlay(self, path: str, stamp: Stamp) -> None:
        """Record the overlay file that was read."""
        old = self.file(path)
        self._has_changed |= old is not None and old.reason is not None
        self._put_file(KeptFile(path, stamp))

    def put_note(self, note: str) -> None:
        self._has_stamped |= note != self._note
        self._note = note

    # Reading

    @property
    def has_overlay(self) -> bool:
        """Whether the settings of read-only bundles were loaded."""
        return self._overlay is not None

    @property
    def is_overlay_known(self) -> bool:
        return self._overlay is not None and not isinstance(self._overlay, UnknownOverlay)

    def file(self, path: str) -> KeptFile | None:
        return self.files.get(folder_of(path), {}).get(path)

    def path_of_bundle(self, id: str) -> str | None:
        found = self.bundles.get(id)
        return None if found is None else found.path

    def tool(self, bundle_id: str, slug: str, version: str) -> KeptTool | None:
        return self.tools.get(bundle_id, {}).get((slug, version))

    def tool_of_id(self, id: str) -> KeptTool | None:
        return self._ids[id] if id in self._ids else self._base.by_id.get(id)

    def has_tool_id(self, id: str) -> bool:
        """Return whether a tool has this id, built-in ones included."""
        return id in self._reserved or self.tool_of_id(id) is not None

    def count_tools(self) -> int:
        return sum(map(len, self.tools.values()))

    # Mappings shared with the previous contents are copied before their first change.

    def _put_file(self, file: KeptFile) -> None:
        if self.file(file.path) != file:
            self._folder(folder_of(file.path))[file.path] = file
            self._has_stamped, self.files_changed = True, self.files_changed + 1

    def _versions(self, bundle_id: str) -> Versions:
        if bundle_id not in self._copied:
            self._copied.add(bundle_id)
            self.tools[bundle_id] = dict(self.tools.get(bundle_id, {}))
        return self.tools[bundle_id]

    def _folder(self, folder: str) -> dict[str, KeptFile]:
        if (key := f"{folder}/") not in self._copied:
            self._copied.add(key)
            self.files[folder] = dict(self.files.get(folder, {}))
        return self.files[folder]


# The cache file

LAYOUT = 1  # of the file: increase it with each change of the format
MAX_BYTES = 2 << 30
SHARE = 50  # write the cache when this fraction (1 in …) of the files has changed
COST = 50  # wait at least this many times the duration of the last write


class _Saved(msgspec.Struct, array_like=True):
    files: list[KeptFile]
    overlay: Overlay | None
    note: str


class BundleCache:
    """The cache of contents. It is rewritten after `min_changed` files have changed, at the earliest."""

    def __init__(self, min_changed: int) -> None:
        self._min_changed = min_changed
        self._saved: Contents | None = None
        self._unsaved = 0
        self._not_before = 0.0

    def read(self, file: Path | None, reserved: frozenset[str]) -> Contents:
        """Return the cached contents, or empty contents if the cache is unusable. `reserved` are built-in ids."""
        empty = Contents.empty()
        body = None if file is None else read_cache(file, _HEAD, MAX_BYTES)
        if body is None:
            return empty
        try:
            saved = _decode(body)
        except (msgspec.DecodeError, RecursionError):  # written by another program with the same layout number
            return empty
        change = ContentsChange(empty)
        tools, files = change.tools, change.files
        for entry in saved.files:
            kept, row = entry.bundle, entry.tool
            if (row and row.id in reserved) or (kept and kept.bundle.id in reserved):
                continue  # the file is read again and refused there
            files.setdefault(folder_of(entry.path), {})[entry.path] = entry
            if row is not None:
                tools.setdefault(row.bundle_id, {})[row.slug, row.version] = row
            elif kept is not None:
                change.bundles[kept.bundle.id] = kept
        self._saved = Contents(empty.revision + 1, change.bundles, tools, files, saved.overlay, saved.note)
        return self._saved

    def count(self, files: int) -> None:
        """Count changed files."""
        self._unsaved += files

    def is_due(self, contents: Contents, is_last: bool = False) -> bool:
        """Return whether enough has changed, and enough time has passed, since the last write."""
        if contents is self._saved or (monotonic() < self._not_before and not is_last):
            return False
        has_new_overlay = self._saved is None or self._saved.known_overlay != contents.known_overlay
        has_overlay = contents.known_overlay not in (None, Overlay())
        min_changed = self._min_changed if is_last else max(self._min_changed, len(contents.by_id) // SHARE)
        return self._unsaved >= min_changed or (has_new_overlay and has_overlay)

    def write(self, file: Path, contents: Contents) -> None:
        started_at = monotonic()
        files = [entry for folder in contents.files.values() for entry in folder.values() if _is_text(entry)]
        overlay = None if isinstance(contents.known_overlay, UnknownOverlay) else contents.known_overlay
        try:
            body = msgspec.msgpack.encode(_Saved(files, overlay, contents.note))
            write_cache(file, _HEAD, body)
        except (OSError, ValueError, OverflowError, RecursionError) as error:  # also values that msgpack can't encode
            log.debug("%s can't be written: %s", file, error)
        self._saved, self._unsaved = contents, 0
        self._not_before = monotonic() + (monotonic() - started_at) * COST


_HEAD = f"onetool bundles {LAYOUT}\n".encode()
_decode = msgspec.msgpack.Decoder(_Saved).decode


def _is_text(file: KeptFile) -> bool:
    """Return whether the path, and the reason, which may name a path, are UTF-8. Other files are not cached."""
    try:
        return bool(f"{file.path}{file.reason}".encode())
    except UnicodeEncodeError:
        return False
