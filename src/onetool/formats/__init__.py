"""Converts ToolSpecs to the formats of models' APIs and MCP clients: plain dicts, ready for JSON. Names are converted
to the provider's spelling and back.

No client library is imported.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

from onetool.core import model_providers
from onetool.core.errors import UnknownProviderError
from onetool.core.spec import ToolSpec
from onetool.core.structured_content import may_be_content, wrapped_schema
from onetool.core.text import or_rather
from onetool.formats.gemini import gemini_parameters
from onetool.formats.json_schema import plain_parameters, thaw

Tool = dict[str, Any]
_ANTHROPIC_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Provider(NamedTuple):
    """A provider's format for tools."""

    shape: Callable[[ToolSpec, str], Tool]
    list_key: str = ""  # one object may list several tools under this key
    letter_first: bool = False  # names must start with a letter or an underscore


def find_provider(provider: str) -> Provider:
    """Return the provider with this name. Raises UnknownProviderError, which lists the known ones."""
    if provider in PROVIDERS:
        return PROVIDERS[provider]
    known = f"{', '.join(PROVIDERS)}{or_rather(str(provider), PROVIDERS)}"
    raise UnknownProviderError(f"provider {provider!r} is not supported; the supported ones are {known}")


def _function(spec: ToolSpec, name: str) -> Tool:
    parameters = plain_parameters(spec.input_schema)
    return {"type": "function", "function": {"name": name, "description": spec.description, "parameters": parameters}}


def _gemini(spec: ToolSpec, name: str) -> Tool:
    parameters = gemini_parameters(spec.input_schema)
    return {"functionDeclarations": [{"name": name, "description": spec.description, "parameters": parameters}]}


def _anthropic(spec: ToolSpec, name: str) -> Tool:
    schema = plain_parameters(spec.input_schema)
    properties = schema["properties"]
    odd = {key: properties.pop(key) for key in list(properties) if not _ANTHROPIC_KEY.fullmatch(key)}
    if odd:  # Anthropic refuses such keys; list them in the description
        schema["required"] = [key for key in schema.get("required", []) if key not in odd]
        note = f"Further arguments: {json.dumps(odd, ensure_ascii=False)}"
        schema["description"] = f"{schema['description']} {note}" if schema.get("description") else note
    return {"name": name, "description": spec.description, "input_schema": schema}


def _mcp(spec: ToolSpec, name: str) -> Tool:
    # The full JSON Schema: MCP accepts any schema of type object.
    schema = {**thaw(spec.input_schema if isinstance(spec.input_schema, dict) else {}), "type": "object"}
    tool: Tool = {"name": name, "description": spec.description, "inputSchema": schema}
    if (output := spec.structured_schema or structured(spec)) is not None:
        tool["outputSchema"] = thaw(output)
    hints = {"readOnlyHint": spec.read_only or spec.pure, "idempotentHint": spec.idempotent or spec.pure}
    if any(hints.values()):
        tool["annotations"] = {hint: True for hint, is_set in hints.items() if is_set}
    return {**tool, **thaw(spec.server_listing)} if spec.server_listing else tool


def structured(spec: ToolSpec) -> Any:
    """Return the output schema for MCP, or None. Clients reject the whole list if one output schema is not of type
    object.

    Schemas without named members are not listed: the value may be an image, and clients refuse results without
    structured content if a schema is listed. Nor are schemas that values may differ from. The schemas of MCP servers
    are listed unchanged.
    """
    if spec.output_may_differ:
        return None
    if not spec.source.startswith("proxy:") and may_be_content(spec.output_schema):
        return None
    is_object = isinstance(spec.output_schema, dict) and spec.output_schema.get("type") == "object"
    return spec.output_schema if is_object else wrapped_schema(spec.output_schema)


# Other providers use OpenAI's format.
_OWN_FORMATS = {
    "gemini": Provider(_gemini, list_key="functionDeclarations", letter_first=True),
    "anthropic": Provider(_anthropic),
    # MCP allows dots, but clients pass the names to models whose APIs do not.
    "mcp": Provider(_mcp),
}
PROVIDERS = dict.fromkeys(model_providers.PROVIDERS, Provider(_function)) | _OWN_FORMATS


# Provider names

