"""What a server said, in a message: its secrets masked, on one line, and cut.

In this order. Half of a secret, one in lower case, or one with a tag in it would not be recognised any more.
"""

import re
from collections.abc import Callable
from typing import Any

from onetool.core.failure import cut

LOOKED_AT = 48 * 1024  # characters of a text that words are taken from …
MARGIN = 32 * 1024  # … but for its end, where it goes on: half of a secret may stand there

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")

Redact = Callable[[Any], Any]


def masked(text: str, redact: Redact, goes_on: bool = False) -> str:
    """The beginning of a text without its secrets. `goes_on`: it is itself the beginning of a longer one."""
    found = redact(text[:LOOKED_AT])
    return found[:-MARGIN] if goes_on or len(text) > LOOKED_AT else found


def in_short(text: str, most: int) -> str:
    """On one line, so many characters at most."""
    return cut(_UNSEEN.sub(" ", text).strip(), most)


def shown(text: str, redact: Redact, most: int) -> str:
    return in_short(masked(text, redact), most)
