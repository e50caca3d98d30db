"""One request, as its handler sees it, and the answer that comes of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from onetool.interfaces.asgi import Receive, Scope, Send
from onetool.interfaces.encoding import encode  # also of data that JSON has no word for
from onetool.interfaces.rest.tags import etag

if TYPE_CHECKING:
    from onetool.interfaces.rest.door import Rest


class Ask(NamedTuple):
    """`path` are the values in the address, in their order; `query` those of all parameters that the route has."""

    rest: "Rest"
    path: tuple[str, ...]
    query: Mapping[str, Any]
    headers: Mapping[bytes, bytes]
    scope: Scope
    receive: Receive
    send: Send


class Answer(NamedTuple):
    """With a body it is JSON; without, nothing is said of any."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


NOTHING = Answer(204)


def one(thing: Mapping[str, Any], tag: str) -> Answer:
    """A bundle or a tool with its ETag."""
    return Answer(200, encode(thing), (etag(tag),))


def created(thing: Mapping[str, Any], tag: str, at: str) -> Answer:
    return Answer(201, encode(thing), (etag(tag), (b"location", at.encode())))
