"""Encrypting and signing documents.

`Seal` encrypts documents with AES-256-GCM: access to the database, or to a backup, is not enough to read them. The key
is derived (HKDF) from a secret of the replicas. Each sealed text has the number of its key, to distinguish other keys
from damage. The text is bound to its document: the login of one server can't be moved to another.

`Signature` only proves who wrote a document. It is used for `state.db` in a project's folder, which may have come with
the project.
"""

import hmac
from collections.abc import Callable, Sequence
from functools import cached_property
from os import urandom

from onetool.database.connection import DatabaseError

MARK = b"OT1"  # format and version
ID_BYTES = 8
NONCE_BYTES = 12
KEY_BYTES = 32
SIGNED = b"OTS"
MAC_BYTES = 32


class SealError(DatabaseError):
    """A document that can't be decrypted."""


class DamagedSealError(SealError):
    """A damaged document: no key decrypts it."""

    is_damaged = True


class Seal:
    """Encryption with keys from `secrets`, which is called once, on first use. The first secret encrypts; all of them
    decrypt.
    """

    def __init__(self, secrets: Callable[[], Sequence[bytes]]) -> None:
        self._secrets = secrets

    @cached_property
    def _keys(self) -> dict[bytes, bytes]:
        """The keys by number."""
        return {
            _derived(secret, b"number", ID_BYTES): _derived(secret, b"key", KEY_BYTES) for secret in self._secrets()
        }

    def close(self, about: str, body: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        number, key = next(iter(self._keys.items()))
        nonce = urandom(NONCE_BYTES)
        return MARK + number + nonce + AESGCM(key).encrypt(nonce, body, about.encode())

    def is_of_other_key(self, sealed: bytes) -> bool:
        """Return whether the text was encrypted with an older known key."""
        number = sealed[len(MARK) : len(MARK) + ID_BYTES]
        return sealed.startswith(MARK) and number in self._keys and number != next(iter(self._keys))

    def open(self, about: str, sealed: bytes) -> bytes:
        """Decrypt a document. Raises SealError."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        start = len(MARK) + ID_BYTES
        if not sealed.startswith(MARK) or len(sealed) < start + NONCE_BYTES:
            raise DamagedSealError(f"{about} in the database is damaged, or was written by a newer version")
        key = self._keys.get(sealed[len(MARK) : start])
        if key is None:
            raise SealError(
                f"{about} in the database was encrypted with another cluster.key than the one in the config: restore "
                "that key, or set the value again; if there was no cluster.key, run `onetool db init` with this config "
                "on the machine that wrote it"
            )
        nonce, text = sealed[start : start + NONCE_BYTES], sealed[start + NONCE_BYTES :]
        try:
            return AESGCM(key).decrypt(nonce, text, about.encode())
        except InvalidTag:
            raise DamagedSealError(f"{about} in the database is damaged: it can't be decrypted") from None


class Signature:
    """Signatures with a private key of this user. `key` is called once, on first use. If signatures are optional,
    documents without one are valid, too.
    """

    def __init__(self, key: Callable[[], bytes], *, is_optional: bool = False) -> None:
        self._get_key = key
        self._is_optional = is_optional

    @cached_property
    def _key(self) -> bytes:
        return self._get_key()

    def close(self, about: str, body: bytes) -> bytes:
        return SIGNED + self._mac(about, body) + body

    def is_of_other_key(self, sealed: bytes) -> bool:
        return False

    def open(self, about: str, sealed: bytes) -> bytes:
        """Return a document without its signature. Raises SealError."""
        if self._is_optional and not sealed.startswith(SIGNED):
            return sealed
        end = len(SIGNED) + MAC_BYTES
        mac, body = sealed[len(SIGNED) : end], sealed[end:]
        if not sealed.startswith(SIGNED) or not hmac.compare_digest(mac, self._mac(about, body)):
            raise DamagedSealError(f"{about} was not written by this user's OneTool on this machine; remove state.db")
        return body

    def _mac(self, about: str, body: bytes) -> bytes:
        return hmac.digest(self._key, f"{about}\0".encode() + body, "sha256")


def _derived(secret: bytes, what: bytes, size: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), size, salt=None, info=b"onetool documents " + what).derive(secret)
