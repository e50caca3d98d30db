"""The handlers that import bundles and tools (ZIP, curl, OpenAPI), and the one that exports a bundle as ZIP.

They share their code with `onetool bundles import`, `add-curl` and `export`. A dry run changes nothing and has the same
response and status as the real request.
"""

import asyncio
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta

from onetool.app.bundles import live_bundle
from onetool.app.findings import requirements_of
from onetool.app.grants import check_new_secret
from onetool.app.import_report import (
    ImportedBundle,
    ImportedTool,
    ImportNeeds,
    ImportReport,
    Remark,
    SecretUse,
    reloaded,
)
from onetool.app.operations.fields import DryRun, Texts, Url
from onetool.core.work import run_in_thread
from onetool.http.asgi import JSON, encode, read_body
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import SENT_BODY, RestRequest, RestResponse, etag, is_known, parse_json
from onetool.interfaces.rest.route import BUNDLE, RestRoute
from onetool.sources.bundles.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, invalid_at
from onetool.sources.bundles.model import Tool, shown
from onetool.sources.bundles.names import Slug, Version, check_slug
from onetool.sources.bundles.queries import Visibility
from onetool.sources.bundles.validation import converted

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.app.bundle_import import ImportOptions

ZIP = b"application/zip"
YAML = b"application/yaml"
BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


class ArchiveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ZIP archive in Base64, for clients that can send only JSON."""

    archive: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64", "pattern": BASE64})]


class ArchiveQuery(DryRun, frozen=True):
    """The options of an import of a bundle."""

    slug: Annotated[Slug | None, Meta(description="The slug of the bundle, instead of its own.")] = msgspec.field(
        default=None, name="as"
    )


class OpenapiQuery(ArchiveQuery, frozen=True):
    """The options of an import of an OpenAPI document."""

    base_url: Annotated[Url | None, Meta(description="The address of the API, if the document has none.")] = None
    token: Annotated[bool, Meta(description="Send a bearer token if the document doesn't mention authentication.")] = (
        False
    )
    url: Annotated[
        Url | None, Meta(description="The address of the document, on an allowed host; then the body is `{}`.")
    ] = None
    only: Annotated[
        Texts, Meta(description="Only operations whose path (`/users/*`) or tool name (`list-*`) matches.")
    ] = ()
    tag: Annotated[Texts, Meta(description="Only operations with one of these tags.")] = ()
    operation: Annotated[
        Texts,
        Meta(
            description="Only these operations: an operationId, or a method and a path.",
            examples=[["GET /users/{id}"]],
        ),
    ] = ()


class CurlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A curl command, and the place and names of the tool made from it."""

    command: Annotated[str, Meta(description="The command line: `curl https://…`.")]
    bundle: Annotated[str, Meta(description="The slug or id of a bundle; a missing bundle is created.")]
    tool: Slug
    version: Version = "1"
    description: Annotated[str | None, Meta(description="The description of the tool.")] = None
    secrets: Annotated[
        dict[str, str], Meta(description="New names for secrets, by the names of `secrets` in the report of a dry run.")
    ] = {}


@RestRoute(
    "POST",
    "/tools/imports/zip",
    "Imports",
    role="edit",
    query=ArchiveQuery,
    takes=ArchiveRequest,
    example={"archive": "UEsDBA=="},
    media=(ZIP,),
    gives=ImportReport,
    errors=(409,),
)
async def import_zip(request: RestRequest) -> RestResponse | None:
    """Import a ZIP archive of a bundle.

    Imports everything or nothing, like `onetool bundles import`.
    """
    from onetool.app.bundle_import import ImportOptions

    data = await _body(request, (ZIP, JSON))
    is_json = request.headers.get(b"content-type", b"").lower().startswith(JSON)

    def work() -> RestResponse:
        archive = _decode_archive(data) if is_json and not data.startswith(b"PK") else data
        if not archive.startswith(b"PK"):
            raise InvalidError("the body is not a ZIP archive; `onetool bundles export` makes one", "")
        return _import(request, archive, ImportOptions(_slug(request.query.slug)))

    return await request.work(run_in_thread(work))


def _decode_archive(data: bytes) -> bytes:
    asked = converted(parse_json(data), ArchiveRequest)
    try:
        return b64decode(asked.archive, validate=True)
    except ValueError:
        raise invalid_at("/archive", "expected a ZIP archive in Base64") from None


