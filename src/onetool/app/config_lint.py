"""Finds keys of a config that have no effect; `onetool check` prints them."""

import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onetool.config.load import roots_within
from onetool.core.errors import Mistake
from onetool.core.principal import AllowList, is_pattern
from onetool.core.signature import as_identifier
from onetool.core.text import did_you_mean
from onetool.services.secrets import UNMISTAKABLE

if TYPE_CHECKING:
    from onetool.config import Config
    from onetool.services.access_tokens import TokenStore
    from onetool.sources.packs import Registry

SOON_S = 14 * 24 * 3600
RANDOM_VALUE_HINT = (
    "set http: {token: ${ONETOOL_TOKEN}} and keep a long random value: "
    "openssl rand -hex 32 | onetool auth set ONETOOL_TOKEN; or create a token for each user: "
    "onetool tokens add NAME"
)


def may_store_tokens(config: "Config") -> bool:
    return (config.home / ".has-tokens").exists()  # token support is loaded only then


def access_warnings(config: "Config", host: str) -> Iterator[Mistake]:
    """Yield warnings about the credentials of a server that listens on `host`."""
    http, file = config.http, str(config.path) if config.path else None
    if http.local is None and not http.token and not http.url and not http.hosts:
        return  # most configs: token support is not loaded
    from onetool.app.access import MIN_TOKEN, has_credential, is_loopback_name, local_role, names_other_machine

    if http.token and len(http.token) < MIN_TOKEN:
        message = f"it should have at least {MIN_TOKEN} characters, because others can guess a shorter one"
        yield Mistake(message=message, file=file, key="http.token", hint=RANDOM_VALUE_HINT, severity="warning")
    if http.local is not None:
        message = f"clients on this machine need no credential and have the role {http.local}"
        if config.cluster is not None:
            message = "it has no effect, because the config has a cluster"
        elif not is_loopback_name(host):
            message = f"it has no effect, because the server listens on {host}"
        elif local_role(http) is None:
            message = "it has no effect, because http.url or http.hosts says that a proxy sends requests"
        yield Mistake(message=message, file=file, key="http.local", severity="warning")
    if names_other_machine(http) and not has_credential(http) and not may_store_tokens(config):
        key = "http.url" if http.url else "http.hosts"
        message = "clients come from other machines, so they need a token, and this server has none"
        hint = "create a token with `onetool tokens add NAME`"
        yield Mistake(message=message, file=file, key=key, hint=hint, severity="warning")


def lint_config(
    config: "Config", registry: "Registry", waiting: Collection[str], tokens: "Callable[[], TokenStore]"
) -> list[Mistake]:
    """Return mistakes in a config. `waiting` are packs of servers whose tools may not be known yet."""
    linter = _Linter(config, registry, waiting)
    found = [*linter.secrets(), *linter.settings(), *linter.folders(), *linter.names(), *linter.hosts()]
    if config.otel is not None:
        from onetool.app.telemetry import missing_package

        found += filter(None, [missing_package(config)])
    if config.http.tokens or may_store_tokens(config):
        found += linter.tokens(tokens())
    return found


