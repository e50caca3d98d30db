"""Reads the config and its packs again: on request, or when their files change."""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, get_ident
from time import time
from typing import TYPE_CHECKING

from onetool.config import Config, Found, find, load_config
from onetool.config.find import trust_store
from onetool.config.load import pack_paths, watched_files
from onetool.core.errors import ConfigError, Mistake
from onetool.core.registry import Catalogue
from onetool.core.spec import Handler
from onetool.sources.catalogues import DeclaredTools, united
from onetool.sources.packs import PackSource, pack_modules, restore_modules

if TYPE_CHECKING:
    from onetool.services.file_watcher import FileWatcher

watch_log = logging.getLogger("onetool.watch")

Read = tuple[Catalogue, Catalogue]
"""The packs of a config, and its declared tools."""

Apply = Callable[[Config, Read, Found | None], None]


class Reloader:
    """Reads everything again, one reload at a time, and applies all of it or nothing."""

    def __init__(
        self,
        config: Config,
        found: Found | None,
        *,
        handlers: Mapping[str, Handler],
        imports: bool,
        own: Catalogue,
        mistakes: Callable[[], Iterable[Mistake]],
        apply: Apply,
    ) -> None:
        """`mistakes` are those that are known: a reload is refused only for others."""
        self.error: ConfigError | None = None  # why the last reload changed nothing
        self.read_at = time()
        self.kept: tuple[str, ...] = ()  # keys of the config that a reload may not change
        self._config = config
        self._finds_config = found is not None and found.whose != "named"  # and so looks for it again
        self._untrusted = None if found is None else found.untrusted
        self._handlers, self._imports, self._own = handlers, imports, own
        self._mistakes, self._apply = mistakes, apply
        self._files_to_mend: tuple[Path, ...] = ()  # that the last reload failed for
        self._asking, self._reloading = Lock(), Lock()
        self._requested = self._begun = 0  # reloads
        self._thread: int | None = None  # that is reloading
        self._is_closed = False

    def read(self, config: Config, *, again: bool = False) -> Read:
        """The packs and the declared tools of a config. Nothing is changed by that."""
        fresh = (
            again or config.whose == "project" or config.project_packs is not None
        )  # what was compiled there is not what was trusted
        packs = PackSource(pack_paths(config), fresh=fresh, imports=self._imports).load()
        functions = {spec.name: spec.handler for spec in packs.tools if spec.handler}
        return packs, DeclaredTools(config.tools, functions, self._handlers).load()

    def reload(self) -> None:
        """Raises ConfigError for what can't be used, or would break what worked; then everything stays as it was."""
        if self._thread == get_ident():
            raise RuntimeError("a reload is under way in this very thread, and can't begin another one")
        with self._asking:
            self._requested = asked = self._requested + 1
        with self._reloading:
            if self._begun >= asked:  # a reload began after our request: it read everything that ours would read
                if self.error is not None:
                    raise ConfigError(self.error.mistakes)
                return
            begun, self._begun, self._thread = self._begun, self._requested, get_ident()
            try:
                self._reload()
            except ConfigError:
                raise
            except BaseException:  # those who wait for their turn try it themselves
                self._begun = begun
                raise
            finally:
                self._thread = None

    def files(self) -> list[Path]:
        """The files whose change is a reason to reload."""
        waiting = () if self._untrusted is None else (self._untrusted.config, trust_store().file)
        in_vain = (*self._files_to_mend, *(file for file in waiting if file))
        return watched_files(self._config, in_vain, self._finds_config)

    def changed_files(self) -> list[Path]:
        """Those of them that have changed since they were read, so that they are not in force as they are now."""
        return [file for file in self.files() if _changed_at(file) > self.read_at]

    def close(self, timeout: float) -> None:
        """Nothing is applied from now on. Waits for a reload under way, unless that is what closes."""
        self._is_closed = True
        if self._thread != get_ident() and self._reloading.acquire(timeout=timeout):
            self._reloading.release()

    def _reload(self) -> None:
        modules, began = pack_modules(), time()
        try:
            found = self._find_again()
            config = load_config(self._config.path if found is None else found)
            if changed := self._kept_but_changed(config):
                raise ConfigError(changed)
            read = self.read(config, again=True)
            if broken := self._new_mistakes(read):
                raise ConfigError(broken)
        except OSError as error:  # a path that the system refuses, say
            restore_modules(modules)
            self._refused(ConfigError([Mistake(message=str(error))]))
            raise self.error or error from None
        except ConfigError as error:
            restore_modules(modules)
            self._refused(error)
            raise
        if self._is_closed:
            return
        self.error, self._files_to_mend, self.read_at = None, (), began
        self._config, self._untrusted = config, None if found is None else found.untrusted
        self._apply(config, read, found)

    def _find_again(self) -> Found | None:
        """What is in force here now. A project that was trusted and waits for another look stays as it was."""
        if not self._finds_config:
            return None
        found, config = find(), self._config
        if config.whose == "project" and (found.untrusted is not None or found.whose != "project"):
            waits = found.untrusted
            message = "it is gone, or another one" if waits is None else str(waits)
            raise ConfigError([Mistake(message=message, file=str(config.path or config.folder))])
        return found

    def _kept_but_changed(self, config: Config) -> list[Mistake]:
        changed = [key for key in self.kept if getattr(config, key) != getattr(self._config, key)]
        file = str(config.path) if config.path else None
        message = "{} can't change while OneTool serves: it needs a restart"
        return [Mistake(message=message.format(key), file=file, key=key) for key in changed]

    def _new_mistakes(self, read: Iterable[Catalogue]) -> list[Mistake]:
        """Mistakes that were not there before."""
        known = {(mistake.key, mistake.message) for mistake in self._mistakes()}
        _, mistakes = united([self._own, *read])
        return [one for one in mistakes if one.severity == "error" and (one.key, one.message) not in known]

    def _refused(self, error: ConfigError) -> None:
        self.error = error
        self._files_to_mend = tuple({Path(mistake.file) for mistake in error.mistakes if mistake.file})


def _changed_at(path: Path) -> float:
    """When a file, or a module in a folder of packs, was written last; 0 where there is none."""
    with suppress(OSError):
        files = path.glob("*.py") if path.is_dir() else [path]  # a folder itself changes when bytecode is written
        return max((one.stat().st_mtime for one in files), default=0.0)
    return 0.0


class ConfigWatcher:
    """Reloads when files change, as long as that is `wanted`, in the background."""

    def __init__(self, reloader: Reloader, wanted: Callable[[], bool], count: Callable[[], int]) -> None:
        """`count` is how many tools there are, for the log."""
        self._reloader, self._is_wanted, self._count = reloader, wanted, count
        self._watcher: FileWatcher | None = None

    def start(self) -> None:
        if self._watcher is None and self._is_wanted():
            from onetool.services.file_watcher import FileWatcher

            self._watcher = FileWatcher(self._reloader.files, self._reload_on_change, since=self._reloader.read_at)

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()

    def _reload_on_change(self) -> None:
        try:
            self._reloader.reload()
        except ConfigError as error:
            watch_log.error("Not reloaded, what was in force stays: %s", error)
        else:
            watch_log.info("Reloaded, since files have changed: %d tools", self._count())
        if self._watcher is not None and not self._is_wanted():
            self._watcher.close()
            self._watcher = None
