"""The handlers that edit tools: a copy with changes, which also makes a new version; another name; and examples."""

import asyncio
from typing import Any

from onetool.core.principal import lasting_owner
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
from onetool.sources.bundles.editing import copy_tool, examples_tag, read_own_examples, rename_tool, shown_examples
from onetool.sources.bundles.store import EVERYTHING, Visibility
from onetool.sources.bundles.validation import refuse_secrets


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


# Examples: those of the tool are common to all who see it; who has a name keeps examples of their own


async def get_examples(request: RestRequest) -> RestResponse:
    """Their ETag is that of the tool, as long as one has none of one's own."""
    visibility = await request.context.visibility()
    found, tag = await asyncio.to_thread(_examples, request, visibility)
    if is_known(request.headers, tag):
        return RestResponse(304, headers=(etag(tag),))
    return with_etag(request.context.clean_examples(found), tag)


async def put_examples(request: RestRequest) -> RestResponse:
    service, wanted = request.context.bundles, conditions(request.headers)
    bundle_id, slug, version = request.path
    data = await json_body(request.headers, request.receive, whole=True)

    def put() -> RestResponse:
        if lasting_owner():
            return with_etag(*_put_own_examples(request, data))
        match = wanted.expected_tag(lambda: service.get_tool(bundle_id, slug, version)[1])
        found, tag = service.put_examples(bundle_id, slug, version, data, match)
        return with_etag({"examples": found}, tag)

    return await asyncio.to_thread(put)


def _examples(request: RestRequest, visibility: Visibility = EVERYTHING) -> tuple[dict[str, Any], str]:
    """All that the caller sees, and their ETag."""
    service, whose = request.context.bundles, lasting_owner()
    common, tag = service.get_examples(*request.path, visibility=visibility)
    if not whose:
        return {"examples": common}, tag
    tool, _ = service.get_tool(*request.path, visibility=visibility)
    own = request.context.app.runtime.own_examples.of(whose, tool["id"])
    return shown_examples(common, own), examples_tag(tag, own)


def _put_own_examples(request: RestRequest, data: Any) -> tuple[dict[str, Any], str]:
    """The examples of the tool stay, also if they are in the list: it is the one that the client was shown."""
    service, wanted = request.context.bundles, conditions(request.headers)
    bundle_id, slug, version = request.path
    tool, spec = service.tool_and_spec(bundle_id, slug, version)
    common, tag = service.get_examples(bundle_id, slug, version)
    own = read_own_examples(data, (*common, *request.context.clean_examples({"examples": common})["examples"]))
    refuse_secrets(own, spec.input_schema)
    request.context.app.runtime.own_examples.put(
        lasting_owner(), tool.id, own, lambda before: wanted.expected_tag(lambda: examples_tag(tag, before))
    )
    return _examples(request)
