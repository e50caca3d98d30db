"""Convert an operation of a document into a tool: its server, authentication, arguments and response.

The only strings of a document in placeholders are names of secrets, which begin with the bundle's name, so that a
document can't use other secrets.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urljoin

from onetool.core.spec import FROM_DOCUMENT
from onetool.http.definition import MAX_URL
from onetool.http.errors import RequestRefusedError
from onetool.http.files import FILE_TIMEOUT_MS, MAX_FILE_BYTES
from onetool.http.url import parse_url
from onetool.sources.bundles.import_names import (
    described,
    is_header_name,
    literal,
    operation_slug,
    path_slug,
    printable,
    secret_prefix,
    slug_of,
    tags_of,
    title,
)
from onetool.sources.bundles.openapi.arguments import ParameterConverter, ToolArguments, describe_defaults
from onetool.sources.bundles.openapi.assembly import assemble
from onetool.sources.bundles.openapi.bodies import BodyConverter, BodyTemplateParts
from onetool.sources.bundles.openapi.document import OpenApiDocument, UnresolvedError
from onetool.sources.bundles.openapi.results import OperationResponse, Results
from onetool.sources.bundles.openapi.schemas import Schemas

_DOCUMENT = re.compile(r"\.(json|ya?ml)$", re.IGNORECASE)  # the URL of a document, not of an API
_VARIABLE = re.compile(r"\{([^{}]{1,100})\}")


class ApiLocation(NamedTuple):
    """URLs of the document and the API, as given by the caller."""

    document: str | None = None  # the URL of the document, for relative server URLs
    api: str | None = None  # overrides the servers of the document


def base_of(servers: Any, location: ApiLocation) -> str:
    """Return the first server's URL, without a trailing slash. Raises UnresolvedError."""
    base_url = location.api or location.document
    listed = [server for server in servers if isinstance(server, dict)] if isinstance(servers, list) else []
    url = _filled_url(listed[0]) if listed else "/"
    if not re.match(r"https?://", url, re.IGNORECASE):
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) or url.startswith("//"):
            raise UnresolvedError(f"its server {url[:100]!r} is neither http:// nor https://")
        if base_url is None:
            raise UnresolvedError(
                f"its server {url[:100]!r} is relative, so it does not say where the API is: give its URL "
                "(--base-url, over REST baseUrl=)"
            )
        url = urljoin(base_url, url) if listed or _DOCUMENT.search(base_url) else base_url
    elif location.api is not None:
        url = location.api
    return checked_url(url)


def checked_url(url: str) -> str:
    """Check a URL for a template: it must contain no placeholders, and its host must be unambiguous."""
    if len(url) > MAX_URL:
        raise _too_long(url)
    if "{" in url or "?" in url or "#" in url:
        raise UnresolvedError(f"its server {url[:100]!r} has a part that is not allowed before a path")
    try:
        parse_url(url)
    except RequestRefusedError as refusal:
        raise UnresolvedError(f"its server {url[:100]!r}: {refusal}") from None
    return url.rstrip("/")


def host_of(url: str) -> str:
    """Return the host in the format of `allowedHosts`."""
    return parse_url(url).authority


def _filled_url(server: dict[str, Any]) -> str:
    url = server.get("url")
    if not isinstance(url, str):
        raise UnresolvedError("its server has no url")
    variables = server.get("variables")
    size = len(url)

    def default(found: re.Match[str]) -> str:
        nonlocal size
        variable = variables.get(found[1]) if isinstance(variables, dict) else None
        value = variable.get("default") if isinstance(variable, dict) else None
        if value is None:
            raise UnresolvedError(f"its server {url[:100]!r}: the variable {found[1]!r} has no default")
        size += len(text := str(value))
        if size > MAX_URL:
            raise _too_long(url)
        return text

    return _VARIABLE.sub(default, url.strip())


def _too_long(url: str) -> UnresolvedError:
    return UnresolvedError(f"its server {url[:100]!r} has a URL of more than {MAX_URL:,} characters")


# Security schemes


class RequiredAuth(NamedTuple):
    """The auth of a request. The first scheme is `auth`; API keys of other schemes are headers or query parameters."""

    auth: dict[str, Any] | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    query: Mapping[str, str] = MappingProxyType({})
    secrets: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()  # token endpoints


