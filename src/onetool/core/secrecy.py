"""Which arguments are secrets: their values appear in no message, log or record."""

import re
from collections.abc import Mapping
from typing import Any, cast

MASK = "***"

_NAME = re.compile(
    r"(^|[_.-])(password|passwd|passphrase|secret|token|credentials?|authorization)$|api[_-]?key$", re.IGNORECASE
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
    return bool(_NAME.search(_CAMEL.sub("_", name)))


def masked(args: Mapping[str, Any], secret: frozenset[str]) -> Mapping[str, Any]:
    """The arguments as they may be shown."""
    return {name: MASK if name in secret else value for name, value in args.items()} if secret else args
