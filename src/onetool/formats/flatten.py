"""`$ref` and `allOf` taken away: one flat mapping that says the same, or a little less.

Saying less is fine in all of this package. The executor checks the arguments against the full schema anyway, so a
provider's copy has to inform the model and to pass the provider's own checks, nothing else.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from onetool.formats.kinds import branches_of, kinds_of, says_nothing

# References can double what there is to tell at each level. Nobody reads more than this of one tool's arguments.
ROOM = 2000

_TOLD_OF_A_STAND_IN = ("title", "description", "nullable")


class Flattener:
    """Flattens the parts of one schema, for as long as there is room."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.room = ROOM

    def spend(self, amount: int) -> None:
        """Take room away, down to none: a debt would eat what was kept free for later parts."""
        self.room = max(0, self.room - amount)

    def flat(self, schema: Any, above: frozenset[str] = frozenset()) -> tuple[dict[str, Any], frozenset[str]]:
        """The schema as one mapping, and the references that led into it added to those `above`.

        A reference to what is `above`, so to something that contains itself, is followed to a stand-in only.
        """
        merged: dict[str, Any] = {}
        followed: set[str] = set()
        waiting = [schema]
        while waiting and (self.room > 0 or not merged):
            part = waiting.pop()
            if not isinstance(part, Mapping):
                continue
            self.spend(1)
            _merge(merged, part)
            if isinstance(part.get("allOf"), list):
                waiting += reversed(part["allOf"])
            ref = part.get("$ref")
            if isinstance(ref, str) and ref not in followed:
                followed.add(ref)
                target = resolve(self.root, ref)
                waiting.append(stand_in(target) if ref in above else target)
        return merged, above | followed


def _merge(merged: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add what the part says. On one matter the first word counts: of things that all hold, each alone is true."""
    for key, value in part.items():
        if key == "properties" and isinstance(value, Mapping):
            _add_properties(merged.setdefault(key, {}), value)
        elif key == "required" and isinstance(value, list):
            names = [name for name in value if isinstance(name, str)]
            merged[key] = list(dict.fromkeys([*merged.get(key, []), *names]))
        elif key not in ("$ref", "allOf", "properties", "required"):
            merged.setdefault(key, value)


def _add_properties(known: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, schema in more.items():
        if says_nothing(known.get(name, True)):
            known[name] = schema


def stand_in(schema: Any) -> dict[str, Any]:
    """What is left of a schema whose inside can't be told: its type, an object if in doubt, and its description."""
    if not isinstance(schema, Mapping):
        return {"type": "object"}
    branches = [branch for branch in branches_of(schema) if isinstance(branch, Mapping)]
    kinds = kinds_of(schema) or [kind for branch in branches for kind in kinds_of(branch)]
    return {"type": kinds or "object"} | {key: schema[key] for key in _TOLD_OF_A_STAND_IN if key in schema}


def resolve(root: Any, ref: str) -> Any:
    """What a local reference (`#`, `#/$defs/Name`) points to; None for any other and for one that leads nowhere."""
    if ref != "#" and not ref.startswith("#/"):
        return None
    found = root
    for step in unquote(ref).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key in map(str, range(len(found))):
            found = found[int(key)]
        else:
            return None
    return found