NO_AUTH = RequiredAuth()
MAX_ALTERNATIVES = 20  # of `security`


class SecuritySchemes:
    """The security schemes of one document."""

    def __init__(
        self, document: OpenApiDocument, slug: str, base: Callable[[], str], note: Callable[[str], None]
    ) -> None:
        self._prefix = secret_prefix(slug)
        self._base = base
        self._note = note
        self._schemes = self._read(document)
        self._default = document.root.get("security")
        kinds = Counter(_scheme_kind(scheme).replace("login", "oauth2") for scheme in self._schemes.values())
        self._single = {kind for kind, number in kinds.items() if number == 1}

    def _read(self, document: OpenApiDocument) -> dict[str, dict[str, Any]]:
        try:
            schemes = document.at("#/components/securitySchemes")
        except UnresolvedError:
            return {}
        found: dict[str, dict[str, Any]] = {}
        for name, scheme in (schemes if isinstance(schemes, dict) else {}).items():
            try:
                found[name] = document.object(scheme)
            except UnresolvedError as error:
                self._note(f"the security scheme {name[:60]!r}: {error}")
        return found

    def token(self) -> RequiredAuth:
        """Require a bearer token, for documents without security schemes."""
        name = f"{self._prefix}_TOKEN"
        return RequiredAuth({"type": "bearer", "value": f"${{{name}}}"}, secrets=(name,))

    @property
    def is_empty(self) -> bool:
        return not self._schemes

    def of(self, operation: dict[str, Any]) -> RequiredAuth:
        """Return the first supported alternative."""
        alternatives = operation.get("security", self._default)
        if not isinstance(alternatives, list) or not alternatives:
            return NO_AUTH
        reasons: list[str] = []
        for alternative in alternatives[:MAX_ALTERNATIVES]:
            try:
                return self._combine(alternative)
            except UnresolvedError as error:
                reasons.append(str(error))
        self._note(f"it is called without auth: {'; '.join(reasons)}")
        return NO_AUTH

    def _combine(self, names: Any) -> RequiredAuth:
        if not isinstance(names, dict):
            raise UnresolvedError("`security` has an entry that is not an object")
        auth = NO_AUTH
        for name, scopes in list(names.items())[:5]:
            scheme = self._schemes.get(name)
            if scheme is None:
                raise UnresolvedError(f"there is no security scheme {name[:60]!r}")
            auth = _both(auth, self._auth(name, scheme, scopes))
        return auth

    def _auth(self, name: str, scheme: dict[str, Any], scopes: Any) -> RequiredAuth:
        kind = _scheme_kind(scheme)
        if kind == "apiKey":
            key, place = scheme.get("name"), scheme.get("in")
            if not isinstance(key, str) or place not in ("header", "query", "cookie"):
                raise UnresolvedError(f"the security scheme {name[:60]!r} does not say where its key is sent")
            if place != "query" and not is_header_name(key):
                raise UnresolvedError(f"the security scheme {name[:60]!r} has a key whose name can't be sent")
            secret = self._secret(name, kind, "API_KEY")
            auth = {"type": "apiKey", "name": literal(key), "value": f"${{{secret}}}", "in": place}
            return RequiredAuth(auth, secrets=(secret,))
        if kind == "basic":
            user, password = self._secret(name, kind, "USERNAME"), self._secret(name, kind, "PASSWORD")
            auth = {"type": "basic", "username": f"${{{user}}}", "password": f"${{{password}}}"}
            return RequiredAuth(auth, secrets=(user, password))
        if kind == "oauth2":
            url = checked_url(urljoin(f"{self._base()}/", scheme["flows"]["clientCredentials"]["tokenUrl"].strip()))
            client, secret = self._secret(name, kind, "CLIENT_ID"), self._secret(name, kind, "CLIENT_SECRET")
            auth = {"type": "oauth2", "tokenUrl": url, "clientId": f"${{{client}}}", "clientSecret": f"${{{secret}}}"}
            return RequiredAuth({**auth, **_scope(scopes)}, secrets=(client, secret), urls=(url,))
        if kind == "login":
            return self._login(name, scheme["flows"]["authorizationCode"], scopes)
        if kind == "token":
            token = self._secret(name, kind, "TOKEN")
            return RequiredAuth({"type": "bearer", "value": f"${{{token}}}"}, secrets=(token,))
        raise UnresolvedError(f"the security scheme {name[:60]!r} is of an unknown kind")

    def _login(self, name: str, flow: dict[str, Any], scopes: Any) -> RequiredAuth:
        """Require `onetool bundles login` with a public client. Users of a confidential client add `clientSecret`."""
        keys = ("authorizationUrl", "tokenUrl")
        urls = {key: checked_url(urljoin(f"{self._base()}/", flow[key].strip())) for key in keys}
        if not all(parse_url(url).is_unseen for url in urls.values()):
            raise UnresolvedError(f"the security scheme {name[:60]!r} has a login that is not encrypted")
        client = self._secret(name, "oauth2", "CLIENT_ID")
        auth = {"type": "oauth2", "grant": "authorizationCode", **urls, "clientId": f"${{{client}}}", **_scope(scopes)}
        return RequiredAuth(auth, secrets=(client,), urls=(urls["tokenUrl"],))

    def _secret(self, scheme: str, kind: str, word: str) -> str:
        """Return the name of a secret: `PETSTORE_TOKEN`, with the scheme's name if there are several of a kind."""
        if kind in self._single:
            return f"{self._prefix}_{word}"
        own = secret_prefix(slug_of(scheme) or "scheme")
        return f"{self._prefix}_{own}" if own.endswith(word) else f"{self._prefix}_{own}_{word}"


