"""The key `cluster` of the config: where the other replicas reach this one, and the secret that they share.

database: ${DATABASE_URL}
cluster: {address: "${REPLICA_ADDRESS}:8765", key: "${CLUSTER_KEY}"}

Commands on any machine use the same config, and most of them need neither. So a variable that is not set is a mistake
where the value is read, and not before.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from onetool.core.errors import ConfigError, Mistake
from onetool.core.text import lazy_pattern
from onetool.services.secrets import Secret, UnsetSecret

LEAST_KEY = 32  # characters
_ADDRESS = lazy_pattern(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}")


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, rename={"own_address": "address", "shared": "key"}):
    """It is for a config with a `database`. `address` and `key` raise ConfigError if their variable is not set here."""

    own_address: Annotated[str, Meta(min_length=1)]
    shared: Annotated[Secret, Meta(min_length=1)]

    @property
    def address(self) -> str:
        if isinstance(self.own_address, UnsetSecret):
            raise ConfigError([_address_mistake(self.own_address)])
        return self.own_address

    @property
    def key(self) -> Secret:
        if isinstance(self.shared, UnsetSecret):
            raise ConfigError([_key_mistake(self.shared)])
        return self.shared

    @property
    def has_key(self) -> bool:
        """Whether the key is set on this machine."""
        return not isinstance(self.shared, UnsetSecret)

    def require(self) -> None:
        """Raises ConfigError if either is not set on this machine."""
        address, key = self.own_address, self.shared
        mistakes = [_address_mistake(address)] if isinstance(address, UnsetSecret) else []
        mistakes += [_key_mistake(key)] if isinstance(key, UnsetSecret) else []
        if mistakes:
            raise ConfigError(mistakes)

    def unset(self) -> Iterator[Mistake]:
        """Warnings of what is not set on this machine, with who would need it."""
        needs = (self.own_address, "`onetool serve`"), (self.shared, "`onetool serve`, tokens, logins and MCP servers")
        for text, who in needs:
            if isinstance(text, UnsetSecret):
                yield msgspec.structs.replace(text.mistake, hint=f"it is for {who}", severity="warning")

    def problems(self) -> Iterator[tuple[str, str, str | None]]:
        if not isinstance(self.own_address, UnsetSecret) and not _ADDRESS.fullmatch(self.own_address):
            yield "address", f"'{self.own_address!s}' is no host with a port", "write 10.0.0.7:8765"
        if not isinstance(self.shared, UnsetSecret) and len(self.shared) < LEAST_KEY:
            yield "key", f"the key must have at least {LEAST_KEY} characters", "make one: openssl rand -hex 32"


def _key_mistake(text: UnsetSecret) -> Mistake:
    hint = f"set it to the key that all replicas have: {text.name}=… onetool …, or: onetool auth set {text.name}"
    return msgspec.structs.replace(text.mistake, hint=hint)


def _address_mistake(text: UnsetSecret) -> Mistake:
    """With an example that works with what stands around the variable."""
    before, _, after = text.partition(f"${{{text.name}}}")
    example = "10.0.0.5:8765" if not before + after else "10.0.0.5" if after.startswith(":") else "8765"
    hint = f"it is where the other replicas reach this one: {text.name}={example} onetool serve …"
    return msgspec.structs.replace(text.mistake, hint=hint)
