"""The arguments of one tool, out of everything that an operation takes: one flat object with clear names."""

from itertools import chain
from typing import Any, Literal

import msgspec

from onetool.sources.bundles.openapi.naming import argument_name, clean
from onetool.sources.bundles.openapi.schemas import Definition
from onetool.sources.bundles.openapi.templates import hole

Place = Literal["path", "query", "header", "cookie", "body"]
MOST = 500
LONGEST_DEFAULT = 80


class Arguments:
    """Collects them. The first of a name keeps it; another one says where it goes: `body_id` beside `id`."""

    def __init__(self, reserved: tuple[str, ...] = ()) -> None:
        self._reserved = frozenset(reserved)  # names of secrets: an argument of that name would stand for it
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []
        self._uses: list[str] = []

    def add(self, name: str, place: Place, definition: Definition, required: bool) -> str:
        """Take one more, and give the placeholder for it."""
        chosen = self._free(argument_name(name), place)
        self.properties[chosen] = _without_default(definition.schema)
        self._uses += definition.uses
        if required:
            self.required.append(chosen)
        return hole(chosen)

    def _free(self, name: str, place: Place) -> str:
        more = (f"{place}_{name}_{number}" for number in range(2, MOST))
        words = chain((name, f"{place}_{name}"), more)
        return next(word for word in words if word not in self.properties and word not in self._reserved)

    def schema(self) -> Definition:
        schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        return Definition(schema, tuple(self._uses))


def _without_default(schema: Any) -> Any:
    """What the server does without an argument is the server's to do: sent by us, a default would be a change."""
    if not isinstance(schema, dict) or "default" not in schema:
        return schema
    words = clean(msgspec.json.encode(schema["default"]).decode(), LONGEST_DEFAULT)
    text = f"{schema.get('description', '')} Without it: {words}.".strip()
    return {**{key: value for key, value in schema.items() if key != "default"}, "description": text}
