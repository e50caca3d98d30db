"""The key `cluster` of the config: the address of this replica, and the secret that all replicas share.

database: ${DATABASE_URL}
cluster: {address: "${REPLICA_ADDRESS}:8765", key: "${CLUSTER_KEY}", finish_s: 60}

Commands on any machine use the same config, and most need neither value. So an unset variable is reported when the
value is used, not when the config is read.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from onetool.core.errors import ConfigError, Mistake
from onetool.core.text import lazy_pattern
from onetool.services.secrets import Secret

MIN_KEY_LENGTH = 32
NEEDED_BY = {"address": "`onetool serve`", "key": "`onetool serve`, tokens, logins and MCP servers"}
_ADDRESS = lazy_pattern(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}")


class UnsetSecret(Secret):
    """A value with the variable `name`, which is not set on this machine."""

    def __init__(self, _text: str, name: str, mistake: Mistake) -> None:
        self.name, self.mistake = name, mistake

    def __new__(cls, text: str, _name: str, _mistake: Mistake) -> "UnsetSecret":
        return super().__new__(cls, text, shown=text)


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, rename={"own_address": "address", "shared": "key"}):
    """Settings of a replica, for a config with a `database`.

    `address` and `key` raise ConfigError if their variable is not set here. `accepted_keys` are additional keys that
    are accepted while the replicas change to another key. `connections` limits this replica's connections to the
    database, not counting the one that listens. `finish_s` is how long a stopping replica waits for running calls.
    """

    own_address: Annotated[str, Meta(min_length=1)]
    shared: Annotated[Secret, Meta(min_length=1)]
    accepted_keys: tuple[Annotated[Secret, Meta(min_length=1)], ...] = ()
    connections: Annotated[int, Meta(ge=2, le=500)] = 16
    finish_s: Annotated[float, Meta(ge=0, le=3600)] = 60.0

    @property
    def address(self) -> str:
        self.require("address")
        return self.own_address

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
        if mistakes := [replace(one.mistake, hint=_hint(key, one)) for key, one in self._unset(*keys).items()]:
            raise ConfigError(mistakes)

    def unset(self) -> list[Mistake]:
        """Return warnings about keys that are not set on this machine, with the commands that need them."""
        unset = self._unset().items()
        return [
            replace(
                one.mistake, hint=f"needed by {NEEDED_BY['address' if key == 'address' else 'key']}", severity="warning"
            )
            for key, one in unset
        ]

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        unset = self._unset()
        if "address" not in unset and not _ADDRESS.fullmatch(self.own_address):
            yield "address", f"'{self.own_address!s}' is not a host with a port", "write 10.0.0.7:8765"
        for key, text in self._texts().items():
            if key != "address" and key not in unset and len(text) < MIN_KEY_LENGTH:
                yield key, f"the key must have at least {MIN_KEY_LENGTH} characters", "create one: openssl rand -hex 32"

    def _unset(self, *keys: str) -> dict[str, UnsetSecret]:
        texts = self._texts()
        return {key: one for key in keys or texts if isinstance(one := texts[key], UnsetSecret)}

    def _texts(self) -> dict[str, str]:
        accepted = {_accepted(number): one for number, one in enumerate(self.accepted_keys)}
        return {"address": self.own_address, "key": self.shared, **accepted}


def _accepted(number: int) -> str:
    return f"accepted_keys[{number}]"


def _hint(key: str, text: UnsetSecret) -> str:
    """Return how to set a key, with an example that fits the text around the variable."""
    if text.name.startswith("file:"):
        return "mount it on this machine: all replicas share one key, and each has its own address"
    if key != "address":
        return f"set it to the key that all replicas share: {text.name}=… onetool …, or: onetool auth set {text.name}"
    before, _, after = text.partition(f"${{{text.name}}}")
    example = "10.0.0.5:8765" if not before + after else "10.0.0.5" if after.startswith(":") else "8765"
    return f"set it to the address at which the other replicas reach this one: {text.name}={example} onetool serve …"
