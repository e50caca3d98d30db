"""Holds the bundle service of the config in force and reloads the tools of bundles when their files change."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onetool.core.errors import Mistake
from onetool.core.source import Catalogue
from onetool.core.spec import ToolSpec
from onetool.sources.bundles.errors import BundleError

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.core.context import CallEvent
    from onetool.core.registry import Further
    from onetool.sources.bundles.service import BundleService, StorePoller

FOLDER = "bundles"
RETRY_SECONDS = 2.0

Functions = Callable[[], Mapping[str, ToolSpec]]
"""All tools beside those of bundles, by their names: what a tool of a bundle may stand for."""

OpenService = Callable[[Path, Functions], "BundleService"]


class AppBundles:
    """The bundles of an app. Costs nothing if there is no folder of bundles."""

    def __init__(self, config: "Config", open_service: OpenService, refresh: Callable[[], None]) -> None:
        """`refresh` is called when files may have changed, in the background."""
        self._config = config
        self._open_service = open_service
        self._refresh = refresh
        self._lock = RLock()
        self._service: BundleService | None = None
        self._poller: StorePoller | None = None
        self._functions: Mapping[str, ToolSpec] = {}
        self._retry_at = 0.0  # when to try again, where bundles could not be read

    @property
    def service(self) -> "BundleService":
        with self._lock:
            if self._service is None:
                self._service = self._open_service(self._folder, lambda: self._functions)
            return self._service

    def is_current(self) -> bool:
        if self._service is None or monotonic() < self._retry_at:
            return True
        try:
            return self._service.loading.is_current()
        except BundleError:  # as long as nobody knows, what was there stays; who asks for bundles is told why
            return True

    def versions(self) -> "Further | None":
        """What finds single versions of the tools that were loaded last."""
        return None if self._service is None else self._service.loading.versions()

    def file_of(self, spec: ToolSpec) -> str | None:
        """The file that the tool is stored in, if it is stored."""
        return None if spec.kept_as is None else self.service.store.file_of(spec.kept_as)

    def add_bundles(self, catalogues: Iterable[Catalogue], servers: Iterable[str]) -> list[Catalogue]:
        """The catalogues without disabled tools, and the catalogue of the bundles. `servers` are names of packs that
        are taken, too.
        """
        found = list(catalogues)
        self._functions = _by_name(found)
        if self._service is None and not self._folder.is_dir():
            return found
        try:
            return self._with_service(found, servers)
        except BundleError as error:
            self._retry_at = monotonic() + RETRY_SECONDS
            mistake = Mistake(message=f"bundles can't be read: {error}", file=str(self._folder), key=FOLDER)
            return [*found, Catalogue(mistakes=(mistake,))]

    def _with_service(self, found: list[Catalogue], servers: Iterable[str]) -> list[Catalogue]:
        if off := self.service.switched_off():
            found = [replace(one, tools=tuple(_disabled(spec, off) for spec in one.tools)) for one in found]
            self._functions = _by_name(found)
        taken = {*servers, *(spec.name.partition(".")[0] for spec in self._functions.values())}
        return [*found, self.service.loading.load(taken)]

    def count(self, event: "CallEvent") -> None:
        if self._service is not None:
            self._service.record(event)

    def set_config(self, config: "Config") -> None:
        """Use another config: its bundles may be in another folder."""
        before, self._config = self._config, config
        if (before.home, before.bundles) != (config.home, config.bundles):
            self._close_service()

    def start_polling(self) -> None:
        """Take in changes of the files in the background. For servers."""
        if self._poller is None:
            from onetool.sources.bundles.service import StorePoller

            self._poller = StorePoller(self._poll)

    def warm(self) -> None:
        """Open the bundles before they are needed: that takes a while."""
        with suppress(BundleError):  # who asks for them is told
            self.service.store.state()

    def close(self) -> None:
        if self._poller is not None:
            self._poller.close()
        self._close_service()

    @property
    def _folder(self) -> Path:
        return self._config.home / FOLDER

    def _poll(self) -> None:
        if self._service is None and not self._folder.is_dir():
            return
        self.service.store.sync()
        self.service.store.reap()
        self._refresh()

    def _close_service(self) -> None:
        with self._lock:
            service, self._service = self._service, None
        if service is not None:
            service.close()


def _by_name(catalogues: list[Catalogue]) -> dict[str, ToolSpec]:
    """The first of each name, as in the registry."""
    found: dict[str, ToolSpec] = {}
    for spec in (spec for one in catalogues for spec in one.tools):
        found.setdefault(spec.name, spec)
    return found


def _disabled(spec: ToolSpec, off: set[str]) -> ToolSpec:
    return replace(spec, enabled=False, off=f"onetool bundles enable {spec.pack}") if spec.name in off else spec
