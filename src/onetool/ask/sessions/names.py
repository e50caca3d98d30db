"""What sessions are called."""

import re
import time
from os import urandom

from onetool.ask.errors import SessionError

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LAST = "last"
SIGNS = "abcdefghijkmnpqrstuvwxyz23456789"  # 32, none of which are taken for each other
MADE_UP = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z0-9]{4}")


def check_id(id: str) -> str:
    """The id; SessionError for what can't be one."""
    if id == LAST:
        raise SessionError(f"{LAST!r} stands for the session that was used last: choose another name", "session")
    if ID.fullmatch(id):
        return id
    shown = id if len(id) <= 64 else f"{id[:64]}…"
    raise SessionError(
        f"{shown!r} can't be the name of a session: 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', "
        "and a letter or a digit first",
        "session",
    )


def is_made_up(id: str) -> bool:
    """Whether it is one of ours, or a mistyped one: nobody chooses such a name."""
    return MADE_UP.fullmatch(id) is not None


def new_id(now: float) -> str:
    """`20261115-191200-k3f9`: when it began (UTC), and something that sets it apart."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{''.join(SIGNS[byte % 32] for byte in urandom(4))}"
