"""The handlers of drafts: they check a tool or a bundle before it is stored, and arguments before they are sent, and
show what would be sent.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from onetool.interfaces.disconnect import DisconnectWatch
from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.invoke import read_args
from onetool.interfaces.rest.request import RestRequest, RestResponse, json_body
from onetool.sources.bundles.drafts import (
    DraftReport,
    PreviewReport,
    check_arguments,
    check_bundle_draft,
    check_tool_draft,
    preview_draft,
    preview_tool,
)
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.validation import converted


class DraftRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool, or a bundle, as PUT takes it; and where the tool is to be put."""

    tool: dict[str, Any] | None = None
    bundle: dict[str, Any] | None = None
    bundle_id: str | None = msgspec.field(default=None, name="bundleID")
    slug: str | None = None
    version: str | None = None


async def validate_draft(request: RestRequest) -> RestResponse:
    data = await json_body(request.headers, request.receive, whole=True)
    draft = converted(data, DraftRequest)
    if (draft.tool is None) == (draft.bundle is None):
        raise InvalidError("the body: expected a tool or a bundle, and one of them only", "")
    service = request.context.bundles
    await service.keep_in_step()  # its function may have been switched on a moment ago

    def check() -> DraftReport:
        if draft.tool is None:
            return check_bundle_draft(draft.bundle or {})
        return check_tool_draft(service, draft.tool, draft.bundle_id, draft.slug, draft.version)

    return _response(request, await asyncio.to_thread(check), data)


async def validate_args(request: RestRequest) -> RestResponse | None:
    args = read_args(await json_body(request.headers, request.receive, empty={}))

    async def validate() -> DraftReport:
        service, visibility = request.context.bundles, await request.context.visibility()
        await service.keep_in_step()
        _, spec = await asyncio.to_thread(service.tool_and_spec, *request.path, visibility=visibility)
        _, faults = await check_arguments(spec, args, request.context.pre_processor_turns)
        return DraftReport(not faults, faults, [])

    return await _answer(request, validate(), args)


class PreviewDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool as PUT takes it, and arguments for it."""

    tool: dict[str, Any]
    bundle_id: str | None = msgspec.field(default=None, name="bundleID")
    args: dict[str, Any] = {}


async def preview(request: RestRequest) -> RestResponse | None:
    args = read_args(await json_body(request.headers, request.receive, empty={}))

    async def look() -> PreviewReport:
        service, visibility = request.context.bundles, await request.context.visibility()
        await service.keep_in_step()
        bundle_id, slug, version = request.path
        turns = request.context.pre_processor_turns
        return await preview_tool(service, (bundle_id, slug, version), args, turns, visibility)

    return await _answer(request, look(), args)


async def preview_of_draft(request: RestRequest) -> RestResponse | None:
    data = await json_body(request.headers, request.receive, whole=True)
    draft = converted(data, PreviewDraft)

    async def look() -> PreviewReport:
        service, turns = request.context.bundles, request.context.pre_processor_turns
        await service.keep_in_step()
        return await preview_draft(service, draft.tool, draft.bundle_id, draft.args, turns)

    return await _answer(request, look(), data)


async def _answer(
    request: RestRequest, work: Coroutine[Any, Any, DraftReport | PreviewReport], sent: Any
) -> RestResponse | None:
    """Respond with what the work gives. It ends with the client: then this is None."""
    with DisconnectWatch(request.receive):
        return _response(request, await work, sent)
    return None


def _response(request: RestRequest, report: DraftReport | PreviewReport, sent: Any) -> RestResponse:
    """Without secrets, except those that the client sent."""
    return RestResponse(200, encode(request.context.clean(msgspec.to_builtins(report), sent)))
