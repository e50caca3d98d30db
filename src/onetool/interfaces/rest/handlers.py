"""The handlers of bundles and tools, except invoke. The bundle store blocks, so all handlers run in threads."""

import asyncio
from collections.abc import Callable, Collection
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from onetool.app.operations.fields import (
    MAX_IN_LIST,
    MAX_PER_PAGE,
    PER_PAGE,
    SPLIT,
    BundleIds,
    IncludeDisabled,
    Pages,
    PageToken,
    Query,
    Search,
)
from onetool.app.operations.paging import page_token, read_page_token
from onetool.core.work import run_in_thread
from onetool.http.asgi import encode
from onetool.interfaces.rest.query import BUNDLE_FIELDS, TOOL_FIELDS, check_fields, fields_of, picked
from onetool.interfaces.rest.request import (
    ANY,
    NO_CONTENT,
    USED,
    RestRequest,
    RestResponse,
    conditions,
    created_at,
    list_response,
    tool_address,
    with_etag,
)
from onetool.interfaces.rest.route import BUNDLE, TOOL, RestRoute
from onetool.sources.bundles.editing import VersionSwitches, switch_versions
from onetool.sources.bundles.errors import ConflictError, OutdatedError
from onetool.sources.bundles.model import Bundle, BundleContent, Tool, ToolContent
from onetool.sources.bundles.names import check_id
from onetool.sources.bundles.queries import ListQuery, Rank

ReadMore = Callable[[Any, int], tuple[list[dict[str, Any]], Any]]
"""Reads items from a position: (position, count) -> (items, next position)."""


async def list_page(
    request: RestRequest,
    name: str,
    known: Collection[str],
    size: int,
    more: ReadMore,
    position_type: type[Any] = str,
) -> RestResponse:
    """Respond with one page of a list. The token is null on the last page."""

    fields = request.query.fields
    check_fields(fields, known)

    def build() -> RestResponse:
        things, end = more(read_page_token(request.context, request.query, position_type), size)
        rows = picked([request.context.clean_examples(thing) for thing in things], fields)
        return list_response(
            request.headers, encode({name: rows, "nextPageToken": page_token(request.context, request.query, end)})
        )

    return await asyncio.to_thread(build)


# Bundles


class BundleQuery(Pages, frozen=True):
    """The bundles that are listed."""

    bundle_ids: BundleIds = msgspec.field(default=(), name="bundleIDs")
    include_disabled: IncludeDisabled = False
    fields: Annotated[tuple[str, ...] | None, fields_of(BUNDLE_FIELDS)] = None


