"""A server's definition of a tool -> ToolSpec. One that can't be used is told, and spoils only itself."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from time import monotonic
from typing import Any

from onetool.core.definition import accept
from onetool.core.errors import DefinitionError
from onetool.core.schema_guard import check_size
from onetool.core.schema_upgrade import upgrade
from onetool.core.spec import Handler, ToolSpec
from onetool.core.wrapper import inner_schema, is_wrapper
from onetool.sources.mcp_servers.memory import Definition
from onetool.sources.mcp_servers.settings import Server, pack_name

LONGEST_NAME = 200
LONGEST_CHECK = 10.0  # seconds for all definitions of one server


def unusable(name: str, settings: Server, definitions: Iterable[Definition]) -> dict[str, str]:
    """Those that can't be tools of ours, and why. Schemas are compiled for that: done once, when they are new."""
    found: dict[str, str] = {}
    until = monotonic() + LONGEST_CHECK
    for definition in definitions:
        try:
            if monotonic() > until:
                raise DefinitionError("not looked at: to check the definitions of this server takes too long")
            for schema in (definition.get("inputSchema"), definition.get("outputSchema")):
                check_size(schema)  # before anything walks over all of it
            accept(spec_of(name, settings, definition, _nothing), {}, {})
        except DefinitionError as error:
            found[str(definition.get("name"))] = str(error)
    return found


def spec_of(name: str, settings: Server, definition: Definition, handler: Handler, **more: Any) -> ToolSpec:
    """The tool. Raises DefinitionError for one that is no tool at all; its schemas are not checked here."""
    own = definition.get("name")
    if not isinstance(own, str) or not own.strip() or len(own) > LONGEST_NAME:
        raise DefinitionError(f"its name is not usable: {own!r:.100}")
    hints: Mapping[str, Any] = definition.get("annotations") or {}
    declared: Any = upgrade(definition.get("outputSchema"))
    wraps = is_wrapper(declared)
    return ToolSpec(
        name=f"{pack_name(name, settings)}.{own}",
        description=_description(definition, own),
        input_schema=_input(definition.get("inputSchema")),
        output_schema=inner_schema(declared) if wraps else declared,
        structured_schema=declared if wraps else None,
        handler=handler,
        source=f"proxy:{name}",
        timeout=settings.timeout + settings.connect_timeout,  # a call may have to wait for its server first
        read_only=hints.get("readOnlyHint") is True,
        idempotent=hints.get("idempotentHint") is True,
        lenient=True,
        docs_url=settings.docs_url,
        parallel=settings.parallel,
        **more,
    )


def is_allowed(settings: Server, tool: str) -> bool:
    return settings.tools is None or any(fnmatchcase(tool, pattern) for pattern in settings.tools)


def _description(definition: Definition, own: str) -> str:
    for text in (definition.get("description"), definition.get("title"), own):
        if isinstance(text, str) and text.strip():
            return text
    raise AssertionError("a name is never empty")


def defaults_of(schema: Any) -> dict[str, Any]:
    """Of arguments that a schema calls required though it has a default for them: what they are if nobody says."""
    properties: Any = schema.get("properties") if isinstance(schema, Mapping) else None
    required: Any = schema.get("required") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
        return {}
    known = {name: part for name, part in properties.items() if name in required and isinstance(part, Mapping)}
    return {name: part["default"] for name, part in known.items() if part.get("default") is not None}


def _input(schema: Any) -> Mapping[str, Any]:
    """Some servers leave out what goes without saying: arguments are an object. What has a default is not required."""
    upgraded: Mapping[str, Any] = upgrade(schema) or {}
    if defaults := defaults_of(upgraded):
        upgraded = {**upgraded, "required": [name for name in upgraded["required"] if name not in defaults]}
    return upgraded if "type" in upgraded else {"type": "object", **upgraded}


def _nothing() -> None:
    """Stands for the handler while a definition is checked."""
