"""Data that a client holds and sends back: signed with HMAC-SHA256, so that nobody else can make or change it."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

_MAC_BYTES = 16


def sign(key: bytes, data: bytes, bound: bytes = b"") -> str:
    """Return the data with its signature, as text. It is valid only with the same `bound`, which is not in it."""
    mac = hmac.digest(key, bound + data, sha256)[:_MAC_BYTES]
    return urlsafe_b64encode(mac + data).decode().rstrip("=")


def verify(key: bytes, text: str, bound: bytes = b"") -> bytes | None:
    """Return the data of a signed text; None if it is not ours."""
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))[_MAC_BYTES:]
        # Compared as a whole: Base64 can spell the same bytes in several ways, and only ours counts.
        return data if hmac.compare_digest(sign(key, data, bound).encode(), text.encode("ascii")) else None
    except ValueError:  # no Base64, or no ASCII
        return None
