"""The handlers that edit tools: a copy with changes, which also makes a new version, and another name."""

import asyncio
from urllib.parse import quote

from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.request import RestRequest, RestResponse, conditions, created_at, etag, json_body
from onetool.sources.bundles.editing import Place, copy_tool, rename_tool


async def copy(ask: RestRequest) -> RestResponse:
    """Conditions are about the tool that is copied: `If-Match` copies what the client has seen."""
    service, wanted, sight = ask.context.bundles, conditions(ask.headers), await ask.context.visibility()
    bundle_id, slug, version = ask.path
    data = await json_body(ask.headers, ask.receive, whole=True)

    def do() -> RestResponse:
        wanted.expected_tag(lambda: service.get_tool(bundle_id, slug, version)[1])
        place, tool, tag = copy_tool(service, (bundle_id, slug, version), data, sight)
        return created_at(tool, tag, address_of(place))

    return await asyncio.to_thread(do)


async def rename(ask: RestRequest) -> RestResponse:
    service, wanted = ask.context.bundles, conditions(ask.headers)
    bundle_id, slug, version = ask.path
    data = await json_body(ask.headers, ask.receive)

    def do() -> RestResponse:
        match = wanted.expected_tag(lambda: service.get_tool(bundle_id, slug, version)[1])
        place, tool, tag = rename_tool(service, (bundle_id, slug, version), data, match)
        return RestResponse(200, encode(tool), (etag(tag), (b"content-location", address_of(place).encode())))

    return await asyncio.to_thread(do)


def address_of(place: Place) -> str:
    bundle_id, slug, version = place
    return f"/tools/bundles/{bundle_id}/tools/{quote(slug, safe='')}/version/{quote(version, safe='')}"
