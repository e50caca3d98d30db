"""What replicas sign with the cluster's key: the rows that say where each of them is reached.

A row decides where requests go, with their callers and bodies. So who only writes the database must not make one, nor
change one, nor bring one back: the signature is over the id, the address and the time of the last heartbeat, too.
"""

import hmac
import json
from hashlib import sha256

from onetool.core.errors import cut
from onetool.core.text import escape_invisible
from onetool.services.cluster import Replica

ROWS = "replicas"
LONGEST = 100  # characters of what a row says that nobody has signed
SAME_KEY = "give all replicas the same key"


def derived_key(key: bytes, use: str) -> bytes:
    """A key for one use: what is signed for one can't be shown for another."""
    return hmac.digest(key, f"onetool {use}".encode(), sha256)


def row_signature(key: bytes, id: str, address: str, version: str, is_draining: bool, seen_at: float) -> str:
    """`key` is the one that is derived for ROWS."""
    signed = json.dumps(
        (id, address, version, is_draining, seen_at)
    )  # an address may be a `Secret`, which msgspec lacks
    return hmac.new(key, signed.encode(), sha256).hexdigest()


def is_signed(key: bytes, replica: Replica, seen_at: float, signature: str) -> bool:
    """Whether a holder of the key has written this row."""
    own = row_signature(key, replica.id, replica.address, replica.version, replica.is_draining, seen_at)
    return hmac.compare_digest(own.encode(), signature.encode("utf-8", "replace"))


def other_key(id: str, address: str) -> str:
    """What is wrong with a row that is not signed with our key. Anybody may have written its texts."""
    id, address = (escape_invisible(cut(" ".join(text.split()), LONGEST)) for text in (id, address))
    return f"replica {id} at {address} has another cluster.key (or its row was changed)"
