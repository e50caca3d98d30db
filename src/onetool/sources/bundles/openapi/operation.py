"""One operation of a document -> one tool, as PUT takes it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from onetool.sources.bundles.openapi.answers import Answer, answer_of
from onetool.sources.bundles.openapi.arguments import Arguments
from onetool.sources.bundles.openapi.assembly import Assembly
from onetool.sources.bundles.openapi.bodies import Bodies, Body
from onetool.sources.bundles.openapi.document import Document, Unresolved
from onetool.sources.bundles.openapi.naming import clean, described, operation_slug, path_slug, tags_of, title
from onetool.sources.bundles.openapi.parameters import Parameters
from onetool.sources.bundles.openapi.schemas import Schemas
from onetool.sources.bundles.openapi.security import Needed, Security
from onetool.sources.bundles.openapi.servers import Where, base_of

LONGEST_REASON = 300
METHODS = ("get", "head", "post", "put", "patch", "delete", "options")


class Operation(NamedTuple):
    method: str
    path: str
    given: dict[str, Any]
    item: dict[str, Any]  # what its path says for all of its operations

    @property
    def name(self) -> str:
        """`GET /pets/{petId}`, for people."""
        return f"{self.method.upper()} {clean(self.path, 200)}"

    def slugs(self) -> tuple[str, ...]:
        """The best one first, then what tells it from another of that name."""
        method = "replace" if self.method == "put" and "patch" in self.item else self.method
        given = self.given
        slug = operation_slug(given.get("operationId"), self.method, self.path, method, given.get("summary"))
        return slug, path_slug(method, self.path), path_slug(method, self.path, by=True)


class Toolmaker:
    """Makes tools of the operations of one document."""

    def __init__(
        self, document: Document, security: Security, where: Where, token: bool, note: Callable[[str], None]
    ) -> None:
        self._document = document
        self._security = security
        self._where = where
        self._token = token
        self._note = note
        self._schemas = Schemas(document, note)
        self._assembly = Assembly(self._schemas.definitions)

    def make(self, operation: Operation) -> tuple[dict[str, Any], list[str]]:
        """The tool, and the URLs whose hosts it calls. Raises Unresolved for what can't be a tool."""
        given = operation.given
        needed = self._needed(given)
        base = self._base(operation)
        arguments = Arguments(needed.secrets)
        parameters = Parameters(self._document, self._schemas, self._note)
        lists = [operation.item.get("parameters"), given.get("parameters")]
        path = parameters.put(operation.path, lists, arguments)
        body = Body()
        if "requestBody" in given:
            body = Bodies(self._document, self._schemas, self._note).put(given["requestBody"], arguments)
        answer = answer_of(given.get("responses"), self._document, self._schemas)
        request = _request(operation.method, base + path, parameters, body, answer, needed)
        tool = {
            "type": "http",
            "displayName": title(given.get("summary")) or title(given.get("operationId")),
            "description": described(given.get("summary"), given.get("description")),
            "tags": tags_of(given.get("tags"), *(["deprecated"] if given.get("deprecated") is True else [])),
            "argSchema": self._arguments(arguments),
            "outputSchema": self._output(answer),
            "httpImpl": {"request": request, "response": {"encoding": answer.encoding}},
        }
        return tool, [base, *needed.urls]

    def _needed(self, given: dict[str, Any]) -> Needed:
        if self._token and self._security.says_nothing:
            return self._security.token()
        return self._security.of(given)

    def _base(self, operation: Operation) -> str:
        """The nearest servers count."""
        for thing in (operation.given, operation.item, self._document.root):
            if isinstance(servers := thing.get("servers"), list) and servers:
                return base_of(servers, self._where)
        return base_of(None, self._where)

    def _arguments(self, arguments: Arguments) -> dict[str, Any]:
        found = self._assembly.input(arguments.schema())
        if found is None:
            raise Unresolved("its arguments make a schema that the validator does not take")
        if found.outline:
            self._note(f"its arguments are described in outline only: {clean(found.outline, LONGEST_REASON)}")
        for pattern in found.dropped:
            self._note(f"a pattern is left out that is too large for the validator, or wrong: {clean(pattern, 100)}")
        return found.schema

    def _output(self, answer: Answer) -> dict[str, Any]:
        found = self._assembly.output(answer.schema)
        return found.schema if found else {}


def _request(
    method: str, url: str, parameters: Parameters, body: Body, answer: Answer, needed: Needed
) -> dict[str, Any]:
    request: dict[str, Any] = {"method": method.upper(), "urlTemplate": url}
    if query := {**parameters.query, **needed.query}:
        request["query"] = query
    headers = {"Accept": answer.accept} if answer.accept else {}
    headers |= {**parameters.headers, **needed.headers}
    if body.content_type:
        headers["Content-Type"] = body.content_type
    if headers:
        request["headers"] = headers
    if body.template is not None:
        request["body"] = body.template
    if needed.auth:
        request["auth"] = needed.auth
    if answer.redirects:
        request["followRedirects"] = True
    return request
