"""Holds the bundle service of the config in force and reloads the tools of bundles when their files change.

`StorePoller` is the thread that regularly looks for files that were edited by hand. `all_bundles` and `all_tools` read
every page of a list.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, RLock, Thread
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onetool.app.database import cache_folder
from onetool.core.errors import Mistake, ToolFailure
from onetool.core.registry import Catalogue
from onetool.core.signature import call_text
from onetool.core.spec import ToolSpec
from onetool.services.event_queue import Recorder
from onetool.sources.bundles.errors import BundleError, ForbiddenError
from onetool.sources.catalogues import Offered

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.core.call import ToolResult
    from onetool.core.context import CallEvent
    from onetool.core.registry import Further
    from onetool.services.search.postings import Words
    from onetool.sources.bundles.derived import KeptSettings
    from onetool.sources.bundles.named import SeenState
    from onetool.sources.bundles.service import BundleService, Shown

log = logging.getLogger("onetool.bundles")

FOLDER = "bundles"
RETRY_SECONDS = 2.0
REAP_SECONDS = 60.0  # between two looks for bundles that were deleted long ago
FRESH = 0.05  # seconds that it counts that there are no bundles: another process may add the first one
UNREAD = "bundles can't be read"

Functions = Callable[[], Mapping[str, ToolSpec]]
"""All tools beside those of bundles, by their names: what a tool of a bundle may stand for."""

OpenService = Callable[[Path, Functions, Callable[[], Offered]], "BundleService"]


def is_unread_store(mistake: Mistake) -> bool:
    """Return whether it says that no bundle could be read."""
    return mistake.key == FOLDER and mistake.message.startswith(UNREAD)


class AppBundles:
    """The bundles of an app. Costs nothing if there is no folder of bundles."""

    def __init__(self, config: "Config", open_service: OpenService, recorder: Recorder) -> None:
        """Read the bundles of a config; the `recorder` counts their calls."""
        self._config = config
        self._folder = config.home / FOLDER
        self._open_service = open_service
        self._recorder = recorder
        self._lock = RLock()
        self._service: BundleService | None = None
        self._poller: StorePoller | None = None
        self._functions: Mapping[str, ToolSpec] = {}
        self._offered = Offered()
        self._kept: KeptSettings | None = None  # what was set of other tools when that could be read last
        self._retry_at = 0.0  # when to try again, where bundles could not be read
        self._none_at = 0.0  # when there were none
        self._is_closed = False
        self._look_at = 0.0  # when to look for changes of files: they were looked at when the store was opened
        self._reap_at = 0.0  # when to remove bundles that were deleted long ago
        self._searched: Words | None = None
        self._searched_load = 0  # the load of tools that the search was last made for in the background
        self._watched: BundleService | None = None  # whose store tells the poller of changes

    @property
    def service(self) -> "BundleService":
        with self._lock:
            if self._service is None:
                self._service = self._open_service(self._folder, lambda: self._functions, lambda: self._offered)
                self._service.store.counter.follow(self._recorder)
            return self._service

    def is_unchanged(self, at_once: bool = False) -> bool:
        """Return whether their tools are known to be current. Never blocks: unknown counts as changed."""
        service = self._service
        if service is not None:
            return service.loading.is_unchanged(at_once) or monotonic() < self._retry_at
        return self._are_none(at_once) or monotonic() < self._retry_at

    def why_behind(self) -> ToolFailure | None:
        """Return why tools may be missing that others have stored; None if all are known. Never blocks."""
        if (service := self._service) is None:
            return None
        try:
            service.store.require_current()
        except BundleError as error:
            return ToolFailure(str(error), reason=error.code)
        return None

    def is_current(self, at_once: bool = False) -> bool:
        """Return whether their tools are current. Asks the store where that is not known."""
        if monotonic() < self._retry_at:
            return True
        try:
            service = self._service
            return self._are_none(at_once) if service is None else service.loading.is_current(at_once)
        except BundleError:  # unknown: the loaded tools stay; a request for bundles gets the error
            return True

    def _are_none(self, at_once: bool) -> bool:
        """Return whether there are still none. After closing there are none: a running call must not open them anew."""
        if self._is_closed:
            return True
        if at_once or monotonic() - self._none_at >= FRESH:
            if self._config.database is not None or self._folder.is_dir():
                return False
            self._none_at = monotonic()
        return True

    def versions(self) -> "Further | None":
        """Return the lookup for single versions of the tools that were loaded last."""
        return None if self._service is None else self._service.loading.versions()

    def searched(self) -> "tuple[Words | None, bool]":
        """Return the words of the tools that are kept, for the search, and whether they are those of now: where the
        store is busy, they are as they were known last.
        """
        if self._service is not None:
            try:
                self._searched = self._service.store.searched()
            except BundleError:
                return self._searched, False
        return self._searched, True

    def vectors_file(self) -> Path | None:
        """Return where the search keeps the vectors of many tools: beside the index, if that is a file."""
        from onetool.services.search.meaning import VECTORS_FILE
        from onetool.sources.bundles.files.disk import STATE

        state = self._folder / STATE if self._config.database is None else cache_folder(self._config)
        return (
            state / VECTORS_FILE if self._searched is not None and state.is_dir() and not state.is_symlink() else None
        )

    def file_of(self, spec: ToolSpec) -> str | None:
        return None if spec.kept_as is None else self.service.store.file_of(spec.kept_as)

    def add_bundles(self, offered: Offered, waiting: Iterable[str]) -> list[Catalogue]:
        """Return the catalogues without disabled tools, and the catalogue of the bundles.

        `waiting` are the packs of servers that have not told their tools yet: names that are taken, too.
        """
        self._offered = offered
        if not self._are_there():
            local = [offered.own, offered.packs, offered.declared]
            self._functions = _by_name(local)
            return [*local, offered.served]
        wrong, seen = None, None
        if self._service is None:
            self._functions = _by_name([offered.own, offered.packs, offered.declared])  # the service is made of them
        try:
            seen = self.service.loading.look()  # from before: what is switched from now on is seen the next time
            self._kept = self.service.store.settings()
        except BundleError as error:  # what was switched off before stays so
            wrong = error
        everything = (offered.own, offered.packs, offered.declared, offered.served)
        *local, served = [_with_settings(one, self._kept) for one in everything]
        self._functions = _by_name(local)
        try:
            loaded = self._loaded(waiting, seen) if wrong is None else self._problem(wrong)
        except BundleError as error:
            loaded = self._problem(error)
        self._offered = replace(offered, bundles=loaded)
        return [*local, loaded, served]

    def _loaded(self, waiting: Iterable[str], seen: "SeenState | None") -> Catalogue:
        taken = {*waiting, *(spec.name.partition(".")[0] for spec in self._functions.values() if "." in spec.name)}
        began, is_first = monotonic(), self.service.loading.count == 0
        loaded = self.service.loading.load(taken, seen)
        if is_first and self._config.database is None:  # a change in a database is taken in from the first moment on
            self._look_at = (now := monotonic()) + (now - began) * FIRST_SHARE
        return loaded

    def _problem(self, error: BundleError) -> Catalogue:
        self._retry_at = monotonic() + RETRY_SECONDS
        file = str(self._folder) if self._config.database is None else None
        mistake = Mistake(message=f"{UNREAD}: {error}", file=file, key=FOLDER)
        return Catalogue(mistakes=(mistake,))

    def count(self, event: "CallEvent") -> None:
        if self._service is not None:
            self._service.record(event)

    def refuse(self, spec: ToolSpec | None, result: "ToolResult", allowed: Collection[str] | None) -> None:
        """Raises a BundleError where a call by name failed because of a switch or a limit."""
        if spec is None or (allowed is not None and spec.name not in allowed):
            return
        if not spec.enabled:
            hint = f": {spec.off}" if spec.off else ""
            raise ForbiddenError(f"{spec.name} is switched off{hint}", "disabled")
        if spec.kept_as is not None:
            from onetool.sources.bundles.rate_limits import refuse_limited

            refuse_limited(result)

    def set_config(self, config: "Config") -> None:
        """Use another config: its bundles may be in another folder, or in a database."""
        before, self._config = self._config, config
        self._folder = config.home / FOLDER
        if (before.home, before.bundles, before.database) != (config.home, config.bundles, config.database):
            self._close_service()

    def start_polling(self, refresh: Callable[[], None]) -> None:
        """Take in changes of the files in the background, and call `refresh` then. For servers."""
        if self._poller is None:
            self._poller = StorePoller(partial(self._poll, refresh), EVERY)

    def warm(self) -> bool:
        """Open the bundles before they are needed: that takes a while, and memory. False if there are none."""
        if not self._are_there():
            return False
        with suppress(BundleError):  # a request for bundles gets the error
            self.service.store.state()
        return True

    def close(self) -> None:
        self._is_closed = True
        if self._poller is not None:
            self._poller.close()
        self._close_service()

    def _are_there(self) -> bool:
        """Return whether there may be bundles."""
        return self._service is not None or self._config.database is not None or self._folder.is_dir()

    def _poll(self, refresh: Callable[[], None]) -> None:
        if not self._are_there():
            return
        service = self.service
        if self._watched is not service and self._poller is not None:
            service.store.watch(self._poller.wake)
            self._watched = service
        now = monotonic()
        if now >= self._look_at:
            service.store.sync()
        if now >= self._reap_at:
            service.store.reap()
            self._reap_at = now + REAP_SECONDS
        refresh()
        load = service.loading.count
        if load != self._searched_load and self.searched()[1]:  # here: nobody who searches has to wait for it
            self._searched_load = load

    def _close_service(self) -> None:
        with self._lock:
            service, self._service = self._service, None
            self._searched = self._watched = None
            self._look_at = self._reap_at = 0.0
            self._searched_load = 0
        if service is not None:
            service.close()


def _by_name(catalogues: list[Catalogue]) -> dict[str, ToolSpec]:
    """Map names to tools; the first of each name wins, as in the registry."""
    found: dict[str, ToolSpec] = {}
    for spec in (spec for one in catalogues for spec in one.tools):
        found.setdefault(spec.name, spec)
    return found


def _with_settings(one: Catalogue, kept: "KeptSettings | None") -> Catalogue:
    if kept is None or not any(kept):
        return one
    tools: list[ToolSpec] = []
    for spec in one.tools:
        if (switch := kept.tools.get(spec.name)) is not None:
            spec = replace(spec, enabled=False, off=f"onetool bundles enable {switch}")
        if (examples := kept.examples.get(spec.name)) is not None:
            texts = (call_text(spec.name, example.args) for example in examples)
            spec = replace(spec, examples=(*texts, *spec.examples))
        tools.append(spec)
    return replace(
        one,
        tools=tuple(tools),
        prompts=tuple(prompt for prompt in one.prompts if not kept.hides(prompt.spec)),
        resources=tuple(resource for resource in one.resources if not kept.hides(resource.spec)),
    )


# Checks the store regularly, in a thread of its own: takes in what was edited by hand, and removes what is old.


EVERY = 1.0  # seconds
SHARE = 20  # a slow check runs less often: checks take at most this fraction of the time
WOKEN_SHARE = 4  # … or this one, while there are changes all the time
FIRST_SHARE = 3  # a first look waits so many times what the first load took, as there has been one at the start
LAST_WAIT = 2.0


class StorePoller:
    """Calls `look` regularly until it is closed, and after each `wake`. An error is logged once."""

    def __init__(self, look: Callable[[], None], every: float) -> None:
        self._look = look
        self._every = every
        self._closed = Event()
        self._woken = Event()
        self._trouble = ""
        self._thread = Thread(target=self._keep, name="onetool-bundles", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look now. It never blocks."""
        self._woken.set()

    def close(self) -> None:
        self._closed.set()
        self._woken.set()
        self._thread.join(LAST_WAIT)

    def _keep(self) -> None:
        pause = self._every
        while True:
            was_woken = self._woken.wait(pause)
            if self._closed.is_set():
                return
            self._woken.clear()
            began = perf_counter()
            trouble = ""
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look may succeed
                trouble = f"{type(error).__name__}: {error}"
            if trouble and trouble != self._trouble:
                log.error("the bundles can't be watched for changes for now: %s", trouble)
            self._trouble = trouble
            cost = perf_counter() - began
            if self._closed.wait(min(cost * WOKEN_SHARE, self._every)):
                return
            # A database that wakes us does so each `every` seconds: looks of our own in between would double them.
            pause = max(self._every * (1 + was_woken), cost * SHARE)


