"""Convert the tools, prompts, resources and results of an MCP server into ToolSpecs, offers and plain data.

An invalid definition is reported and doesn't affect the others. Images, audio, blobs and links are stored and replaced
by a handle with their type, so code can pass them on without copying them, and models don't read them by accident.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from onetool.core.errors import DefinitionError, ToolFailure
from onetool.core.json_data import AnsweredValue, ServerAnswer, ServerFailure, StoreBlob, blob_record, data_in
from onetool.core.registry import Prompt, Resource
from onetool.core.schema_guard import check_size
from onetool.core.schema_keywords import upgrade
from onetool.core.spec import Handler, ToolSpec, accept
from onetool.core.structured_content import RESULT, inner_schema, is_wrapper
from onetool.sources.mcp_servers.apps import address_below, address_here, address_there, passed_meta, passed_part
from onetool.sources.mcp_servers.server_cache import PASSED, Definition, Offers, first_by_name
from onetool.sources.mcp_servers.settings import ServerSettings, pack_name

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from onetool.sources.mcp_servers.connection import Work

MAX_NAME = 200
MAX_CHECK = 10.0  # seconds for all definitions of one server


def unusable(name: str, settings: ServerSettings, definitions: Iterable[Definition]) -> dict[str, str]:
    """Return the unusable tools with the reasons. Compiling their schemas is slow, so call this once per listing."""
    found: dict[str, str] = {}
    until = monotonic() + MAX_CHECK
    for definition in definitions:
        try:
            if monotonic() > until:
                raise DefinitionError("not checked: checking the definitions of this server takes too long")
            for schema in (definition.get("inputSchema"), definition.get("outputSchema")):
                check_size(schema)  # before anything traverses the schema
            accept(spec_of(name, settings, definition, lambda: None), {}, {})
        except DefinitionError as error:
            found[str(definition.get("name"))] = str(error)
    return found


def spec_of(name: str, settings: ServerSettings, definition: Definition, handler: Handler, **more: Any) -> ToolSpec:
    """Return the tool. Raises DefinitionError for an invalid definition, whose schemas are not checked here."""
    own = definition.get("name")
    if not isinstance(own, str) or not own.strip() or len(own) > MAX_NAME:
        raise DefinitionError(f"its name is not usable: {own!r:.100}")
    hints: Mapping[str, Any] = definition.get("annotations") or {}
    pack = pack_name(name, settings)
    declared: Any = upgrade(definition.get("outputSchema"))
    wraps = is_wrapper(declared)
    texts = (definition.get("description"), definition.get("title"), own)
    listing: Mapping[str, Any] = {key: definition[key] for key in PASSED if definition.get(key)}
    try:
        check_size(listing)
        listing = passed_part(pack, listing)
    except DefinitionError:  # too large: clients don't get it
        listing = {}
    return ToolSpec(
        name=f"{pack}.{own}",
        description=next(text for text in texts if isinstance(text, str) and text.strip()),
        input_schema=_input(definition.get("inputSchema")),
        output_schema=inner_schema(declared) if wraps else declared,
        structured_schema=declared if wraps else None,
        handler=handler,
        source=f"proxy:{name}",
        server_listing=listing,
        timeout=settings.timeout + settings.connect_timeout,  # a call may first have to wait for the connection
        read_only=reads if isinstance(reads := hints.get("readOnlyHint"), bool) else None,
        idempotent=hints.get("idempotentHint") is True,
        lenient=True,
        strict=settings.strict,
        docs_url=settings.docs_url,
        parallel=settings.parallel,
        **more,
    )


def is_allowed(settings: ServerSettings, tool: str) -> bool:
    return settings.tools is None or any(fnmatchcase(tool, pattern) for pattern in settings.tools)


def defaults_of(schema: Any) -> dict[str, Any]:
    """Return the defaults of arguments that a schema declares as required."""
    properties: Any = schema.get("properties") if isinstance(schema, Mapping) else None
    required: Any = schema.get("required") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not isinstance(required, list | tuple):
        return {}
    known = {name: part for name, part in properties.items() if name in required and isinstance(part, Mapping)}
    return {name: part["default"] for name, part in known.items() if part.get("default") is not None}


def _input(schema: Any) -> Mapping[str, Any]:
    """Return the schema with the type that some servers leave out. Arguments with a default become optional."""
    upgraded: Mapping[str, Any] = upgrade(schema) or {}
    if defaults := defaults_of(upgraded):
        upgraded = {**upgraded, "required": [name for name in upgraded["required"] if name not in defaults]}
    return upgraded if "type" in upgraded else {"type": "object", **upgraded}


# Prompts and resources

OURS = "ot://"
SHARED_SCHEMES = ("file", "http", "https")  # schemes that any server may use

Fetch = Callable[[str, "Work[Any]"], Awaitable[Any]]
"""Request the prompt or resource with this name from the server."""


class TemplateResource(Resource, frozen=True, kw_only=True, dict=True):
    """A resource template. Only the server can parse its addresses, so any address with its prefix matches."""

    of_others: frozenset[str] = frozenset()  # addresses that other servers list

    @cached_property
    def variables(self) -> tuple[str, ...]:
        return ("uri",)

    def match(self, uri: str) -> Mapping[str, Any] | None:
        begin = self.uri.partition("{")[0]
        fits = len(uri) > len(begin) and uri.startswith(begin) and uri not in self.of_others
        return {"uri": uri} if fits else None


def prompts_of(
    server: str, pack: str, settings: ServerSettings, listed: Iterable[Definition], fetch: Fetch
) -> list[Prompt]:
    def convert(prompt: Definition) -> Prompt:
        name = str(prompt["name"])
        arguments: list[Mapping[str, Any]] = prompt.get("arguments") or []
        schema = {
            "type": "object",
            "properties": {
                str(argument["name"]): {"type": "string", "description": argument.get("description") or ""}
                for argument in arguments
            },
            "required": [str(argument["name"]) for argument in arguments if argument.get("required")],
        }

        async def handler(**args: Any) -> Any:
            sent = await fetch(name, lambda connection, call: connection.prompt(name, args, call))
            messages = [{**one, "content": passed_part(pack, one["content"])} for one in sent["messages"]]
            return passed_part(pack, {**sent, "messages": messages})

        spec = _offer_spec(server, f"{pack}.prompt {name}", prompt, schema, handler, settings)
        listing = _passed(pack, prompt, "arguments")
        return Prompt(name=f"{pack}.{name}", spec=spec, title=prompt.get("title"), server_listing=listing)

    return [convert(prompt) for prompt in first_by_name(listed)]


def resources_of(server: str, pack: str, settings: ServerSettings, offers: Offers, fetch: Fetch) -> list[Resource]:
    """Return the resources with an address, then the templates."""

    def convert(kind: type[Resource], item: Definition, uri: str, here: str) -> Resource:
        name = str(item.get("name") or uri)

        async def handler(**args: Any) -> Any:
            there = address_there(pack, args["uri"]) if args else uri
            sent = await fetch(there, lambda connection, call: connection.resource(there, call))
            return passed_part(pack, {**sent, "contents": [passed_part(pack, part) for part in sent["contents"]]})

        schema = {"type": "object", "properties": {"uri": {"type": "string"}}}
        spec = _offer_spec(server, f"{pack}.resource {name}", item, schema, handler, settings)
        listing = _passed(pack, item, "size")
        return kind(uri=here, name=name, spec=spec, mime_type=item.get("mimeType"), server_listing=listing)

    resources = [
        convert(Resource, item, uri, address_here(pack, uri))
        for item in first_by_name(offers.resources, "uri")
        if not (uri := str(item["uri"])).startswith(OURS)
    ]
    for item in first_by_name(offers.templates, "uriTemplate"):
        if not (template := str(item["uriTemplate"])).startswith(OURS):
            scheme, separator, rest = template.partition("{")[0].partition("://")
            # A template without a prefix of its own would match the addresses of other servers.
            has_prefix = scheme and separator and (rest or scheme not in SHARED_SCHEMES)
            here = address_here(pack, template) if has_prefix else address_below(pack, template)
            resources.append(convert(TemplateResource, item, template, here))
    return resources


def keep_apart(listed: Mapping[str, Iterable[Resource]]) -> tuple[list[Resource], dict[str, list[str]]]:
    """Return the resources of all servers, and for each server the addresses that other servers list, too.

    Nothing stands at such an address: the resources are below their packs.
    """
    servers: dict[str, set[str]] = {}
    for server, resources in listed.items():
        for resource in resources:
            servers.setdefault(resource.uri, set()).add(server)
    kept: list[Resource] = []
    ambiguous: dict[str, list[str]] = {}
    for server, resources in listed.items():
        of_others = frozenset(uri for uri, names in servers.items() if names != {server})
        for resource in resources:
            if resource.uri in of_others:
                ambiguous.setdefault(server, []).append(resource.uri)
                resource = replace(resource, uri=address_below(resource.spec.pack, resource.uri))
            kept.append(replace(resource, of_others=of_others) if isinstance(resource, TemplateResource) else resource)
    return kept, ambiguous


def _passed(pack: str, listed: Definition, *more: str) -> Mapping[str, Any]:
    """Return the members of an entry that clients get unchanged."""
    return passed_part(pack, {key: listed[key] for key in (*PASSED, *more) if key in listed})


def _offer_spec(
    server: str, name: str, listed: Definition, schema: Mapping[str, Any], handler: Handler, settings: ServerSettings
) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=listed.get("description") or "",
        input_schema=schema,
        handler=handler,
        source=f"proxy:{server}",
        timeout=settings.timeout + settings.connect_timeout,
        hidden=True,
    )


# Results as plain data: structuredContent, else JSON in text, else text

MAX_STORED = 200


def answer_of(result: "CallToolResult", store_result: StoreBlob, pack: str, wraps: bool = False) -> AnsweredValue:
    """Return the value of a result, with the result itself. Raises ServerFailure for an error result.

    `wraps` means that, by the tool's schema, the structured content wraps the value.
    """
    content = [block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in result.content]
    structured = result.structured_content
    passed = [passed_part(pack, block) for block in content]
    sent = ServerAnswer(passed, structured, passed_meta(pack, result.meta) or None)
    if result.is_error:
        message = "\n".join(block.text for block in result.content if block.type == "text").strip()
        raise ServerFailure(message or "the server reported a failure without a message", sent)
    if sum(block.type != "text" for block in result.content) > MAX_STORED:
        raise ToolFailure(f"the result has more than {MAX_STORED} images, sounds, blobs and links")
    if structured is None:
        values = [_block(block, store_result) for block in content]
        value = None if not values else values[0] if len(values) == 1 else values
    else:
        value = structured
        if wraps and isinstance(structured, dict) and structured.keys() == {RESULT}:  # else it won't match the schema
            inner = structured[RESULT]
            value = data_in(inner) if isinstance(inner, str) else inner
    return AnsweredValue(value, sent)


def is_light(result: "CallToolResult") -> bool:
    """Return whether no part of a result has to be stored."""
    return result.structured_content is not None or all(block.type == "text" for block in result.content)


def _block(block: Mapping[str, Any], store_result: StoreBlob) -> Any:
    match block:
        case {"type": "text", "text": text}:
            return data_in(text)
        case {"type": "image" | "audio" as kind, "data": data, "mimeType": mime}:
            return blob_record(kind, data, mime, store_result)
        case {"type": "resource", "resource": {"blob": data, **about}}:
            return blob_record("blob", data, about.get("mimeType"), store_result) | {"uri": about["uri"]}
        case {"type": "resource", "resource": inside}:
            return {"type": "resource", **inside}
        case {"type": "resource_link"}:
            kept = store_result(msgspec.json.encode(block).decode())
            return {**block, "handle": kept.handle}
        case _:
            return block
