"""Holds the bundle service of the current config and reloads the tools of bundles when they change.

`StorePoller` is a thread that regularly looks for files that were edited by hand. `all_bundles` and `all_tools` iterate
over all pages of a list.
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
from onetool.services.journal.recorder import Recorder
from onetool.sources.bundles.errors import BundleError, ForbiddenError
from onetool.sources.catalogues import Offered

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.core.call import ToolResult
    from onetool.core.context import CallEvent
    from onetool.core.registry import Further
    from onetool.services.search.postings import Words
    from onetool.sources.bundles.derived import KeptSettings
    from onetool.sources.bundles.service import BundleService, Shown

log = logging.getLogger("onetool.bundles")
FOLDER = "bundles"
RETRY_SECONDS = 2.0
REAP_SECONDS = 60.0  # between two checks for bundles that were deleted long ago
FRESH = 0.05  # seconds that "no bundles" is cached: another process may add the first bundle
UNREAD = "bundles can't be read"

Functions = Callable[[], Mapping[str, ToolSpec]]
"""All tools except those of bundles, by name: the functions that a tool of a bundle may refer to."""

OpenService = Callable[[Path, Functions, Callable[[], Offered]], "BundleService"]


def is_unread_store(mistake: Mistake) -> bool:
    """Return whether a mistake means that no bundle could be read."""
    return mistake.key == FOLDER and mistake.message.startswith(UNREAD)


class AppBundles:
    """The bundles of an app. They cost nothing if there is no folder of bundles."""

    def __init__(self, config: "Config", open_service: OpenService, recorder: Recorder) -> None:
        """Read the bundles of a config. The `recorder` counts their calls."""
        self._config = config
        self._folder = config.home / FOLDER
        self._open_service = open_service
        self._recorder = recorder
        self._lock = RLock()
        self._service: BundleService | None = None
        self._poller: StorePoller | None = None
        self._functions: Mapping[str, ToolSpec] = {}
        self._offered = Offered()
        self._settings: KeptSettings | None = None  # the settings of other tools, as last read
        self._retry_at = 0.0  # when to retry after bundles could not be read
        self._none_at = 0.0  # when "no bundles" was last checked
        self._is_closed = False
        self._look_at = 0.0  # when to look for changed files; opening the store has just done so
        self._reap_at = 0.0  # when to remove bundles that were deleted long ago
        self._searched: Words | None = None
        self._searched_load = 0  # the load of tools that the search index was last built for in the background
        self._watched: BundleService | None = None  # the service whose store wakes the poller

    @property
    def service(self) -> "BundleService":
        with self._lock:
            if self._service is None:
                self._service = self._open_service(self._folder, lambda: self._functions, lambda: self._offered)
                self._service.store.counter.follow(self._recorder)
            return self._service

    @property
    def last_load(self) -> tuple[object, int] | None:
        """The last load of tools: the service that loaded them, and how often it has; None before the first load."""
        service = self._service
        return None if service is None or not service.loading.count else (service, service.loading.count)

    def is_unchanged(self, at_once: bool = False) -> bool:
        """Return whether the loaded tools are known to be current. Never blocks; an unknown state counts as changed."""
        service = self._service
        if service is not None:
            return service.loading.is_unchanged(at_once) or monotonic() < self._retry_at
        return self._have_none(at_once) or monotonic() < self._retry_at

    def why_behind(self) -> ToolFailure | None:
        """Return why tools stored by other processes may be missing; None if all are known. Never blocks."""
        if (service := self._service) is None:
            return None
        try:
            service.store.require_current()
        except BundleError as error:
            return ToolFailure(str(error), reason=error.code)
        return None

    def is_current(self, at_once: bool = False) -> bool:
        """Return whether the loaded tools are current. Asks the store if that is not known."""
        if monotonic() < self._retry_at:
            return True
        try:
            service = self._service
            return self._have_none(at_once) if service is None else service.loading.is_current(at_once)
        except BundleError:  # unknown: keep the loaded tools; a request for bundles gets the error
            return True

    def _have_none(self, at_once: bool) -> bool:
        """Return whether there are still no bundles. A closed app has none: a running call must not reopen them."""
        if self._is_closed:
            return True
        if at_once or monotonic() - self._none_at >= FRESH:
            if self._config.database is not None or self._folder.is_dir():
                return False
            self._none_at = monotonic()
        return True

    def versions(self) -> "Further | None":
        """Return the lookup for `bundle.tool@version` among the loaded tools, which later loads don't change."""
        return None if self._service is None else self._service.loading.named.get

    def searched(self) -> "tuple[Words | None, bool]":
        """Return the searchable words of stored tools, and whether they are current.

        A busy store returns older ones.
        """
        if self._service is not None:
            try:
                self._searched = self._service.store.searched()
            except BundleError:
                return self._searched, False
        return self._searched, True

    def vectors_file(self) -> Path | None:
        """Return the file in which the search stores vectors: beside the index, if the index is a file."""
        from onetool.services.search.meaning import VECTORS_FILE
        from onetool.sources.bundles.store.paths import STATE

        state = self._folder / STATE if self._config.database is None else cache_folder(self._config)
        return (
            state / VECTORS_FILE if self._searched is not None and state.is_dir() and not state.is_symlink() else None
        )

    def file_of(self, spec: ToolSpec) -> str | None:
        return None if spec.kept_as is None else self.service.store.file_of(spec.kept_as)

    def add_bundles(self, offered: Offered, waiting: Iterable[str]) -> list[Catalogue]:
        """Return the catalogues with the settings of their tools applied, and the catalogue of the bundles.

        `waiting` are the packs of servers that have not listed their tools yet; their names are taken, too.
        """
        self._offered = offered
        if not self._may_exist():
            local = [offered.own, offered.packs, offered.declared]
            self._functions = _by_name(local)
            return [*local, offered.served]
        wrong, seen = None, None
        if self._service is None:
            self._functions = _by_name([offered.own, offered.packs, offered.declared])  # the service needs them
        try:
            seen = self.service.loading.look()  # read first: a later change is then seen the next time
            self._settings = self.service.store.settings()
        except BundleError as error:  # keep the settings as last read
            wrong = error
        everything = (offered.own, offered.packs, offered.declared, offered.served)
        *local, served = [_with_settings(one, self._settings) for one in everything]
        self._functions = _by_name(local)
        try:
            if wrong is not None:
                raise wrong
            kinds = zip(("a pack", "a pack", "a tool of the config"), local, strict=True)
            taken = {spec.name.partition(".")[0]: kind for kind, one in kinds for spec in one.tools if "." in spec.name}
            taken |= dict.fromkeys(waiting, "an MCP server")
            began, is_first = monotonic(), self.service.loading.count == 0
            loaded = self.service.loading.load(taken, seen)
            if is_first and self._config.database is None:  # changes in a database are taken over immediately
                self._look_at = (now := monotonic()) + (now - began) * FIRST_SHARE
        except BundleError as error:
            self._retry_at = monotonic() + RETRY_SECONDS
            file = str(self._folder) if self._config.database is None else None
            loaded = Catalogue(mistakes=(Mistake(message=f"{UNREAD}: {error}", file=file, key=FOLDER),))
        self._offered = replace(offered, bundles=loaded)
        return [*local, loaded, served]

    def count(self, event: "CallEvent") -> None:
        if self._service is not None:
            self._service.record(event)

    def refuse(self, spec: ToolSpec | None, result: "ToolResult", allowed: Collection[str] | None) -> None:
        """Raise BundleError if a call by name failed because the tool is disabled or over its limit."""
        if spec is None or (allowed is not None and spec.name not in allowed):
            return
        if not spec.enabled:
            hint = f": {spec.off}" if spec.off else ""
            raise ForbiddenError(f"{spec.name} is switched off{hint}", "disabled")
        if spec.kept_as is not None:
            from onetool.sources.bundles.rate_limits import refuse_limited

            refuse_limited(result)

    def set_config(self, config: "Config") -> None:
        """Use another config. Its bundles may be in another folder, or in a database."""
        before, self._config = self._config, config
        self._folder = config.home / FOLDER
        if (before.home, before.bundles, before.database) != (config.home, config.bundles, config.database):
            self._close_service()

    def start_polling(self, refresh: Callable[[], None]) -> None:
        """Watch for changes in the background and call `refresh` after each. Used by servers."""
        if self._poller is None:
            self._poller = StorePoller(partial(self._poll, refresh), EVERY)

    def warm(self) -> bool:
        """Open the bundles in advance, because that takes time and memory. Returns False if there are none."""
        if not self._may_exist():
            return False
        with suppress(BundleError):  # a request for bundles gets the error
            self.service.store.state()
        return True

    def close(self) -> None:
        self._is_closed = True
        if self._poller is not None:
            self._poller.close()
        self._close_service()

    def _may_exist(self) -> bool:
        """Return whether there may be bundles."""
        return self._service is not None or self._config.database is not None or self._folder.is_dir()

    def _poll(self, refresh: Callable[[], None]) -> None:
        if not self._may_exist():
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
        if load != self._searched_load and self.searched()[1]:  # in this thread, so that no search has to wait for it
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
    """Map names to tools. The first tool of each name wins, as in the registry."""
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


