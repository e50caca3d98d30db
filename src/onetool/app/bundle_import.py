"""Imports tools from a ZIP archive of a bundle, an OpenAPI document or a curl command, for the command line and REST.

`read_import` works out what would change, `store_import` stores all of it or nothing. An archive or a document that is
invalid as a whole is refused. An operation of a document that can't become a tool is skipped and reported. The
credentials of a curl command become secrets.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from time import time
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from onetool.app.app import App
from onetool.app.bundles import PAGE, live_bundle
from onetool.config.fill import SECRETS_IN_CONFIG, check_kept
from onetool.core.errors import OneToolError, ToolFailure
from onetool.core.os_files import MAX_INPUT_BYTES
from onetool.http.allowed_hosts import binding_for, is_bound_to
from onetool.http.url import HttpRequest, Url, parse_url, split
from onetool.services.secret_file import NAME as SECRET_NAME
from onetool.services.secret_file import SecretExistsError, drop_secret, has_secret, put_secret
from onetool.services.secrets import Secrets
from onetool.sources.bundles.archive import ImportPlan, Unpacked, plan, unpack
from onetool.sources.bundles.curl import from_curl
from onetool.sources.bundles.errors import InvalidError, invalid_at
from onetool.sources.bundles.model import Bundle, Tool, http_of
from onetool.sources.bundles.names import check_slug, check_version, code_name, new_id
from onetool.sources.bundles.openapi import OpenApiImport, Selection, url_key
from onetool.sources.bundles.queries import ListQuery
from onetool.sources.bundles.store.text import time_text
from onetool.sources.bundles.validation import read_bundle, read_tool

FETCH_SECONDS = 60.0


class ImportRemark(NamedTuple):
    about: str
    why: str


class BundleImport(NamedTuple):
    plan: ImportPlan
    tools: list[Tool]  # all tools of the source
    skipped: list[ImportRemark]  # operations that can't become tools
    notes: list[ImportRemark]  # differences between the source and the tools
    is_invalid: bool = False  # refused because of its content, not because of what is stored here


class ImportOptions(NamedTuple):
    slug: str | None = None
    base_url: str | None = None
    document_url: str | None = None
    token: bool = False
    only: tuple[str, ...] = ()  # `only`, `tag` and `operation` choose operations: see Selection
    tag: tuple[str, ...] = ()
    operation: tuple[str, ...] = ()


def is_archive(data: bytes) -> bool:
    return data[:2] == b"PK"


def read_import(app: App, data: bytes, options: ImportOptions) -> BundleImport:
    """Read an import without storing it. Raises InvalidError, and ForbiddenError if this caller may not store it."""
    if is_archive(data) and (options.only or options.tag or options.operation):
        raise InvalidError("This is a ZIP archive: --only, --tag and --operation are for OpenAPI documents")
    found = _from_archive(app, data, options) if is_archive(data) else _from_openapi(app, data, options)
    for tool in found.plan.new_tools:
        app.bundles.require_bound(tool)
    return found


def store_import(app: App, arrival: BundleImport) -> list[ImportRemark]:
    """Store an import: all of it, or nothing. Return remarks about tools that can't be called yet."""
    app.bundles.put_import(arrival.plan)
    remarks: list[ImportRemark] = []
    for tool in arrival.plan.new_tools:
        if tool.type == "http":  # already checked, and independent of other tools
            continue
        app.catalog.refresh_sync()  # a script may call another imported tool
        try:
            app.bundles.check(tool)
        except InvalidError as error:
            remarks.append(ImportRemark(f"{tool.slug}@{tool.version}", f"it can't be called yet: {error}"))
    return remarks


def _from_archive(app: App, data: bytes, options: ImportOptions) -> BundleImport:
    unpacked = unpack(data)
    here: Bundle | None = None
    if unpacked.bundle is not None:
        if options.slug is not None:
            unpacked = unpacked._replace(bundle=replace(unpacked.bundle, slug=check_slug(options.slug)))
        else:
            here = app.bundles.fresh.bundle(unpacked.bundle.id)
    planned = plan(unpacked, here, tools_of(app, here), as_new=options.slug is not None)
    wrong = [f"{tool.slug}@{tool.version}: {why}" for tool, why in app.bundles.invalid(planned.new_tools)]
    is_invalid = bool(wrong or unpacked.mistakes)
    is_renamed = here is not None and here.soft_deleted_at is None and here.slug != planned.bundle.slug
    if (planned.is_new or is_renamed) and (other := live_bundle(app.bundles, planned.bundle.slug)):
        wrong.append(
            f"a bundle {other['slug']} already exists ({other['id']}); import it under another name: --as SLUG"
        )
    notes = [] if here is None or here.soft_deleted_at is None else _restored_remarks(app, planned.bundle)
    return BundleImport(planned._replace(refused=[*planned.refused, *wrong]), unpacked.tools, [], notes, is_invalid)


