"""The handlers for authors of tools: copies with changes, renaming, examples, and drafts.

New versions are copies with changes, too. Draft routes check a tool or a bundle before it is stored, check arguments
before a call, and preview the requests of a call.
"""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from onetool.app.findings import requirements_of
from onetool.core.call import DRAFT, ToolCall, new_id
from onetool.core.registry import SingleTool
from onetool.core.work import run_in_thread
from onetool.http.asgi import encode
from onetool.http.response_stream import DisconnectWatch
from onetool.interfaces.rest.invoke import read_args, refuse_unrun
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import (
    RestRequest,
    RestResponse,
    created_at,
    etag,
    json_body,
    tool_address,
    with_etag,
)
from onetool.interfaces.rest.route import TOOL, RestRoute
from onetool.sources.bundles import drafts, editing
from onetool.sources.bundles.drafts import (
    DraftError,
    DraftReport,
    PreviewReport,
    Trial,
    TrialReport,
    check_arguments,
    check_bundle_draft,
    check_tool_draft,
    preview_tool,
)
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.model import Tool, shown
from onetool.sources.bundles.rate_limits import refuse_limited
from onetool.sources.bundles.validation import ExampleList, converted


@RestRoute(
    "POST",
    f"{TOOL}/copy",
    "Tools",
    role="edit",
    takes="ToolCopy",
    example={"version": "2.0", "changes": {"description": "The forecast for a city, for a week."}},
    gives=Tool,
    status=(201,),
    etag=True,
    errors=(404, 409),
)
async def copy_tool(request: RestRequest, data: Any) -> RestResponse | None:
    """Copy a tool, or store an edited copy as a new version.

    `changes` is a JSON Merge Patch (RFC 7396) for the tool: null removes a key. The copy has a new id, and its usage
    begins at 0. Built-in tools can be copied into bundles that aren't built in. Conditions are about the original:
    with `If-Match`, it is copied only if it is unchanged.
    """
    bundle_id, slug, version = request.path
    visibility = await request.context.visibility()

    def copy() -> RestResponse:
        request.expected_tag()
        place, tool, tag = editing.copy_tool(request.context.bundles, (bundle_id, slug, version), data, visibility)
        return created_at(request.context.clean_examples(tool), tag, tool_address(*place))

    return await request.work(run_in_thread(copy))


@RestRoute(
    "POST",
    f"{TOOL}/rename",
    "Tools",
    role="edit",
    takes="ToolRename",
    example={"slug": "weather-forecast"},
    gives=Tool,
    etag=True,
    headers=("Content-Location",),
    errors=(404, 409),
)
def rename_tool(request: RestRequest, data: Any) -> RestResponse:
    """Give a tool another slug or version.

    The tool keeps its id, its usage and whether it is enabled.
    """
    service, (bundle_id, slug, version) = request.context.bundles, request.path
    place = editing.rename_tool(service, (bundle_id, slug, version), data, request.expected_tag())
    request.context.app.catalog.refresh_sync()  # its name in code has changed, too
    tool, tag = service.get_tool(*place)
    body = encode(request.context.clean_examples(tool))
    return RestResponse(200, body, (etag(tag), (b"content-location", tool_address(*place).encode())))


# Examples


@RestRoute("GET", f"{TOOL}/examples", "Tools", gives=ExampleList, etag=True, errors=(404,), for_tools=True)
async def get_examples(request: RestRequest) -> RestResponse:
    """Get the examples of a tool. The ETag is that of the tool."""
    visibility = await request.context.visibility()
    service = request.context.bundles
    found, tag = await asyncio.to_thread(service.get_examples, *request.path, visibility=visibility)
    return request.tagged_response({"examples": found}, tag)


@RestRoute(
    "PUT",
    f"{TOOL}/examples",
    "Tools",
    takes=ExampleList,
    example={"examples": [{"name": "Oslo", "args": {"city": "Oslo"}}]},
    gives=ExampleList,
    etag=True,
    errors=(404, 409),
)
def put_examples(request: RestRequest, data: Any) -> RestResponse:
    """Replace the examples of a tool.

    Works for read-only tools, too. Help shows examples to users and models. An example has at most 16 KiB, a unique
    name, and no argument that the schema marks as secret. The tool's version and `modifiedAt` don't change.
    """
    service, (bundle_id, slug, version) = request.context.bundles, request.path
    found, tag = service.put_examples(bundle_id, slug, version, data, request.expected_tag())
    return with_etag({"examples": found}, tag)


# Drafts: checks before something is stored or sent


class DraftRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool or a bundle as in PUT, and the place of the tool."""

    tool: dict[str, Any] | None = None
    bundle: dict[str, Any] | None = None
    bundle_id: str | None = msgspec.field(default=None, name="bundleID")
    slug: str | None = None
    version: str | None = None


EXAMPLE_DRAFT = {"type": "script", "scriptImpl": {"code": "1 + 1"}}
EXAMPLE_HTTP = {"type": "http", "httpImpl": {"request": {"urlTemplate": "https://api.example.com/v1/forecast"}}}
EXAMPLE_CALL = {"args": {"city": "Oslo"}}


@RestRoute(
    "POST",
    "/tools/validate",
    "Drafts",
    role="edit",
    audited=False,
    takes="DraftRequest",
    example={"tool": EXAMPLE_DRAFT},
    gives=DraftReport,
)
async def validate_draft(request: RestRequest) -> RestResponse | None:
    """Check a tool or a bundle before it is stored.

    Nothing is stored. Pointers refer to the tool or the bundle. With `bundleID`, `slug` and `version`, the check covers
    whether the tool can be stored there.
    """
    data = await json_body(request, whole=True)
    draft = converted(data, DraftRequest)
    if (draft.tool is None) == (draft.bundle is None):
        raise InvalidError("expected either a tool or a bundle", "")
    service = request.context.bundles
    await service.keep_in_step()  # its function may just have been enabled

    def check() -> DraftReport:
        if draft.tool is None:
            return check_bundle_draft(draft.bundle or {})
        return check_tool_draft(service, draft.tool, draft.bundle_id, draft.slug, draft.version)

    return await _answer(request, run_in_thread(check), data)


@RestRoute("POST", f"{TOOL}/validate", "Drafts", takes="Call", example=EXAMPLE_CALL, gives=DraftReport, errors=(404,))
async def validate_args(request: RestRequest) -> RestResponse | None:
    """Check arguments before a call.

    Only the pre-processors of the tool run, for at most 5 s. Pointers refer to the arguments. `needs` lists the hosts
    and secrets that the tool still needs.
    """
    args = read_args(await json_body(request, empty={}))

    async def validate() -> DraftReport:
        service, visibility = request.context.bundles, await request.context.visibility()
        await service.keep_in_step()
        tool, spec = await run_in_thread(service.tool_and_spec, *request.path, visibility=visibility)
        _, faults = await check_arguments(spec, args)
        needs = await run_in_thread(requirements_of, request.context.app.runtime, [shown(tool)])
        return DraftReport(not faults, faults, [], tuple(needs.missing()))

    return await _answer(request, validate(), args)


class PreviewDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool as in PUT, and arguments."""

    tool: dict[str, Any]
    bundle_id: str | None = msgspec.field(default=None, name="bundleID")
    args: dict[str, Any] = {}


@RestRoute("POST", f"{TOOL}/preview", "Drafts", takes="Call", example=EXAMPLE_CALL, gives=PreviewReport, errors=(404,))
async def preview_call(request: RestRequest) -> RestResponse | None:
    """Preview the requests of a call.

    Nothing is sent. Only the pre-processors of the tool run; secrets are shown as `***`. Error pointers refer to
    the arguments.
    """
    args = read_args(await json_body(request, empty={}))

    async def look() -> PreviewReport:
        service, visibility = request.context.bundles, await request.context.visibility()
        await service.keep_in_step()
        bundle_id, slug, version = request.path
        return await preview_tool(service, (bundle_id, slug, version), args, visibility)

    return await _answer(request, look(), args)


@RestRoute(
    "POST",
    "/tools/preview",
    "Drafts",
    role="edit",
    audited=False,
    takes=PreviewDraft,
    example={"tool": EXAMPLE_DRAFT, "args": {}},
    gives=PreviewReport,
)
async def preview_draft(request: RestRequest) -> RestResponse | None:
    """Preview the requests of a tool before it is stored.

    Nothing is stored or sent, and secrets are shown as `***`. Error pointers begin with `/tool` or `/args`.
    """
    data = await json_body(request, whole=True)
    draft = converted(data, PreviewDraft)

    async def look() -> PreviewReport:
        service = request.context.bundles
        await service.keep_in_step()
        return await drafts.preview_draft(service, draft.tool, draft.bundle_id, draft.args)

    return await _answer(request, look(), data)


class TrialDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An HTTP tool as in PUT, and arguments."""

    tool: dict[str, Any]
    bundle_id: str | None = msgspec.field(default=None, name="bundleID")
    args: dict[str, Any] = {}
    confirmed: Annotated[bool, Meta(description="Also send methods other than GET and HEAD.")] = False


@RestRoute(
    "POST",
    "/tools/send",
    "Drafts",
    role="edit",
    audited=False,  # its call is in the audit log
    takes=TrialDraft,
    example={"tool": EXAMPLE_HTTP, "args": {}},
    gives=TrialReport,
    errors=(409, 429),
)
async def send_draft(request: RestRequest) -> RestResponse | None:
    """Try an HTTP tool before it is stored.

    Its requests are sent as in a call: only to allowed hosts, with secrets bound to them, within the limits of the
    tool, and with an entry in the audit log. Nothing is stored or counted. Without `confirmed`, methods other than GET
    and HEAD are refused with 409. Error pointers begin with `/tool` or `/args`.
    """
    draft = converted(await json_body(request, whole=True), TrialDraft)
    with DisconnectWatch(request.receive):
        context = request.context
        await context.bundles.keep_in_step()
        try:
            async with context.turn():
                trial = await run_in_thread(Trial, context.bundles, draft.tool, draft.bundle_id, draft.confirmed)
        except DraftError as error:
            raise RestError(
                400, error.code, str(error), part="body", pointer=error.pointer, errors=error.faults
            ) from None
        call = ToolCall(new_id(), trial.spec.name, draft.args, DRAFT)
        result = await context.app.call(call, context.allowed, tools=SingleTool(trial.spec))
        refuse_limited(result)
        if result.error is not None:
            refuse_unrun(result.error, "/args")
        return RestResponse(200, encode(msgspec.to_builtins(trial.report(result))))
    return None


async def _answer(
    request: RestRequest, work: Coroutine[Any, Any, DraftReport | PreviewReport], sent: Any
) -> RestResponse | None:
    """Do the work and respond with its report, without secrets, except those that the client sent."""
    report = await request.work(work)
    if report is None:  # the client has disconnected
        return None
    return RestResponse(200, encode(request.context.clean(msgspec.to_builtins(report), sent)))
