"""The header of a request that one replica sends to another: who asks, checked there, under the cluster's key.

    onetool-forwarded: base64url(HMAC-SHA256 | {sender, to, at, nonce, principal, address, body}), or that compressed

The HMAC is over the method, the path with its query, and these members; `body` is the SHA-256 of the whole body, which
is read before anything is done with it. So nothing of a request can be changed, and it is good for one replica, once,
for a minute. A header that anybody else has made is refused, wherever it comes from.

    onetool-answered: HMAC-SHA256 over the header of the request, and the status of the answer

It says that a holder of the key has answered this request so. An answer without it is not passed on.
"""

import hmac
import zlib
from hashlib import sha256
from secrets import token_hex

import msgspec

from onetool.core.principal import Principal
from onetool.interfaces.asgi import FORWARDED_HEADER, HttpError, Scope
from onetool.interfaces.signed import sign, verify
from onetool.services.cluster.members import Members
from onetool.services.cluster.signatures import derived_key

VALID_S = 60.0  # both ways: the replicas' clocks agree with the database's within a beat
OTHER_REPLICA = 421
LARGE = 4096  # bytes, from which on it is compressed: a token may be for thousands of tools


class ForwardedBy(msgspec.Struct, frozen=True, kw_only=True):
    """Which replica sends a request, and for whom."""

    sender: str
    to: str
    at: float
    nonce: str
    principal: Principal
    address: str
    body: str


class ForwardSeal:
    """Makes these headers and verifies them. It belongs to one event loop."""

    def __init__(self, key: bytes, members: Members) -> None:
        self._key = derived_key(key, "forward")
        self._answer_key = derived_key(key, "answer")
        self._members = members
        self._seen: dict[str, float] = {}  # nonces and until when they count, the oldest first

    def write(self, to: str, method: str, target: bytes, principal: Principal, body: bytes, address: str) -> str:
        told = ForwardedBy(
            sender=self._members.id,
            to=to,
            at=self._members.now(),
            nonce=token_hex(16),
            principal=principal,
            address=address,
            body=sha256(body).hexdigest(),
        )
        data = msgspec.json.encode(told)
        return sign(self._key, data if len(data) < LARGE else zlib.compress(data), _bound(method, target))

    def open(self, header: bytes, scope: Scope) -> bytes:
        """What it says. Raises HttpError (401) unless a holder of the key has made it for this request."""
        data = verify(self._key, header.decode("latin-1"), _bound(scope["method"], target_of(scope)))
        if data is None:
            raise _refused("it was not made by a replica of this cluster for this request")
        return data

    def read(self, data: bytes) -> ForwardedBy:
        """Raises HttpError (401, 421) for what was not made now, and for this replica."""
        try:
            told = msgspec.json.decode(data if data.startswith(b"{") else zlib.decompress(data), type=ForwardedBy)
        except (msgspec.DecodeError, zlib.error):  # of another version, which knows more or less than we do
            raise _refused("another version of OneTool has made it, which this one does not understand") from None
        if told.to != self._members.id:
            # Its sender learns that the replica is gone, whose address we have now.
            raise HttpError(OTHER_REPLICA, "other_replica", "This request is for another replica, which is gone.")
        self._check_once(told)
        return told

    def check_body(self, told: ForwardedBy, body: bytes) -> None:
        """Raises HttpError (401) for another body than the one that the header was made for."""
        if not hmac.compare_digest(sha256(body).hexdigest(), told.body):
            raise _refused("the body is not the one that it was made for")

    def proof(self, header: bytes, status: int) -> bytes:
        """That a holder of the key has answered the request with this header so."""
        return hmac.new(self._answer_key, b"%d " % status + header, sha256).hexdigest().encode()

    def is_proof(self, header: bytes, status: int, shown: str) -> bool:
        return hmac.compare_digest(self.proof(header, status), shown.encode("utf-8", "replace"))

    def _check_once(self, told: ForwardedBy) -> None:
        now = self._members.now()
        if abs(now - told.at) > VALID_S:
            raise _refused("it has expired, or the clocks of the replicas differ by more than a minute")
        while self._seen and (oldest := next(iter(self._seen.items())))[1] < now:
            del self._seen[oldest[0]]
        if told.nonce in self._seen:
            raise _refused("it was used already: it is good once")
        self._seen[told.nonce] = now + 2 * VALID_S


def target_of(scope: Scope) -> bytes:
    """The path with its query, as it is sent."""
    query = scope.get("query_string", b"")
    return scope["raw_path"] + (b"?" + query if query else b"")


def _bound(method: str, target: bytes) -> bytes:
    return method.encode() + b" " + target + b"\n"


def _refused(why: str) -> HttpError:
    return HttpError(401, "bad_forward", f"The header {FORWARDED_HEADER.decode()} can't be accepted: {why}.")
