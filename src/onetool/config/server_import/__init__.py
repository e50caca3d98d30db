"""Adds MCP servers to the config, from blocks in the format of other clients, for `onetool servers import` and REST.

translate      a client's file, a pasted command line or a URL -> server blocks of our config
hide_secrets   values that look like secrets -> `${NAME}` and an entry in the secrets file

`Planner` decides which servers an import writes and which it skips; `ConfigTarget` writes all of them, or nothing. Only
the config, its secrets file and, for a new config, the files of `onetool init` are changed. The new config is loaded
before it replaces the old one.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from onetool.config.client_files import EditError, put_file
from onetool.config.edit import rename_server
from onetool.config.file_checks import CONFIG_FILE, is_inside
from onetool.config.fill import SECRETS_IN_CONFIG, check_kept
from onetool.config.find import FOLDER, NOWHERE, find, own_folder, place_of, trust_store
from onetool.config.findings import Findings
from onetool.config.load import load_config, load_secrets
from onetool.config.model import Config
from onetool.config.pin import described_server, programs_of
from onetool.config.read import PLACEHOLDER, ConfigFileError, read_config
from onetool.config.server_import.hide_secrets import SecretCollector, Variables, without_secrets
from onetool.config.server_import.translate import ClientServers, SkipServer, translated
from onetool.config.starter import starter_config
from onetool.config.trust import trust_renewed
from onetool.core.errors import ConfigError, OneToolError
from onetool.core.os_files import draft_of, write_new
from onetool.core.signature import as_identifier
from onetool.core.state_folders import IGNORE, IGNORED
from onetool.core.yaml import child
from onetool.http.url import LOOPBACK
from onetool.services.secret_file import drop_secret, put_secret
from onetool.services.secrets import Secret
from onetool.sources.mcp_servers.server_cache import ServerCache
from onetool.sources.mcp_servers.servers import Servers

OWN_PACK = "ot"
RESERVED = ("found", "import", ".", "..")  # path segments below /servers
OWN_COMMANDS = ("onetool", "onetool-layer")  # the second is the name of the distribution

Change = Callable[[str], str]


class ConfigUnchangedError(OneToolError):
    """A config that can't be changed, and was left unchanged."""


class ServerExistsError(ConfigUnchangedError):
    """Another server already has the name."""


