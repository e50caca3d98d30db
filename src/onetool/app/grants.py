"""Grants for tools: hosts that they may call, and secrets for these hosts. The command line and REST share this
code.
"""

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from onetool.app import App
from onetool.app.provider_keys import key_urls
from onetool.config.edit import put_host
from onetool.config.fill import SECRETS_IN_CONFIG, HostBoundSecret, check_kept, is_in_config
from onetool.config.find import own_folder, trust_store, user_config
from onetool.config.server_import import ConfigTarget, ConfigUnchangedError
from onetool.config.trust import trust_renewed
from onetool.core.errors import ConfigError, OneToolError
from onetool.core.model_providers import PROVIDER_KEYS
from onetool.http.allowed_hosts import (
    NOWHERE,
    binding_command,
    binding_for,
    is_private,
    reach,
    read_binding,
    read_entry,
)
from onetool.http.errors import RequestRefusedError
from onetool.http.url import is_address, parse_url
from onetool.services.secret_file import SecretExistsError, put_secret
from onetool.services.secrets import Secret, Secrets

log = logging.getLogger("onetool.serve")
WrongPart = Literal["host", "hosts", "value"]


class GrantValueError(OneToolError):
    """An invalid host or secret."""

    def __init__(self, part: WrongPart, message: str) -> None:
        super().__init__(message)
        self.part: WrongPart = part


class GrantRefusedError(OneToolError):
    """The refusal of a grant; nothing was changed. `code` is for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


# Hosts


def read_host(text: str) -> tuple[str, bool]:
    """Return a host, or the host of a URL, and whether it belongs to this machine or its network.

    Raises ValueError.
    """
    try:
        if "://" in text:
            url = parse_url(text)
            return url.authority, is_private(url.host)
        pattern = read_entry(text)
    except RequestRefusedError as error:
        raise ValueError(str(error)) from None
    return text, not pattern.is_wildcard and is_private(pattern.host)


def allow_hosts(target: ConfigTarget, wanted: Iterable[tuple[str, bool]]) -> list[str]:
    """Add hosts to allowedHosts of the config, unless they are allowed already. Returns the added hosts."""
    there = {(one.host.lower(), one.allow_private) for one in target.config.allowed_hosts}
    new: list[str] = []
    for host, private in dict(wanted).items():
        if {(host.lower(), private), (host.lower(), True)} & there:
            continue
        target.write(partial(put_host, host=host, private=private))
        new.append(host)
    return new


def allow_host(app: App, text: str, private: bool) -> tuple[str, bool]:
    """Allow one host in the config of a running app, with immediate effect. Returns the host as written to the config,
    and whether it may be private. Raises GrantValueError, GrantRefusedError.
    """
    host, name = _single_host(text, "host")
    if is_address(name) and reach(name) == NOWHERE:
        raise GrantValueError("host", f"{host} is not a unicast address; tools can't call it")
    private = private or is_private(name)
    file = app.config.path
    _reload_settings(app)
    try:
        target = ConfigTarget(str(file) if file else None, new=user_config())
        allow_hosts(target, [(host, private)])
    except (ConfigUnchangedError, ConfigError) as error:
        raise GrantRefusedError("config_unchanged", str(error)) from None
    load_written(app, target.file, settings_only=file is not None)
    in_force = {(one.host.lower(), one.allow_private) for one in app.config.allowed_hosts}
    if {(host, private), (host, True)}.isdisjoint(in_force):
        message = f"{host} was added to {target.file}, which needs a reload: ot.reload()"
        raise GrantRefusedError("config_unused", message)
    log.info("Allowed over REST: the host %s in %s", host, target.file)
    return host, private


def _single_host(text: str, part: WrongPart) -> tuple[str, str]:
    """Return one host in canonical form, with its port, and its bare name."""
    try:
        pattern = read_entry(text)
    except ValueError as error:
        raise GrantValueError(part, str(error)) from None
    if pattern.is_wildcard:
        raise GrantValueError(part, f"{text[:100]!r} matches many hosts, which only the command line may allow")
    bare = f"[{pattern.host}]" if ":" in pattern.host else pattern.host
    return bare if pattern.port is None else f"{bare}:{pattern.port}", pattern.host


def _reload_settings(app: App) -> None:
    """Reload settings that others have changed. Raises GrantRefusedError if they are invalid or not trusted."""
    try:
        app.reload_settings()
    except ConfigError as error:
        why = "; ".join(map(str, error.mistakes))
        raise GrantRefusedError("config_unchanged", f"Nothing was changed: {why}") from None


def target_of(app: App) -> ConfigTarget:
    """Return the config to change: the one in use, or the user's own. Raises ConfigUnchangedError, ConfigError.

    A project's config is looked up again, because the project may no longer be trusted; if so, it is not changed.
    """
    file = app.config.path
    named = None if file is None or app.config.whose == "project" else str(file)
    target = ConfigTarget(named, new=user_config())
    if file is not None and target.file.absolute() != file.absolute():
        raise ConfigUnchangedError(
            f"The config is now {target.file} instead of {file}. Reload the server and try again."
        )
    return target


def load_written(app: App, file: Path, *, settings_only: bool = False) -> None:
    """Load a changed file. Raises GrantRefusedError if it can't be used."""
    try:
        app.reload_settings() if settings_only else app.reload()
    except ConfigError as error:
        why = "; ".join(map(str, error.mistakes))
        raise GrantRefusedError("config_unused", f"{file} was written but can't be loaded: {why}") from None