def _ids(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(check_id(one, "/bundleIDs") for one in given)


EXAMPLE_BUNDLE = {"slug": "weather", "displayName": "Weather", "description": "Forecasts.", "isEnabled": True}
EXAMPLE_SWITCH = {"isEnabled": False}


@RestRoute(
    "GET",
    "/tools/bundles",
    "Bundles",
    query=BundleQuery,
    gives="BundlePage",
    etag=True,
    for_tools=True,
)
async def list_bundles(request: RestRequest) -> RestResponse:
    """List bundles."""
    query, service, visibility = request.query, request.context.bundles, await request.context.visibility()
    chosen = ListQuery(bundle_ids=_ids(query.bundle_ids), include_disabled=query.include_disabled)
    return await list_page(
        request,
        "bundles",
        BUNDLE_FIELDS,
        query.page_size,
        lambda position, size: service.bundles(replace(chosen, after=position, limit=size), visibility),
    )


@RestRoute("GET", BUNDLE, "Bundles", gives=Bundle, etag=True, errors=(404,), for_tools=True)
async def get_bundle(request: RestRequest) -> RestResponse:
    """Get a bundle."""
    bundle, tag = await asyncio.to_thread(
        request.context.bundles.get_bundle, *request.path, visibility=await request.context.visibility()
    )
    return request.tagged_response(bundle, tag)


@RestRoute(
    "PUT",
    BUNDLE,
    "Bundles",
    takes=BundleContent,
    example=EXAMPLE_BUNDLE,
    gives=Bundle,
    status=(200, 201),
    etag=True,
    errors=(409,),
    links=("getBundle", "patchBundle", "deleteBundle", "putTool"),
)
async def put_bundle(request: RestRequest, data: Any) -> RestResponse:
    """Create or replace a bundle.

    This also restores a deleted bundle that was not removed yet. If its slug is taken, `warnings` tell by what.
    """
    service, (id,), create_only = request.context.bundles, request.path, ANY in conditions(request.headers).known
    match = request.expected_tag(may_be_new=True)
    try:
        bundle, tag, is_new = await asyncio.to_thread(service.put_bundle, id, data, match, create_only)
    except ConflictError as error:
        if create_only:  # another request was faster
            raise OutdatedError(str(error)) from None
        raise
    if (unnamed := await service.why_unnamed(id)) is not None:
        bundle["warnings"] = [unnamed]
    return created_at(bundle, tag, f"/tools/bundles/{id}") if is_new else with_etag(bundle, tag)


@RestRoute(
    "PATCH", BUNDLE, "Bundles", takes="Switch", example=EXAMPLE_SWITCH, gives=Bundle, etag=True, errors=(404, 409)
)
def patch_bundle(request: RestRequest, data: Any) -> RestResponse:
    """Enable or disable a bundle.

    Built-in bundles can't be changed otherwise.
    """
    return with_etag(*request.context.bundles.patch_bundle(request.path[0], data, request.expected_tag()))


@RestRoute("DELETE", BUNDLE, "Bundles", status=(204,), etag=True, errors=(404, 409))
def delete_bundle(request: RestRequest) -> RestResponse:
    """Delete a bundle.

    Refused while the bundle has tools. It is removed after two days; until then, PUT restores it.
    """
    request.context.bundles.delete_bundle(request.path[0], request.expected_tag())
    return NO_CONTENT


# Tools

Fields = Annotated[tuple[str, ...] | None, fields_of(TOOL_FIELDS)]


class ToolQuery(Query, frozen=True):
    """The tools that are listed."""

    tags: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MAX_IN_LIST,
            description="Tools with any of these tags: `tags=a&tags=b` or `tags=a,b`.",
            extra=SPLIT,
        ),
    ] = ()
    bundle_ids: BundleIds = msgspec.field(default=(), name="bundleIDs")
    include_disabled: IncludeDisabled = False
    recommended_page_size: Annotated[
        int, Meta(ge=1, description=f"Maximum number of items. More than {MAX_PER_PAGE} means {MAX_PER_PAGE}.")
    ] = PER_PAGE
    page_token: PageToken = None
    fields: Fields = None


class SearchQuery(Pages, frozen=True):
    """The tools that are searched."""

    q: Search = ""
    include_disabled: IncludeDisabled = False
    fields: Fields = None


EXAMPLE_TOOL: dict[str, Any] = {
    "type": "http",
    "displayName": "Forecast",
    "description": "The forecast for a city.",
    "tags": ["weather"],
    "isEnabled": True,
    "argSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "outputSchema": {},
    "httpImpl": {
        "request": {
            "method": "GET",
            "urlTemplate": "https://api.example.com/v1/${city}",
            "auth": {"type": "bearer", "value": "${WEATHER_TOKEN}"},
            "retries": 2,
        },
        "response": {"selector": "daily[0]"},
    },
    "limits": {"maxCallsPerMinute": 60},
}


@RestRoute(
    "GET",
    "/tools/tools",
    "Lists",
    query=ToolQuery,
    gives="ToolPage",
    etag=True,
    for_tools=True,
)
async def list_tools(request: RestRequest) -> RestResponse:
    """List tools of all bundles."""
    query, service, visibility = request.query, request.context.bundles, await request.context.visibility()
    await service.keep_in_step()  # the name of a tool in code depends on other tools
    chosen = ListQuery(query.tags, _ids(query.bundle_ids), query.include_disabled)
    return await list_page(
        request,
        "tools",
        TOOL_FIELDS,
        min(query.recommended_page_size, MAX_PER_PAGE),
        lambda position, count: service.tools(replace(chosen, after=position, limit=count), visibility),
    )