def _restored_remarks(app: App, bundle: Bundle) -> list[ImportRemark]:
    """Describe how restoring a deleted bundle affects a bundle that has taken its name since."""
    other = live_bundle(app.bundles, bundle.slug)
    if other is None:
        return []
    older = "this bundle" if bundle.created_at < other["createdAt"] else "the other bundle"
    why = f"it was deleted here and is restored. Bundle {other['id']} has the same name; in code the name refers to"
    return [ImportRemark(bundle.slug, f"{why} {older}, which is older. Import it under another slug to use both")]


def _from_openapi(app: App, data: bytes, options: ImportOptions) -> BundleImport:
    document = OpenApiImport(
        data,
        document_url=options.document_url,
        base_url=options.base_url,
        slug=options.slug,
        token=options.token,
        selection=Selection(options.only, options.tag, options.operation),
    )
    live = live_bundle(app.bundles, document.slug)
    here = None if live is None else app.bundles.store.bundle(live["id"])
    stored = tools_of(app, here)
    slugs: dict[str, list[str]] = {}  # of the stored tools, by the URL that they call, oldest first
    for tool in sorted(stored, key=lambda tool: tool.created_at):
        if tool.type == "http" and (request := http_of(tool).request) is not None:
            slugs.setdefault(url_key(request.method, request.url_template), []).append(tool.slug)
    found = document.convert(slugs)
    bundle, tools = assemble(found.bundle, found.tools, id=here.id if here else None)
    wrong = [(tool, ImportRemark(tool.slug, str(why))) for tool, why in app.bundles.invalid(tools)]
    tools = [tool for tool in tools if not any(tool is one for one, _ in wrong)]
    planned = plan(Unpacked(bundle, tools, []), here, stored)
    skipped = [*(ImportRemark(*one) for one in found.skipped), *(remark for _, remark in wrong)]
    first = f": {skipped[0].about}: {skipped[0].why}" if skipped else ""
    refused = [] if tools else [f"none of its operations can become a tool{first}"]
    return BundleImport(
        planned._replace(refused=[*planned.refused, *refused]),
        tools,
        skipped,
        [ImportRemark(*one) for one in found.notes],
        is_invalid=not tools,
    )


def tools_of(app: App, bundle: Bundle | None) -> list[Tool]:
    found: list[Tool] = []
    while bundle is not None:
        page = app.bundles.store.tools(
            ListQuery(bundle_ids=[bundle.id], include_disabled=True, after=found[-1].id if found else None, limit=PAGE)
        )
        found += page
        if len(page) < PAGE:
            break
    return found


def assemble(content: Any, tools: Iterable[tuple[str, str, Any]], id: str | None = None) -> tuple[Bundle, list[Tool]]:
    """Build a bundle and its tools, with new ids, from bodies of PUT requests. Raises InvalidError."""
    now = time()
    times: dict[str, Any] = {"created_at": time_text(now), "modified_at": time_text(now)}
    read = read_bundle(content)
    check_slug(read.slug)
    bundle = Bundle(**msgspec.structs.asdict(read), id=id or new_id(now), **times)
    found = [
        Tool(
            **msgspec.structs.asdict(read_tool(data, check_slug(slug), check_version(version))),
            id=new_id(now),
            bundle_id=bundle.id,
            slug=slug,
            version=version,
            **times,
        )
        for slug, version, data in tools
    ]
    return bundle, found


def name_taken(app: App, slug: str) -> str | None:
    """Return the existing meaning of a new bundle's name in code; None if the name is free."""
    name, registry = code_name(slug), app.catalog.registry
    if any(one.startswith(f"{name}.") for one in registry.names()):
        meaning = f"a pack is called {name}: in code, {name} is the pack, not the bundle"
    elif name in registry:
        meaning = f"a tool is called {name}: in code, {name}() calls it, and {name}.NAME() calls a tool of the bundle"
    else:
        return None
    return f"{meaning}. Take another slug, like my-{slug}"


async def fetch_document(app: App, address: str) -> bytes:
    """Fetch a URL of an allowed host with the HTTP tools' client. Raises InvalidError."""
    context = app.runtime.http_context
    headers = [("Accept", "application/json, application/yaml, application/zip, */*;q=0.5")]
    try:
        outgoing = HttpRequest("GET", parse_url(address), headers, b"")
        answer = await context.client.send(outgoing, context.hosts, timeout=FETCH_SECONDS, max_bytes=MAX_INPUT_BYTES)
    except ToolFailure as failure:
        raise InvalidError("\n".join([f"{address}: {failure}", *failure.hints])) from None
    if 300 <= answer.status < 400 and (elsewhere := answer.headers.get("location")):
        raise InvalidError(f"{address} redirects: if you trust the target, import {elsewhere}")
    if answer.status != 200:
        raise InvalidError(f"{address} returned status {answer.status}.")
    return answer.body


# A tool of a curl command, whose credentials are kept as secrets


class SecretsNotKeptError(OneToolError):
    """The secrets of an import could not be stored, so nothing was imported."""


class CurlImport(NamedTuple):
    """A tool as PUT accepts it, with placeholders for its secrets, and the secrets by their final names."""

    tool: dict[str, Any]
    secrets: dict[str, str]
    notes: tuple[str, ...]
    host: str  # the host that the secrets are bound to
    names: dict[str, str]  # proposed name of a secret -> final name


