"""`BundleStore`, the operations on a store of bundles, whatever its storage.

A store has its bundles in memory, and provides the transactions for changes. All methods block and are thread-safe.
Writes are durable when they return. If a method raises a BundleError, nothing has changed. Built-in and derived bundles
are listed and found like all others, but only their switches and examples are stored. Deleting a deleted bundle has no
effect.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
from onetool.sources.bundles.contents import BundleCache, Contents, KeptTool
from onetool.sources.bundles.derived import (
    DerivedBundles,
    KeptSettings,
    ReadOnlyBundles,
    kept_settings,
    nothing_derived,
)
from onetool.sources.bundles.errors import ConflictError, ForbiddenError
from onetool.sources.bundles.files.form import (
    check_set,
    refuse_stale,
    structure,
    time_seconds,
    time_text,
    tool_of,
    tool_text,
    with_times,
)
from onetool.sources.bundles.files.overlay import BuiltIn, Overlay, UnknownOverlay, check_built_in
from onetool.sources.bundles.model import Bundle, BundleContent, Tool, ToolContent, ToolExample
from onetool.sources.bundles.names import check_id, check_slug, check_version, new_id
from onetool.sources.bundles.queries import FIRST_PAGE, ETag, ListQuery, Rank, SearchHit, get_id
from onetool.sources.bundles.transaction import BrokenFileError, StoreTransaction, refuse_closed
from onetool.sources.bundles.usage import UsageCounter

if TYPE_CHECKING:
    from onetool.services.search.postings import Words
    from onetool.sources.bundles.searching import StoreSearch

CONTENTS, SEARCH_CACHE = "bundles.cache", "search.cache"
KEPT_SECONDS = 2 * 24 * 3600  # until a deleted bundle is removed
MAX_TOOLS = 200_000


class BundleStore(ABC):
    def __init__(
        self,
        built_in: BuiltIn,
        now: Callable[[], float],
        max_tools: int,
        derived: DerivedBundles | None,
        counts: Database,
        min_saved: int,
    ) -> None:
        """Create the store. `counts` stores the counts of calls; `min_saved` is for the cache of the contents."""
        check_built_in(built_in)
        self.built_in = built_in
        self.reserved = frozenset(item.id for bundle, tools in built_in for item in (bundle, *tools))
        self.function: Callable[[str], ToolSpec | None] = lambda _name: None
        """Return a function by name: search includes the texts that tools inherit from their functions."""
        self._derived = derived or nothing_derived()
        self._switched: ReadOnlyBundles | None = None
        self._now = now
        self._max_tools = max_tools
        self.counter = UsageCounter(counts, now)
        self._contents: Contents | None = None
        self._synced = -1  # the revision of the last sync
        self._snapshot = BundleCache(min_saved)
        self._key: bytes | None = None
        self._own_key = token_bytes(KEY_BYTES)

    # Implemented by each kind of storage

    @abstractmethod
    def contents(self) -> Contents:
        """Return the current contents as far as this process knows."""

    @abstractmethod
    def change(self, job: Callable[[StoreTransaction], None], makes: bool = False) -> Any:
        """Run the job in a transaction, and return its `result`. All errors are BundleErrors.

        Only a job that `makes` something new may create the store.
        """

    @abstractmethod
    def sync(self) -> bool:
        """Read external changes, and return whether anything has changed."""

    @abstractmethod
    def catch_up(self) -> None:
        """Read changes by other processes. This is cheap. Without a connection, the last known state remains."""

    def require_current(self) -> None:  # noqa: B027 - only a shared store can be outdated
        """Raise UnavailableError if `catch_up` failed, because a missing bundle or tool may exist."""

    @abstractmethod
    def watch(self, call: Callable[[], None]) -> None:
        """Call the function, in any thread, when other processes may have changed something. It should `sync`.

        A store without notifications never calls the function.
        """

    @abstractmethod
    def stamp(self) -> Hashable:
        """Return a value that differs after each change that is known without waiting, or None if there is none."""

    @property
    def must_ask(self) -> bool:
        """Whether changes by other processes are only seen by querying `state`."""
        return False

    @abstractmethod
    def file_of(self, tool_id: str) -> str | None:
        """Return the file of a tool, if it has one."""

    @abstractmethod
    def mistakes(self) -> list[Mistake]:
        """Return the stored files that can't be used, each with its path and the reason."""

    @abstractmethod
    def _shared_key(self) -> bytes | None:
        """Return the key for page tokens that all processes of this store share, or None while it can't be read."""

    @abstractmethod
    def _state_folder(self) -> Path | None:
        """Return the folder for caches, or None if nothing can be written."""

    def key(self) -> bytes:
        """Return the secret key for page tokens: this process's own key if there is no shared one."""
        if self._key is None:
            self._key = self._shared_key()
        return self._key or self._own_key

    def close(self) -> None:
        self.counter.close()
        self._save(is_last=True)

    def _save(self, is_last: bool = False) -> None:
        contents = self._contents
        if contents is not None and self._snapshot.is_due(contents, is_last) and (folder := self._state_folder()):
            self._snapshot.write(folder / CONTENTS, contents)

    # Reading

    def state(self) -> int:
        """Return a number that changes with every visible change. This is cheap."""
        return self.contents().revision

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

        state = self._state_folder()
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

        def job(work: StoreTransaction) -> None:
            stored, now = work.bundle(id), time_text(self._now())
            if stored is None:
                refuse_stale(None, match)
                bundle = Bundle(**msgspec.structs.asdict(content), id=id, created_at=now, modified_at=now)
                work.result = bundle, True
                work.add_bundle(bundle)
                return
            old, place = stored
            refuse_stale(old, match)
            if create_only and old.soft_deleted_at is None:
                raise ConflictError(f"a bundle {id} already exists", "exists")
            bundle = self._changed_bundle(old, content)
            self._keep_bundle(work, old, bundle, place, (bundle, False))

        return self.change(job, makes=True)

    def _changed_bundle(self, old: Bundle, content: BundleContent) -> Bundle:
        bundle = msgspec.structs.replace(old, **msgspec.structs.asdict(content), soft_deleted_at=None)
        if structure(bundle) == structure(old):
            return bundle
        return msgspec.structs.replace(bundle, modified_at=max(time_text(self._now()), old.modified_at))

    def patch_bundle(self, id: str, is_enabled: bool, match: ETag | None = None) -> Bundle:
        if (built_in := self._built_in_bundle(id)) is not None:
            return self.change(lambda work: self._switch(work, built_in, None, is_enabled, match), makes=True)

        def job(work: StoreTransaction) -> None:
            old, place = work.existing_bundle(id)
            refuse_stale(old, match)
            if old.soft_deleted_at is not None:
                raise ForbiddenError(f"the bundle {old.slug} is deleted; PUT restores it", "deleted")
            bundle = msgspec.structs.replace(old, is_enabled=is_enabled)
            self._keep_bundle(work, old, bundle, place, bundle)

        return self.change(job)

    def delete_bundle(self, id: str, match: ETag | None = None) -> None:
        self._refuse_built_in(id)

        def job(work: StoreTransaction) -> None:
            old, place = work.existing_bundle(id)
            refuse_stale(old, match)
            work.refuse_full(old, place)
            deleted = old.soft_deleted_at or time_text(self._now())
            self._keep_bundle(work, old, msgspec.structs.replace(old, soft_deleted_at=deleted), place, None)

        self.change(job)

    def _keep_bundle(self, work: StoreTransaction, old: Bundle, bundle: Bundle, place: str, result: object) -> None:
        work.result = result
        if bundle != old:
            work.change_bundle(place, bundle)

    def put_all(self, bundle: Bundle, tools: Iterable[Tool]) -> None:
        """Store a new bundle with its tools, all or nothing."""
        check_slug(bundle.slug)
        bundle = msgspec.structs.replace(bundle, id=check_id(bundle.id), is_built_in=False, soft_deleted_at=None)
        self._refuse_built_in(bundle.id)
        bundle = with_times(bundle)
        tools = [with_times(msgspec.structs.replace(tool, bundle_id=bundle.id, is_built_in=False)) for tool in tools]
        check_set(tools)
        texts = [tool_text(tool) for tool in tools]

        def job(work: StoreTransaction) -> None:
            if work.bundle(bundle.id) is not None:
                raise ConflictError(f"a bundle {bundle.id} already exists", "exists")
            work.refuse_ids(tools)
            self.refuse_more(work, len(tools))
            work.add_bundle(bundle, tools, texts)

        self.change(job, makes=True)

    def reap(self) -> list[str]:
        """Remove empty bundles that were soft-deleted two days ago, and return their ids."""

        def job(id: str, work: StoreTransaction) -> None:
            stored = work.bundle(id)  # may have been restored or filled since
            work.result = stored is not None and self._is_expired(stored[0]) and work.remove_empty_bundle(stored[1])

        expired = [id for id, kept in self.contents().bundles.items() if self._is_expired(kept.bundle)]
        return [id for id in expired if self.change(partial(job, id))]

    def _is_expired(self, bundle: Bundle) -> bool:
        deleted = bundle.soft_deleted_at
        return deleted is not None and self._now() - time_seconds(deleted) >= KEPT_SECONDS

    # Tools

    def put_tool(self, bundle_id: str, slug: str, version: str, content: ToolContent) -> Tool:
        self._refuse_built_in(bundle_id)
        tool = self._new_tool(bundle_id, slug, version, content)
        text = tool_text(tool)

        def job(work: StoreTransaction) -> None:
            bundle, place = work.open_bundle(bundle_id)
            work.refuse_tool(bundle, slug, version)
            self.refuse_more(work, 1)
            work.result = tool
            work.change_bundle(place, None, [tool], [text])

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

        def job(work: StoreTransaction) -> None:
            old, place = work.existing_bundle(bundle_id)
            bundle = old if content is None else self._changed_bundle(old, content)
            if not new:
                self._keep_bundle(work, old, bundle, place, new)
                return
            refuse_closed(bundle)
            for tool in new:
                work.refuse_tool(bundle, tool.slug, tool.version)
            self.refuse_more(work, len(new))
            work.result = new
            work.change_bundle(place, None if bundle == old else bundle, new, texts)

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
            return self.change(
                lambda work: self._switch(work, built_in, (slug, version), is_enabled, match), makes=True
            )
        return self._change_tool((bundle_id, slug, version), match, is_enabled=is_enabled)

    def put_examples(
        self, bundle_id: str, slug: str, version: str, examples: tuple[ToolExample, ...], match: ETag | None = None
    ) -> Tool:
        """Store examples, including those of built-in and derived tools. `modified_at` is unchanged."""
        if (built_in := self._built_in_bundle(bundle_id)) is None:
            return self._change_tool((bundle_id, slug, version), match, examples=examples)

        def job(work: StoreTransaction) -> None:
            before = work.overlay()
            bundle = before.bundle(built_in[0])
            old = before.tool(bundle, tool_of(*built_in, slug, version))
            refuse_stale(old, match)
            overlay = before.with_examples(bundle, old, examples)
            work.result = msgspec.structs.replace(old, examples=examples)
            if overlay != before:
                work.replace_overlay(overlay)

        return self.change(job, makes=True)

    def _change_tool(self, tool: tuple[str, str, str], match: ETag | None, **fields: Any) -> Tool:
        """Change fields that don't affect a tool's place. `tool` is its bundle id, slug and version."""
        bundle_id, slug, version = tool

        def job(work: StoreTransaction) -> None:
            bundle, place = work.open_bundle(bundle_id)
            old, at = work.tool(bundle, place, slug, version)
            refuse_stale(old, match)
            work.result = msgspec.structs.replace(old, **fields)
            if work.result != old:
                work.replace_tool(work.result, at)

        return self.change(job)

    def rename_tool(
        self, bundle_id: str, slug: str, version: str, new_slug: str, new_version: str, match: ETag | None = None
    ) -> Tool:
        """Change the slug or version of a tool in its bundle. Its id and usage are unchanged."""
        self._refuse_built_in(bundle_id)
        names = {"slug": check_slug(new_slug), "version": check_version(new_version)}

        def job(work: StoreTransaction) -> None:
            bundle, place = work.open_bundle(bundle_id)
            old, at = work.tool(bundle, place, slug, version)
            refuse_stale(old, match)
            work.result = old
            if (new_slug, new_version) != (slug, version):
                work.refuse_tool(bundle, new_slug, new_version)
                modified = max(time_text(self._now()), old.modified_at)
                work.result = msgspec.structs.replace(old, **names, modified_at=modified)
                work.replace_tool(work.result, at, is_renamed=True)

        return self.change(job)

    def delete_tool(self, bundle_id: str, slug: str, version: str, match: ETag | None = None) -> None:
        self._refuse_built_in(bundle_id)

        def job(work: StoreTransaction) -> None:
            bundle, place = work.existing_bundle(bundle_id)
            try:
                old, at = work.tool(bundle, place, slug, version)
                refuse_stale(old, match)
                work.result = old.id
            except BrokenFileError as broken:
                if match is not None:
                    raise
                at = broken.path
            work.remove_tool(at)

        self.counter.forget(self.change(job))

    def refuse_more(self, work: StoreTransaction, new: int) -> None:
        if work.count() + new > self._max_tools:
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
        work: StoreTransaction,
        built_in: tuple[Bundle, Sequence[Tool]],
        tool: tuple[str, str] | None,
        is_enabled: bool,
        match: ETag | None,
    ) -> None:
        before = work.overlay()
        bundle = before.bundle(built_in[0])
        if tool is None:
            old, overlay = bundle, before.with_bundle(bundle, is_enabled)
        else:
            if not bundle.is_enabled:
                raise ForbiddenError(f"the bundle {bundle.slug} is disabled; enable it first", "disabled")
            old = before.tool(bundle, tool_of(*built_in, *tool))
            overlay = before.with_tool(bundle, old, is_enabled)
        refuse_stale(old, match)
        work.result = msgspec.structs.replace(old, is_enabled=is_enabled)
        if old.is_enabled != is_enabled:
            work.replace_overlay(overlay)
