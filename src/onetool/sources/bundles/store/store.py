"""`BundleStore`, the operations on a store of bundles, wherever its files are kept.

All methods block and are thread-safe. Writes are durable when they return. If a method raises a BundleError, nothing
has changed. Built-in and derived bundles are listed and found like all others, but only their switches and examples are
stored. Deleting a deleted bundle has no effect.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from heapq import merge
from itertools import islice
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.core.errors import Mistake
from onetool.core.flock import KEY_BYTES
from onetool.core.spec import ToolSpec
from onetool.database import Database
from onetool.database.sqlite import SqliteDatabase
from onetool.sources.bundles.derived import (
    DerivedBundles,
    KeptSettings,
    ReadOnlyBundles,
    kept_settings,
    nothing_derived,
)
from onetool.sources.bundles.errors import BundleError, ConflictError, ForbiddenError
from onetool.sources.bundles.model import Bundle, BundleContent, Tool, ToolContent, ToolExample
from onetool.sources.bundles.names import check_id, check_slug, check_version, new_id
from onetool.sources.bundles.queries import FIRST_PAGE, ETag, ListQuery, Rank, SearchHit, get_id
from onetool.sources.bundles.store.contents import Contents, KeptBundle, KeptTool, broken_file, refuse_closed
from onetool.sources.bundles.store.folder import Foreign, anybody
from onetool.sources.bundles.store.overlay import BuiltIn, Overlay, UnknownOverlay, check_built_in, overlay_text
from onetool.sources.bundles.store.paths import OVERLAY, STATE, bundle_file, tool_file
from onetool.sources.bundles.store.storage import Change, FolderStorage, Job, Storage, TableStorage
from onetool.sources.bundles.store.text import (
    bundle_text,
    check_set,
    not_empty,
    refuse_stale,
    structure,
    time_seconds,
    time_text,
    tool_of,
    tool_text,
    with_times,
)
from onetool.sources.bundles.usage import UsageCounter

if TYPE_CHECKING:
    from onetool.services.search.postings import Words
    from onetool.sources.bundles.searching import StoreSearch

SEARCH_CACHE = "search.cache"
KEPT_SECONDS = 2 * 24 * 3600  # until a deleted bundle is removed
MAX_TOOLS = 200_000


def folder_store(
    folder: Path,
    built_in: BuiltIn = (),
    now: Callable[[], float] = time.time,
    max_tools: int = MAX_TOOLS,
    foreign: Foreign = anybody,
    database: Database | None = None,
    derived: DerivedBundles | None = None,
) -> "BundleStore":
    """Open a store in a folder. `database` stores the counts of calls; if it is None, a file in the folder does."""
    storage = FolderStorage(folder, reserved_ids(built_in), foreign)
    counts = database or SqliteDatabase(folder / STATE / "state.db")
    return BundleStore(storage, counts, built_in, now, max_tools, derived)


def database_store(
    database: Database,
    state: Path | None = None,
    built_in: BuiltIn = (),
    now: Callable[[], float] | None = None,
    max_tools: int = MAX_TOOLS,
    derived: DerivedBundles | None = None,
) -> "BundleStore":
    """Open the store of a database. `state` is the folder for caches of this database."""
    storage = TableStorage(database, reserved_ids(built_in), state)
    return BundleStore(storage, database, built_in, now or database.now, max_tools, derived)


def reserved_ids(built_in: BuiltIn) -> frozenset[str]:
    return frozenset(item.id for bundle, tools in built_in for item in (bundle, *tools))


class BundleStore:
    def __init__(
        self,
        storage: Storage,
        counts: Database,
        built_in: BuiltIn = (),
        now: Callable[[], float] = time.time,
        max_tools: int = MAX_TOOLS,
        derived: DerivedBundles | None = None,
    ) -> None:
        """Create the store. `counts` stores the counts of calls."""
        check_built_in(built_in)
        self.built_in = built_in
        self.function: Callable[[str], ToolSpec | None] = lambda _name: None
        """Return a function by name: search includes the texts that tools inherit from their functions."""
        self._storage = storage
        self._derived = derived or nothing_derived()
        self._switched: ReadOnlyBundles | None = None
        self._now = now
        self._max_tools = max_tools
        self.counter = UsageCounter(counts, now)
        self._synced: int | None = None  # the revision of the last sync
        self._key: bytes | None = None
        self._own_key = token_bytes(KEY_BYTES)
        self.catch_up, self.require_current = storage.catch_up, storage.require_current
        self.watch, self.stamp = storage.watch, storage.stamp

    # Following changes

    def contents(self) -> Contents:
        """Return the current contents as far as this process knows."""
        contents = self._storage.contents()
        if self._synced is None:
            self._synced = contents.revision
        return contents

    def change(self, job: Job, *, makes: bool = False) -> Any:
        """Run a job, and return its result. Only a job that `makes` something new may create the store."""
        return self._storage.change(job, makes=makes)

    def sync(self) -> bool:
        """Read external changes, and return whether anything has changed since the last sync."""
        before = self._synced
        self._storage.sync()
        self._synced = self.contents().revision
        return before != self._synced

    def state(self) -> int:
        """Return a number that changes with every visible change. This is cheap."""
        if self._storage.must_ask:
            self._storage.catch_up()
        return self.contents().revision

    @property
    def must_ask(self) -> bool:
        """Whether changes by other processes are only seen by querying `state`."""
        return self._storage.must_ask

    def file_of(self, tool_id: str) -> str | None:
        """Return the file of a tool, if it has one."""
        row = self.contents().by_id.get(tool_id)
        return None if row is None else self._storage.file(row.path)

    def mistakes(self) -> list[Mistake]:
        """Return the stored files that can't be used, each with its path and the reason."""
        return [
            Mistake(file=file, message=message if file else f"in the database: {path}: {message}")
            for path, message in self.contents().mistakes()
            for file in [self._storage.file(path)]
        ]

    def key(self) -> bytes:
        """Return the secret key for page tokens: this process's own key if there is no shared one."""
        if self._key is None:
            self._key = self._storage.key()
        return self._key or self._own_key

    def close(self) -> None:
        self.counter.close()
        self._storage.close()

    # Reading

    def read_only(self) -> ReadOnlyBundles:
        """Return the built-in and derived bundles with their settings."""
        derived, overlay, known = self._derived.now(), self.contents().overlay, self._switched
        if known is None or known.derived is not derived or known.overlay != overlay:
            known = self._switched = ReadOnlyBundles(self.built_in, derived, overlay)
        return known

    def settings(self) -> KeptSettings:
        """Return the settings of read-only bundles. Derived bundles are only built if they have settings."""
        overlay = self.contents().overlay
        if overlay == Overlay():
            return KeptSettings()
        has_derived = isinstance(overlay, UnknownOverlay) or overlay.derived_only() != Overlay()
        derived = self._derived.now().bundles if has_derived else ()
        return kept_settings(overlay.over([*self.built_in, *derived]))

    def bundle(self, id: str) -> Bundle | None:
        found = self.read_only().by_id.get(id)
        return self.contents().bundle(id) if found is None else found[0]

    def bundles(self, query: ListQuery = FIRST_PAGE) -> list[Bundle]:
        stored, read_only = self.contents().listed_bundles(query), query.bundles(self.read_only().bundles)
        return [*islice(merge(stored, read_only, key=get_id), query.limit)]

    def tool(self, bundle_id: str, slug: str, version: str) -> Tool | None:
        if (found := self.read_only().by_id.get(bundle_id)) is not None:
            return next((tool for tool in found[1] if (tool.slug, tool.version) == (slug, version)), None)
        row = self.contents().tool(bundle_id, slug, version)
        return None if row is None else row.tool()

    def versions(self, bundle_id: str, slug: str) -> list[Tool]:
        """Return all versions of one tool, in any order."""
        if (found := self.read_only().by_id.get(bundle_id)) is not None:
            return [tool for tool in found[1] if tool.slug == slug]
        rows = self.contents().tools.get(bundle_id, {})
        return [row.tool() for row in rows.values() if row.slug == slug]

    def tools(self, query: ListQuery = FIRST_PAGE) -> list[Tool]:
        stored, read_only = self.contents().listed_tools(query), self.read_only().listed_tools(query)
        tools = islice(merge(stored, read_only, key=get_id), query.limit)
        return [tool.tool() if isinstance(tool, KeptTool) else tool for tool in tools]

    def search(
        self, query: str, include_disabled: bool = False, after: Rank | None = None, limit: int = 100
    ) -> list[SearchHit]:
        return self._search.search(query, include_disabled, after, limit)

    def searched(self) -> "Words":
        """Return the current words of the stored tools, for callers with their own ranking."""
        return self._search.words()

    @cached_property
    def _search(self) -> "StoreSearch":
        from onetool.sources.bundles.searching import StoreSearch  # imports numpy

        state = self._storage.state_folder()
        return StoreSearch(self, None if state is None else state / SEARCH_CACHE)

    def everything(self) -> tuple[list[Bundle], Iterator[Tool]]:
        """Return all stored bundles and tools, in one snapshot."""
        contents = self.contents()
        return [*contents.listed_bundles(ListQuery(include_disabled=True))], (row.tool() for row in contents.in_order)

    # Bundles

    def put_bundle(
        self, id: str, content: BundleContent, match: ETag | None = None, create_only: bool = False
    ) -> tuple[Bundle, bool]:
        """Store a bundle, and return whether it is new. This also restores a soft-deleted bundle.

        `match`, here and below, is the ETag that the stored version must have, if given.
        """
        id = check_id(id)
        check_slug(content.slug)
        self._refuse_built_in(id)

        def job(now: Contents) -> Change:
            stored, at = now.bundles.get(id), time_text(self._now())
            if stored is None:
                refuse_stale(None, match)
                bundle = Bundle(**msgspec.structs.asdict(content), id=id, created_at=at, modified_at=at)
                return Change({bundle_file(now.new_folder(bundle)): bundle_text(bundle)}, (bundle, True))
            old = stored.bundle
            refuse_stale(old, match)
            if create_only and old.soft_deleted_at is None:
                raise ConflictError(f"a bundle {id} already exists", "exists")
            bundle = self._changed_bundle(old, content)
            return Change(changed_bundle_file(stored, bundle), (bundle, False))

        return self.change(job, makes=True)

    def _changed_bundle(self, old: Bundle, content: BundleContent) -> Bundle:
        bundle = msgspec.structs.replace(old, **msgspec.structs.asdict(content), soft_deleted_at=None)
        if structure(bundle) == structure(old):
            return bundle
        return msgspec.structs.replace(bundle, modified_at=max(time_text(self._now()), old.modified_at))

    def patch_bundle(self, id: str, is_enabled: bool, match: ETag | None = None) -> Bundle:
        if (built_in := self._built_in_bundle(id)) is not None:
            return self._switch(built_in, None, is_enabled, match)

        def job(now: Contents) -> Change:
            stored = now.existing_bundle(id)
            old = stored.bundle
            refuse_stale(old, match)
            if old.soft_deleted_at is not None:
                raise ForbiddenError(f"the bundle {old.slug} is deleted; PUT restores it", "deleted")
            bundle = msgspec.structs.replace(old, is_enabled=is_enabled)
            return Change(changed_bundle_file(stored, bundle), bundle)

        return self.change(job)

    def delete_bundle(self, id: str, match: ETag | None = None) -> None:
        self._refuse_built_in(id)

        def job(now: Contents) -> Change:
            stored = now.existing_bundle(id)
            refuse_stale(stored.bundle, match)
            if names := now.tool_names(stored):
                raise ConflictError(not_empty(stored.bundle, names), "not_empty")
            deleted = stored.bundle.soft_deleted_at or time_text(self._now())
            return Change(changed_bundle_file(stored, msgspec.structs.replace(stored.bundle, soft_deleted_at=deleted)))

        self.change(job)

    def put_all(self, bundle: Bundle, tools: Iterable[Tool]) -> None:
        """Store a new bundle with its tools, all or nothing."""
        check_slug(bundle.slug)
        bundle = msgspec.structs.replace(bundle, id=check_id(bundle.id), is_built_in=False, soft_deleted_at=None)
        self._refuse_built_in(bundle.id)
        bundle = with_times(bundle)
        tools = [with_times(msgspec.structs.replace(tool, bundle_id=bundle.id, is_built_in=False)) for tool in tools]
        check_set(tools)
        texts = [tool_text(tool) for tool in tools]

        def job(now: Contents) -> Change:
            if bundle.id in now.bundles:
                raise ConflictError(f"a bundle {bundle.id} already exists", "exists")
            now.refuse_ids(tools)
            self.refuse_more(now, len(tools))
            return Change(new_bundle_files(now, bundle, tools, texts))

        self.change(job, makes=True)

    def reap(self) -> list[str]:
        """Remove empty bundles that were soft-deleted two days ago, and return their ids."""

        def job(id: str, now: Contents) -> Change:
            stored = now.bundles.get(id)  # may have been restored or filled since
            if stored is None or not self._is_expired(stored.bundle) or now.tool_names(stored):
                return Change({}, False)
            return Change({bundle_file(stored.folder): None}, True)

        def is_reaped(id: str) -> bool:
            with suppress(BundleError):  # something else is in the folder, or the database is away
                return self.change(partial(job, id))
            return False

        expired = [id for id, kept in self.contents().bundles.items() if self._is_expired(kept.bundle)]
        return [id for id in expired if is_reaped(id)]

    def _is_expired(self, bundle: Bundle) -> bool:
        deleted = bundle.soft_deleted_at
        return deleted is not None and self._now() - time_seconds(deleted) >= KEPT_SECONDS

    # Tools

    def put_tool(self, bundle_id: str, slug: str, version: str, content: ToolContent) -> Tool:
        self._refuse_built_in(bundle_id)
        tool = self._new_tool(bundle_id, slug, version, content)
        text = tool_text(tool)

        def job(now: Contents) -> Change:
            path = now.new_tool_file(now.open_bundle(bundle_id), slug, version)
            self.refuse_more(now, 1)
            return Change({path: text}, tool)

        return self.change(job)

    def put_tools(
        self, bundle_id: str, tools: Iterable[tuple[str, str, ToolContent]], content: BundleContent | None = None
    ) -> list[Tool]:
        """Add tools (slug, version, content) to a bundle, and replace the bundle's own content; all or nothing.

        With `content`, a soft-deleted bundle is restored.
        """
        self._refuse_built_in(bundle_id)
        if content is not None:
            check_slug(content.slug)
        new = [self._new_tool(bundle_id, *tool) for tool in tools]
        check_set(new)
        texts = [tool_text(tool) for tool in new]

        def job(now: Contents) -> Change:
            stored = now.existing_bundle(bundle_id)
            bundle = stored.bundle if content is None else self._changed_bundle(stored.bundle, content)
            if new:
                refuse_closed(bundle)
                self.refuse_more(now, len(new))
            paths = [now.new_tool_file(stored, tool.slug, tool.version) for tool in new]
            return Change({**dict(zip(paths, texts, strict=True)), **changed_bundle_file(stored, bundle)}, new)

        return self.change(job)

    def _new_tool(self, bundle_id: str, slug: str, version: str, content: ToolContent) -> Tool:
        now = self._now()
        return Tool(
            **msgspec.structs.asdict(content),
            id=new_id(now),
            bundle_id=bundle_id,
            slug=check_slug(slug),
            version=check_version(version),
            created_at=time_text(now),
            modified_at=time_text(now),
        )

    def patch_tool(self, bundle_id: str, slug: str, version: str, is_enabled: bool, match: ETag | None = None) -> Tool:
        if (built_in := self._built_in_bundle(bundle_id)) is not None:
            return self._switch(built_in, (slug, version), is_enabled, match)
        return self._change_tool((bundle_id, slug, version), match, is_enabled=is_enabled)

    def put_examples(
        self, bundle_id: str, slug: str, version: str, examples: tuple[ToolExample, ...], match: ETag | None = None
    ) -> Tool:
        """Store examples, including those of built-in and derived tools. `modified_at` is unchanged."""
        if (built_in := self._built_in_bundle(bundle_id)) is None:
            return self._change_tool((bundle_id, slug, version), match, examples=examples)

        def job(now: Contents) -> Change:
            before = stored_overlay(now)
            bundle = before.bundle(built_in[0])
            old = before.tool(bundle, tool_of(*built_in, slug, version))
            refuse_stale(old, match)
            overlay = before.with_examples(bundle, old, examples)
            return Change(overlay_files(before, overlay), msgspec.structs.replace(old, examples=examples))

        return self.change(job, makes=True)

    def _change_tool(self, tool: tuple[str, str, str], match: ETag | None, **fields: Any) -> Tool:
        """Change fields that don't affect a tool's place. `tool` is its bundle id, slug and version."""
        bundle_id, slug, version = tool

        def job(now: Contents) -> Change:
            row = now.existing_tool(now.open_bundle(bundle_id), slug, version)
            old = row.tool()
            refuse_stale(old, match)
            changed = msgspec.structs.replace(old, **fields)
            return Change({row.path: tool_text(changed)} if changed != old else {}, changed)

        return self.change(job)

    def rename_tool(
        self, bundle_id: str, slug: str, version: str, new_slug: str, new_version: str, match: ETag | None = None
    ) -> Tool:
        """Change the slug or version of a tool in its bundle. Its id and usage are unchanged."""
        self._refuse_built_in(bundle_id)
        names = {"slug": check_slug(new_slug), "version": check_version(new_version)}

        def job(now: Contents) -> Change:
            stored = now.open_bundle(bundle_id)
            row = now.existing_tool(stored, slug, version)
            old = row.tool()
            refuse_stale(old, match)
            if (new_slug, new_version) == (slug, version):
                return Change({}, old)
            path = now.new_tool_file(stored, new_slug, new_version, but=row.path)
            modified = max(time_text(self._now()), old.modified_at)
            renamed = msgspec.structs.replace(old, **names, modified_at=modified)
            files = {path: tool_text(renamed)} if path == row.path else {row.path: None, path: tool_text(renamed)}
            return Change(files, renamed)

        return self.change(job)

    def delete_tool(self, bundle_id: str, slug: str, version: str, match: ETag | None = None) -> None:
        self._refuse_built_in(bundle_id)

        def job(now: Contents) -> Change:
            stored = now.existing_bundle(bundle_id)
            broken = now.file(tool_file(stored.folder, slug, version))
            if now.tool(bundle_id, slug, version) is None and broken is not None and broken.reason:
                if match is not None:
                    raise broken_file(broken)
                return Change({broken.path: None})
            row = now.existing_tool(stored, slug, version)
            refuse_stale(row.tool(), match)
            return Change({row.path: None}, row.id)

        self.counter.forget(self.change(job))

    def refuse_more(self, now: Contents, new: int) -> None:
        if len(now.by_id) + new > self._max_tools:
            message = f"the limit of {self._max_tools:,} tools would be exceeded"
            raise ForbiddenError(message, "too_many_tools")

    # Built-in and derived bundles

    def _built_in_bundle(self, id: str) -> tuple[Bundle, Sequence[Tool]] | None:
        built_in = next((item for item in self.built_in if item[0].id == id), None)
        return built_in or self._derived.now().by_id.get(id)

    def _refuse_built_in(self, id: str) -> None:
        if (found := self._built_in_bundle(id)) is not None:
            slug, source = found[0].slug, found[0].source
            origin = (
                "built in" if source is None else "the config's" if source.kind == "config" else f"a {source.kind}'s"
            )
            raise ForbiddenError(f"{slug} is {origin}: it can only be enabled and disabled", "built_in")

    def _switch(
        self,
        built_in: tuple[Bundle, Sequence[Tool]],
        tool: tuple[str, str] | None,
        is_enabled: bool,
        match: ETag | None,
    ) -> Any:
        """Enable or disable a built-in or derived bundle, or one of its tools."""

        def job(now: Contents) -> Change:
            before = stored_overlay(now)
            bundle = before.bundle(built_in[0])
            if tool is None:
                old, overlay = bundle, before.with_bundle(bundle, is_enabled)
            else:
                if not bundle.is_enabled:
                    raise ForbiddenError(f"the bundle {bundle.slug} is disabled; enable it first", "disabled")
                old = before.tool(bundle, tool_of(*built_in, *tool))
                overlay = before.with_tool(bundle, old, is_enabled)
            refuse_stale(old, match)
            files = overlay_files(before, overlay) if old.is_enabled != is_enabled else {}
            return Change(files, msgspec.structs.replace(old, is_enabled=is_enabled))

        return self.change(job, makes=True)


def new_bundle_files(
    now: Contents, bundle: Bundle, tools: Sequence[Tool], texts: Sequence[bytes]
) -> dict[str, bytes | None]:
    """Return the files of a new bundle. `texts` are the texts of its tools."""
    folder = now.new_folder(bundle)
    paths = [tool_file(folder, tool.slug, tool.version) for tool in tools]
    return {bundle_file(folder): bundle_text(bundle), **dict(zip(paths, texts, strict=True))}


def changed_bundle_file(stored: KeptBundle, bundle: Bundle) -> dict[str, bytes | None]:
    """Return the file of a changed bundle, or nothing if it is unchanged."""
    return {} if bundle == stored.bundle else {bundle_file(stored.folder): bundle_text(bundle)}


def stored_overlay(now: Contents) -> Overlay:
    """Return the settings of read-only bundles. Raises ConflictError if their file can't be used."""
    file = now.file(OVERLAY)
    if file is not None and file.reason:
        raise broken_file(file)
    return now.overlay


def overlay_files(before: Overlay, overlay: Overlay) -> dict[str, bytes | None]:
    return {} if overlay == before else {OVERLAY: overlay_text(overlay)}
