"""HMAC: a signature over parts of the request exactly as it is sent, made of a secret that is not."""

import hashlib
import hmac
import re
import time
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from onetool.handlers.http.auth import POINTER, Helper, Signer, Texts, with_header
from onetool.handlers.http.fields import check_name, in_header, one_line
from onetool.handlers.http.impl import Hmac
from onetool.handlers.http.placeholders import Lookup, TemplateError
from onetool.handlers.http.pointers import below

if TYPE_CHECKING:
    from onetool.handlers.http.outgoing import Outgoing
    from onetool.handlers.http.tool import Outside

_PART = re.compile(r"(?<!\$)\{([A-Za-z0-9]+)\}")
PARTS: dict[str, Callable[["Outgoing", str], bytes]] = {
    "method": lambda outgoing, _: outgoing.method.encode(),
    "path": lambda outgoing, _: outgoing.url.target.encode(),
    "host": lambda outgoing, _: outgoing.url.authority.encode(),
    "timestamp": lambda _, timestamp: timestamp.encode(),
    "body": lambda outgoing, _: outgoing.body,
    "bodySha256": lambda outgoing, _: hashlib.sha256(outgoing.body).hexdigest().encode(),
}


class HmacHelper(Helper):
    """`now` gives seconds since 1970."""

    def __init__(self, auth: Hmac, arguments: Collection[str], now: Callable[[], float] = time.time) -> None:
        self._secret = Texts(auth, ("secret",), arguments, one_line)
        self._prefix = Texts(auth, ("prefix",), arguments, in_header)
        self.secrets = self._secret.secrets | self._prefix.secrets
        self.auth = auth
        self.now = now
        self.payload = _payload(auth)
        check_name(auth.header, below(POINTER, "header"))
        if auth.timestamp_header is not None:
            check_name(auth.timestamp_header, below(POINTER, "timestampHeader"))

    def begin(self, args: Mapping[str, Any], secret: Lookup, outside: "Outside") -> Signer:
        key = self._secret.fill(args, secret)["secret"].encode()
        return _HmacSigner(self, key, self._prefix.fill(args, secret)["prefix"])


class _HmacSigner(Signer):
    def __init__(self, helper: HmacHelper, key: bytes, prefix: str) -> None:
        self._helper, self._key, self._prefix = helper, key, prefix

    def sign(self, outgoing: "Outgoing") -> "Outgoing":
        auth = self._helper.auth
        timestamp = str(int(self._helper.now()))
        payload = b"".join(
            part if isinstance(part, bytes) else part(outgoing, timestamp) for part in self._helper.payload
        )
        digest = hmac.digest(self._key, payload, auth.algorithm)
        text = digest.hex() if auth.encoding == "hex" else b64encode(digest).decode()
        outgoing = with_header(outgoing, auth.header, f"{self._prefix}{text}")
        return outgoing if auth.timestamp_header is None else with_header(outgoing, auth.timestamp_header, timestamp)


def _payload(auth: Hmac) -> list[bytes | Callable[["Outgoing", str], bytes]]:
    """Texts, and what gives the parts between them."""
    pointer = below(POINTER, "payload")
    pieces = _PART.split(auth.payload)  # texts and names in turn
    if unknown := [name for name in pieces[1::2] if name not in PARTS]:
        known = ", ".join(f"{{{name}}}" for name in PARTS)
        raise TemplateError(f"{{{unknown[0]}}} is no part of a request that can be signed; there are {known}", pointer)
    if "timestamp" in pieces[1::2] and auth.timestamp_header is None:
        raise TemplateError("{timestamp} is signed, so timestampHeader has to say where it is sent", pointer)
    if "${" in auth.payload:
        raise TemplateError(
            "no `${…}` can be signed by itself: sign the part of the request that it stands in", pointer
        )
    return [PARTS[piece] if number % 2 else piece.encode() for number, piece in enumerate(pieces)]