class ConfigTarget:
    """The config to change: the current one, or a new one.

    `new` is the file to create if there is no config.
    """

    def __init__(self, named: str | None, new: Path | None = None) -> None:
        self.found = find(named)
        if self.found.untrusted is not None:  # the change would be used together with the untrusted files
            raise ConfigUnchangedError(f"nothing was changed: {self.found.untrusted}.")
        self.file = self.found.config or new or Path.cwd() / FOLDER / CONFIG_FILE
        if NOWHERE in self.file.parents:
            raise ConfigUnchangedError("This user has no home folder for a config: set HOME, or use --config FILE.")
        if not (self.found.config or new) and not is_inside(self.file, Path.cwd()):
            raise ConfigUnchangedError(
                f"{self.file} leads out of this folder through a symbolic link; remove the link."
            )
        self.config: Config = load_config(self.found)  # an invalid config is not changed
        self.secrets = load_secrets(self.file)  # with the whole environment: this change will be accepted
        self._written = read_config(self.file.absolute(), Findings()) if self.found.config else None
        servers = self._written.data.get("servers") if self._written else None
        self.servers: dict[str, Any] = servers if isinstance(servers, dict) else {}
        self.own_ports = {self.config.http.port}  # the ports on which OneTool listens

    def elsewhere(self, name: str) -> str | None:
        """Return the included file that defines this server; None if it is this file or undefined."""
        if self._written is None or name not in self.servers:
            return None
        file = self._written.places.at(child("servers", name)).file
        return None if Path(file) == self.file.absolute() else file

    def details(self, name: str, block: Any) -> list[str]:
        """Return a line for each value that decides what a server would run and send with this block."""
        folder = block.get("cwd") if isinstance(block, dict) else None
        folders = {name: self.file.absolute().parent / os.path.expanduser(folder)} if folder else {}
        place = place_of(self.file.absolute())
        programs = programs_of({name: block}, folders, place, {}, sets_safe_path=self.is_project)
        return list(described_server(block, programs.get(name)))

    def block(self, name: str) -> dict[str, Any]:
        """Return the block of a server in this file. Raises ConfigUnchangedError if it is not defined here."""
        if elsewhere := self.elsewhere(name):
            raise ConfigUnchangedError(f"{name} is defined in the included file {elsewhere}. Change it there.")
        found = self.servers.get(name)
        if not isinstance(found, dict):
            raise ConfigUnchangedError(f"{name} is not defined in {self.file}.")
        return found

    def text(self) -> str:
        return self.file.read_text(encoding="utf-8", errors="surrogateescape") if self.file.exists() else ""

    @property
    def is_project(self) -> bool:
        """Whether this is the config of a project, which has to be trusted."""
        folder = self.file.absolute().parent
        return folder.name == FOLDER and os.path.realpath(folder) != os.path.realpath(own_folder())

    def write(self, change: Change, secrets: Mapping[str, str] | None = None, *, renew: bool = True) -> None:
        """Change the text and store the secrets. Raises ConfigUnchangedError if nothing was changed.

        With `renew`, a trusted project stays trusted, because the user has made the change.
        """
        change = partial(self._change_and_store, change, secrets or {})
        renewed = trust_renewed(self.file.absolute(), trust_store(), own_folder(), tuple(secrets or ()))
        try:
            with (
                renewed if renew else nullcontext(),
                _folder_for(self.file),
                _remove_secrets_on_error(self.secrets.file, secrets or {}),
            ):
                put_file(self.file, change, private=False)
        except OSError as error:
            raise ConfigUnchangedError(f"can't write {self.file}: {error.strerror}; nothing was changed.") from None
        except (EditError, ValueError) as why:
            raise ConfigUnchangedError(f"{self.file} was not changed: {why}.") from None

    def rename(self, servers: Servers, name: str, new: str) -> ServerCache:
        """Rename a server. Its approval and its login are kept; tools have the new name after a reload.

        Returns the data stored under the old name, to be deleted after the reload. Raises SkipServer for an invalid
        name, ConfigUnchangedError, and DatabaseError.
        """
        check_name(new)
        self.block(name)
        if new in self.servers:
            raise ServerExistsError(f"A server named {new[:100]!r} already exists. Choose another name.")
        old = servers.copy_state(name, new)
        self.write(partial(rename_server, name=name, new=new))
        servers.logout(name)
        return old

    def check(self, change: Change, secrets: Mapping[str, str]) -> None:
        """Raise ConfigUnchangedError if `write` would raise it. Writes nothing."""
        try:
            self._checked(change, secrets, self.text())
        except EditError as why:
            raise ConfigUnchangedError(f"{self.file} was not changed: {why}.") from None

    def _change_and_store(self, change: Change, secrets: Mapping[str, str], text: str) -> str:
        new = self._checked(change, secrets, text)
        for name, value in secrets.items():  # before the config, which needs them
            if self.secrets.file is None:
                raise EditError(SECRETS_IN_CONFIG)
            put_secret(self.secrets.file, name, value, partial(check_kept, name, value))
        return new

    def _checked(self, change: Change, secrets: Mapping[str, str], text: str) -> str:
        """Return the changed text. Raises EditError if the config could not be loaded."""
        try:
            new = change(text if self.file.exists() else starter_config(example=False))
        except ConfigFileError as why:
            raise EditError(f"line {why.line}: {why.message}" if why.line else why.message) from None
        broken = {name for name, one in self.config.servers.items() if one.mistakes}  # before the change
        # The draft is beside the file, where relative paths are valid.
        with draft_of(self.file.absolute(), new.encode(errors="surrogatepass"), sync=False) as draft:
            try:
                servers = load_config(draft, env={**os.environ, **secrets}).servers
                if mistakes := [one for name, of in servers.items() if name not in broken for one in of.mistakes]:
                    raise ConfigError(mistakes)
            except ConfigError as error:
                found = "\n".join(str(mistake) for mistake in error.mistakes).replace(str(draft), str(self.file))
                raise EditError(f"the changed config would not be valid:\n{found}") from None
        return new


@contextmanager
def _folder_for(file: Path) -> Iterator[None]:
    """Create the folder of a new config, with the files of `onetool init`; remove it again on failure."""
    if file.exists():
        yield
        return
    was_there = file.parent.exists()
    file.parent.mkdir(exist_ok=True, mode=0o700 if file.parent == own_folder() else 0o777)
    try:
        yield
        write_new(file.with_name(IGNORE), IGNORED)
    except BaseException:
        if not was_there:
            with suppress(OSError):
                file.parent.rmdir()
        raise


