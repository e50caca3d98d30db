"""What the rest of the program says of its options, in the words of a client: a key of the body, no switch."""

import re

from onetool.interfaces.rest.ask.body import Question

_KEYS = {
    one.replace("_", "-"): key
    for one, key in zip(Question.__struct_fields__, Question.__struct_encode_fields__, strict=True)
}
_SWITCH = re.compile(rf"--({'|'.join(sorted(_KEYS, key=len, reverse=True))})(?![\w-])")


def for_client(text: str) -> str:
    """`--tool-allow time.now` is `toolAllow time.now` here."""
    return _SWITCH.sub(lambda match: _KEYS[match[1]], text)
