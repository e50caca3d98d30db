"""Names for calls, unlike any others of this or another process. Nobody has to guess them, so counting will do."""

from itertools import count
from secrets import token_hex

_process = token_hex(8)
_numbers = count(1)


def new_id() -> str:
    return f"{_process}-{next(_numbers)}"