def _scope(scopes: Any) -> dict[str, str]:
    names = [scope for scope in scopes if isinstance(scope, str)] if isinstance(scopes, list) else []
    return {"scope": literal(" ".join(names))} if names else {}


def _has_urls(flow: Any, *keys: str) -> bool:
    return isinstance(flow, dict) and all(isinstance(flow.get(key), str) for key in keys)


def _scheme_kind(scheme: dict[str, Any]) -> str:
    kind = scheme.get("type")
    if kind == "apiKey":
        return "apiKey"
    if kind == "http":
        word = str(scheme.get("scheme")).lower()
        return {"basic": "basic", "bearer": "token"}.get(word, "unknown")
    if kind == "oauth2":
        flows = scheme["flows"] if isinstance(scheme.get("flows"), dict) else {}
        if _has_urls(flows.get("clientCredentials"), "tokenUrl"):
            return "oauth2"
        # With the other flows, users get a token themselves.
        return "login" if _has_urls(flows.get("authorizationCode"), "authorizationUrl", "tokenUrl") else "token"
    return "token" if kind == "openIdConnect" else "unknown"


def _both(first: RequiredAuth, second: RequiredAuth) -> RequiredAuth:
    """Combine two kinds of auth. The second must be an API key, sent as a header or query parameter."""
    secrets, urls = first.secrets + second.secrets, first.urls + second.urls
    if first.auth is None:
        return second._replace(secrets=secrets, urls=urls)
    auth = second.auth or {}
    if auth.get("type") != "apiKey":
        first, auth = first._replace(auth=second.auth), first.auth
    if auth.get("type") != "apiKey" or auth["in"] == "cookie":
        raise UnresolvedError("it requires two kinds of auth at once")
    headers, query = {**first.headers}, {**first.query}
    (headers if auth["in"] == "header" else query)[auth["name"]] = auth["value"]
    return RequiredAuth(first.auth, headers, query, secrets, urls)


# Operations

MAX_REASON = 300
METHODS = ("get", "head", "post", "put", "patch", "delete", "options")


class Operation(NamedTuple):
    method: str
    path: str
    data: dict[str, Any]
    item: dict[str, Any]  # the path item, shared by all operations of the path

    @property
    def name(self) -> str:
        """The display name, such as `GET /pets/{petId}`."""
        return f"{self.method.upper()} {printable(self.path, 200)}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names for selecting the operation: method and path, and its id."""
        id = self.data.get("operationId")
        return (f"{self.method.upper()} {self.path}", *([id] if isinstance(id, str) else []))

    @property
    def tags(self) -> list[str]:
        tags = self.data.get("tags")
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []

    def slugs(self) -> Iterator[str]:
        """Yield slugs: the best first, then longer ones in case another operation has it."""
        method = "replace" if self.method == "put" and "patch" in self.item else self.method
        id, summary = self.data.get("operationId"), self.data.get("summary")
        yield operation_slug(id, self.method, self.path, method, summary)
        yield path_slug(method, self.path)
        yield path_slug(method, self.path, by=True)


