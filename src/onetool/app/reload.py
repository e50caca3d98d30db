"""Reloads the config and its packs, on request or when their files change."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, get_ident
from time import monotonic, time
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from onetool.config import Config, Found, find, load_config
from onetool.config.find import project_files, trust_store
from onetool.config.load import add_servers, code_files, pack_paths, setting_files
from onetool.config.model import ServerSettings
from onetool.config.stateful import refuse_stateful_servers
from onetool.core.errors import ConfigError, Mistake
from onetool.core.registry import Catalogue
from onetool.core.spec import Handler
from onetool.sources.catalogues import declared_tools, united
from onetool.sources.packs import PackSource, Registry, pack_modules, restore_modules

if TYPE_CHECKING:
    from collections.abc import Generator

    from onetool.app.catalog import ToolCatalog
    from onetool.config.trust import Untrusted
    from onetool.services.file_watcher import FileWatcher, FolderSnapshot

trust_log = logging.getLogger("onetool.trust")
watch_log = logging.getLogger("onetool.watch")

Read = tuple[Catalogue, Catalogue]
"""The packs of a config, and its declared tools."""

Apply = Callable[[Config, Read], None]

WatchMode = Literal["everything", "settings"]
POLL_S = 1.0  # between two checks of the files


class Reloader:
    """A reloader of the whole config or only its settings, one reload at a time.

    A reload applies completely or not at all.
    """

    def __init__(
        self,
        config: Config,
        found: Found | None,
        catalog: "ToolCatalog",
        apply: Apply,
        *,
        handlers: Mapping[str, Handler],
        imports: bool,
        own: Catalogue,
        servers: Mapping[str, ServerSettings],
    ) -> None:
        """Create a reloader that adds `servers` to every config and accepts mistakes that the `catalog` already has."""
        self.error: ConfigError | None = None  # why the last reload failed
        self.count = 0  # full reloads
        self.kept: tuple[str, ...] = ()  # keys of the config that a reload may not change
        self.refuse_stateful_servers = False  # several processes serve
        self.pid = os.getpid()  # the process that takes SIGHUP
        self.read_at = time()
        self._config, self._packs = config, Catalogue()
        self._finds_config = found is not None and found.whose != "named"  # so reloads search for it again
        self.untrusted: Untrusted | None = None  # the project folder that was found but is not used
        self._handlers, self._imports, self._own, self._servers = handlers, imports, own, servers
        self._catalog, self._apply = catalog, apply
        self._files_to_fix: tuple[Path, ...] = ()  # the files with the mistakes of the last reload
        self._stamps: tuple[FolderSnapshot, FolderSnapshot] | None = None  # of settings and code
        self._failed: FolderSnapshot | None = None  # the files that the last `reload` failed with
        self._pending: list[Mistake] = []  # parts of the config that only `reload` loads
        self._asking, self._reloading = Lock(), Lock()
        self._requested = self._begun = 0  # counts of reloads
        self._thread: int | None = None  # the reloading thread
        self._is_closed = False

    def start(self, found: Found | None) -> None:
        """Apply the first config."""
        read = self.read(self._config)
        self._packs = read[0]
        self._apply_config(self._config, read, found)

    def read(self, config: Config, *, again: bool = False) -> Read:
        """Read the packs and the declared tools of a config, without applying them."""
        # Bytecode in a project's folder is not covered by its trust.
        fresh = again or config.whose == "project" or config.project_packs is not None
        packs = PackSource(pack_paths(config), fresh=fresh, imports=self._imports).load()
        return packs, self._declared(config, packs)

    def reload(self) -> None:
        """Reload everything or nothing. Raises ConfigError if the config can't be used or would break working tools."""
        if self._thread == get_ident():
            raise RuntimeError("this thread is already reloading")
        with self._asking:
            self._requested = asked = self._requested + 1
        with self._reloading:
            if self._begun >= asked:  # a reload began after our request, so it read everything that ours would read
                if self.error is not None:
                    raise ConfigError(self.error.mistakes)
                return
            begun, self._begun, self._thread = self._begun, self._requested, get_ident()
            try:
                self._reload()
            except ConfigError:
                raise
            except BaseException:  # waiting threads reload themselves
                self._begun = begun
                raise
            finally:
                self._thread = None

    def reload_settings(self) -> bool:
        """Reload the settings if their files have changed; code stays as loaded.

        Returns whether the settings have changed. Raises ConfigError as `reload` does.
        """
        with self._reloading:
            self._thread = get_ident()
            try:
                return self._reload_settings()
            finally:
                self._thread = None

    def take_stamps(self) -> "tuple[FolderSnapshot, FolderSnapshot]":
        """Record and return the stamps of the files of settings and code as they were read."""
        from onetool.services.file_watcher import snapshot

        stamps = self._stamps  # a reload in another thread resets it
        if stamps is None:
            files = self._setting_files(), code_files(self._config)
            stamps = self._stamps = snapshot(files[0], self.read_at), snapshot(files[1], self.read_at)
        return stamps

    def pending_changes(self) -> list[Mistake]:
        """Return the changes that are not loaded yet, each with a hint on how to load it, or why it can't be loaded."""
        mistakes = () if self.error is None else self.error.mistakes
        broken = {one.file: one for one in reversed(mistakes) if one.file}
        pending = [one for one in self._pending if one.file not in broken]
        named = {*broken, *(one.file for one in pending), str(trust_store().file)}
        changed = {file: word for file, word in self._changed_files().items() if file not in named}
        pending += [Mistake(message=word, file=file, severity="warning") for file, word in changed.items()]
        hint = f"load it: {load_command(self.pid)}; a server started with --watch loads changes by itself"
        for file, one in broken.items():
            if one.line is not None:  # the mistake is in the text of the file
                broken[file] = replace(one, message=f"can't be read: {one.message}")
        return [*broken.values(), *(replace(one, hint=hint) for one in pending)]

    def is_concerned(self) -> bool:
        """Return whether a change may affect this app. The trust in all folders is stored in a single file."""
        is_trust_alone = self._changed_files().keys() == {str(trust_store().file)}
        return not is_trust_alone or self.untrusted is not None or self.error is not None

    def files(self) -> list[Path]:
        """Return the files whose changes cause a reload."""
        return list(dict.fromkeys((*code_files(self._config), *self._setting_files(), *self._files_to_fix)))

    def close(self, timeout: float) -> None:
        """Apply no further reloads. Waits for a running reload, unless the reload itself closes the app."""
        self._is_closed = True
        if self._thread != get_ident() and self._reloading.acquire(timeout=timeout):
            self._reloading.release()

    def _reload(self) -> None:
        from onetool.services.file_watcher import snapshot

        modules, began, files = pack_modules(), time(), snapshot(self.files())
        try:
            with self._remember_error():
                found, config = self._read_config()
                read = self.read(config, again=True)
                self._refuse_new_mistakes(read)
        except ConfigError:
            self._failed = files
            restore_modules(modules)
            raise
        if self._is_closed:
            return
        self.read_at, self._packs, self._pending = began, read[0], []
        self.count += 1
        is_watched, self._stamps = self._stamps is not None, None
        self.untrusted = None  # so that it is logged again
        self._apply_config(config, read, found)
        if is_watched:
            self.take_stamps()

    def _reload_settings(self) -> bool:
        from onetool.config.code_changes import has_other_includes, without_new_code
        from onetool.services.file_watcher import changed_files, snapshot

        before, code = self.take_stamps()
        with self._remember_error():
            if snapshot(before) == before and (self.error is None or self._failed == snapshot(self._failed or ())):
                return False
            settings = snapshot(self._setting_files())
            found, config, obstacle = None, self._config, None
            if config.path is not None and not (config.path.is_file() and config.path.stat().st_size):
                obstacle = "the file is missing or empty"
            else:
                found, config = self._read_config()
                if found is not None and (found.whose, found.folder) != (self._config.whose, self._config.folder):
                    obstacle = "new: it will replace the current config"
                elif has_other_includes(config, self._config, changed_files(code, snapshot(code))):
                    obstacle = "its includes have changed, so none of it is reloaded"
            if obstacle is not None:
                self.error, self._failed, self._files_to_fix, self._stamps = None, None, (), (settings, code)
                self._pending = [Mistake(message=obstacle, file=str(config.path or config.folder), severity="warning")]
                if found is not None:
                    self._set_untrusted(found)
                return False
            config, pending = without_new_code(config, self._config)
            read = self._packs, self._declared(config, self._packs)
            self._refuse_new_mistakes(read)
        if self._is_closed:
            return False
        self._pending, self._stamps = pending, (settings, code)
        self._apply_config(config, read, found)
        return True

    def _apply_config(self, config: Config, read: Read, found: Found | None) -> None:
        self.error, self._failed, self._files_to_fix, self._config = None, None, (), config
        self._set_untrusted(found)
        self._apply(config, read)

    def _set_untrusted(self, found: Found | None) -> None:
        """Store the ignored folder, and log it if the folder or the reason has changed."""
        before, self.untrusted = self.untrusted, None if found is None else found.untrusted
        if self.untrusted not in (None, before):
            trust_log.warning("%s", self.untrusted)

    def _changed_files(self) -> dict[str, str]:
        """Return the files that have changed since they were read, each with "new", "removed" or "changed"."""
        from onetool.services.file_watcher import changed_files, snapshot

        return {
            file: word
            for stamps in self.take_stamps()
            for file, word in changed_files(stamps, snapshot(stamps)).items()
        }

    def _read_config(self) -> tuple[Found | None, Config]:
        """Find and read the config again. Raises ConfigError for an invalid config or a change that is refused."""
        found = self._find_again()
        config = add_servers(load_config(self._config.path if found is None else found), self._servers)
        changed = [key for key in self.kept if getattr(config, key) != getattr(self._config, key)]
        if changed:
            file = str(config.path) if config.path else None
            message = "{} can't change while the server runs: restart it"
            raise ConfigError([Mistake(message=message.format(key), file=file, key=key) for key in changed])
        if self.refuse_stateful_servers:
            refuse_stateful_servers(config)
        return found, config

    def _find_again(self) -> Found | None:
        """Find the config that applies now. A trusted project whose changes are not trusted yet stays as it was."""
        if not self._finds_config:
            return None
        found, config = find(), self._config
        if config.whose != "project" or (found.whose == "project" and found.untrusted is None):
            return found
        if config.path is None and found.project_packs is not None:  # the user has created their own config
            return found
        if (untrusted := found.untrusted) is None:
            message, hint = "removed, or another config applies here now", "restart the server to use the other config"
            raise ConfigError([Mistake(message=message, file=str(config.path or config.folder), hint=hint)])
        file, message = str(untrusted.config or untrusted.folder), f"{untrusted.state}, so the change is not used"
        raise ConfigError([untrusted.mistake or Mistake(message=message, file=file, hint=f"run {untrusted.command}")])

    def _declared(self, config: Config, packs: Catalogue) -> Catalogue:
        functions = {spec.name: spec.handler for spec in packs.tools if spec.handler}
        return declared_tools(config.tools, functions, self._handlers)

    def _refuse_new_mistakes(self, read: Iterable[Catalogue]) -> None:
        """Raise ConfigError if there are new mistakes."""
        known = {(mistake.key, mistake.message) for mistake in self._catalog.mistakes}
        _, mistakes = united([self._own, *read])
        broken = [one for one in mistakes if one.severity == "error" and (one.key, one.message) not in known]
        if broken:
            raise ConfigError(broken)

    def _setting_files(self) -> list[Path]:
        """Return the files of the settings, and those that decide which config applies here.

        Packs of an untrusted folder are left out: they may be links to anything.
        """
        files = setting_files(self._config, finds=self._finds_config)
        if self._finds_config:
            others = {*code_files(self._config), self.untrusted and self.untrusted.folder / "packs"}
            files += [trust_store().file, *(file for file in project_files() if file not in others)]
        return list(dict.fromkeys(files))

    @contextmanager
    def _remember_error(self) -> "Generator[None]":
        """Remember the error from a reload, and the files to fix. An OSError becomes a ConfigError."""
        try:
            yield
        except (OSError, ConfigError) as error:
            self.error = error if isinstance(error, ConfigError) else ConfigError([Mistake(message=str(error))])
            self._files_to_fix = tuple({Path(mistake.file) for mistake in self.error.mistakes if mistake.file})
            raise self.error from None


