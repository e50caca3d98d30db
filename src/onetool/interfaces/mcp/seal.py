"""Texts that we hand out and want back as they were: nobody else can make one, or change one."""

import hmac
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

_MAC = 16  # bytes


class Seal:
    """Its key lives as long as the process: what was handed out before a restart is refused."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def sealed(self, data: bytes) -> str:
        return urlsafe_b64encode(data + self._mac(data)).decode().rstrip("=")

    def opened(self, text: str) -> bytes | None:
        """The data; None where a single bit of the text is not ours."""
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return None
        data, mac = raw[:-_MAC], raw[-_MAC:]
        ours = hmac.compare_digest(mac, self._mac(data)) and self.sealed(data) == text  # spelled in one way only
        return data if ours else None

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, sha256)[:_MAC]