def read_curl(
    command: str,
    slug: str,
    description: str | None,
    known: Secrets,
    reuse: bool = True,
    names: Mapping[str, str] = MappingProxyType({}),
) -> CurlImport:
    """Read a tool from a curl command without running the command. Raises InvalidError.

    With `reuse`, an existing secret with the same value is used if it may be sent to the same host. Callers who may not
    read secrets must not use it: the result would confirm a guessed value. `names` replaces proposed names of secrets;
    if a secret with the new name exists, it is used unchanged.
    """
    found = from_curl(command)
    given = {name: value for name, value in found.secrets.items() if value is not None}
    for name in names.keys() - given.keys():
        what = f"the command has no secret {name!r} (expected {', '.join(given) or 'none'})"
        raise invalid_at("/secrets", what)
    for name in names.values():
        if not SECRET_NAME.fullmatch(name):
            what = f"{name[:100]!r} is not a valid secret name (use letters, digits and _, like METEO_KEY)"
            raise invalid_at("/secrets", what)
    chosen = dict(names)
    found = found._replace(tool=_renamed_placeholders(found.tool, _placeholders(chosen)))
    stored = {chosen[name]: given.pop(name) for name in chosen}
    scheme, authority, _ = split(found.tool["httpImpl"]["request"]["urlTemplate"])
    url = parse_url(f"{scheme}://{authority}/")
    tool, secrets = split_secrets(found.tool, given, known, url if reuse else None)
    used = {**dict(zip(given, secrets, strict=True)), **chosen}
    secrets |= {name: value for name, value in stored.items() if not _is_taken(known, name)}
    words = slug.replace("-", " ")
    tool["displayName"] = f"{words[:1].upper()}{words[1:]}"
    if description is not None:
        tool["description"] = description
    return CurlImport(tool, secrets, tuple(found.notes), binding_for(url), used)


def split_secrets(
    tool: Any, found: Mapping[str, str], known: Secrets, reuse_for: Url | None
) -> tuple[Any, dict[str, str]]:
    """Return the tool with placeholders, and its secrets under unused names.

    A name that exists with the same value is reused if that secret may be sent to the URL `reuse_for`.
    """

    def is_same(name: str, value: str) -> bool:
        hosts = known.hosts(name)
        fits = reuse_for is not None and (not hosts or is_bound_to(reuse_for, hosts))
        return fits and _any_value(known, name) == value

    names: dict[str, str] = {}
    for name, value in found.items():
        free, number = name, 1
        while _is_taken(known, free) and not is_same(free, value):
            number += 1
            free = f"{name}_{number}"
        names[name] = free
    return _renamed_placeholders(tool, _placeholders(names)), {names[name]: value for name, value in found.items()}


@contextmanager
def secrets_stored(known: Secrets, secrets: Mapping[str, str], host: str) -> Iterator[list[str]]:
    """Store new secrets for this host, yield their names, and remove them if the block fails.

    Existing secrets are never replaced. If another process has taken a name since it was chosen, an error is raised; a
    second attempt chooses another name.
    """
    new = {name: value for name, value in secrets.items() if _any_value(known, name) != value}
    file = known.file
    if not new:
        yield []
        return
    if file is None:
        raise SecretsNotKeptError(SECRETS_IN_CONFIG)
    done: list[str] = []
    try:
        for name, value in new.items():
            if not value.strip() or not value.isprintable():
                raise SecretsNotKeptError(f"{name}: a secret must be one line of text. Nothing was stored.")
            put_secret(file, name, value, partial(check_kept, name, value), (host,), new_only=True)
            done.append(name)
        yield done
    except BaseException as error:
        for name in done:
            with suppress(OSError, ValueError):
                drop_secret(file, name, partial(check_kept, name, None))
        if isinstance(error, SecretExistsError):
            raise SecretsNotKeptError(f"can't write {file}: {error}; try again with another name") from None
        if isinstance(error, OSError | ValueError):
            raise SecretsNotKeptError(f"can't write {file}: {error}") from None
        raise


def _is_taken(known: Secrets, name: str) -> bool:
    """Return whether a secret has this name, including one that another process has just added to the file."""
    if name in known or known.file is None:
        return name in known
    try:
        return has_secret(known.file, name)
    except (OSError, ValueError):  # storing reports what is wrong with the file
        return False


def _placeholders(names: Mapping[str, str]) -> dict[str, str]:
    return {f"${{{name}}}": f"${{{other}}}" for name, other in names.items() if other != name}


def _any_value(known: Secrets, name: str) -> str | None:
    """Return the value of a secret, including one bound to hosts: the value is compared, not sent."""
    return known.get(name, lambda _: True)


def _renamed_placeholders(value: Any, other: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for before, after in other.items():
            value = value.replace(before, after)
        return value
    if isinstance(value, dict):
        return {key: _renamed_placeholders(one, other) for key, one in value.items()}
    return [_renamed_placeholders(one, other) for one in value] if isinstance(value, list) else value
