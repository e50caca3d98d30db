"""What a server offers beside tools: its prompts and resources, for clients that ask us for such."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from onetool.core.offer import Prompt, Resource
from onetool.core.spec import Handler, ToolSpec
from onetool.sources.mcp_servers.memory import Definition, Offers
from onetool.sources.mcp_servers.settings import Server

OURS = "ot://"
EVERYBODYS = ("file", "http", "https")  # schemes that are no server's own


class Fetch(Protocol):
    """The way to the server."""

    async def prompt(self, name: str, args: Mapping[str, str]) -> list[Any]: ...

    async def resource(self, uri: str) -> Any: ...


class Template(Resource, frozen=True, kw_only=True, dict=True):
    """Addresses of a form that only its server understands: whatever begins like it is for the server to judge."""

    @cached_property
    def places(self) -> tuple[str, ...]:
        return ("uri",)

    def match(self, uri: str) -> Mapping[str, Any] | None:
        begin = self.uri.partition("{")[0]
        return {"uri": uri} if len(uri) > len(begin) and uri.startswith(begin) else None


def prompts_of(server: str, pack: str, settings: Server, listed: Iterable[Definition], fetch: Fetch) -> list[Prompt]:
    return [_prompt(server, pack, settings, one, fetch) for one in listed]


def resources_of(server: str, pack: str, settings: Server, offers: Offers, fetch: Fetch) -> list[Resource]:
    """Those with an address, then those of a form."""

    def made(kind: type[Resource], one: Definition, uri: str) -> Resource:
        name = str(one.get("name") or uri)

        async def handler(**args: Any) -> Any:
            return await fetch.resource(args.get("uri", uri))

        schema = {"type": "object", "properties": {"uri": {"type": "string"}}}
        spec = _spec(server, f"{pack}.resource {name}", one.get("description") or name, schema, handler, settings)
        return kind(uri=uri, name=name, spec=spec, mime_type=one.get("mimeType"))

    fixed = [made(Resource, one, uri) for one in offers.resources if not (uri := str(one["uri"])).startswith(OURS)]
    forms = [made(Template, one, uri) for one in offers.templates if _has_a_place(uri := str(one["uriTemplate"]))]
    return [*fixed, *forms]


def _has_a_place(template: str) -> bool:
    """Whether it begins with something of its own: else it would take every address."""
    scheme, found, rest = template.partition("{")[0].partition("://")
    return bool(scheme and found) and not template.startswith(OURS) and (bool(rest) or scheme not in EVERYBODYS)


def _prompt(server: str, pack: str, settings: Server, one: Definition, fetch: Fetch) -> Prompt:
    name = str(one["name"])
    arguments: list[Mapping[str, Any]] = one.get("arguments") or []
    schema = {
        "type": "object",
        "properties": {
            str(argument["name"]): {"type": "string", "description": argument.get("description") or ""}
            for argument in arguments
        },
        "required": [str(argument["name"]) for argument in arguments if argument.get("required")],
    }

    async def handler(**args: Any) -> Any:
        return await fetch.prompt(name, args)

    about = one.get("description") or one.get("title") or name
    spec = _spec(server, f"{pack}.prompt {name}", about, schema, handler, settings)
    return Prompt(name=f"{pack}.{name}", spec=spec, title=one.get("title"))


def _spec(
    server: str, name: str, description: str, schema: Mapping[str, Any], handler: Handler, settings: Server
) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=description,
        input_schema=schema,
        handler=handler,
        source=f"proxy:{server}",
        timeout=settings.timeout + settings.connect_timeout,
        hidden=True,
    )
