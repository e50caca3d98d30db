"""`StoreRules`: what may be changed in a store of bundles, wherever it keeps them.

A store gives the transactions that these rules are followed in, and reads from its index. DELETE of a bundle that is
deleted already changes nothing.

`StoreTransaction` is one change of a store: what is there, and what becomes of it. A store that keeps files names
places by their paths, another one by what it likes: they are given back as they came.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from onetool.services.event_queue import Recorder
from onetool.sources.bundles.errors import ConflictError, ForbiddenError, NotFoundError
from onetool.sources.bundles.files.form import (
    check_set,
    fields_of,
    refuse_stale,
    structure,
    time_seconds,
    time_text,
    tool_of,
    tool_text,
    with_times,
)
from onetool.sources.bundles.files.overlay import BuiltIn, Overlay, check_built_in
from onetool.sources.bundles.indexed import IndexedReads
from onetool.sources.bundles.model import Bundle, BundleContent, Tool, ToolContent, ToolExample
from onetool.sources.bundles.names import check_id, check_slug, check_version, new_id
from onetool.sources.bundles.store import BundleStore, ETag
from onetool.sources.bundles.usage import Counts, UsageCounter


class BrokenFileError(ConflictError):
    """What is there can't be used."""

    def __init__(self, path: str, why: object) -> None:
        super().__init__(f"bundles/{path} can't be used: {why}; mend it, or move it away", "broken")
        self.path = path


def refuse_closed(bundle: Bundle) -> None:
    """Raises ForbiddenError for a bundle whose tools may not be changed."""
    if bundle.soft_deleted_at is not None:
        raise ForbiddenError(f"the bundle {bundle.slug} is deleted; PUT on the bundle itself brings it back", "deleted")
    if not bundle.is_enabled:
        raise ForbiddenError(f"the bundle {bundle.slug} is disabled; enable it first", "disabled")


class StoreTransaction(ABC):
    """What is given as `result`, or set, is what the change gives to its caller."""

    def __init__(self) -> None:
        self.result: Any = None

    # What is there

    @abstractmethod
    def bundle(self, id: str) -> tuple[Bundle, str] | None:
        """The bundle and its place."""

    def existing_bundle(self, id: str) -> tuple[Bundle, str]:
        found = self.bundle(id)
        if found is None:
            raise NotFoundError(f"there is no bundle {id}")
        return found

    def open_bundle(self, id: str) -> tuple[Bundle, str]:
        """A bundle whose tools may be changed."""
        bundle, place = self.existing_bundle(id)
        refuse_closed(bundle)
        return bundle, place

    @abstractmethod
    def tool(self, bundle: Bundle, place: str, slug: str, version: str, /) -> tuple[Tool, str]:
        """The tool and its own place. Raises NotFoundError."""

    @abstractmethod
    def refuse_tool(self, bundle: Bundle, slug: str, version: str) -> None:
        """Raises ConflictError if the tool exists already."""

    @abstractmethod
    def refuse_ids(self, tools: Iterable[Tool]) -> None:
        """Raises ConflictError if a tool has one of their ids already."""

    @abstractmethod
    def refuse_full(self, bundle: Bundle, place: str, /) -> None:
        """Raises ConflictError for a bundle that has tools."""

    @abstractmethod
    def is_empty(self, place: str, /) -> bool:
        """Whether nothing at all is in a bundle."""

    @abstractmethod
    def count(self) -> int:
        """How many tools there are."""

    @abstractmethod
    def overlay(self) -> Overlay:
        """What is set of built-in and derived bundles."""

    # What becomes of it

    @abstractmethod
    def add_bundle(self, bundle: Bundle, tools: Sequence[Tool], texts: Sequence[bytes], result: Any) -> None:
        """`texts` are the tools as their files have them."""

    @abstractmethod
    def replace_bundle(self, bundle: Bundle, place: str, result: Any, /) -> None: ...

    @abstractmethod
    def remove_bundle(self, place: str, result: Any, /) -> None: ...

    @abstractmethod
    def add_tools(
        self, tools: Sequence[Tool], texts: Sequence[bytes], place: str, result: Any, bundle: Bundle | None = None, /
    ) -> None:
        """All of them, or none; and `bundle` in the place of the one that is there, if it is given."""

    @abstractmethod
    def replace_tool(self, tool: Tool, place: str, /) -> None: ...

    @abstractmethod
    def rename_tool(self, tool: Tool, place: str, /) -> None:
        """A tool that has another slug or version now."""

    @abstractmethod
    def remove_tool(self, place: str, /) -> None: ...

    @abstractmethod
    def replace_overlay(self, overlay: Overlay, switched: Iterable[tuple[Bundle, Sequence[Tool]]], result: Any) -> None:
        """`switched` are the built-in bundles with it."""


# The rules


