"""Signs data that clients keep and send back, with HMAC-SHA256, so that they can't create or change it."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

_MAC_BYTES = 16


def sign(key: bytes, data: bytes, bound: bytes = b"") -> str:
    """Return the data with its signature as text. The signature is valid only with the same `bound`, which is not
    included.
    """
    mac = hmac.digest(key, bound + data, sha256)[:_MAC_BYTES]
    return urlsafe_b64encode(mac + data).decode().rstrip("=")


def verify(key: bytes, text: str, bound: bytes = b"") -> bytes | None:
    """Return the data of a signed string; None if the signature is invalid."""
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))[_MAC_BYTES:]
        # Compare the whole text: Base64 can encode the same bytes in several ways; accept only the canonical one.
        return data if hmac.compare_digest(sign(key, data, bound).encode(), text.encode("ascii")) else None
    except ValueError:  # not Base64, or not ASCII
        return None