# Secrets


class SecretRow(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, without its value."""

    name: str
    provider: Annotated[str | None, Meta(description="The model provider that the key belongs to.")]
    source: Annotated[str | None, Meta(description="file, config, environment or keyring; null if it is not set.")]
    hosts: Annotated[tuple[str, ...], Meta(description="The hosts that it is bound to.")]
    use: Annotated[str | None, Meta(description="What the server uses it for; such a secret can't be replaced.")] = None


def secret_rows(secrets: Secrets) -> list[SecretRow]:
    """Return the stored secrets, and the key of each model provider even if it is not set."""
    return [
        SecretRow(name=name, provider=PROVIDER_KEYS.get(name), source=source, hosts=secrets.hosts(name))
        for name in dict.fromkeys([*PROVIDER_KEYS, *secrets.names()])
        if (source := secrets.where(name)) or name in PROVIDER_KEYS
    ]


def secrets_in_use(app: App) -> list[SecretRow]:
    """Return the secrets of a running app. A provider's key is bound to the addresses that `ask` sends it to."""
    rules = app.runtime.secret_rules
    return [
        msgspec.structs.replace(
            row,
            hosts=tuple(map(binding_for, key_urls(app.config, row.name, is_stored=row.source is not None)))
            if row.provider
            else row.hosts,
            use=rules.use_by_server(row.name),
        )
        for row in secret_rows(app.config.secrets)
    ]


def store_secret(app: App, name: str, value: str, hosts: Iterable[str], replace: bool) -> tuple[str, ...]:
    """Store a secret for these hosts in the secrets file of a running app, with immediate effect. Returns its hosts.

    With `replace`, the value of a stored secret is replaced. Its hosts are never changed: existing requests could stop
    working, and a caller who asks for another host may not be meant to have the secret. Raises GrantValueError,
    GrantRefusedError.
    """
    if not value.strip() or not value.isprintable():
        raise GrantValueError("value", "a secret must be a single, non-empty line of text")
    wanted = tuple(dict.fromkeys(map(_binding, hosts)))
    for _, message, _ in HostBoundSecret(value=Secret(""), hosts=wanted).problems() if wanted else ():
        raise GrantValueError("hosts", message)
    file = app.config.secrets.file
    if file is None:
        raise GrantRefusedError("secrets_not_kept", SECRETS_IN_CONFIG)
    _reload_settings(app)
    hosts = _hosts_to_store(app, name, wanted, replace)
    check = partial(check_kept, name, value)
    try:
        with trust_renewed(file.absolute(), trust_store(), own_folder(), (name,)):
            put_secret(file, name, value, check, hosts, new_only=not replace)
    except SecretExistsError:
        raise GrantRefusedError("secret_exists", f"{name} was just stored by another process") from None
    except (OSError, ValueError) as error:
        raise GrantRefusedError("secrets_not_kept", f"can't write {file}: {error}") from None
    load_written(app, file, settings_only=True)
    log.info("Stored over REST: the secret %s, for %s", name, ", ".join(hosts) or "no host")
    return hosts


def _binding(text: str) -> str:
    """Return a host to bind a secret to, in canonical form."""
    try:
        read_binding(text)
    except ValueError as error:
        raise GrantValueError("hosts", str(error)) from None
    scheme, _, host = text.rpartition("://")
    written, _ = _single_host(host, "hosts")
    return f"http://{written}" if scheme == "http" else written


def check_new_secret(app: App, name: str, wanted: tuple[str, ...]) -> None:
    """Raise GrantRefusedError if something else would use a new secret of this name."""
    if used := app.runtime.secret_rules.use_by_server(name):
        raise GrantRefusedError("secret_in_use", f"{name} is {used} of this server: use another secret in the tool")
    if name in PROVIDER_KEYS and wanted:
        message = f"{name} is a model provider's key and goes to no other host: use another secret in the tool"
        raise GrantRefusedError("secret_in_use", message)
    where = app.config.secrets.where(name)
    if wanted and (where == "environment" or (where is None and is_in_config(app.config.path, name))):
        source = "is a variable of the server's environment" if where else "is named in the config"
        message = f"{name} {source}. Binding it to {', '.join(wanted)} would break its other uses. "
        by_hand = f"To do it anyway, run: {binding_command(name, wanted)}"
        raise GrantRefusedError("secret_in_use", message + by_hand)


def _hosts_to_store(app: App, name: str, wanted: tuple[str, ...], replace: bool) -> tuple[str, ...]:
    """Return the hosts to store with the secret. Raises GrantRefusedError if something else uses it."""
    check_new_secret(app, name, wanted)
    where, bound = app.config.secrets.where(name), app.config.secrets.hosts(name)
    if where in (None, "environment"):
        return wanted
    place = f", for {', '.join(bound)}" if bound else ""
    if not replace or where != "file":
        how = (
            "Its value can be replaced with replace=true"
            if where == "file"
            else (f"To do it anyway, run: {binding_command(name, wanted)}")
        )
        raise GrantRefusedError("secret_exists", f"{name} is already stored in the {where}{place}. {how}")
    if any(one not in bound for one in wanted):
        command = binding_command(name, dict.fromkeys((*bound, *wanted)))
        message = f"{name} is stored{place or ' without a host'}, and its hosts can't be changed here"
        raise GrantRefusedError("secret_bound", f"{message}. To do it anyway, run: {command}")
    return bound