@RestRoute(
    "GET",
    "/tools/tools/search",
    "Lists",
    query=SearchQuery,
    gives="ToolPage",
    etag=True,
    for_tools=True,
)
async def search_tools(request: RestRequest) -> RestResponse:
    """Search tools.

    Prefixes of names come before whole words, and these before similar words; then the newest first.
    """
    query, service, visibility = request.query, request.context.bundles, await request.context.visibility()
    await service.keep_in_step()  # the name of a tool in code depends on other tools
    chosen = (query.q, query.include_disabled)
    return await list_page(
        request,
        "tools",
        TOOL_FIELDS,
        query.page_size,
        lambda position, count: service.search(*chosen, position, count, visibility),
        Rank,
    )


@RestRoute("GET", TOOL, "Tools", gives=Tool, etag=True, errors=(404,), for_tools=True)
async def get_tool(request: RestRequest) -> RestResponse:
    """Get a tool."""
    await request.context.bundles.keep_in_step()
    tool, tag = await asyncio.to_thread(
        request.context.bundles.get_tool, *request.path, visibility=await request.context.visibility()
    )
    if tool["callCount"]:
        tag += f"{USED}{tool['callCount']}"
    return request.tagged_response(tool, tag)


VERSIONS = "/tools/bundles/{bundleID}/tools/{toolSlug}/versions"
VERSION_KEYS = (
    *("version", "displayName", "isEnabled", "isDefault", "createdAt", "modifiedAt", "callCount", "lastCalledAt"),
    *("name", "health"),
)


@RestRoute("GET", VERSIONS, "Tools", gives="VersionList", errors=(404,), for_tools=True)
async def list_versions(request: RestRequest) -> RestResponse:
    """List the versions of a tool, newest first."""
    service, visibility = request.context.bundles, await request.context.visibility()
    await service.keep_in_step()
    found = await asyncio.to_thread(service.versions, *request.path, visibility=visibility)
    return _version_list(found)


@RestRoute(
    "PATCH", VERSIONS, "Tools", takes=VersionSwitches, example=EXAMPLE_SWITCH, gives="VersionList", errors=(404, 409)
)
async def patch_versions(request: RestRequest, data: Any) -> RestResponse:
    """Enable or disable all versions of a tool, or the named ones."""
    service, (bundle_id, slug) = request.context.bundles, request.path
    await asyncio.to_thread(switch_versions, service, bundle_id, slug, data)
    await service.keep_in_step()
    return _version_list(await asyncio.to_thread(service.versions, bundle_id, slug))


def _version_list(found: list[dict[str, Any]]) -> RestResponse:
    return RestResponse(200, encode({"versions": [{key: row[key] for key in VERSION_KEYS} for row in found]}))


@RestRoute(
    "PUT",
    TOOL,
    "Tools",
    takes=ToolContent,
    example=EXAMPLE_TOOL,
    gives=Tool,
    status=(201,),
    etag=True,
    errors=(404, 409),
    links=("getTool", "patchTool", "deleteTool", "invokeTool"),
)
async def put_tool(request: RestRequest, data: Any) -> RestResponse | None:
    """Create a tool.

    An existing version is never replaced (409): use another version, or delete the existing one first.
    """
    service, (bundle_id, slug, version) = request.context.bundles, request.path
    await service.keep_in_step()  # its function may just have been enabled

    def put() -> RestResponse:
        request.expected_tag(may_be_new=True)
        tool, tag = service.put_tool(bundle_id, slug, version, data)
        return created_at(tool, tag, tool_address(bundle_id, slug, version))

    return await request.work(run_in_thread(put))


@RestRoute("PATCH", TOOL, "Tools", takes="Switch", example=EXAMPLE_SWITCH, gives=Tool, etag=True, errors=(404, 409))
def patch_tool(request: RestRequest, data: Any) -> RestResponse:
    """Enable or disable one version of a tool.

    If another version gets the tool's name, `takesOver` names it.
    """
    tool, tag = request.context.bundles.patch_tool(*request.path, data=data, match=request.expected_tag())
    return with_etag(request.context.clean_examples(tool), tag)


@RestRoute("DELETE", TOOL, "Tools", status=(204,), etag=True, errors=(404, 409))
def delete_tool(request: RestRequest) -> RestResponse:
    """Delete a tool. This can't be undone."""
    request.context.bundles.delete_tool(*request.path, match=request.expected_tag())
    return NO_CONTENT
