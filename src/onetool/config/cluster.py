"""The key `cluster` of the config: the secret that all replicas share.

database: ${DATABASE_URL}
cluster: {key: "${CLUSTER_KEY}", finish_s: 60}

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
NEEDED_BY = "`onetool serve`, tokens, logins and MCP servers"


class UnsetSecret(Secret):
    """A value with the variable `name`, which is not set on this machine."""

    def __init__(self, _text: str, name: str, mistake: Mistake) -> None:
        self.name, self.mistake = name, mistake

    def __new__(cls, text: str, _name: str, _mistake: Mistake) -> "UnsetSecret":
        return super().__new__(cls, text, shown=text)


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, rename={"shared": "key"}):
    """Settings of a replica, for a config with a `database`.

    `key` raises ConfigError if its variable is not set here. `accepted_keys` are additional keys that
    are accepted while the replicas change to another key. `connections` limits this replica's connections to the
    database, not counting the one that listens. `finish_s` is how long a stopping replica waits for running calls.
    """

    gone: ClassVar = {"address": "remove it: replicas send each other no requests, they use the database"}

    shared: Annotated[Secret, Meta(min_length=1)]
    accepted_keys: tuple[Annotated[Secret, Meta(min_length=1)], ...] = ()
    connections: Annotated[int, Meta(ge=2, le=500)] = 16
    finish_s: Annotated[float, Meta(ge=0, le=3600)] = 60.0

    @property
    def key(self) -> Secret:
        self.require("key")
        return self.shared

    @property
    def keys(self) -> list[bytes]:
        """The key and the other accepted keys. Raises ConfigError if a variable is not set on this machine."""
        self.require("key", *map(_accepted, range(len(self.accepted_keys))))
        return [str(one).encode() for one in (self.shared, *self.accepted_keys)]

    @property
    def has_key(self) -> bool:
        """Whether the key is set on this machine."""
        return "key" not in self._unset()

    def require(self, *keys: str) -> None:
        """Raise ConfigError if one of these keys, by default all, is not set on this machine."""
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
                yield key, f"the key must have at least {MIN_KEY_LENGTH} characters", "create one: openssl rand -hex 32"

    def _unset(self, *keys: str) -> dict[str, UnsetSecret]:
        texts = self._texts()
        return {key: one for key in keys or texts if isinstance(one := texts[key], UnsetSecret)}

    def _texts(self) -> dict[str, str]:
        accepted = {_accepted(number): one for number, one in enumerate(self.accepted_keys)}
        return {"key": self.shared, **accepted}


def _accepted(number: int) -> str:
    return f"accepted_keys[{number}]"


def _hint(text: UnsetSecret) -> str:
    if text.name.startswith("file:"):
        return "mount it on this machine: all replicas share one key"
    return f"set it to the key that all replicas share: {text.name}=… onetool …, or: onetool auth set {text.name}"
