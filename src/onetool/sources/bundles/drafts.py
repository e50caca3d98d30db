"""Checks and previews of drafts. Only a trial sends requests; nothing is stored.

A preview of a call shows its requests, its code, or the call of its function.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.core.call import ToolError, ToolResult
from onetool.core.errors import BadArguments, Need, SchemaError, ToolFailure
from onetool.core.lenient import taken
from onetool.core.mismatch import described
from onetool.core.spec import ToolSpec
from onetool.core.work import run_in_thread
from onetool.http.preview import PreviewRequest
from onetool.http.upstream import UpstreamResponse
from onetool.sources.bundles.errors import ConflictError, Fault, InvalidError, invalid_at
from onetool.sources.bundles.model import SINCE, Tool, http_of
from onetool.sources.bundles.names import check_id, check_slug, check_version, derived_id
from onetool.sources.bundles.queries import EVERYTHING, Visibility
from onetool.sources.bundles.service import BundleService
from onetool.sources.bundles.validation import Faults, bundle_faults, read_tool

PRE_PROCESSORS_S = 5.0  # seconds for the pre-processors of one check
STAND_IN_SLUG, STAND_IN_VERSION = "tool", "1"


class DraftReport(msgspec.Struct, frozen=True):
    """The result of checking a draft. Warnings don't prevent storing the draft."""

    ok: Annotated[bool, Meta(description="Whether the draft could be stored.")]
    errors: list[Fault]
    warnings: Annotated[list[Fault], Meta(description="Why the tool can't be called for now.")]
    needs: Annotated[
        tuple[Need, ...], Meta(description="For a stored tool: hosts to allow and secrets to set before calls.")
    ] = ()


def check_bundle_draft(data: Mapping[str, Any]) -> DraftReport:
    faults = bundle_faults(data)
    return DraftReport(not faults, faults, [])


def check_tool_draft(
    service: BundleService,
    data: Mapping[str, Any],
    bundle_id: str | None = None,
    slug: str | None = None,
    version: str | None = None,
) -> DraftReport:
    """Check the draft as `put_tool` would with this bundle, slug and version. Blocks."""
    name = (slug or data.get("slug") or STAND_IN_SLUG, version or data.get("version") or STAND_IN_VERSION)
    content, made, found = service.check_tool(data, *name)
    faults = [*_place_faults(service, bundle_id, *name), *found.found]
    if faults or content is None:
        return DraftReport(False, faults, [])
    service.require_bound(content, made=made)
    return DraftReport(True, [], [Fault("/httpImpl", text) for text in service.warnings(made)])


def _place_faults(service: BundleService, bundle_id: str | None, slug: Any, version: Any) -> list[Fault]:
    faults = Faults()
    for key, check, value in (("slug", check_slug, slug), ("version", check_version, version)):
        with faults.at(f"/{key}"):
            if not isinstance(value, str):
                raise InvalidError(f"expected a string, got {described(value)}")
            check(value, None)
    if bundle_id is not None and not faults.found:
        _check_bundle(service, bundle_id, faults)
        if not faults.found and service.store.tool(bundle_id, slug, version) is not None:
            faults.add("/version", f"version {version} of {slug} already exists: choose another version")
    return faults.found


def _check_bundle(service: BundleService, bundle_id: str, faults: Faults) -> None:
    """Add why tools can't be added to the bundle."""
    with faults.at("/bundleID"):
        bundle = service.fresh.bundle(check_id(bundle_id, None))
        if bundle is None:
            raise InvalidError(f"there is no bundle {bundle_id}")
        if bundle.is_built_in or not bundle.is_enabled or bundle.soft_deleted_at is not None:
            raise InvalidError(f"the bundle {bundle.slug} can't be changed: it is read-only or disabled")


# Arguments


async def check_arguments(spec: ToolSpec, args: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Fault]]:
    """Return the arguments as the tool would get them, and their mistakes. Only pre-processors run."""
    try:
        if spec.prepare is not None and spec.prepare.handler is not None:
            async with asyncio.timeout(PRE_PROCESSORS_S):
                args = await spec.prepare.handler(args=args)
        result = await run_in_thread(taken, spec, args)  # compiling the schema may take a second
    except TimeoutError:
        return args, [Fault("", f"pre-processors took longer than {PRE_PROCESSORS_S:g} s, the limit for checks")]
    except BadArguments as error:
        return args, [Fault("", "; ".join([f"{error.argument}: {error}", *error.hints]))]
    except SchemaError as error:
        return args, [Fault("", f"{spec.name} has an unusable schema: {error}")]
    return result.args, [Fault(problem.pointer, str(problem)) for problem in result.problems]


# Previews of calls

DRAFT = derived_id("a draft")
SLUG, VERSION = "draft", "1"


