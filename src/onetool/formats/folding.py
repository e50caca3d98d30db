"""One plain object schema out of alternatives.

OpenAI and Anthropic refuse `oneOf`, `anyOf`, `allOf`, `enum`, `const` and `not` at the top of the parameters, and
Gemini takes only an object there. So all alternatives' properties stand side by side.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from onetool.formats.flatten import Flattener
from onetool.formats.kinds import branches_of, kinds_of, says_nothing

DEEPEST = 16

_REFUSED = frozenset({"anyOf", "oneOf", "enum", "const", "not"})


class Members(NamedTuple):
    """What an object may have and must have."""

    properties: dict[str, list[Any]]  # for each name its alternatives, as they stand in the full schema
    required: list[str]


NO_MEMBERS = Members({}, [])


class Folder(Flattener):
    """Folds parts of one schema into plain objects."""

    def __init__(self, root: Any) -> None:
        super().__init__(root)
        self._known: dict[int, Members | None] = {}

    def folded(self, schema: Any) -> dict[str, Any]:
        """The schema as a plain object: all properties that any alternative has, required where all agree."""
        flat, _ = self.flat(schema)
        members = self._members(flat, depth=0) or NO_MEMBERS
        plain = {key: value for key, value in flat.items() if key not in _REFUSED}
        plain["type"] = "object"
        plain["properties"] = {name: _one(schemas) for name, schemas in members.properties.items()}
        if members.required or "required" in plain:
            plain["required"] = members.required
        return plain

    def _members_of(self, schema: Any, depth: int) -> Members | None:
        """The members of one alternative; None if it is no object. Each is read once, however often referred to."""
        if id(schema) not in self._known:
            self._known[id(schema)] = NO_MEMBERS  # what it is to itself, if it contains itself
            self._known[id(schema)] = self._members(self.flat(schema)[0], depth)
        return self._known[id(schema)]

    def _members(self, flat: dict[str, Any], depth: int) -> Members | None:
        if "type" in flat and "object" not in kinds_of(flat):
            return None
        own = Members({name: [schema] for name, schema in flat.get("properties", {}).items()}, flat.get("required", []))
        if depth >= DEEPEST:
            return own
        own = _both(own, self._either(branches_of(flat), depth))
        conditional = [flat[key] for key in ("then", "else") if key in flat]
        return _both(own, self._either([*conditional, True], depth))  # True: it may be that neither requires anything

    def _either(self, schemas: Iterable[Any], depth: int) -> Members:
        members = [found for schema in schemas if (found := self._members_of(schema, depth + 1))]
        return _either(members) if members else NO_MEMBERS


def _both(first: Members, second: Members) -> Members:
    properties = dict(first.properties)
    for name, schemas in second.properties.items():
        if all(says_nothing(schema) for schema in properties.get(name, [])):
            properties[name] = schemas
    return Members(properties, list(dict.fromkeys([*first.required, *second.required])))


def _either(choices: list[Members]) -> Members:
    properties: dict[str, list[Any]] = {}
    for choice in choices:
        for name, schemas in choice.properties.items():
            known = properties.setdefault(name, [])
            known += [schema for schema in schemas if schema not in known]
    return Members(properties, [name for name in choices[0].required if all(name in c.required for c in choices)])


def _one(schemas: list[Any]) -> Any:
    """One schema for a property that has several: mostly the word that tells the alternatives apart."""
    if len(schemas) == 1:
        return schemas[0]
    words = [schema.get("const") if isinstance(schema, dict) else None for schema in schemas]
    if all(isinstance(word, str) for word in words):
        return {"type": "string", "enum": words}
    return {"anyOf": schemas}
