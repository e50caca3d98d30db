"""Finds keys of a config that have no effect; `onetool check` prints them."""

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onetool.config.load import roots_within
from onetool.core.errors import Mistake
from onetool.core.principal import AllowList, is_pattern
from onetool.services.secrets import UNMISTAKABLE

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.database.documents import Documents
    from onetool.services.access_tokens import RevokedToken
    from onetool.sources.packs import Registry


def lint_config(
    config: "Config", registry: "Registry", waiting: Collection[str], tokens: "Callable[[], Documents]"
) -> list[Mistake]:
    """`waiting` are packs of servers, whose tools may not be known yet; `tokens`: where tokens are stored."""
    return [
        *_short_secrets(config),
        *_settings(config, registry),
        *_roots(config),
        *_topics(config),
        *_instructions(config, registry, waiting),
        *_aliases(config, registry, waiting),
        *_hosts(config),
        *_asked_with(config, registry, waiting),
        *_access(config, registry, waiting, tokens),
    ]


def _short_secrets(config: "Config") -> list[Mistake]:
    return [
        Mistake(
            message=f"A secret shorter than {UNMISTAKABLE} characters can't be masked reliably",
            file=str(config.secrets.file or config.path),
            key=name,
            hint="choose a longer one",
            severity="warning",
        )
        for name in config.secrets.too_short()
    ]


def _settings(config: "Config", registry: "Registry") -> list[Mistake]:
    """Settings that nothing reads: for packs that are not there, most likely a typo, or in the wrong place."""
    known = registry.packs() if config.settings else ()
    wrong = {name: "no pack has this name" for name in config.settings if name not in known}
    if "roots" in config.settings.get("fs", {}):
        wrong["fs.roots"] = "the folders of fs have a key of their own: fs: {roots: […]}"
    return [
        Mistake(message=message, file=str(config.path), key=f"settings.{name}", severity="warning")
        for name, message in wrong.items()
    ]


def _roots(config: "Config") -> list[Mistake]:
    """Folders that a project may not lend: what counts is where they are when they are opened."""
    within = roots_within(config)
    if within is None:
        return []
    allowed = [Path(os.path.realpath(folder)) for folder in within]
    return [
        Mistake(
            message=f"{root} lies outside of the project, so that fs does not open it",
            file=str(config.path),
            key=f"fs.roots[{number}]",
            hint="the person can allow it in fs.roots of ~/.onetool/onetool.yaml, or name this config with --config",
            severity="warning",
        )
        for number, root in enumerate(config.fs.roots)
        if not any(Path(os.path.realpath(root)).is_relative_to(folder) for folder in allowed)
    ]


def _topics(config: "Config") -> list[Mistake]:
    """Files that can't be written: what counts is how they are opened, but a person should hear of it before."""
    if not config.topics:
        return []
    beside = Path(os.path.realpath(config.beside))
    roots = [Path(os.path.realpath(root)) for root in config.fs.roots]
    return [
        Mistake(
            message=f"{topic.file} is neither directly beside the config nor below fs.roots: nothing is written to it",
            file=str(config.path),
            key=f"topics[{number}].file",
            severity="warning",
        )
        for number, topic in enumerate(config.topics)
        if Path(os.path.realpath(topic.file.parent)) != beside
        and not any(Path(os.path.realpath(topic.file)).is_relative_to(root) for root in roots)
    ]


def _instructions(config: "Config", registry: "Registry", waiting: Collection[str]) -> list[Mistake]:
    """Instructions of missing packs."""
    if not config.texts.packs:
        return []
    from onetool.core.text import did_you_mean

    known = {*registry.packs(), *waiting}
    return [
        Mistake(
            message="no pack has this name",
            file=str(config.prompts),
            key=f"packs.{name}",
            hint=did_you_mean(name, known),
            severity="warning",
        )
        for name in config.texts.packs
        if name not in known
    ]


def _hosts(config: "Config") -> list[Mistake]:
    """Entries of allowedHosts that allow nothing."""
    if not config.allowed_hosts:
        return []
    from onetool.http.allowed_hosts import AllowedHosts, HostRule

    return [
        Mistake(message=why, file=str(config.path), key=f"allowedHosts[{number}]", severity="warning")
        for number, one in enumerate(config.allowed_hosts)
        for why in AllowedHosts([HostRule(one.host, one.allow_private)]).mistakes
    ]


def _asked_with(config: "Config", registry: "Registry", waiting: Collection[str]) -> list[Mistake]:
    """Names in ask.tools that no tool has."""
    return _unmatched(config, "ask.tools", config.ask.tools, registry, waiting)


