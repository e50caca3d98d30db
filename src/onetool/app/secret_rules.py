"""Decides which secrets HTTP tools may send, and where.

Secrets that the server itself uses (`http.token`, stored tokens, `cluster.key`, `database`, client secrets of
`servers`) are never sent. A model provider's key goes only where `ask` would send it. A secret that is bound to hosts
goes only to these. The first two are recognised by name and by value, because one value may be stored under two names.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from onetool.app.provider_keys import key_urls, provider_key
from onetool.config.fill import names_in
from onetool.core.errors import Need
from onetool.core.model_providers import PROVIDER_KEYS
from onetool.http.allowed_hosts import binding_for, is_bound_to, secret_need
from onetool.http.errors import RequestRefusedError, UnmetNeedError
from onetool.services.access_tokens import possible_tokens, token_digest
from onetool.services.secrets import RELOAD_NOTE, UNMISTAKABLE, Secret, Secrets

if TYPE_CHECKING:
    from onetool.app.access import KnownTokens
    from onetool.config import Config
    from onetool.http.url import Url
    from onetool.sources.bundles.tool_factory import SecretHosts


class _KnownValue:
    """A value that is searched for in secrets, including encoded forms and parts."""

    def __init__(self, value: str) -> None:
        self._value = value
        self._mask = Secrets({"": value}) if len(value) >= UNMISTAKABLE else None

    def is_in(self, text: str) -> bool:
        return text.strip() == self._value or (self._mask is not None and self._mask.redact(text) != text)


class _OwnSecret(NamedTuple):
    key: str  # in the config
    names: list[str]  # the secrets that it is made of
    values: list[_KnownValue]


class SecretRules:
    def __init__(self, config: "Config", tokens: "KnownTokens") -> None:
        self._config = config
        self.secrets = config.secrets
        self._tokens = tokens

    def get(self, name: str) -> str | None:
        """Return a secret for an HTTP tool, but not from the environment, because others may have written the tool.

        Raises RequestRefusedError for secrets that the server itself uses.
        """
        secrets = self.secrets
        in_keyring = name in PROVIDER_KEYS and secrets.where(name, environment=False) == "keyring"
        if in_keyring and self._config.whose == "project":
            return None
        if what := self.use_by_server(name):
            raise RequestRefusedError(f"the secret {name} is {what} of this server, which no tool may send")
        return secrets.get_stored(name)

    def check(self, name: str, url: "Url") -> None:
        """Raise RequestRefusedError if this secret may not go to this URL."""
        value = self.secrets.get_stored(name)
        for key, known in self._provider_keys:
            if name == key or (value and known is not None and known.is_in(value)):
                places = key_urls(self._config, key)
                if url.origin not in [place.origin for place in places]:
                    whose = "is" if name == key else f"contains {key},"
                    raise RequestRefusedError(
                        f"the secret {name} {whose} a model provider's key: it is only for requests to "
                        f"{', '.join(map(binding_for, places))}, and this one goes to {binding_for(url)}",
                        [f"if the API has its own key, store it under a name other than {key}"],
                    )
        hosts = self.secrets.hosts(name)
        if hosts and not is_bound_to(url, hosts):
            need = self.binding_need(name, [binding_for(url)])
            # Without a scheme, a host looks the same as the one that the secret may not go to.
            named = [host if "://" in host or url.scheme == "https" else f"https://{host}" for host in hosts]
            raise UnmetNeedError(
                f"the secret {name} is only for requests to {', '.join(named)}, and this one goes to "
                f"{binding_for(url)}",
                [f"to allow it, run this ({RELOAD_NOTE}): {need.command}"],
                [need],
            )

    def why_unbound(self, name: str, url: "Url | None", new: "SecretHosts") -> str | None:
        """Return why a caller who is not an admin can't have a tool send this secret there; None if the caller can.

        `url` is None if the host depends on the call. `new` are the hosts of secrets that are stored with the tool.
        """
        if what := self.use_by_server(name):
            return f"The secret {name} is {what} of this server, which no tool may send."
        if url is None:
            return f"The tool sends the secret {name} to a host that depends on the call: use a fixed host."
        if is_bound_to(url, new.get(name) or self.secrets.hosts(name)):
            return None
        return (
            f"${{{name}}} is neither an argument of the tool nor a secret that is bound to {binding_for(url)}. "
            f"An admin binds it on the command line ({RELOAD_NOTE}): "
            f"{self.binding_need(name, [binding_for(url)]).command}"
        )

    def binding_need(self, name: str, bindings: Iterable[str]) -> Need:
        """Return the requirement to bind a stored secret to these hosts, in addition to its current ones."""
        return secret_need(name, dict.fromkeys((*self.secrets.hosts(name), *bindings)), stored=True)

    # What the server itself uses

    def use_by_server(self, name: str) -> str | None:
        """Describe how the server itself uses a secret. Return None if it doesn't use it."""
        value = self.secrets.get_stored(name)
        for own in self._own_secrets:
            if name in own.names or (value and any(known.is_in(value) for known in own.values)):
                return own.key
        for text in possible_tokens(value) if value else ():
            if (found := self._tokens.find(token_digest(text))) is not None:
                return f"the token {found.principal.name}"
        return None

    @cached_property
    def _own_secrets(self) -> list[_OwnSecret]:
        return [
            _OwnSecret(key, names_in(value.shown), [*map(_KnownValue, (str(value), *others))])
            for key, value, *others in _used_by_server(self._config)
        ]

    # Keys of model providers

    @cached_property
    def _provider_keys(self) -> list[tuple[str, _KnownValue | None]]:
        found = ((name, provider_key(self._config, name)) for name in sorted(PROVIDER_KEYS))
        return [(name, _KnownValue(value) if value else None) for name, value in found]


def _used_by_server(config: "Config") -> "Iterator[tuple[str, Secret, *tuple[str, ...]]]":
    """Yield keys of the config with the secret that each holds, and other strings to keep secret."""
    if config.http.token:
        yield "http.token", config.http.token
    if config.metrics.token:
        yield "metrics.token", config.metrics.token
    for name, value in config.otel.headers.items() if config.otel is not None else ():
        yield f"otel.headers.{name}", value
    if config.cluster is not None and config.cluster.shared is not None:
        yield "cluster.key", config.cluster.shared, *config.cluster.accepted_keys
    if config.database:
        yield "database", config.database, *_passwords(config.database)
    for name, server in config.servers.items():
        secret = server.auth.get("client_secret") if isinstance(server.auth, dict) else None
        if isinstance(secret, str) and secret:
            shown = secret if isinstance(secret, Secret) else Secret(secret)
            yield f"servers.{name}.auth.client_secret", shown


def _passwords(address: str) -> Iterator[str]:
    """Yield the passwords in the address of a database, encoded and decoded."""
    try:
        parts = urlsplit(address)
        written = parts.password
    except ValueError:
        return
    yield from dict.fromkeys([written, unquote(written)] if written else [])
    yield from (value for key, value in parse_qsl(parts.query) if "password" in key.lower() and value)