class PreviewReport(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of an HTTP tool, the code of a script, or the call of any other tool; or the mistakes."""

    requests: Annotated[tuple[PreviewRequest, ...] | UnsetType, Meta(description="Empty if there are mistakes.")] = (
        UNSET
    )
    code: Annotated[str | UnsetType, Meta(description="For a script: the code that would run.")] = UNSET
    call: Annotated[str | UnsetType, Meta(description="For any other tool: the call in code.")] = UNSET
    errors: tuple[Fault, ...] | UnsetType = UNSET


async def preview_tool(
    service: BundleService,
    place: tuple[str, str, str],
    args: Mapping[str, Any],
    visibility: Visibility = EVERYTHING,
) -> PreviewReport:
    tool, spec = await run_in_thread(service.tool_and_spec, *place, visibility=visibility)
    checked, faults = await check_arguments(spec, args)
    return _failed_preview(faults, "") if faults else await _preview(service, tool, checked)


async def preview_draft(
    service: BundleService,
    data: Mapping[str, Any],
    bundle_id: str | None,
    args: Mapping[str, Any],
) -> PreviewReport:
    """Preview a call of a draft. Error pointers begin with `/tool` or `/args`."""
    report = await run_in_thread(check_tool_draft, service, data)
    if report.errors:
        return _failed_preview(report.errors, "/tool")
    tool = _read_draft(data, bundle_id)
    spec = await run_in_thread(service.spec_of_draft, tool)
    checked, faults = await check_arguments(spec, args)
    return _failed_preview(faults, "/args") if faults else await _preview(service, tool, checked, "/args")


def _read_draft(data: Mapping[str, Any], bundle_id: str | None) -> Tool:
    name = data.get("slug") or SLUG, data.get("version") or VERSION
    content = msgspec.structs.asdict(read_tool(data, *name))
    places = {"id": DRAFT, "bundle_id": bundle_id or DRAFT, "slug": name[0], "version": name[1]}
    return Tool(**content, **places, created_at=SINCE, modified_at=SINCE)


# A trial: the requests of a draft are sent

SAFE_METHODS = ("GET", "HEAD")  # methods that are sent without confirmation


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """The responses to the requests of an HTTP tool, and the value that the tool would return."""

    responses: Annotated[list[UpstreamResponse], Meta(description="In the order of the requests.")]
    ok: Annotated[bool, Meta(description="Whether the tool would return a value.")]
    value: Annotated[Any, Meta(description="The value that the tool would return.")] = UNSET
    error: Annotated[ToolError | UnsetType, Meta(description="Why the tool would fail.")] = UNSET


class Trial:
    """A draft of an HTTP tool that is ready to be called. The call fills `responses`."""

    def __init__(self, service: BundleService, data: Mapping[str, Any], bundle_id: str | None, confirmed: bool) -> None:
        """Check the draft as storing it would. Blocks. Raises DraftError, ConflictError or ForbiddenError."""
        faults = Faults()
        for fault in check_tool_draft(service, data).errors:
            faults.add(f"/tool{fault.pointer}", fault.message)
        if bundle_id is not None:
            _check_bundle(service, bundle_id, faults)
        if not faults.found and data["type"] != "http":
            faults.add("/tool/type", "only HTTP tools can be tried")
        if faults.found:
            raise DraftError(faults.found)
        tool = _read_draft(data, None if bundle_id is None else check_id(bundle_id))
        unsafe = [step.request.method for step in http_of(tool).steps if step.request.method not in SAFE_METHODS]
        if unsafe and not confirmed:
            raise ConflictError(f"a {unsafe[0]} may change something: send it with confirmed: true", "not_confirmed")
        self.responses: list[UpstreamResponse] = []
        self.spec = service.spec_of_draft(tool, self.responses.append)
        self.spec.compile()

    def report(self, result: ToolResult) -> TrialReport:
        value = {"error": result.error} if result.error is not None else {"value": result.data}
        return TrialReport(responses=self.responses, ok=result.ok, **value)


class DraftError(InvalidError):
    """An error for a draft that can't be tried. `faults` are all its mistakes."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(str(invalid_at(faults[0].pointer.removeprefix("/tool"), faults[0].message)), faults[0].pointer)
        self.faults = faults


async def _preview(service: BundleService, tool: Tool, args: Mapping[str, Any], args_at: str = "") -> PreviewReport:
    try:
        preview = await run_in_thread(service.preview, tool, args)
    except ToolFailure as failure:
        argument = failure.argument if isinstance(failure, BadArguments) else None
        pointer = f"/{argument}" if argument else ""
        return _failed_preview([Fault(pointer, "; ".join([str(failure), *failure.hints]))], args_at)
    return PreviewReport(**preview)


def _failed_preview(faults: list[Fault], below: str) -> PreviewReport:
    errors = tuple(Fault(f"{below}{fault.pointer}", fault.message) for fault in faults)
    return PreviewReport(requests=(), errors=errors)
