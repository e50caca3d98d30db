"""The route table of the REST API, collected from the modules of the handlers. Starlette matches the paths."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple
from urllib.parse import unquote

from starlette.routing import Match, Route

from onetool.core.principal import LOCAL, Principal, Role
from onetool.core.redaction import mask_credentials
from onetool.http.asgi import Scope
from onetool.interfaces.rest import (
    checks,
    editing,
    handlers,
    imports,
    insight,
    invoke,
    run,
)
from onetool.interfaces.rest.operations import operation_routes
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.query import percent_decoded
from onetool.interfaces.rest.route import ANY_NAME, PATH_PARAMETERS, PathParameter, RestRoute
from onetool.services.journal.row import AuditKind
from onetool.sources.bundles.errors import InvalidError

MAX_CACHED_PATH = 512  # bytes; longer paths are not cached


class RestResource(NamedTuple):
    """A path with {names}, and the routes of its methods."""

    path: str
    route: Route
    segments: list[str]
    methods: dict[str, RestRoute]

    def allow_header(self, principal: Principal = LOCAL) -> str:
        """Return the value of the header Allow for this caller."""
        ways = [method for method, route in self.methods.items() if principal.may(route.needed_role(principal))]
        return ", ".join([*ways, *(["HEAD"] if "GET" in ways else []), "OPTIONS"])


class RouteMatch(NamedTuple):
    resource: RestResource
    path: tuple[str, ...]
    route: RestRoute | None  # None: OPTIONS


_SHORT_WORD = re.compile(r"[\w.:\[\]-]{1,100}")
_CHECKED = ("{bundleID}", "{toolSlug}", "{version}")
_NAMED = (*_CHECKED, "{server}", "{host}", "{secret}", "{token}")  # shown in the audit log: other ids may be secret


def audited(method: str, found: RouteMatch, principal: Principal, role: Role) -> tuple[AuditKind | None, str]:
    """Return kind and name of a request for the audit log. Without a kind, only a refusal is logged; without a name,
    the log has the root of the route.
    """
    if found.route is None or (
        role != "admin" and (method in ("GET", "HEAD") or (method == "POST" and role == "call"))
    ):
        return None, ""
    values = iter(found.path)
    parts = [(next(values), part) if part.startswith("{") else ("", part) for part in found.resource.segments]
    shown = _NAMED if principal.may(role) else _NAMED[:1]  # a refused caller may have sent anything
    path = "/".join(
        value if part in shown and (part in _CHECKED or _SHORT_WORD.fullmatch(value)) else part for value, part in parts
    )
    kind = None if not found.route.audited else "admin" if role == "admin" else "change"
    return kind, mask_credentials(f"{method} /{path}")  # clients may have sent a token in place of its name


class RouteTable:
    """A table that finds the route of a raw path. Paths without {names} take precedence."""

    def __init__(self, routes: Iterable[RestRoute], parameters: Mapping[str, PathParameter] = PATH_PARAMETERS) -> None:
        self.parameters = parameters
        found: dict[str, RestResource] = {}
        for one in routes:
            route, segments = Route(one.path, RestRoute), one.path.split("/")[1:]  # RestApp calls the handlers
            resource = found.setdefault(one.path, RestResource(one.path, route, segments, {}))
            if resource.methods.setdefault(one.method, one) is not one:
                raise ValueError(f"{one.method} {one.path} is declared twice: {one.id}")
        self.resources = tuple(found.values())
        self._tried = sorted(self.resources, key=lambda one: [part.startswith("{") for part in one.segments])
        self._cached_match = lru_cache(1024)(self._match)

    def parameter(self, name: str) -> PathParameter:
        """Return the parameter of paths with this name."""
        return self.parameters.get(name, ANY_NAME)

    def match(self, raw: bytes, method: str) -> RouteMatch:
        """Find the route of a raw path. Raises RestError (404, 405)."""
        return self._cached_match(raw, method) if len(raw) <= MAX_CACHED_PATH else self._match(raw, method)

    def check(self, scope: Scope) -> tuple[bytes, ...]:
        """Return the media types that a route takes in addition to JSON; called before a body is refused. Raises
        RestError if there is no such route.
        """
        route = self.match(scope["raw_path"], scope["method"]).route
        return () if route is None else route.media

    def _match(self, raw: bytes, method: str) -> RouteMatch:
        try:
            segments = [percent_decoded(piece) for piece in raw.split(b"/")]
        except ValueError as error:
            raise RestError(400, "bad_path", f"Invalid path: {error}.", part="path", pointer="") from None
        path = "/".join(one.replace("%", "%25").replace("/", "%2F") for one in segments)  # names may have slashes
        scope = {"type": "http", "path": path, "root_path": "", "method": method}
        matches = ((one, *one.route.matches(scope)) for one in self._tried)
        resource, found = next(((one, found) for one, match, found in matches if match is Match.FULL), (None, {}))
        if resource is None:
            there = ", ".join(one.path for one in self.resources if one.segments[0] == segments[1])
            shown = raw[:100].decode("latin-1")
            known = f"use one of {there}" if there else "all paths are in /openapi.json"
            raise RestError(404, "not_found", f"Unknown path {shown!r}; {known}")
        route = resource.methods.get("GET" if method == "HEAD" else method)
        if route is None and method != "OPTIONS":
            message = f"{resource.path} takes {resource.allow_header()}, not {method[:20]}."
            raise RestError(405, "method_not_allowed", message, headers=[(b"allow", resource.allow_header().encode())])
        values: list[str] = []
        for name, value in found["path_params"].items():
            try:
                values.append(self.parameter(name).check(unquote(value)))
            except InvalidError as error:
                raise RestError(400, "bad_path", str(error), part="path", pointer=f"/{name}") from None
        return RouteMatch(resource, tuple(values), route)


def routes_of(*modules: ModuleType) -> list[RestRoute]:
    return [one for module in modules for one in vars(module).values() if isinstance(one, RestRoute)]


API_ROUTES = RouteTable(
    [
        *routes_of(handlers, invoke, editing, imports, checks, run, insight),
        *operation_routes(),
    ]
)