# A thread that checks the store regularly: it loads changes made by hand and removes old bundles.

EVERY = 1.0  # seconds
SHARE = 20  # a slow check runs less often: checks take at most this fraction of the time
WOKEN_SHARE = 4  # … or this fraction while the store wakes it continually
FIRST_SHARE = 3  # the first check waits this many times the duration of the first load, which has just read the files
CLOSE_TIMEOUT = 2.0


class StorePoller:
    """A thread that calls `look` regularly, and after each `wake`, until closed. Repeated errors are logged once."""

    def __init__(self, look: Callable[[], None], every: float) -> None:
        self._look = look
        self._every = every
        self._closed = Event()
        self._woken = Event()
        self._problem = ""
        self._thread = Thread(target=self._run, name="onetool-bundles", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Call `look` soon. Never blocks."""
        self._woken.set()

    def close(self) -> None:
        self._closed.set()
        self._woken.set()
        self._thread.join(CLOSE_TIMEOUT)

    def _run(self) -> None:
        pause = self._every
        while True:
            was_woken = self._woken.wait(pause)
            if self._closed.is_set():
                return
            self._woken.clear()
            began = perf_counter()
            problem = ""
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - a later check may succeed
                problem = f"{type(error).__name__}: {error}"
            if problem and problem != self._problem:
                log.error("bundles can't be checked for changes at the moment: %s", problem)
            self._problem = problem
            cost = perf_counter() - began
            if self._closed.wait(min(cost * WOKEN_SHARE, self._every)):
                return
            # A database that wakes this thread does so every `every` seconds: checks in between would double them.
            pause = max(self._every * (1 + was_woken), cost * SHARE)


# Iterating over all pages of the lists of a `BundleService`

PAGE = 1000


def all_bundles(bundles: "BundleService") -> "Iterator[Shown]":
    """Yield all bundles, including disabled and deleted ones."""
    from onetool.sources.bundles.queries import ListQuery

    return _all_pages(lambda after: bundles.bundles(ListQuery(include_disabled=True, after=after, limit=PAGE)))


def all_tools(bundles: "BundleService", bundle_id: str | None = None) -> "Iterator[Shown]":
    """Yield the tools of one bundle or of all, including disabled ones."""
    from onetool.sources.bundles.queries import ListQuery

    ids = [] if bundle_id is None else [bundle_id]
    return _all_pages(
        lambda after: bundles.tools(ListQuery(bundle_ids=ids, include_disabled=True, after=after, limit=PAGE))
    )


def live_bundle(bundles: "BundleService", slug: str) -> "Shown | None":
    """Return the first bundle with this slug that is not deleted. Packs and servers don't count."""
    stored = (one for one in all_bundles(bundles) if "source" not in one)
    return next((one for one in stored if one["slug"] == slug and one["softDeletedAt"] is None), None)


def _all_pages(read: "Callable[[str | None], tuple[list[Shown], str | None]]") -> "Iterator[Shown]":
    after: str | None = None
    while True:
        page, after = read(after)
        yield from page
        if after is None:
            return
