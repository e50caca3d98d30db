"""Security schemes of a document -> `auth` of a request, with secrets that are named after the bundle.

Nothing of a document becomes a placeholder but those names: a document can't ask for a secret that is another's.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urljoin

from onetool.sources.bundles.openapi.document import Document, Unresolved
from onetool.sources.bundles.openapi.naming import secret_prefix, slug_of
from onetool.sources.bundles.openapi.servers import checked
from onetool.sources.bundles.openapi.templates import as_it_is, is_header_name


class Needed(NamedTuple):
    """What a request has to have to be let in. The first scheme is its `auth`, further keys are in its parts."""

    auth: dict[str, Any] | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    query: Mapping[str, str] = MappingProxyType({})
    secrets: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()  # asked for a token


NOTHING = Needed()


class Security:
    """The schemes of one document."""

    def __init__(self, document: Document, slug: str, base: Callable[[], str], note: Callable[[str], None]) -> None:
        self._prefix = secret_prefix(slug)
        self._base = base
        self._note = note
        self._schemes = self._read(document)
        self._default = document.root.get("security")
        kinds = [_kind(scheme) for scheme in self._schemes.values()]
        self._single = {kind for kind in kinds if kinds.count(kind) == 1}

    def _read(self, document: Document) -> dict[str, dict[str, Any]]:
        components = document.root.get("components")
        schemes = components.get("securitySchemes") if isinstance(components, dict) else None
        found: dict[str, dict[str, Any]] = {}
        for name, scheme in (schemes if isinstance(schemes, dict) else {}).items():
            try:
                found[name] = document.object(scheme)
            except Unresolved as error:
                self._note(f"the security scheme {name[:60]!r}: {error}")
        return found

    def token(self) -> Needed:
        """A bearer token, where a document says nothing and its user knows better."""
        name = f"{self._prefix}_TOKEN"
        return Needed({"type": "bearer", "value": f"${{{name}}}"}, secrets=(name,))

    @property
    def says_nothing(self) -> bool:
        return not self._schemes

    def of(self, operation: dict[str, Any]) -> Needed:
        """The first of the alternatives that can be met."""
        alternatives = operation.get("security", self._default)
        if not isinstance(alternatives, list) or not alternatives:
            return NOTHING
        reasons: list[str] = []
        for one in alternatives:
            try:
                return self._all(one)
            except Unresolved as error:
                reasons.append(str(error))
        self._note(f"it is called without auth: {'; '.join(reasons)}")
        return NOTHING

    def _all(self, names: Any) -> Needed:
        if not isinstance(names, dict):
            raise Unresolved("`security` has an entry that is no object")
        needed = NOTHING
        for name, scopes in list(names.items())[:5]:
            scheme = self._schemes.get(name)
            if scheme is None:
                raise Unresolved(f"there is no security scheme {name[:60]!r}")
            needed = _both(needed, self._one(name, scheme, scopes))
        return needed

    def _one(self, name: str, scheme: dict[str, Any], scopes: Any) -> Needed:
        kind = _kind(scheme)
        if kind == "apiKey":
            return self._api_key(name, scheme)
        if kind == "basic":
            user, password = self._secret(name, kind, "USERNAME"), self._secret(name, kind, "PASSWORD")
            auth = {"type": "basic", "username": f"${{{user}}}", "password": f"${{{password}}}"}
            return Needed(auth, secrets=(user, password))
        if kind == "oauth2":
            return self._client_credentials(name, scheme["flows"]["clientCredentials"], scopes)
        if kind == "token":
            token = self._secret(name, kind, "TOKEN")
            return Needed({"type": "bearer", "value": f"${{{token}}}"}, secrets=(token,))
        raise Unresolved(f"the security scheme {name[:60]!r} is of a kind that is not known here")

    def _api_key(self, name: str, scheme: dict[str, Any]) -> Needed:
        key, place = scheme.get("name"), scheme.get("in")
        if not isinstance(key, str) or place not in ("header", "query", "cookie"):
            raise Unresolved(f"the security scheme {name[:60]!r} does not say where its key is sent")
        if place != "query" and not is_header_name(key):
            raise Unresolved(f"the security scheme {name[:60]!r} has a key whose name can't be sent")
        secret = self._secret(name, "apiKey", "API_KEY")
        auth = {"type": "apiKey", "name": as_it_is(key), "value": f"${{{secret}}}", "in": place}
        return Needed(auth, secrets=(secret,))

    def _client_credentials(self, name: str, flow: dict[str, Any], scopes: Any) -> Needed:
        url = checked(urljoin(f"{self._base()}/", flow["tokenUrl"].strip()))
        client, secret = self._secret(name, "oauth2", "CLIENT_ID"), self._secret(name, "oauth2", "CLIENT_SECRET")
        auth = {"type": "oauth2", "tokenUrl": url, "clientId": f"${{{client}}}", "clientSecret": f"${{{secret}}}"}
        words = [one for one in scopes if isinstance(one, str)] if isinstance(scopes, list) else []
        if words:
            auth["scope"] = as_it_is(" ".join(words))
        return Needed(auth, secrets=(client, secret), urls=(url,))

    def _secret(self, scheme: str, kind: str, word: str) -> str:
        """`PETSTORE_TOKEN`; with the scheme's name where there are several of a kind."""
        if kind in self._single:
            return f"{self._prefix}_{word}"
        own = secret_prefix(slug_of(scheme) or "scheme")
        return f"{self._prefix}_{own}" if own.endswith(word) else f"{self._prefix}_{own}_{word}"


def _kind(scheme: dict[str, Any]) -> str:
    kind = scheme.get("type")
    if kind == "apiKey":
        return "apiKey"
    if kind == "http":
        word = str(scheme.get("scheme")).lower()
        return {"basic": "basic", "bearer": "token"}.get(word, "unknown")
    if kind == "oauth2":
        flows = scheme.get("flows")
        flow = flows.get("clientCredentials") if isinstance(flows, dict) else None
        # Other flows need a person at a browser: whoever has gone through them has a token.
        return "oauth2" if isinstance(flow, dict) and isinstance(flow.get("tokenUrl"), str) else "token"
    return "token" if kind == "openIdConnect" else "unknown"


def _both(first: Needed, second: Needed) -> Needed:
    """The second one's key goes to where keys can stand beside an `auth`."""
    secrets, urls = first.secrets + second.secrets, first.urls + second.urls
    if first.auth is None:
        return second._replace(secrets=secrets, urls=urls)
    auth = second.auth or {}
    if auth.get("type") != "apiKey":
        first, auth = first._replace(auth=second.auth), first.auth
    if auth.get("type") != "apiKey" or auth["in"] == "cookie":
        raise Unresolved("it wants two kinds of auth at once")
    headers, query = {**first.headers}, {**first.query}
    (headers if auth["in"] == "header" else query)[auth["name"]] = auth["value"]
    return Needed(first.auth, headers, query, secrets, urls)