# All pages of the lists of a `BundleService`


PAGE = 1000


def all_bundles(bundles: "BundleService") -> "Iterator[Shown]":
    """Yield all bundles, with disabled and deleted ones."""
    from onetool.sources.bundles.store import ListQuery

    return _all_pages(lambda after: bundles.bundles(ListQuery(include_disabled=True, after=after, limit=PAGE)))


def all_tools(bundles: "BundleService", bundle_id: str | None = None) -> "Iterator[Shown]":
    """Yield the tools of one bundle, or of all, with disabled ones."""
    from onetool.sources.bundles.store import ListQuery

    ids = [] if bundle_id is None else [bundle_id]
    return _all_pages(
        lambda after: bundles.tools(ListQuery(bundle_ids=ids, include_disabled=True, after=after, limit=PAGE))
    )


def live_bundle(bundles: "BundleService", slug: str) -> "Shown | None":
    """Return the first bundle of that slug that was not deleted. Packs and servers are not bundles."""
    stored = (one for one in all_bundles(bundles) if "source" not in one)
    return next((one for one in stored if one["slug"] == slug and one["softDeletedAt"] is None), None)


def _all_pages(read: "Callable[[str | None], tuple[list[Shown], str | None]]") -> "Iterator[Shown]":
    after: str | None = None
    while True:
        page, after = read(after)
        yield from page
        if after is None:
            return