MAX_NAME_LENGTH = 64
HASH_LENGTH = 8

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_GOOD_START = re.compile(r"[A-Za-z_]")


class ProviderNames:
    """A two-way mapping between tools' names and a provider's spelling.

    The spellings depend on the set of tools, but not on their order: pass the same tools here and to `provider_tools`.
    A model may also call the tools in `others` from memory.
    """

    def __init__(self, specs: Iterable[ToolSpec], provider: str, others: Iterable[ToolSpec] = ()) -> None:
        self._form = find_provider(provider)
        self._unlisted = others
        self._safe = self._spell_all({spec.name for spec in specs})
        self._real = {safe: real for real, safe in self._safe.items()}

    def to_provider(self, real: str) -> str:
        """Return the provider's spelling. Unknown names, such as from an old session, get a valid spelling, too."""
        if real in self._safe:
            return self._safe[real]
        if (known := self._others.get(real)) and known not in self._real:
            return known
        return real if self._is_fine(real) and real not in self._real else self._spell(real, turn=1)

    def from_provider(self, safe: str) -> str | None:
        """Return the tool's name for a spelling or for the name itself; None if unknown."""
        if safe in self._real:
            return self._real[safe]
        if safe in self._safe or safe in self._others:
            return safe
        return next((real for real, spelled in self._others.items() if spelled == safe), None)

    @cached_property
    def _others(self) -> dict[str, str]:
        """The spellings of the others, computed for the first unknown name."""
        return self._spell_all({spec.name for spec in self._unlisted})

    def _spell_all(self, names: set[str]) -> dict[str, str]:
        """Return a unique spelling for each name. Valid names are unchanged, unless they clash or are too long."""
        safe = {name: name for name in names if self._is_fine(name)}
        waiting = names - safe.keys()
        for turn in count():  # terminates: each turn has new hashes, and the number of names is finite
            spellings = {name: self._spell(name, turn) for name in waiting}
            # Defer all names with the same spelling, so that the result does not depend on the order.
            shared = {spelling for spelling, count in Counter(spellings.values()).items() if count > 1}
            refused = shared | set(safe.values())
            safe |= {
                name: spelling
                for name, spelling in spellings.items()
                if spelling not in refused and 0 < len(spelling) <= MAX_NAME_LENGTH
            }
            waiting -= safe.keys()
            if not waiting:
                break
        return safe

    def _is_fine(self, name: str) -> bool:
        return 0 < len(name) <= MAX_NAME_LENGTH and self._spell(name, turn=0) == name

    def _spell(self, name: str, turn: int) -> str:
        """Return the plain spelling for turn 0, then spellings with a hash of the name."""
        parts = name.split(".")
        safe = "__".join(_ODD.sub("_", part) for part in parts)
        if self._form.letter_first and not _GOOD_START.match(safe):
            safe = "_" + safe
        if turn == 0:  # parts without any valid letter (日本 becomes `__`) would clash with many names
            is_lost = any(_ODD.search(part) and not _ODD.sub("", part).strip("_-") for part in parts)
            return "" if is_lost else safe
        from hashlib import sha256  # slow to import and rarely needed

        digest = sha256(f"{turn}:{name}".encode("utf-8", "surrogatepass")).hexdigest()[:HASH_LENGTH]
        return f"{safe[: MAX_NAME_LENGTH - HASH_LENGTH - 1]}_{digest}"


# Formats


def provider_tools(
    specs: Iterable[ToolSpec], provider: str, *, allowed: Iterable[str] | None = None, merge: bool = False
) -> list[dict[str, Any]]:
    """Return the tools in the format of `provider`, in order; with `allowed`, only tools with these names.

    `merge` combines all tools in one object if the provider supports this (Gemini). The caller may change the result.
    """
    specs = list(specs)
    form = find_provider(provider)
    names = ProviderNames(specs, provider)  # from all tools, so that filtering does not rename any
    allowed = None if allowed is None else set(allowed)
    tools = [
        form.shape(spec, names.to_provider(spec.name)) for spec in specs if allowed is None or spec.name in allowed
    ]
    if not (merge and form.list_key and tools):
        return tools
    return [{form.list_key: [declaration for tool in tools for declaration in tool[form.list_key]]}]