def _unmatched(
    config: "Config", key: str, names: Collection[str] | None, registry: "Registry", waiting: Collection[str]
) -> list[Mistake]:
    """Names that no tool has, and patterns that none fits. Those of servers that have not listed theirs may come."""
    if not names:
        return []
    from onetool.core.text import did_you_mean

    packs = [f"{pack}.*" for pack in registry.packs()]
    return [
        Mistake(
            message=f"no tool fits {name}" if is_pattern(name) else f"no tool is called {name}",
            file=str(config.path),
            key=key,
            hint=did_you_mean(name, packs if is_pattern(name) else registry.names()),
            severity="warning",
        )
        for name in registry.unmatched(names)
        if not _may_come(name.partition(".")[0], waiting)
    ]


def _may_come(pack: str, waiting: Collection[str]) -> bool:
    return len(AllowList((pack,), waiting)) > 0 if is_pattern(pack) else pack in waiting


# Who may call `onetool serve`


SOON_S = 14 * 24 * 3600
TOKENS = (".has-tokens", "access_tokens/tokens.json")  # what reads tokens is loaded only if one of these is there


def _access(
    config: "Config", registry: "Registry", waiting: Collection[str], documents: "Callable[[], Documents]"
) -> Iterator[Mistake]:
    """Tokens and grants that are of no use, or soon will be."""
    http = config.http
    if http.local is not None:
        yield _local_access(config)
    for number, token in enumerate(http.tokens):
        yield from _unmatched(config, f"http.tokens[{number}].tools", token.tools, registry, waiting)
    if http.tokens or any((config.home / name).exists() for name in TOKENS):
        yield from _tokens(config, documents())
    if http.jwt is None:
        return
    for scope, grant in http.jwt.scopes.items():
        yield from _unmatched(config, f"http.jwt.scopes[{scope!r}].tools", grant.tools, registry, waiting)
    for claim, values in http.jwt.claims.items():
        for value, grant in values.items():
            yield from _unmatched(config, f"http.jwt.claims.{claim}[{value!r}].tools", grant.tools, registry, waiting)
    if http.url is None:
        message = "without http.url, clients are told the address of their request, which is another behind a proxy"
        hint = "set http.url to the address that clients use: https://tools.example.com"
        yield Mistake(message=message, file=str(config.path), key="http.jwt", hint=hint, severity="warning")


def _local_access(config: "Config") -> Mistake:
    """Say what `http.local` does."""
    from onetool.app.access import is_loopback_name

    message = f"clients on this machine need no credential, and have the role {config.http.local}"
    if config.cluster is not None:
        message = "it has no effect, because the config has a cluster"
    elif not is_loopback_name(config.http.host):
        message = f"it has no effect, because the server listens on {config.http.host}"
    return Mistake(message=message, file=str(config.path), key="http.local", severity="warning")


def _tokens(config: "Config", documents: "Documents") -> Iterator[Mistake]:
    """Tokens that end, and names that a stored token has, too."""
    from onetool.app.access import as_stored, shown_time, token_store
    from onetool.services.access_tokens import LOSS_FIX, TokenStoreError

    stored: set[str] = set()
    revoked: Mapping[str, RevokedToken] = {}
    try:
        store = token_store(config, documents)
        stored, revoked = {token.name for token in store.list()}, store.revoked()
        if loss := store.loss:
            yield Mistake(message=loss, key="http.tokens", hint=LOSS_FIX, severity="warning")
    except TokenStoreError as error:
        if not documents.is_shared:  # that a database is away is told elsewhere
            yield Mistake(message=str(error), key="http.tokens")
    for number, token in enumerate(map(as_stored, config.http.tokens)):
        key, file = f"http.tokens[{number}]", str(config.path)
        if token.name in stored:
            message = f"a token that was stored is called {token.name}, too, and is refused"
            yield Mistake(message=message, file=file, key=f"{key}.name", hint="rename this one, or revoke both")
        if token.hash in revoked:
            message = f"{token.name} was revoked, and is refused"
            yield Mistake(message=message, file=file, key=key, hint="remove it from the config", severity="warning")
        if token.expires is not None and (left := token.expires - time.time()) < SOON_S:
            message = f"{token.name} {'expired' if left <= 0 else 'expires'} on {shown_time(token.expires)}"
            hint = f"make another one: onetool tokens add {token.name} --print"
            yield Mistake(message=message, file=file, key=f"{key}.expires", hint=hint, severity="warning")


def _aliases(config: "Config", registry: "Registry", waiting: Collection[str]) -> list[Mistake]:
    """Aliases of tools that are not there, or that something else is called."""
    if not config.aliases:
        return []
    from onetool.core.text import did_you_mean
    from onetool.script.names import ScriptNames

    targets = {name: to for name, to in config.aliases.items() if to.partition(".")[0] not in waiting}
    return [
        Mistake(
            message=why,
            file=str(config.path),
            key=f"aliases.{alias}",
            hint=did_you_mean(targets[alias], registry.names()) if targets[alias] in why else None,
            severity="warning",
        )
        for alias, why in ScriptNames(registry.snapshot(), targets).useless.items()
    ]
