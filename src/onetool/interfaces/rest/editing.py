"""The handlers that edit tools: a copy with changes, which also makes a new version; another name; and examples."""

import asyncio

from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.request import (
    RestRequest,
    RestResponse,
    conditions,
    created_at,
    etag,
    is_known,
    json_body,
    tool_address,
    with_etag,
)
from onetool.sources.bundles.editing import copy_tool, rename_tool


async def copy(request: RestRequest) -> RestResponse:
    """Conditions are about the tool that is copied: `If-Match` copies what the client has seen."""
    service, wanted, visibility = (
        request.context.bundles,
        conditions(request.headers),
        await request.context.visibility(),
    )
    bundle_id, slug, version = request.path
    data = await json_body(request.headers, request.receive, whole=True)

    def do() -> RestResponse:
        wanted.expected_tag(lambda: service.get_tool(bundle_id, slug, version)[1])
        place, tool, tag = copy_tool(service, (bundle_id, slug, version), data, visibility)
        return created_at(request.context.clean_examples(tool), tag, tool_address(*place))

    return await asyncio.to_thread(do)


async def rename(request: RestRequest) -> RestResponse:
    service, wanted = request.context.bundles, conditions(request.headers)
    bundle_id, slug, version = request.path
    data = await json_body(request.headers, request.receive)

    def do() -> RestResponse:
        match = wanted.expected_tag(lambda: service.get_tool(bundle_id, slug, version)[1])
        place, tool, tag = rename_tool(service, (bundle_id, slug, version), data, match)
        body = encode(request.context.clean_examples(tool))
        return RestResponse(200, body, (etag(tag), (b"content-location", tool_address(*place).encode())))

    return await asyncio.to_thread(do)


async def get_examples(request: RestRequest) -> RestResponse:
    """Their ETag is that of the tool."""
    service, visibility = request.context.bundles, await request.context.visibility()
    found, tag = await asyncio.to_thread(service.get_examples, *request.path, visibility=visibility)
    if is_known(request.headers, tag):
        return RestResponse(304, headers=(etag(tag),))
    return with_etag(request.context.clean_examples({"examples": found}), tag)


async def put_examples(request: RestRequest) -> RestResponse:
    service, wanted = request.context.bundles, conditions(request.headers)
    bundle_id, slug, version = request.path
    data = await json_body(request.headers, request.receive, whole=True)

    def put() -> RestResponse:
        match = wanted.expected_tag(lambda: service.get_tool(bundle_id, slug, version)[1])
        found, tag = service.put_examples(bundle_id, slug, version, data, match)
        return with_etag({"examples": found}, tag)

    return await asyncio.to_thread(put)
