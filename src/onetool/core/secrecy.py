"""Which arguments are secrets: their values appear in no message, log or record."""

import re
from collections.abc import Mapping
from typing import Any, cast

MASK = "***"

_NAME = re.compile(
    r"(^|[_.-])(password|passwd|pasword|pwd|passphrase|secret|token|credentials?|auth|authorization|bearer|cookie)$"
    r"|(api|access|private|secret|signing|encryption)[_-]?key$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def secret_names(schema: Mapping[str, Any]) -> frozenset[str]:
    """The parameters whose values are secret: said by the schema, or plain from the name."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return frozenset()
    return frozenset(name for name, part in cast(Mapping[str, Any], properties).items() if _is_secret(name, part))


def _is_secret(name: str, part: Any) -> bool:
    if isinstance(part, Mapping):
        marks = cast(Mapping[str, Any], part)
        if marks.get("writeOnly") is True or marks.get("format") == "password":
            return True
    return sounds_secret(name)


def sounds_secret(name: str) -> bool:
    return bool(_NAME.search(_CAMEL.sub("_", name)))


def masked(args: Any, secret: frozenset[str] = frozenset()) -> Any:
    """The arguments as they may be shown: nothing whose name is, or sounds, secret, however deep it stands."""
    if isinstance(args, Mapping):
        items = cast(Mapping[Any, Any], args).items()
        return {name: MASK if name in secret or sounds_secret(str(name)) else masked(value) for name, value in items}
    if isinstance(args, list | tuple):
        return [masked(value) for value in cast(list[Any], args)]
    return args
