"""Converts an OpenAPI 3 document into a bundle with one HTTP tool per operation: `from_openapi`. Nothing is fetched.

A document is untrusted: nothing that it refers to is fetched; it can't name a secret, nor hide a host. Which hosts and
secrets its tools need is reported, for a person to allow and give them. An operation that can't be a tool is skipped,
with the reason.
"""

from collections.abc import Iterator
from time import monotonic
from typing import Any, NamedTuple

from onetool.core.errors import OneToolError
from onetool.http.placeholders import TemplateError
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.import_names import (
    UniqueSlugs,
    bundle_slug,
    described,
    http_tool_of,
    printable,
    title,
    version_label,
)
from onetool.sources.bundles.names import check_slug
from onetool.sources.bundles.openapi.document import OpenApiDocument, UnresolvedError, read_document
from onetool.sources.bundles.openapi.operation import (
    METHODS,
    ApiLocation,
    Operation,
    OperationConverter,
    SecuritySchemes,
    base_of,
    host_of,
)

MOST_OPERATIONS = 5_000
MOST_SECONDS = 60.0
MOST_NOTES = 1_000


class ImportNote(NamedTuple):
    """Something about one operation (`GET /pets/{petId}`), or about the document (an empty text)."""

    operation: str
    why: str


class ImportedBundle(NamedTuple):
    bundle: dict[str, Any]  # as PUT takes it
    tools: list[tuple[str, str, dict[str, Any]]]  # slug, version, and the tool as PUT takes it
    hosts: list[str]  # that `allowedHosts` has to allow
    secrets: list[str]  # that are needed
    skipped: list[ImportNote]  # what is no tool
    notes: list[ImportNote]  # what is not quite as the document has it


def from_openapi(
    data: bytes | str,
    *,
    document_url: str | None = None,
    base_url: str | None = None,
    slug: str | None = None,
    token: bool = False,
) -> ImportedBundle:
    """Read a document (JSON or YAML, OpenAPI 3.0 or 3.1). Raises InvalidError for one that can't be read at all.

    `document_url` is what relative servers are relative to; `base_url` is where the API is, whatever host the document
    names; `slug` the bundle's, where it shall have another one; `token` sends a bearer token with every call where the
    document says nothing about auth.
    """
    return _Import(read_document(data), ApiLocation(document_url, base_url), slug, token).made()


class _Import:
    def __init__(self, document: OpenApiDocument, where: ApiLocation, slug: str | None, token: bool) -> None:
        self._document = document
        self._where = where
        info = document.root.get("info")
        self._info: dict[str, Any] = info if isinstance(info, dict) else {}
        self._version = version_label(self._info.get("version"))
        self._slug = check_slug(slug) if slug else bundle_slug(printable(self._info.get("title"), 200), self._host())
        self._now = ""  # the operation that is being made
        self._notes: dict[ImportNote, None] = {}
        self._slugs = UniqueSlugs()
        security = SecuritySchemes(document, self._slug, self._base, self._note)
        self._maker = OperationConverter(document, security, where, token, self._note)

    def made(self) -> ImportedBundle:
        tools: list[tuple[str, str, dict[str, Any]]] = []
        skipped: list[ImportNote] = []
        hosts: dict[str, None] = {}
        secrets: dict[str, None] = {}
        end = monotonic() + MOST_SECONDS
        for number, operation in enumerate(self._operations(skipped)):
            self._now = operation.name
            if monotonic() > end:
                raise InvalidError(f"the document takes more than {MOST_SECONDS:.0f} s to read; import a part of it")
            try:
                if number >= MOST_OPERATIONS:
                    raise UnresolvedError(f"only {MOST_OPERATIONS:,} operations are taken from one document")
                tool, urls = self._maker.make(operation)
                needed = http_tool_of(tool).secrets
            except (UnresolvedError, OneToolError, TemplateError) as error:
                skipped.append(ImportNote(operation.name, str(error)))
                continue
            tools.append((self._slugs.take(*operation.slugs()), self._version, tool))
            hosts.update(dict.fromkeys(map(host_of, urls)))
            secrets.update(dict.fromkeys(sorted(needed)))
        return ImportedBundle(self._bundle(), tools, list(hosts), list(secrets), skipped, list(self._notes))

    def _operations(self, skipped: list[ImportNote]) -> Iterator[Operation]:
        for path, item in self._document.root["paths"].items():
            if path.startswith("x-"):
                continue
            try:
                item = self._document.object(item)
            except UnresolvedError as error:
                skipped.append(ImportNote(printable(path, 200), str(error)))
                continue
            for method in METHODS:
                if isinstance(given := item.get(method), dict):
                    yield Operation(method, path, given, item)
            if "trace" in item:
                skipped.append(ImportNote(f"TRACE {printable(path, 200)}", "no tool sends TRACE"))

    def _bundle(self) -> dict[str, Any]:
        name = title(self._info.get("title"))
        return {"slug": self._slug, "displayName": name, "description": described(None, self._info.get("description"))}

    def _base(self) -> str:
        return base_of(self._document.root.get("servers"), self._where)

    def _host(self) -> str:
        try:
            return host_of(self._base())
        except UnresolvedError:
            return ""

    def _note(self, what: str) -> None:
        if len(self._notes) < MOST_NOTES:
            self._notes[ImportNote(self._now, what)] = None


# OpenAPI 3 documents -> bundles of HTTP tools: `from_openapi`.


__all__ = ["ImportNote", "ImportedBundle", "from_openapi"]
