"""The arguments of a tool that is made of a command, and texts with their placeholders in them."""

from itertools import count
from typing import Any

from onetool.sources.bundles.curl.credentials import Secrets, names_credential
from onetool.sources.bundles.curl.words import pieces
from onetool.sources.bundles.openapi.naming import argument_name
from onetool.sources.bundles.openapi.templates import as_it_is, hole

UNQUOTED = ["string", "number", "boolean"]


class Filling:
    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._properties: dict[str, dict[str, Any]] = {}
        self._required: list[str] = []
        self._placeholders: dict[str, str] = {}
        self._unquoted: set[str] = set()

    def unquoted(self, name: str) -> None:
        """A variable that stands in JSON without quotes: a number, most likely, but nobody says it."""
        self._unquoted.add(name)

    def template(self, text: str, required: bool) -> str:
        """A text as a template: variables of the shell are secrets where they are called so, else arguments."""
        parts = (self.placeholder(part, required) if is_name else as_it_is(part) for part, is_name in pieces(text))
        return "".join(parts)

    def placeholder(self, name: str, required: bool) -> str:
        """The same name is the same argument, wherever it stands."""
        if names_credential(name):
            return self._secrets.variable(argument_name(name).upper())
        if name not in self._placeholders:
            plain = argument_name(name)
            chosen = self._free(plain.lower() if plain.isupper() else plain)
            self._properties[chosen] = {"type": UNQUOTED if name in self._unquoted else "string"}
            self._placeholders[name] = chosen
        chosen = self._placeholders[name]
        if required and chosen not in self._required:
            self._required.append(chosen)
        return hole(chosen)

    def sample(self, name: str, value: Any) -> str:
        """An argument that may be left out: then it is what the command had."""
        chosen = self._free(argument_name(name))
        self._properties[chosen] = {**_typed(value), "default": value}
        return hole(chosen)

    def defaults(self) -> dict[str, Any]:
        return {name: one["default"] for name, one in self._properties.items() if "default" in one}

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": self._properties}
        return {**schema, "required": self._required} if self._required else schema

    def _free(self, name: str) -> str:
        words = (name if number == 1 else f"{name}_{number}" for number in count(1))
        return next(word for word in words if word not in self._properties and word not in self._secrets.found)


def text_of(text: str) -> str:
    """For people: a variable as they wrote it."""
    return "".join(f"${part}" if is_name else part for part, is_name in pieces(text))


def number_in(text: str) -> Any:
    """A value of a query as what it looks like; `007` is a text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and abs(value) < 2**53:
            return value
    return text


def _typed(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, list):
        return {"type": "array"}
    names = {str: "string", int: "integer", float: "number", dict: "object"}
    return {"type": names[type(value)]} if type(value) in names else {}
