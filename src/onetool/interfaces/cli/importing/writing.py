"""Servers into the config in force, and their secrets into its secrets file: all of it, or nothing.

Writes these two files and, where there was no config, what `onetool init` writes. The new config has been loaded before
it takes the old one's place.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex

import click

from onetool.config import Config, find, load_config, load_secrets
from onetool.config.find import FOLDER, NAME, own_folder
from onetool.config.include import read_files
from onetool.config.node import Findings, Node
from onetool.config.source import Refused as NotYaml
from onetool.config.starter import starter_config
from onetool.core.errors import ConfigError
from onetool.core.private_file import write_new
from onetool.interfaces.cli.auth import check as holds
from onetool.interfaces.cli.clients.put_file import put_file
from onetool.interfaces.cli.clients.refused import Refused
from onetool.interfaces.cli.init import IGNORED
from onetool.interfaces.cli.output import printable
from onetool.interfaces.cli.trusting import renewed
from onetool.services.secret_file import drop_secret, put_secret

Change = Callable[[str], str]


class Target:
    """The config that is to be changed: the one in force, or the one that `onetool init` would write here.

    `new` is another file to write where there is none.
    """

    def __init__(self, named: str | None, new: Path | None = None) -> None:
        self.found = find(named)
        if self.found.untrusted is not None:  # what is written would be used together with what lies there
            raise click.ClickException(printable(f"nothing was changed: {self.found.untrusted}."))
        self.file = self.found.config or new or Path.cwd() / FOLDER / NAME
        self.config: Config = load_config(self.found)  # one that can't be used is not touched
        self.secrets = load_secrets(self.file)  # with the whole environment: what is written here will be accepted
        self.servers = _servers_in(self.file) if self.found.config else {}

    def elsewhere(self, name: str) -> str | None:
        """The included file that this server stands in."""
        node = self.servers.get(name)
        return None if node is None or Path(node.file) == self.file.absolute() else node.file

    def text(self) -> str:
        return self.file.read_text(encoding="utf-8", errors="surrogateescape") if self.file.exists() else ""

    def write(self, change: Change, secrets: Mapping[str, str] | None = None) -> None:
        """Change the text, and keep the secrets. ClickException says why nothing was done."""
        change = partial(self._changed, change, secrets or {})
        try:
            with (
                renewed(self.file, tuple(secrets or ())),
                _folder_for(self.file),
                _undone_if_it_fails(self.secrets.file, secrets or {}),
            ):
                put_file(self.file, change, private=False)
        except OSError as error:
            raise click.ClickException(f"can't write {self.file}: {error.strerror}; nothing was changed.") from None
        except (Refused, ValueError) as why:
            raise click.ClickException(f"{self.file} stays as it is: {why}.") from None

    def _changed(self, change: Change, secrets: Mapping[str, str], text: str) -> str:
        try:
            new = change(text if self.file.exists() else starter_config(example=False))
        except NotYaml as why:
            raise Refused(f"line {why.line}: {why.message}" if why.line else why.message) from None
        _must_load(self.file, new, secrets, {name for name, one in self.config.servers.items() if one.mistakes})
        self._keep(secrets)  # the config must never be there without them
        return new

    def _keep(self, secrets: Mapping[str, str]) -> None:
        file = self.secrets.file
        for name, value in secrets.items():
            if file is None:
                raise Refused("the secrets stand in the config itself; move them to a file: secrets: secrets.yaml")
            put_secret(file, name, value, partial(holds, name, value))


def _servers_in(file: Path) -> dict[str, Node]:
    node = read_files(file.absolute(), Findings())[0].value.get("servers")
    return node.value if node and isinstance(node.value, dict) else {}


def _must_load(file: Path, text: str, secrets: Mapping[str, str], broken: Collection[str]) -> None:
    """Load it from beside the file, where everything that it names is found. `broken` servers were there before."""
    draft = file.absolute().with_name(f".{file.name}.{token_hex(4)}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(text.encode(errors="surrogatepass"))
        servers = load_config(draft, env={**os.environ, **secrets}).servers
        if found := [mistake for name, one in servers.items() if name not in broken for mistake in one.mistakes]:
            raise ConfigError(found)
    except ConfigError as error:
        found = "\n".join(str(mistake) for mistake in error.mistakes).replace(str(draft), str(file))
        raise Refused(f"with that change it could not be used:\n{found}") from None
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def _folder_for(file: Path) -> Iterator[None]:
    """The folder of a config that is new, with what `onetool init` puts there; gone again if nothing comes of it."""
    if file.exists():
        yield
        return
    was_there = file.parent.exists()
    file.parent.mkdir(exist_ok=True, mode=0o700 if file.parent == own_folder() else 0o777)
    try:
        yield
        write_new(file.with_name(".gitignore"), IGNORED)
    except BaseException:
        if not was_there:
            with suppress(OSError):
                file.parent.rmdir()
        raise


@contextmanager
def _undone_if_it_fails(file: Path | None, secrets: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if file is not None:
            for name in secrets:  # none of them was there before
                with suppress(OSError, ValueError):
                    drop_secret(file, name, partial(holds, name, None))
        raise