def load_command(pid: int) -> str:
    """Return the command that loads pending changes. It names SIGHUP if this process handles it."""
    import signal  # creates enums, which a short command doesn't need

    is_handled = callable(signal.getsignal(signal.SIGHUP))
    return f"{f'kill -HUP {pid}, or ' if is_handled else ''}ot.reload() as admin"


class ConfigWatcher:
    """A background watcher that reloads everything, or only the settings, when files change."""

    def __init__(self, reloader: Reloader, mode: Callable[[], WatchMode | None], registry: Registry) -> None:
        self._reloader, self._mode, self._registry = reloader, mode, registry
        self._watcher: FileWatcher | None = None
        self._is_started = False
        self._logged: tuple[int, list[Mistake]] = 0, []  # the count of reloads, and the pending changes logged since
        self._looking, self._looked_at = Lock(), float("-inf")

    @property
    def untrusted(self) -> "Untrusted | None":
        """The project folder that was found but is not used; in a server, with the command that loads it."""
        found = self._reloader.untrusted
        if found is None or not self._is_started or self._mode() == "everything":
            return found
        return replace(found, then=load_command(self._reloader.pid))

    @property
    def pending_count(self) -> int:
        """The number of changes that were noticed and wait for a reload."""
        count, pending = self._logged
        return len(pending) if count == self._reloader.count else 0

    def start(self) -> None:
        self._is_started = True
        if self._watcher is None and self._mode() is not None:
            from onetool.services.file_watcher import FileWatcher

            self._reloader.take_stamps()
            self._watcher = FileWatcher(
                self._reloader.files, self._reload_on_change, every=POLL_S, since=self._reloader.read_at
            )

    async def look_again(self) -> None:
        """Reload the settings if watched files have changed, at most once a second. Concurrent calls share a check."""
        if self._mode() is not None:
            from asyncio import to_thread

            await to_thread(self._reload_if_changed)

    def _reload_if_changed(self) -> None:
        with self._looking:
            if monotonic() - self._looked_at < POLL_S:
                return
            try:
                if self._reloader.reload_settings():
                    watch_log.info(
                        "Settings were reloaded, because something was not found: %d tools", len(self._registry)
                    )
            except ConfigError as error:
                watch_log.error("Not reloaded, the previous config stays in effect: %s", error)
            finally:
                self._looked_at = monotonic()

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()

    def _reload_on_change(self) -> None:
        if not self._reloader.is_concerned():
            return
        try:
            if self._mode() == "everything":
                self._reloader.reload()
                watch_log.info("Reloaded, because files changed: %d tools", len(self._registry))
            elif self._reloader.reload_settings():
                watch_log.info("Settings were reloaded, because files changed: %d tools", len(self._registry))
            (count, before), now = self._logged, self._reloader.pending_changes()
            self._logged = self._reloader.count, now
            for one in now:  # each is logged once until the next reload
                if one not in before or count != self._reloader.count:
                    watch_log.warning("Not loaded: %s", one)
        except ConfigError as error:
            watch_log.error("Not reloaded, the previous config stays in effect: %s", error)
            self._logged = self._reloader.count, self._reloader.pending_changes()
        if self._watcher is not None and self._mode() is None:
            self._watcher.close()
            self._watcher = None
