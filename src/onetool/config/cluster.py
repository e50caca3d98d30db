"""The key `cluster` of the config: several servers behind a balancer, and the secret that they share.

database: ${DATABASE_URL}
cluster: {key: "${CLUSTER_KEY}", finish_s: 60}

Without a `database`, the servers share the `state.db` of one machine, and need no `key`.

Commands on any machine use the same config, and most don't need the key. So an unset variable is reported when the
value is used, not when the config is read.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from onetool.core.errors import ConfigError, Mistake
from onetool.services.secrets import Secret

MIN_KEY_LENGTH = 32
NEW_KEY = "create one: openssl rand -hex 32"
NEEDED_BY = "`onetool serve`, tokens, logins and MCP servers"


class UnsetSecret(Secret):
    """A value with the variable `name`, which is not set on this machine."""

    def __init__(self, _text: str, name: str, mistake: Mistake) -> None:
        self.name, self.mistake = name, mistake

    def __new__(cls, text: str, _name: str, _mistake: Mistake) -> "UnsetSecret":
        return super().__new__(cls, text, shown=text)


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, rename={"shared": "key"}):
    """Settings of a replica.

    `shared` is None if the replicas use the random key of this machine. `accepted_keys` are additional keys that are
    accepted while the replicas change to another key. `connections` limits this replica's connections to the
    database, not counting the one that listens. `finish_s` is how long a stopping replica waits for running calls.
    """

    gone: ClassVar = {"address": "remove it: replicas send each other no requests, they use the database"}

    shared: Annotated[Secret, Meta(min_length=1)] | None = None
    accepted_keys: tuple[Annotated[Secret, Meta(min_length=1)], ...] = ()
    connections: Annotated[int, Meta(ge=2, le=500)] = 16
    finish_s: Annotated[float, Meta(ge=0, le=3600)] = 60.0

    @property
    def keys(self) -> list[bytes]:
        """The key and the other accepted keys, if any. Raises ConfigError if a variable is not set on this machine."""
        self.require()
        return [str(one).encode() for one in self._texts().values()]

    @property
    def has_key(self) -> bool:
        """Whether there is a key, which is set on this machine."""
        return self.shared is not None and "key" not in self._unset()

    def require(self, *keys: str) -> None:
        """Raise ConfigError if one of these keys, by default all, is not set on this machine."""
        if "key" in keys and self.shared is None:
            message = "it is missing: replicas that share a database need the same key"
            raise ConfigError([Mistake(message=message, key="cluster.key", hint=NEW_KEY)])
        if mistakes := [replace(one.mistake, hint=_hint(one)) for one in self._unset(*keys).values()]:
            raise ConfigError(mistakes)

    def unset(self) -> list[Mistake]:
        """Return warnings about keys that are not set on this machine, with the commands that need them."""
        return [
            replace(one.mistake, hint=f"needed by {NEEDED_BY}", severity="warning") for one in self._unset().values()
        ]

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        unset = self._unset()
        for key, text in self._texts().items():
            if key not in unset and len(text) < MIN_KEY_LENGTH:
                yield key, f"the key must have at least {MIN_KEY_LENGTH} characters", NEW_KEY

    def _unset(self, *keys: str) -> dict[str, UnsetSecret]:
        texts = self._texts()
        return {key: one for key in keys or texts if isinstance(one := texts.get(key), UnsetSecret)}

    def _texts(self) -> dict[str, Secret]:
        texts = {} if self.shared is None else {"key": self.shared}
        return texts | {_accepted(number): one for number, one in enumerate(self.accepted_keys)}


def _accepted(number: int) -> str:
    return f"accepted_keys[{number}]"


def _hint(text: UnsetSecret) -> str:
    if text.name.startswith("file:"):
        return "mount it on this machine: all replicas share one key"
    return f"set it to the key that all replicas share: {text.name}=… onetool …, or: onetool auth set {text.name}"