@RestRoute(
    "POST",
    "/tools/imports/openapi",
    "Imports",
    role="edit",
    query=OpenapiQuery,
    takes=dict,
    example={
        "openapi": "3.1.0",
        "info": {"title": "Weather", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {"/v1/forecast": {"get": {"operationId": "forecast", "responses": {"200": {"description": "It."}}}}},
    },
    media=(YAML,),
    gives=ImportReport,
    errors=(409,),
)
async def import_openapi(request: RestRequest) -> RestResponse | None:
    """Make tools from an OpenAPI 3 document.

    Each operation becomes a tool; `skipped` lists the operations that can't. Send the document as the body, in JSON or
    YAML, or its address as `url`. `only`, `tag` and `operation` select operations that match all of them. Imports
    everything or nothing.
    """
    from onetool.app.bundle_import import ImportOptions, fetch_document

    query = request.query
    data = await _body(request, (JSON, YAML))
    if url := _http_url(query.url, "/url"):
        if data.strip() not in (b"", b"{}"):
            raise InvalidError("send either the document or url=, not both", "")
        data = await fetch_document(request.context.app, url)
    if data.startswith(b"PK"):
        raise InvalidError("this is a ZIP archive: send it to /tools/imports/zip", "")
    options = ImportOptions(
        slug=_slug(query.slug),
        base_url=_http_url(query.base_url, "/baseUrl"),
        document_url=url,
        token=query.token,
        only=query.only,
        tag=query.tag,
        operation=query.operation,
    )
    return await request.work(run_in_thread(_import, request, data, options))


@RestRoute(
    "POST",
    "/tools/imports/curl",
    "Imports",
    role="edit",
    query=DryRun,
    takes=CurlRequest,
    example={"command": "curl https://api.example.com/v1/forecast?city=Oslo", "bundle": "weather", "tool": "forecast"},
    gives=ImportReport,
    errors=(409,),
)
async def import_curl(request: RestRequest, asked: CurlRequest) -> RestResponse | None:
    """Make a tool from a curl command.

    The command is not run. Values that may differ between calls become arguments. Credentials go into the secrets file
    of the server; the tool has only their names.
    """
    return await request.work(run_in_thread(_import_curl, request, asked))


def _slug(text: str | None) -> str | None:
    return None if text is None else check_slug(text, "/as")


def _http_url(text: str | None, pointer: str) -> str | None:
    if text is not None and not text.lower().startswith(("http://", "https://")):
        raise invalid_at(pointer, "expected a URL of http or https")
    return text


def _import_curl(request: RestRequest, asked: CurlRequest) -> RestResponse:
    from onetool.app.bundle_import import SecretsNotKeptError, assemble, read_curl, secrets_stored

    app, dry_run = request.context.app, request.query.dry_run
    known = app.config.secrets
    found = read_curl(asked.command, asked.tool, asked.description, known, reuse=False, names=asked.secrets)
    content, secrets = found.tool, found.secrets
    for name in set(asked.secrets.values()) & secrets.keys():
        check_new_secret(app, name, (found.host,))
    bindings = dict.fromkeys(secrets, (found.host,))
    try:
        home = app.bundles.get_bundle(asked.bundle)[0]
    except (InvalidError, NotFoundError):
        home = live_bundle(app.bundles, asked.bundle)
    slug = home["slug"] if home else asked.bundle
    bundle, (tool,) = assemble({"slug": slug}, [(asked.tool, asked.version, content)], home["id"] if home else None)
    app.bundles.check_new(tool, bindings)
    _refuse_place(app, home, tool)
    if not dry_run:
        try:
            with secrets_stored(known, secrets, found.host):
                if home is None:
                    app.bundles.put_all(bundle, [tool], bindings)
                else:
                    app.bundles.put_tool(bundle.id, tool.slug, tool.version, content, bindings)
        except SecretsNotKeptError as error:
            raise RestError(409, "secrets_not_kept", str(error)) from None
        except NotFoundError as error:  # it was just removed
            raise ConflictError(str(error)) from None
    needs = requirements_of(app.runtime, [shown(tool)])
    needs = needs._replace(secrets=tuple(one for one in needs.secrets if one.name not in secrets))
    report = ImportReport(
        dry_run=dry_run,
        bundles=[ImportedBundle(bundle.id, bundle.slug, "same" if home else "new")],
        tools=[ImportedTool(tool.slug, tool.version, "new")],
        warnings=[
            *(Remark(tool.slug, note) for note in found.notes),
            *(reloaded(app.reload_settings) if secrets and not dry_run else ()),
        ],
        secrets_kept=list(secrets),
        secret_names=[SecretUse(name, used, used in secrets) for name, used in found.names.items()],
        needs=msgspec.convert(needs.shown(), ImportNeeds),
    )
    return RestResponse(200, encode(report))


@RestRoute("GET", f"{BUNDLE}/export", "Bundles", sends=(ZIP.decode(),), etag=True, errors=(404,))
async def export_bundle(request: RestRequest) -> RestResponse:
    """Get a bundle with its tools as a ZIP archive.

    The archive contains no secrets: tools have only their names.
    """
    visibility = await request.context.visibility()
    return await asyncio.to_thread(_export, request, visibility)


def _export(request: RestRequest, visibility: Visibility) -> RestResponse:
    from onetool.app.bundle_import import tools_of
    from onetool.sources.bundles.archive import pack

    app, (id,) = request.context.app, request.path
    bundle, _ = app.bundles.get_bundle(id, visibility=visibility)
    found = app.bundles.store.bundle(bundle["id"])
    if bundle["isBuiltIn"] or found is None:
        raise ForbiddenError(f"{bundle['slug']} is built in and can't be exported: every OneTool has it", "built_in")
    data = pack(found, [tool for tool in tools_of(app, found) if visibility.tool(tool)])
    tag = sha256(data).hexdigest()[:24]
    name = quote(f"{found.slug}.zip", safe="")
    if is_known(request.headers, tag):
        return RestResponse(304, headers=(etag(tag),))
    disposition = f"attachment; filename*=UTF-8''{name}".encode()
    return RestResponse(200, data, (etag(tag), (b"content-disposition", disposition)), ZIP)


# The work of the handlers, in threads


def _import(request: RestRequest, data: bytes, options: "ImportOptions") -> RestResponse:
    from onetool.app.bundle_import import name_taken, read_import, store_import

    app, dry_run = request.context.app, request.query.dry_run
    arrival = read_import(app, data, options)
    plan = arrival.plan
    if plan.refused:
        reasons = "; ".join(plan.refused)
        raise InvalidError(reasons) if arrival.is_invalid else ConflictError(reasons)
    taken = name_taken(app, plan.bundle.slug) if plan.is_new else None
    remarks = [] if dry_run else store_import(app, arrival)
    warnings = [Remark(*one) for one in (*arrival.notes, *remarks)]
    warnings += [Remark(plan.bundle.slug, taken)] if taken else []
    report = ImportReport(
        dry_run=dry_run,
        bundles=[ImportedBundle(plan.bundle.id, plan.bundle.slug, plan.rows[0].what)],
        tools=[ImportedTool(row.slug, row.version, row.what) for row in plan.rows[1:]],
        skipped=[Remark(*one) for one in arrival.skipped],
        warnings=warnings,
        needs=msgspec.convert(requirements_of(app.runtime, map(shown, arrival.tools)).shown(), ImportNeeds),
    )
    return RestResponse(200, encode(report))


def _refuse_place(app: "App", home: Mapping[str, Any] | None, tool: Tool) -> None:
    """Raise the errors that storing the tool would raise, so that a dry run reports them, too."""
    if home is None:
        return
    name = f"{home['slug']}/{tool.slug}@{tool.version}"
    if home["isBuiltIn"]:
        raise ForbiddenError(f"{home['slug']} is built in: it can only be enabled and disabled", "built_in")
    if not home["isEnabled"] or home["softDeletedAt"] is not None:
        raise ForbiddenError(
            f"the bundle {home['slug']} is disabled or deleted: no tool can be added to it", "disabled"
        )
    if app.bundles.store.tool(home["id"], tool.slug, tool.version) is not None:
        raise ConflictError(f"{name} already exists and was not changed: choose another version", "exists")


async def _body(request: RestRequest, kinds: tuple[bytes, ...]) -> bytes:
    """Return the raw body if its media type is one of these."""
    media_type = request.headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if media_type not in kinds:
        wanted = " or ".join(kind.decode() for kind in kinds)
        raise RestError(415, "unsupported_media_type", f"Send `Content-Type: {wanted}`.")
    data = request.scope[SENT_BODY] = await read_body(request.receive)
    if data is None:
        raise RestError(400, "incomplete", "The client disconnected in the middle of its request.")
    return data