@contextmanager
def _remove_secrets_on_error(file: Path | None, secrets: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if file is not None:
            for name in secrets:  # none of them existed before
                with suppress(OSError, ValueError):
                    drop_secret(file, name, partial(check_kept, name, None))
        raise


# The plan

MAX_NAME = 100

AskUser = Callable[[str, str], str | None]
"""A function that asks a person for a secret of a server; None if nobody can answer."""


class SeenServer(msgspec.Struct, frozen=True, kw_only=True):
    """A block that an import has read, safe to show."""

    name: str
    block: Any
    file: Path
    taken: bool


class ServerImportPlan(msgspec.Struct, kw_only=True):
    """The result of planning an import. Only the names of secrets are ever shown."""

    servers: dict[str, dict[str, Any]] = {}
    secrets: dict[str, Secret] = {}
    kept: list[str] = []  # already in the config
    skipped: dict[str, str] = {}
    notes: list[str] = []
    seen: list[SeenServer] = []  # every block that was read
    from_project: bool = False  # whether a block comes from a project's file
    failed: bool = False  # whether a requested server was left out


class Planner:
    """A planner of an import from several files, in order.

    The first definition of a name wins, so the user's own files come first.
    """

    def __init__(
        self,
        target: ConfigTarget,
        *,
        replace: bool,
        only: Iterable[str] = (),
        ask: AskUser,
        reuse: bool = True,
        whole: bool = False,
        keep: Collection[str] = (),
    ) -> None:
        """Create a planner. `keep` names variables and headers that are secrets, whatever their values look like.

        With `whole`, the blocks of a project are shown with their secrets, which came with the project.
        """
        self.keep = keep
        self.whole = whole
        self.target = target
        self.replace = replace
        self.only = set(only)
        self.ask = ask
        self.reuse = reuse
        self.collector = SecretCollector(target.secrets, reuse)
        self.plan = ServerImportPlan()

    def add(self, found: ClientServers) -> None:
        for name, raw in found.servers.items():
            if self.only and name not in self.only:
                continue
            if name in self.plan.servers or name in self.plan.skipped:
                taken = (f"the one in {one.file}" for one in self.plan.seen if one.name == name and one.taken)
                self.plan.notes.append(f"{name}: {found.file} also defines it; {next(taken, 'neither')} is imported")
                try:  # its secrets are not stored, so they get their own names
                    block, _ = self._translated(raw, found)
                    if not (self.whole and found.in_project):
                        block = without_secrets(name, block, SecretCollector(self.target.secrets, self.reuse))
                except SkipServer as why:
                    block = f"not usable: {why}"
                self.plan.seen.append(SeenServer(name=name, block=block, file=found.file, taken=False))
            elif name in self.target.servers and not self.replace:
                if name not in self.plan.kept:
                    self.plan.kept.append(name)
            else:
                self._add_block(name, raw, found)

    def done(self) -> ServerImportPlan:
        used = {name for block in self.plan.servers.values() for name in placeholders(block)}
        self.plan.secrets = {name: value for name, value in self.collector.new.items() if name in used}
        return self.plan

    def _add_block(self, name: str, raw: Any, found: ClientServers) -> None:
        try:
            if elsewhere := self.target.elsewhere(name):
                raise SkipServer(f"it is defined in the included file {elsewhere}; change it there")
            check_name(name)
            whole, notes = self._translated(raw, found)
            if is_onetool(whole, self.target.own_ports):
                raise SkipSelf("it is OneTool itself")
            block = without_secrets(name, whole, self.collector, self.keep)
        except SkipServer as why:
            self.plan.skipped[name] = str(why)
            self.plan.failed |= not isinstance(why, SkipSelf)
            return
        for secret in placeholders(block):
            given = None if self.collector.has(secret) else self.ask(name, secret)
            if given:
                self.collector.put(secret, given)
            if not self.collector.has(secret):
                notes.append(f"it can't connect until its secret is set: onetool auth set {secret}")
            elif self.collector.is_borrowed(secret):
                notes.append(f"{secret} comes from the environment; to store it: onetool auth set {secret}")
        self.plan.servers[name] = block
        self.plan.from_project |= found.in_project
        self.plan.notes += [f"{name}: {note}" for note in notes]
        shown = whole if self.whole and found.in_project else block
        self.plan.seen.append(SeenServer(name=name, block=shown, file=found.file, taken=True))

    def _translated(self, raw: Any, found: ClientServers) -> tuple[dict[str, Any], list[str]]:
        variables = Variables(found.folder, found.inputs, self.collector)
        return translated(raw, variables, found.folder, old_url=found.file.parent.name == ".gemini")


def check_name(name: str) -> None:
    """Raise SkipServer if a server can't have this name."""
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise SkipServer(f"a name must have 1 to {MAX_NAME} printable characters")
    if as_identifier(name) == OWN_PACK:
        raise SkipServer(f"{OWN_PACK} is the name of OneTool's own tools")
    if name in RESERVED:
        raise SkipServer(f"{name} is a path of the REST API; choose another name")


class SkipSelf(SkipServer):
    """An entry that starts OneTool itself; it is skipped silently."""


def is_onetool(block: Mapping[str, Any], own_ports: Collection[int] = ()) -> bool:
    """Return whether this block would start or reach OneTool itself, whose tools are already here."""
    if url := block.get("url"):
        try:
            parts = urlsplit(url)
            return parts.hostname in LOOPBACK and parts.port in own_ports and parts.path in ("/mcp", "/mcp/")
        except ValueError:
            return False
    words = [block.get("command", ""), *block.get("args", ())]
    names = [re.sub(r"\.(exe|cmd)$", "", re.split(r"[/\\]", word)[-1].lower()) for word in words]
    starts = [at for at, name in enumerate(names) if re.split(r"[\[=@<>~!]", name)[0] in OWN_COMMANDS]
    return any({"mcp", "serve"} & set(words[at + 1 :]) for at in starts) or names[0] in OWN_COMMANDS


def placeholders(value: Any) -> list[str]:
    """Return the names of all secrets in a block."""
    if isinstance(value, str):
        return PLACEHOLDER.findall(value)
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return list(dict.fromkeys(name for item in items for name in placeholders(item)))
