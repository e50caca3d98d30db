"""The routes of bundles. The shelf blocks, so that all of this waits in threads."""

import asyncio

from onetool.interfaces.rest.asking import NOTHING, Answer, Ask, created, one
from onetool.interfaces.rest.pages import page
from onetool.interfaces.rest.payload import json_body
from onetool.interfaces.rest.tags import ANY, conditions, etag, is_known
from onetool.sources.bundles.errors import Conflict, Stale


async def list_bundles(ask: Ask) -> Answer:
    query, shelf, sight = ask.query, ask.rest.shelf, await ask.rest.sight()
    chosen = (query["bundleIDs"], query["includeDisabled"])
    return await page(ask, "bundles", query["pageSize"], lambda place, size: shelf.bundles(*chosen, place, size, sight))


async def get_bundle(ask: Ask) -> Answer:
    bundle, tag = await asyncio.to_thread(ask.rest.shelf.get_bundle, *ask.path, sight=await ask.rest.sight())
    return Answer(304, headers=(etag(tag),)) if is_known(ask.headers, tag) else one(bundle, tag)


async def put_bundle(ask: Ask) -> Answer:
    shelf, (id,), wanted = ask.rest.shelf, ask.path, conditions(ask.headers)
    data = await json_body(ask.headers, ask.receive)
    create_only = ANY in wanted.known

    def put() -> Answer:
        match = wanted.settle(lambda: shelf.get_bundle(id)[1], may_be_new=True)
        try:
            bundle, tag, is_new = shelf.put_bundle(id, data, match, create_only)
        except Conflict as error:
            if create_only:  # somebody was faster
                raise Stale(str(error)) from None
            raise
        return created(bundle, tag, f"/tools/bundles/{id}") if is_new else one(bundle, tag)

    return await asyncio.to_thread(put)


async def patch_bundle(ask: Ask) -> Answer:
    shelf, (id,), wanted = ask.rest.shelf, ask.path, conditions(ask.headers)
    data = await json_body(ask.headers, ask.receive)

    def patch() -> Answer:
        match = wanted.settle(lambda: shelf.get_bundle(id)[1])
        return one(*shelf.patch_bundle(id, data, match))

    return await asyncio.to_thread(patch)


async def delete_bundle(ask: Ask) -> Answer:
    shelf, (id,), wanted = ask.rest.shelf, ask.path, conditions(ask.headers)

    def delete() -> Answer:
        shelf.delete_bundle(id, wanted.settle(lambda: shelf.get_bundle(id)[1]))
        return NOTHING

    return await asyncio.to_thread(delete)
