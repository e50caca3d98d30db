"""The routes of tools, but for their invocation. The shelf blocks, so that all of this waits in threads."""

import asyncio
from urllib.parse import quote

from onetool.interfaces.rest.asking import NOTHING, Answer, Ask, created, one
from onetool.interfaces.rest.pages import page
from onetool.interfaces.rest.payload import json_body
from onetool.interfaces.rest.tags import conditions, etag, is_known


async def list_tools(ask: Ask) -> Answer:
    query, shelf, sight = ask.query, ask.rest.shelf, await ask.rest.sight()
    chosen = (query["tags"], query["bundleIDs"], query["includeDisabled"])
    size = query["recommendedPageSize"]
    return await page(ask, "tools", size, lambda place, size: shelf.tools(*chosen, place, size, sight))


async def search_tools(ask: Ask) -> Answer:
    query, shelf, sight = ask.query, ask.rest.shelf, await ask.rest.sight()
    chosen = (query["q"], query["includeDisabled"])
    return await page(ask, "tools", query["pageSize"], lambda place, size: shelf.search(*chosen, place, size, sight))


async def get_tool(ask: Ask) -> Answer:
    tool, tag = await asyncio.to_thread(ask.rest.shelf.get_tool, *ask.path, sight=await ask.rest.sight())
    return Answer(304, headers=(etag(tag),)) if is_known(ask.headers, tag) else one(tool, tag)


async def put_tool(ask: Ask) -> Answer:
    """Only ever creates: what is there is another version's."""
    shelf, wanted = ask.rest.shelf, conditions(ask.headers)
    bundle_id, slug, version = ask.path
    data = await json_body(ask.headers, ask.receive, whole=True)

    def put() -> Answer:
        wanted.settle(lambda: shelf.get_tool(bundle_id, slug, version)[1], may_be_new=True)
        tool, tag = shelf.put_tool(bundle_id, slug, version, data)
        place = f"/tools/bundles/{bundle_id}/tools/{quote(slug, safe='')}/version/{quote(version, safe='')}"
        return created(tool, tag, place)

    return await asyncio.to_thread(put)


async def patch_tool(ask: Ask) -> Answer:
    shelf, wanted = ask.rest.shelf, conditions(ask.headers)
    bundle_id, slug, version = ask.path
    data = await json_body(ask.headers, ask.receive)

    def patch() -> Answer:
        match = wanted.settle(lambda: shelf.get_tool(bundle_id, slug, version)[1])
        return one(*shelf.patch_tool(bundle_id, slug, version, data, match))

    return await asyncio.to_thread(patch)


async def delete_tool(ask: Ask) -> Answer:
    shelf, wanted = ask.rest.shelf, conditions(ask.headers)
    bundle_id, slug, version = ask.path

    def delete() -> Answer:
        match = wanted.settle(lambda: shelf.get_tool(bundle_id, slug, version)[1])
        shelf.delete_tool(bundle_id, slug, version, match)
        return NOTHING

    return await asyncio.to_thread(delete)
