"""What a call of a tool would do, for somebody to look at: its requests, its code, or the call of its function."""

from asyncio import to_thread
from collections.abc import Mapping
from typing import Any

import msgspec

from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.spec import ToolSpec
from onetool.http.tool_request import PreviewRequest
from onetool.sources.bundles.drafts import DraftFault, PreProcessorTurns, check_arguments, check_tool_draft
from onetool.sources.bundles.model import SINCE, Tool
from onetool.sources.bundles.names import derived_id
from onetool.sources.bundles.service import BundleService
from onetool.sources.bundles.store import EVERYTHING, Visibility
from onetool.sources.bundles.validation import read_tool

DRAFT = derived_id("a draft")
SLUG, VERSION = "draft", "1"


class PreviewReport(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of an HTTP tool, the code of a script, the call of any other; or what is wrong with the arguments."""

    requests: tuple[PreviewRequest, ...] | msgspec.UnsetType = msgspec.UNSET
    code: str | msgspec.UnsetType = msgspec.UNSET
    call: str | msgspec.UnsetType = msgspec.UNSET
    errors: tuple[DraftFault, ...] | msgspec.UnsetType = msgspec.UNSET


async def preview_tool(
    service: BundleService,
    place: tuple[str, str, str],
    args: Mapping[str, Any],
    turns: PreProcessorTurns,
    visibility: Visibility = EVERYTHING,
) -> PreviewReport:
    tool, spec = await to_thread(service.tool_and_spec, *place, visibility=visibility)
    given, faults = await check_arguments(spec, args, turns)
    return _wrong(faults, "") if faults else await _preview(service, tool, given)


async def preview_draft(
    service: BundleService,
    data: Mapping[str, Any],
    bundle_id: str | None,
    args: Mapping[str, Any],
    turns: PreProcessorTurns,
) -> PreviewReport:
    """Pointers of errors begin with `/tool` or `/args`."""
    report = await to_thread(check_tool_draft, service, data)
    if report.errors:
        return _wrong(report.errors, "/tool")
    tool, spec = await to_thread(_read_draft, service, data, bundle_id)
    given, faults = await check_arguments(spec, args, turns)
    return _wrong(faults, "/args") if faults else await _preview(service, tool, given, "/args")


def _read_draft(service: BundleService, data: Mapping[str, Any], bundle_id: str | None) -> tuple[Tool, ToolSpec]:
    named = data.get("slug") or SLUG, data.get("version") or VERSION
    content = msgspec.structs.asdict(read_tool(data, *named))
    places = {"id": DRAFT, "bundle_id": bundle_id or DRAFT, "slug": named[0], "version": named[1]}
    tool = Tool(**content, **places, created_at=SINCE, modified_at=SINCE)
    return tool, service.spec_of_draft(tool)


async def _preview(service: BundleService, tool: Tool, args: Mapping[str, Any], args_at: str = "") -> PreviewReport:
    try:
        found = await to_thread(service.preview, tool, args)
    except ToolFailure as failure:
        argument = failure.argument if isinstance(failure, BadArguments) else None
        pointer = f"/{argument}" if argument else ""
        return _wrong([DraftFault(pointer, "; ".join([str(failure), *failure.hints]))], args_at)
    return PreviewReport(**found)


def _wrong(faults: list[DraftFault], below: str) -> PreviewReport:
    errors = tuple(DraftFault(f"{below}{one.pointer}", one.message) for one in faults)
    return PreviewReport(requests=(), errors=errors)