class OperationConverter:
    def __init__(
        self,
        document: OpenApiDocument,
        security: SecuritySchemes,
        location: ApiLocation,
        token: bool,
        note: Callable[[str], None],
    ) -> None:
        self._document = document
        self._security = security
        self._location = location
        self._token = token
        self._note = note
        self._schemas = Schemas(document, note)
        self._results = Results(document)

    def convert(self, operation: Operation) -> tuple[dict[str, Any], list[str], tuple[str, ...]]:
        """Return the tool, the URLs whose hosts it calls, and its secrets. The tool is checked when it is stored.

        Raises UnresolvedError for unsupported operations.
        """
        data = operation.data
        is_undocumented = self._token and self._security.is_empty
        auth = self._security.token() if is_undocumented else self._security.of(data)
        base = self.base(operation)
        arguments = ToolArguments(auth.secrets)
        parameters = ParameterConverter(self._document, self._schemas, self._note)
        lists = [operation.item.get("parameters"), data.get("parameters")]
        path = parameters.convert(operation.path, lists, arguments)
        body = BodyTemplateParts()
        if "requestBody" in data:
            converter = BodyConverter(data["requestBody"], self._document, self._schemas, arguments, self._note)
            body = converter.convert()
        response = self._results.of(data.get("responses"))
        input = assemble(arguments.schema(), self._schemas)
        if input is None:
            raise UnresolvedError("its arguments need a schema that the validator refuses")
        describe_defaults(input.schema)
        if input.outline:
            self._note(f"its arguments are described in outline only: {printable(input.outline, MAX_REASON)}")
        for pattern in input.dropped:
            self._note(
                f"a pattern is left out that is too large for the validator, or wrong: {printable(pattern, 100)}"
            )
        request = _request_data(operation.method, base + path, parameters, body, response, auth)
        tool = {
            "type": "http",
            "displayName": title(data.get("summary")) or title(data.get("operationId")),
            "description": described(data.get("summary"), data.get("description")),
            "tags": tags_of(data.get("tags"), *(["deprecated"] if data.get("deprecated") is True else [])),
            "argSchema": input.schema,
            "outputSchema": {**response.schema, FROM_DOCUMENT: True} if response.schema else {},
            "httpImpl": {"request": request, "response": {"encoding": response.encoding} if response.encoding else {}},
        }
        if body.has_files:
            tool["limits"] = {"maxRequestBytes": MAX_FILE_BYTES}
        return tool, [base, *auth.urls], auth.secrets

    def base(self, operation: Operation) -> str:
        """Return the URL of the nearest servers."""
        for level in (operation.data, operation.item, self._document.root):
            if isinstance(servers := level.get("servers"), list) and servers:
                return base_of(servers, self._location)
        return base_of(None, self._location)


def _request_data(
    method: str,
    url: str,
    parameters: ParameterConverter,
    body: BodyTemplateParts,
    response: OperationResponse,
    auth: RequiredAuth,
) -> dict[str, Any]:
    request: dict[str, Any] = {"method": method.upper(), "urlTemplate": url}
    if query := {**parameters.query, **auth.query}:
        request["query"] = query
    if parameters.query_encoding:
        request["queryEncoding"] = parameters.query_encoding
    headers = {"Accept": response.accept} if response.accept else {}
    headers |= {**parameters.headers, **auth.headers}
    if body.content_type:
        headers["Content-Type"] = body.content_type
    if headers:
        request["headers"] = headers
    if body.template is not None:
        request[body.key] = body.template
    if body.json is not None:
        request["body"] = body.json
    if body.encoding:
        request["bodyEncoding"] = body.encoding
    if body.has_files:
        request["timeoutMs"] = FILE_TIMEOUT_MS
    if auth.auth:
        request["auth"] = auth.auth
    if response.redirects:
        request["followRedirects"] = True
    return request
