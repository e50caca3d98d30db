"""What a handler gives whose tool is somebody else's: the value for code, and the answer as it was sent.

Code and most doors want the value. A client that speaks the protocol of the answer gets that itself: nothing of a
server's text is lost for having come through us.
"""

from typing import Any, NamedTuple

import msgspec

Block = dict[str, Any]


class Sent(NamedTuple):
    """Content blocks, and the structured content beside them (None where there is none)."""

    content: list[Block]
    structured: Any


class Answer(msgspec.Struct, frozen=True):
    """A handler may return this in place of a plain value."""

    value: Any
    sent: Sent
