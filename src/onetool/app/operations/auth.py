"""Store API keys and other secrets. Their values can be set, but never read."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from onetool.app.grants import GrantValueError, SecretRow, secret_rows, secrets_in_use, store_secret
from onetool.app.operations import At, Command, operation
from onetool.app.operations.fields import Input, Query
from onetool.config.fill import SECRETS_IN_CONFIG, check_kept
from onetool.core.model_providers import PROVIDERS, key_name
from onetool.services.secret_file import NAME, drop_secret
from onetool.services.secrets import KEYRING_SERVICE, load_keyring
from onetool.sources.bundles.errors import ConflictError, NotFoundError, invalid_at


class SecretList(msgspec.Struct, frozen=True):
    """The stored secrets and the keys of model providers, without values."""

    secrets: list[SecretRow]


@operation(
    "GET",
    "/secrets",
    "Server",
    role="admin",
    audited=False,
    completes="secret",
    command=Command("auth list", rows="secrets", columns=("name", "provider", "source", "hosts")),
)
def list_secrets(at: At) -> SecretList:
    """List the secrets and their hosts, without values.

    The list also has the key of each model provider, even if it is not set.
    """
    # A command works without the app: the config may need a secret that is not stored yet.
    return SecretList(secret_rows(at.secrets) if at.is_command else secrets_in_use(at.app))


class SecretGrant(Input, frozen=True):
    """The value of a secret, and its hosts. The value can't be read again."""

    value: Annotated[str, Meta(extra_json_schema={"writeOnly": True, "minLength": 1})]
    hosts: Annotated[tuple[str, ...], Meta(description="It is sent only to these. `http://` allows plain http.")] = ()

    def __repr__(self) -> str:
        return "SecretGrant(***)"


class SecretQuery(Query, frozen=True):
    """Whether a stored value is replaced."""

    replace: Annotated[bool, Meta(description="Replace the value of a stored secret.")] = False


class SecretState(msgspec.Struct, frozen=True):
    """A secret, without its value."""

    name: str
    hosts: Annotated[tuple[str, ...], Meta(description="The hosts that the secret is bound to.")]


@operation(
    "PUT",
    "/secrets/{secret}",
    "Server",
    role="admin",
    example={"value": "a-key-of-the-api", "hosts": ["api.example.com"]},
    errors=(400, 409),
    changes_access=True,
)
def set_secret(at: At, secret: str, query: SecretQuery, asked: SecretGrant) -> SecretState:
    """Store a secret, bound to hosts.

    The secret is written to the secrets file and can be used at once. This never changes the hosts of a stored secret
    (409), and changes its value only with `replace`. No tool can call this.
    """
    try:
        return SecretState(secret, store_secret(at.app, secret, asked.value, asked.hosts, query.replace))
    except GrantValueError as error:
        raise invalid_at(f"/{error.part}", str(error)) from None


@operation(command=Command("auth remove"))
def remove_secret(at: At, secret: str) -> None:
    """Remove a secret, named by a provider, or by its own name (BRAVE_API_KEY)."""
    name, file = secret_name(secret), at.secrets.file
    if file is None:
        raise ConflictError(SECRETS_IN_CONFIG)
    try:
        gone = drop_secret(file, name, partial(check_kept, name, None)) | _drop_from_keyring(name)
    except (OSError, ValueError) as error:
        raise ConflictError(f"Can't write {file}: {error}") from None
    if not gone:
        raise NotFoundError(f"{name} is stored neither in {file} nor in the keyring.")
    at.note(f"Removed {name}.")


def secret_name(name: str, is_own: bool = False) -> str:
    """Return the name of the secret for a provider, or for the secret's own name. Raises InvalidError."""
    if name.lower() in PROVIDERS and not is_own:
        return key_name(name)
    if not NAME.fullmatch(name):
        raise invalid_at(
            "/secret", f"{name!r} is neither a provider ({', '.join(PROVIDERS)}) nor a name like BRAVE_API_KEY"
        )
    return name


def _drop_from_keyring(name: str) -> bool:
    keyring = load_keyring()
    if keyring is None:
        return False
    try:
        keyring.delete_password(KEYRING_SERVICE, name)
    except Exception:  # noqa: BLE001 - not there, locked, or no keyring at all
        return False
    return True