class _Linter(NamedTuple):
    config: "Config"
    registry: "Registry"
    waiting: Collection[str]

    def warning(self, key: str, message: str, hint: str | None = None, file: Path | None = None) -> Mistake:
        return Mistake(
            message=message, file=str(file or self.config.path), key=key, hint=hint or None, severity="warning"
        )

    def secrets(self) -> Iterator[Mistake]:
        message = f"A secret shorter than {UNMISTAKABLE} characters can't be masked reliably"
        for name in self.config.secrets.too_short():
            yield self.warning(name, message, "choose a longer one", self.config.secrets.file)

    def settings(self) -> Iterator[Mistake]:
        """Yield settings that no pack reads, and settings of `http` that affect access."""
        known = self.registry.packs() if self.config.settings else ()
        for name in self.config.settings:
            if name not in known:
                yield self.warning(f"settings.{name}", "no pack has this name")
        if "roots" in self.config.settings.get("fs", {}):
            yield self.warning("settings.fs.roots", "the folders of fs have their own key: fs: {roots: […]}")
        http = self.config.http
        if http.jwt is not None and http.url is None:
            message = "without http.url, clients get the address of their own request, which is wrong behind a proxy"
            yield self.warning(
                "http.jwt", message, "set http.url to the address that clients use: https://tools.example.com"
            )
        yield from access_warnings(self.config, http.host)

    def folders(self) -> Iterator[Mistake]:
        """Yield folders that fs will not open, and files of topics that can't be written."""
        roots = [(root, Path(os.path.realpath(root))) for root in self.config.fs.roots]
        within = roots_within(self.config)
        allowed = [Path(os.path.realpath(folder)) for folder in within or ()]
        for number, (root, real) in enumerate(roots):
            if within is not None and not any(map(real.is_relative_to, allowed)):
                message = f"{root} is outside the project, so fs does not open it"
                hint = "allow it in fs.roots of ~/.onetool/onetool.yaml, or pass this config with --config"
                yield self.warning(f"fs.roots[{number}]", message, hint)
        for number, topic in enumerate(self.config.topics):
            file = Path(os.path.realpath(topic.file))
            beside = os.path.realpath(topic.file.parent) == os.path.realpath(self.config.beside)
            if not beside and not any(file.is_relative_to(root) for _, root in roots):
                message = (
                    f"{topic.file} is neither directly beside the config nor below fs.roots: nothing is written to it"
                )
                yield self.warning(f"topics[{number}].file", message)

    def hosts(self) -> Iterator[Mistake]:
        """Yield entries of allowedHosts that allow nothing."""
        if not self.config.allowed_hosts:
            return
        from onetool.http.allowed_hosts import AllowedHosts, HostRule

        for number, one in enumerate(self.config.allowed_hosts):
            for why in AllowedHosts([HostRule(one.host, one.allow_private)]).mistakes:
                yield self.warning(f"allowedHosts[{number}]", why)

    def names(self) -> Iterator[Mistake]:
        """Yield names of packs and tools that don't exist."""
        config, http = self.config, self.config.http
        if config.texts.packs:
            known = {*self.registry.packs(), *self.waiting}
            for name in config.texts.packs:
                if name not in known:
                    hint = did_you_mean(name, known)
                    yield self.warning(f"packs.{name}", "no pack has this name", hint, config.prompts)
        if config.aliases or any("." not in spec.name for spec in self.registry.own()):
            yield from self.functions()
        yield from self.unmatched("ask.tools", config.ask.tools)
        for number, token in enumerate(http.tokens):
            yield from self.unmatched(f"http.tokens[{number}].tools", token.tools)
        if http.jwt is not None:
            for scope, grant in http.jwt.scopes.items():
                yield from self.unmatched(f"http.jwt.scopes[{scope!r}].tools", grant.tools)
            for claim, values in http.jwt.claims.items():
                for value, grant in values.items():
                    yield from self.unmatched(f"http.jwt.claims.{claim}[{value!r}].tools", grant.tools)

    def functions(self) -> Iterator[Mistake]:
        """Yield aliases that can't be used, tools named like Python's functions, and names that a pack has as well."""
        from onetool.script.names import RESERVED, ScriptNames

        targets = {name: to for name, to in self.config.aliases.items() if to.partition(".")[0] not in self.waiting}
        names = ScriptNames(self.registry.snapshot(), targets)
        for alias, why in names.useless.items():
            hint = did_you_mean(targets[alias], self.registry.names()) if targets[alias] in why else None
            yield self.warning(f"aliases.{alias}", why, hint)
        for word, spec in names.functions.items():
            if spec.name in RESERVED and word not in targets:
                message = f"{spec.name}() is Python's in code, so the tool is {word}() there"
                yield self.warning(f"tools.{spec.name}", message, "rename it")
        for word in names.shared(map(as_identifier, self.waiting)):
            name = names.functions[word].name
            key, what = ("aliases", "the alias") if word in targets else ("tools", "the tool")
            message = f"a pack is also called {word}: {word}() calls {what}, and {word}.NAME() a tool of the pack"
            yield self.warning(f"{key}.{word if word in targets else name}", message, "rename one of them")

    def unmatched(self, key: str, names: Collection[str] | None) -> Iterator[Mistake]:
        """Yield names and patterns that match no tool, unless a server may still list one."""
        if not names:
            return
        for name in self.registry.unmatched(names):
            pack = name.partition(".")[0]
            if not len(AllowList((pack,), self.waiting)) if is_pattern(pack) else pack not in self.waiting:
                known = [f"{one}.*" for one in self.registry.packs()] if is_pattern(name) else self.registry.names()
                message = f"no tool matches {name}" if is_pattern(name) else f"no tool is called {name}"
                yield self.warning(key, message, did_you_mean(name, known))

    def tokens(self, store: "TokenStore") -> Iterator[Mistake]:
        """Yield tokens that expire soon or were revoked, and tokens with the name of a stored token."""
        from onetool.app.access import as_stored, shown_time
        from onetool.services.access_tokens import LOSS_FIX, TokenStoreError

        stored, revoked = set[str](), set[str]()
        try:
            stored, revoked = {token.name for token in store.list()}, {*store.revoked()}
            if loss := store.loss:
                yield Mistake(message=loss, key="http.tokens", hint=LOSS_FIX, severity="warning")
        except TokenStoreError as error:
            if self.config.database is None:  # an unreachable database is reported elsewhere
                yield Mistake(message=str(error), key="http.tokens")
        for number, token in enumerate(map(as_stored, self.config.http.tokens)):
            key, file = f"http.tokens[{number}]", str(self.config.path)
            if token.name in stored:
                message = f"a stored token has the same name, {token.name}, and is refused"
                yield Mistake(message=message, file=file, key=f"{key}.name", hint="rename this token, or revoke both")
            if token.hash in revoked:
                yield self.warning(key, f"{token.name} was revoked and is refused", "remove it from the config")
            if token.expires is not None and (left := token.expires - time.time()) < SOON_S:
                message = f"{token.name} {'expired' if left <= 0 else 'expires'} on {shown_time(token.expires)}"
                hint = f"create a new one: onetool tokens add {token.name} --print"
                yield self.warning(f"{key}.expires", message, hint)
