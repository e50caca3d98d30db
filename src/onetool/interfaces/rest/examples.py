"""The handlers of the examples of a tool. Their ETag is that of the tool."""

import asyncio

from onetool.interfaces.rest.request import RestRequest, RestResponse, conditions, etag, is_known, json_body, with_etag


async def get_examples(request: RestRequest) -> RestResponse:
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