MANY = 1_000  # bundles that are looked at in one go
KEPT_SECONDS = 2 * 24 * 3600  # that a deleted bundle stays
MOST_TOOLS = 200_000
ROOM = 20_000  # tools; more than all processes together can add in …
COUNT_SECONDS = 5.0


class StoreRules(IndexedReads, BundleStore):
    counter: UsageCounter

    def __init__(self, built_in: BuiltIn, now: Callable[[], float] = time.time, max_tools: int = MOST_TOOLS) -> None:
        check_built_in(built_in)
        self.built_in = built_in
        self._now = now
        self._most = max_tools
        self._counted = (0, 0.0)  # tools, and until when that is good enough

    @abstractmethod
    def change(self, job: Callable[[StoreTransaction], None], makes: bool = False) -> Any:
        """Run the job in a transaction. What it leaves as its `result`; all errors are BundleErrors.

        Only one that `makes` something new has to do with a store that is not there yet.
        """

    # Bundles

    def put_bundle(
        self, id: str, content: BundleContent, match: ETag | None = None, create_only: bool = False
    ) -> tuple[Bundle, bool]:
        id = check_id(id)
        check_slug(content.slug)
        self._refuse_built_in(id)
        return self.change(lambda work: self._put_bundle(work, id, content, match, create_only), makes=True)

    def _put_bundle(
        self, work: StoreTransaction, id: str, content: BundleContent, match: ETag | None, create_only: bool
    ) -> None:
        found, now = work.bundle(id), time_text(self._now())
        if found is None:
            refuse_stale(None, match)
            bundle = Bundle(**fields_of(content), id=id, created_at=now, modified_at=now)
            work.add_bundle(bundle, (), (), (bundle, True))
            return
        old, place = found
        refuse_stale(old, match)
        if create_only and old.soft_deleted_at is None:
            raise ConflictError(f"there is a bundle {id} already", "exists")
        bundle = self._changed_bundle(old, content)
        self._keep_bundle(work, old, bundle, place, (bundle, False))

    def _changed_bundle(self, old: Bundle, content: BundleContent) -> Bundle:
        bundle = msgspec.structs.replace(old, **fields_of(content), soft_deleted_at=None)
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
                raise ForbiddenError(f"the bundle {old.slug} is deleted; PUT brings it back", "deleted")
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
        if bundle != old:
            work.replace_bundle(bundle, place, result)
        work.result = result

    def put_all(self, bundle: Bundle, tools: Iterable[Tool]) -> None:
        check_slug(bundle.slug)
        bundle = msgspec.structs.replace(bundle, id=check_id(bundle.id), is_built_in=False, soft_deleted_at=None)
        self._refuse_built_in(bundle.id)
        bundle = with_times(bundle)
        tools = [with_times(msgspec.structs.replace(one, bundle_id=bundle.id, is_built_in=False)) for one in tools]
        check_set(tools)
        texts = [tool_text(tool) for tool in tools]

        def job(work: StoreTransaction) -> None:
            if work.bundle(bundle.id) is not None:
                raise ConflictError(f"there is a bundle {bundle.id} already", "exists")
            work.refuse_ids(tools)
            self.refuse_more(work, len(tools))
            work.add_bundle(bundle, tools, texts, None)

        self.change(job, makes=True)

    def reap(self) -> list[str]:
        over: list[str] = []
        after = None
        while page := IndexedReads.bundles(self, (), True, after, MANY):  # no others can be deleted
            over += [bundle.id for bundle in page if self._is_over(bundle)]
            after = page[-1].id
        return [id for id in over if self.change(partial(self._reap, id))]

    def _reap(self, id: str, work: StoreTransaction) -> None:
        """Remove the bundle; whether it was removed. It may have been restored or filled meanwhile."""
        found = work.bundle(id)
        if found is not None and self._is_over(found[0]) and work.is_empty(found[1]):
            work.remove_bundle(found[1], True)

    def _is_over(self, bundle: Bundle) -> bool:
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
            work.add_tools([tool], [text], place, tool)

        return self.change(job)

    def put_tools(
        self, bundle_id: str, tools: Iterable[tuple[str, str, ToolContent]], content: BundleContent | None = None
    ) -> list[Tool]:
        self._refuse_built_in(bundle_id)
        if content is not None:
            check_slug(content.slug)
        made = [self._new_tool(bundle_id, *one) for one in tools]
        check_set(made)
        texts = [tool_text(tool) for tool in made]

        def job(work: StoreTransaction) -> None:
            old, place = work.existing_bundle(bundle_id)
            bundle = old if content is None else self._changed_bundle(old, content)
            if not made:
                self._keep_bundle(work, old, bundle, place, made)
                return
            refuse_closed(bundle)
            for tool in made:
                work.refuse_tool(bundle, tool.slug, tool.version)
            self.refuse_more(work, len(made))
            work.add_tools(made, texts, place, made, None if bundle == old else bundle)

        return self.change(job)

    def _new_tool(self, bundle_id: str, slug: str, version: str, content: ToolContent) -> Tool:
        now = self._now()
        return Tool(
            **fields_of(content),
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

        def job(work: StoreTransaction) -> None:
            bundle, place = work.open_bundle(bundle_id)
            old, at = work.tool(bundle, place, slug, version)
            refuse_stale(old, match)
            tool = msgspec.structs.replace(old, is_enabled=is_enabled)
            if tool != old:
                work.replace_tool(tool, at)
            work.result = tool

        return self.change(job)

    def put_examples(
        self, bundle_id: str, slug: str, version: str, examples: tuple[ToolExample, ...], match: ETag | None = None
    ) -> Tool:
        if (built_in := self._built_in_bundle(bundle_id)) is not None:
            return self.change(
                lambda work: self._put_examples(work, built_in, (slug, version), examples, match), makes=True
            )

        def job(work: StoreTransaction) -> None:
            bundle, place = work.open_bundle(bundle_id)
            old, at = work.tool(bundle, place, slug, version)
            refuse_stale(old, match)
            work.result = msgspec.structs.replace(old, examples=examples)
            if work.result != old:
                work.replace_tool(work.result, at)

        return self.change(job)

    def rename_tool(
        self, bundle_id: str, slug: str, version: str, new_slug: str, new_version: str, match: ETag | None = None
    ) -> Tool:
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
                work.rename_tool(msgspec.structs.replace(old, **names, modified_at=modified), at)

        return self.change(job)

    def delete_tool(self, bundle_id: str, slug: str, version: str, match: ETag | None = None) -> None:
        self._refuse_built_in(bundle_id)

        def job(work: StoreTransaction) -> None:
            bundle, place = work.existing_bundle(bundle_id)
            try:
                old, at = work.tool(bundle, place, slug, version)
                refuse_stale(old, match)
            except BrokenFileError as broken:
                if match is not None:
                    raise
                at = broken.path
            work.remove_tool(at)

        self.change(job)

    def refuse_more(self, work: StoreTransaction, new: int) -> None:
        """Counted now and then while there is plenty of room: with many tools, counting is what takes the time."""
        count, until = self._counted
        if count + new + ROOM > self._most or time.monotonic() > until:
            count, until = work.count(), time.monotonic() + COUNT_SECONDS
        if count + new > self._most:
            raise ForbiddenError(f"there would be more than {self._most:,} tools, which is the most", "too_many_tools")
        self._counted = (count + new, until)

    # What is built in

    def _built_in_bundle(self, id: str) -> tuple[Bundle, Sequence[Tool]] | None:
        return next((one for one in self.built_in if one[0].id == id), None)

    def _refuse_built_in(self, id: str) -> None:
        if (found := self._built_in_bundle(id)) is not None:
            slug, source = found[0].slug, found[0].source
            what = "built in" if source is None else f"a {source.kind}'s" if source.kind != "config" else "the config's"
            raise ForbiddenError(f"{slug} is {what}: it can only be enabled and disabled", "built_in")

    def _switch(
        self,
        work: StoreTransaction,
        one: tuple[Bundle, Sequence[Tool]],
        which: tuple[str, str] | None,
        is_enabled: bool,
        match: ETag | None,
    ) -> None:
        before = work.overlay()
        bundle = before.bundle(one[0])
        if which is None:
            old, overlay = bundle, before.with_bundle(bundle, is_enabled)
        else:
            if not bundle.is_enabled:
                raise ForbiddenError(f"the bundle {bundle.slug} is disabled; enable it first", "disabled")
            old = before.tool(bundle, tool_of(one, *which))
            overlay = before.with_tool(bundle, old, is_enabled)
        refuse_stale(old, match)
        work.result = msgspec.structs.replace(old, is_enabled=is_enabled)
        if old.is_enabled != is_enabled:
            work.replace_overlay(overlay, overlay.over(self.built_in), work.result)

    def _put_examples(
        self,
        work: StoreTransaction,
        one: tuple[Bundle, Sequence[Tool]],
        which: tuple[str, str],
        examples: tuple[ToolExample, ...],
        match: ETag | None,
    ) -> None:
        before = work.overlay()
        bundle = before.bundle(one[0])
        old = before.tool(bundle, tool_of(one, *which))
        refuse_stale(old, match)
        overlay = before.with_examples(bundle, old, examples)
        work.result = msgspec.structs.replace(old, examples=examples)
        if overlay != before:
            work.replace_overlay(overlay, overlay.over(self.built_in), work.result)

    # Usage

    def follow_calls(self, recorder: Recorder) -> None:
        self.counter.follow(recorder)

    def record_use(self, tool_id: str) -> None:
        self.counter.record(tool_id)

    def usage(self, tool_ids: Iterable[str]) -> Counts:
        return self.counter.of(tool_ids)

    # What others add

    def derived(self) -> list[tuple[Bundle, Sequence[Tool]]]:
        return []

    def are_all_on(self) -> bool:
        return True
