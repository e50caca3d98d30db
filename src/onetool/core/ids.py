"""Names for calls, unlike any others of this or another process. Nobody has to guess them, so counting will do."""

from itertools import count
from os import urandom  # not `secrets`, which takes longer to load than most of us

_process = urandom(8).hex()
_numbers = count(1)


def new_id() -> str:
    return f"{_process}-{next(_numbers)}"
