"""Convert an OpenAPI 3 document into a bundle with one HTTP tool per operation: `OpenApiImport`. Nothing is fetched.

Documents are untrusted: their references are not fetched, and they can't choose secrets or hide hosts. The hosts and
secrets that the tools need are reported, so that a user can allow and set them. Operations that can't be converted are
skipped, with the reason.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from onetool.core.errors import OneToolError
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.import_names import (
    UniqueSlugs,
    bundle_slug,
    described,
    printable,
    title,
    version_label,
)
from onetool.sources.bundles.names import check_slug
from onetool.sources.bundles.openapi.document import (
    IMPORT_A_PART,
    BadDocumentError,
    UnresolvedError,
    read_document,
)
from onetool.sources.bundles.openapi.operation import (
    METHODS,
    ApiLocation,
    Operation,
    OperationConverter,
    SecuritySchemes,
    base_of,
    host_of,
)
from onetool.sources.bundles.openapi.selection import EVERYTHING, Selection

MAX_OPERATIONS = 5_000
MAX_NAMED = 100_000  # operations of a document, also if only a part is imported
MAX_PATH = 2_000  # characters
MAX_NOTES = 1_000

_ANY_PARAMETER = re.compile(r"\$*\{[^{}]*\}")


class ImportNote(NamedTuple):
    """A note on an operation (`GET /pets/{petId}`), or on the document (an empty string)."""

    operation: str
    why: str


class ImportedBundle(NamedTuple):
    bundle: dict[str, Any]  # as the body of a PUT
    tools: list[tuple[str, str, dict[str, Any]]]  # slug, version, and the tool as the body of a PUT
    hosts: list[str]  # to be allowed in `allowedHosts`
    secrets: list[str]  # to be set
    skipped: list[ImportNote]  # operations without a tool
    notes: list[ImportNote]  # on differences from the document


def url_key(method: str, url: str) -> str:
    """Return the method and path of an operation, without the host and the names of arguments."""
    path = url.partition("://")[2].partition("/")[2].partition("?")[0]
    return f"{method.upper()} /{_ANY_PARAMETER.sub('{}', path)}"


class OpenApiImport:
    """An import of an OpenAPI document (JSON or YAML, 3.0 or 3.1) into a bundle.

    Raises InvalidError for an unreadable document. `document_url` is the base of relative server URLs; `base_url`
    overrides the document's server; `slug` overrides the bundle's slug; `token` sends a bearer token with every call
    if the document doesn't define authentication. Only operations in the `selection` are converted.
    """

    def __init__(
        self,
        data: bytes | str,
        *,
        document_url: str | None = None,
        base_url: str | None = None,
        slug: str | None = None,
        token: bool = False,
        selection: Selection = EVERYTHING,
    ) -> None:
        self._document = document = read_document(data)
        self._selection = selection
        self._location = ApiLocation(document_url, base_url)
        info = document.root.get("info")
        self._info: dict[str, Any] = info if isinstance(info, dict) else {}
        self._version = version_label(self._info.get("version"))
        if slug:
            self.slug = check_slug(slug)
        else:
            host = ""
            with suppress(UnresolvedError):
                host = host_of(self._base())
            self.slug = bundle_slug(printable(self._info.get("title"), 200), host)
        self._current = ""  # the operation being converted
        self._notes: dict[ImportNote, None] = {}
        self._skipped: list[ImportNote] = []
        security = SecuritySchemes(document, self.slug, self._base, self._note)
        self._converter = OperationConverter(document, security, self._location, token, self._note)

    def convert(self, stored: Mapping[str, Sequence[str]]) -> ImportedBundle:
        """Return the bundle. Stored tools keep their names: `stored` has their slugs by `url_key`, oldest first."""
        tools: list[tuple[str, str, dict[str, Any]]] = []
        hosts: dict[str, None] = {}
        secrets: dict[str, None] = {}
        operations = self._selection.choose(self._with_slugs(stored), self._document.check_time)
        skipped = [] if any(self._selection) else self._skipped
        for operation, slug in operations[:MAX_OPERATIONS]:
            self._current = operation.name
            self._document.check_time()
            try:
                tool, urls, names = self._converter.convert(operation)
            except BadDocumentError:
                raise
            except (UnresolvedError, OneToolError) as error:
                skipped.append(ImportNote(operation.name, str(error)))
                continue
            tools.append((slug, self._version, tool))
            hosts.update(dict.fromkeys(map(host_of, urls)))
            secrets.update(dict.fromkeys(sorted(names)))
        if (left := len(operations) - MAX_OPERATIONS) > 0:
            why = f"{left:,} more operations: an import is limited to {MAX_OPERATIONS:,}; {IMPORT_A_PART}"
            skipped.append(ImportNote("", why))
        name, description = title(self._info.get("title")), described(None, self._info.get("description"))
        bundle = {"slug": self.slug, "displayName": name, "description": description}
        return ImportedBundle(bundle, tools, list(hosts), list(secrets), skipped, list(self._notes))

    def _with_slugs(self, stored: Mapping[str, Sequence[str]]) -> list[tuple[Operation, str]]:
        """Return all operations with their slugs, selected or not, so that names don't depend on the selection."""
        operations = list(islice(self._operations(), MAX_NAMED + 1))
        if len(operations) > MAX_NAMED:
            raise InvalidError(f"the document has more than {MAX_NAMED:,} operations: remove paths that you don't need")
        taken = UniqueSlugs()
        kept = [self._kept_slug(operation, stored, taken) for operation in operations]
        named = zip(operations, kept, strict=True)
        return [(operation, slug or taken.take(operation.slugs())) for operation, slug in named]

    def _kept_slug(self, operation: Operation, stored: Mapping[str, Sequence[str]], taken: UniqueSlugs) -> str | None:
        if not stored:
            return None
        self._document.check_time()
        try:
            key = url_key(operation.method, self._converter.base(operation) + operation.path.partition("#")[0])
        except UnresolvedError:
            return None
        slugs = [slug for slug in stored.get(key, ()) if slug not in taken]
        best = next(operation.slugs())
        if best in slugs:
            return taken.take([best])
        # Operations that differ only after `#` share a URL, which can't identify their tools.
        return taken.take(slugs) if slugs and "#" not in operation.path else None

    def _operations(self) -> Iterator[Operation]:
        for path, item in self._document.paths():
            if path.startswith("x-"):
                continue
            if len(path) > MAX_PATH:
                item = UnresolvedError(f"its path is longer than {MAX_PATH:,} characters")
            if isinstance(item, UnresolvedError):
                self._skipped.append(ImportNote(printable(path, 200), str(item)))
                continue
            for method in METHODS:
                if isinstance(data := item.get(method), dict):
                    yield Operation(method, path, data, item)
            if "trace" in item:
                self._skipped.append(ImportNote(f"TRACE {printable(path, 200)}", "no tool sends TRACE"))

    def _base(self) -> str:
        return base_of(self._document.root.get("servers"), self._location)

    def _note(self, text: str) -> None:
        if len(self._notes) < MAX_NOTES:
            self._notes[ImportNote(self._current, text)] = None


__all__ = ["ImportNote", "ImportedBundle", "OpenApiImport", "Selection", "url_key"]
