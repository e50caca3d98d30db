"""Page tokens: where a list goes on. Opaque, sealed, and good for the very query that they were made for.

A token is the place in JSON behind a seal: HMAC-SHA256 over the route, its query (without `pageToken` and the page's
size, which may change from page to page) and the place. Nobody else can make one, or change one, or use it elsewhere.
"""

import asyncio
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from onetool.interfaces.encoding import encode
from onetool.interfaces.rest.asking import Answer, Ask
from onetool.interfaces.rest.problem import Wrong

LONGEST = 4096
_SEAL = 16  # bytes
_UNBOUND = ("pageToken", "pageSize", "recommendedPageSize")

More = Callable[[Any, int], tuple[list[dict[str, Any]], Any]]
"""From this place on, so many: what there is, and where it goes on."""


async def page(ask: Ask, name: str, size: int, more: More) -> Answer:
    """One page of a list. On the last one the token is null."""

    def made() -> Answer:
        key, route, token = ask.rest.shelf.key(), ask.scope["path"], ask.query["pageToken"]
        place = None if token is None else opened(token, key, route, ask.query)
        things, end = more(place, size)
        following = None if end is None else sealed(end, key, route, ask.query)
        return Answer(200, encode({name: things, "nextPageToken": following}))

    return await asyncio.to_thread(made)


def sealed(place: Any, key: bytes, route: str, query: Mapping[str, Any]) -> str:
    data = msgspec.json.encode(place)
    return urlsafe_b64encode(_seal(data, key, route, query) + data).decode().rstrip("=")


def opened(token: str, key: bytes, route: str, query: Mapping[str, Any]) -> Any:
    """The place; Wrong where a single bit of the token is not ours, or not for this query."""
    try:
        if len(token) > LONGEST:
            raise ValueError("too long")
        raw = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        seal, data = raw[:_SEAL], raw[_SEAL:]
        if not hmac.compare_digest(seal, _seal(data, key, route, query)):
            raise ValueError("not ours")
        place = msgspec.json.decode(data)
        if sealed(place, key, route, query) != token:  # spelled in one way only
            raise ValueError("another spelling")
    except ValueError:  # also what is no Base64, no ASCII, no JSON
        message = "pageToken is none of this list: send the nextPageToken of the page before, with the same query."
        raise Wrong(400, "bad_page_token", message, part="query", pointer="/pageToken") from None
    return place


def _seal(data: bytes, key: bytes, route: str, query: Mapping[str, Any]) -> bytes:
    bound = {name: _unordered(value) for name, value in query.items() if name not in _UNBOUND}
    said = msgspec.json.encode([route, bound], order="deterministic")
    return hmac.digest(key, b"page:%d:" % len(said) + said + data, sha256)[:_SEAL]


def _unordered(value: Any) -> Any:
    """A list of tags is the same in any order."""
    return sorted(value) if isinstance(value, tuple) else value
