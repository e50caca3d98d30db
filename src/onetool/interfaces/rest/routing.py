"""The routes of the REST API: addresses, methods, roles, and the handler of each."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from onetool.core.principal import LOCAL, Principal, Role
from onetool.interfaces.asgi import Scope
from onetool.interfaces.rest import (
    checks,
    editing,
    handlers,
    imports,
    insight,
    invoke,
    run,
    servers,
)
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.query import (
    AFTER,
    AS,
    BASE_URL,
    BUNDLE_IDS,
    CALLER,
    CLIENT,
    COLUMN,
    DAYS,
    DRY_RUN,
    FROM,
    INCLUDE_DISABLED,
    KIND,
    LIMIT,
    OF_BUNDLES,
    OF_TOOLS,
    ONLY,
    OPERATION,
    OUTCOME,
    PAGE_SIZE,
    PAGE_TOKEN,
    RECOMMENDED_PAGE_SIZE,
    REPLACE,
    SINCE,
    SOURCE,
    TAG,
    TAGS,
    TOKEN,
    TOOL,
    UNTIL,
    URL,
    WHO,
    Q,
    QueryParameter,
    percent_decoded,
)
from onetool.interfaces.rest.request import RestRequest, RestResponse
from onetool.services.audit import AuditKind
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.names import check_id, check_slug, check_version

ROOT = "/tools"
OUTSIDE = ""  # the root of what is not about bundles and their tools
LONGEST_CACHED = 512  # bytes of an address that is worth remembering

Handler = Callable[[RestRequest], Awaitable[RestResponse | None]]


class RouteMethod(NamedTuple):
    """One method at one address."""

    answer: Handler
    parameters: Mapping[str, QueryParameter] = {}
    role: Role | None = None  # that it needs; None: what its method says
    own: bool = False  # it changes what belongs to the caller alone, which is for everybody who has a name
    media: tuple[bytes, ...] = ()  # types of bodies beside JSON
    for_tools: bool = False  # tools may use it, too: what finds and calls tools, and nothing else
    audited: bool = True  # by what it needs; False: it only looks at things, and the page does so all the time


def needed_role(method: str, way: RouteMethod, principal: Principal) -> Role:
    """The role that a request needs."""
    if way.role is not None:
        return way.role
    is_own = way.own and principal.name
    return "edit" if method in ("PUT", "PATCH", "DELETE") and not is_own else "call"


class RestRoute(NamedTuple):
    """A path template with {names}, below its root, and its methods."""

    template: str
    methods: Mapping[str, RouteMethod]
    root: str = ROOT

    @property
    def path(self) -> str:
        return self.root + self.template

    @property
    def segments(self) -> list[str]:
        return self.path.split("/")[1:]

    def allow_header(self, principal: Principal = LOCAL) -> str:
        """The value of the header Allow, for this caller."""
        ways = [method for method, way in self.methods.items() if principal.may(needed_role(method, way, principal))]
        return ", ".join([*ways, *(["HEAD"] if "GET" in ways else []), "OPTIONS"])


class RouteMatch(NamedTuple):
    route: RestRoute
    path: tuple[str, ...]
    method: RouteMethod | None  # none: OPTIONS


def _with_query(answer: Handler, *parameters: QueryParameter, for_tools: bool = False) -> RouteMethod:
    return RouteMethod(answer, {one.name: one for one in parameters}, for_tools=for_tools)


def _changing(answer: Handler, *parameters: QueryParameter, media: tuple[bytes, ...] = ()) -> Mapping[str, RouteMethod]:
    """The POST of an address for those who may change what is stored."""
    return {"POST": RouteMethod(answer, {one.name: one for one in parameters}, "edit", media=media)}


def _admin(answer: Handler, *parameters: QueryParameter) -> Mapping[str, RouteMethod]:
    """The POST of an address for those who administer the server."""
    return {"POST": RouteMethod(answer, {one.name: one for one in parameters}, "admin")}


_LIST = (BUNDLE_IDS, INCLUDE_DISABLED)
_TOOL = "/bundles/{bundleID}/tools/{toolSlug}/version/{version}"

ROUTES = (
    RestRoute(
        "/bundles",
        {"GET": _with_query(handlers.list_bundles, *_LIST, PAGE_SIZE, PAGE_TOKEN, OF_BUNDLES, for_tools=True)},
    ),
    RestRoute(
        "/bundles/{bundleID}",
        {
            "GET": RouteMethod(handlers.get_bundle, for_tools=True),
            "PUT": RouteMethod(handlers.put_bundle),
            "PATCH": RouteMethod(handlers.patch_bundle),
            "DELETE": RouteMethod(handlers.delete_bundle),
        },
    ),
    RestRoute(
        _TOOL,
        {
            "GET": RouteMethod(handlers.get_tool, for_tools=True),
            "PUT": RouteMethod(handlers.put_tool),
            "PATCH": RouteMethod(handlers.patch_tool),
            "DELETE": RouteMethod(handlers.delete_tool),
        },
    ),
    RestRoute(f"{_TOOL}/invoke", {"POST": RouteMethod(invoke.invoke, for_tools=True)}),
    RestRoute(
        "/tools",
        {
            "GET": _with_query(
                handlers.list_tools, TAGS, *_LIST, RECOMMENDED_PAGE_SIZE, PAGE_TOKEN, OF_TOOLS, for_tools=True
            )
        },
    ),
    RestRoute(
        "/tools/search",
        {
            "GET": _with_query(
                handlers.search_tools, Q, INCLUDE_DISABLED, PAGE_SIZE, PAGE_TOKEN, OF_TOOLS, for_tools=True
            )
        },
    ),
    RestRoute(
        "/bundles/{bundleID}/tools/{toolSlug}/versions", {"GET": RouteMethod(handlers.list_versions, for_tools=True)}
    ),
    RestRoute("/validate", {"POST": RouteMethod(editing.validate_draft, role="edit", audited=False)}),
    RestRoute(f"{_TOOL}/validate", {"POST": RouteMethod(editing.validate_args)}),
    RestRoute("/preview", {"POST": RouteMethod(editing.preview_of_draft, role="edit", audited=False)}),
    RestRoute(f"{_TOOL}/preview", {"POST": RouteMethod(editing.preview)}),
    RestRoute(
        f"{_TOOL}/examples",
        {"GET": RouteMethod(editing.get_examples, for_tools=True), "PUT": RouteMethod(editing.put_examples)},
    ),
    RestRoute(f"{_TOOL}/usage", {"GET": _with_query(insight.usage, DAYS)}),
    RestRoute(f"{_TOOL}/copy", _changing(editing.copy)),
    RestRoute(f"{_TOOL}/rename", _changing(editing.rename)),
    RestRoute("/bundles/{bundleID}/export", {"GET": RouteMethod(imports.export)}),
    RestRoute("/imports/zip", _changing(imports.import_zip, AS, DRY_RUN, media=(imports.ZIP,))),
    RestRoute("/imports/curl", _changing(imports.import_curl, DRY_RUN)),
    RestRoute(
        "/imports/openapi",
        _changing(
            imports.import_openapi, AS, BASE_URL, TOKEN, URL, ONLY, TAG, OPERATION, DRY_RUN, media=(imports.YAML,)
        ),
    ),
    RestRoute("/imports/servers", _admin(servers.import_servers, REPLACE, DRY_RUN)),
    RestRoute("/servers/{server}/approve", _admin(servers.approve_server, DRY_RUN)),
    RestRoute("/trust", _admin(checks.trust, DRY_RUN)),
    RestRoute("/run", {"POST": RouteMethod(run.run)}, OUTSIDE),
    RestRoute("/run/check", {"POST": RouteMethod(run.check)}, OUTSIDE),
    RestRoute("/run/names", {"GET": RouteMethod(run.names)}, OUTSIDE),
    RestRoute("/servers", {"GET": RouteMethod(servers.list_servers)}, OUTSIDE),
    RestRoute("/servers/{server}", {"GET": RouteMethod(servers.get_server)}, OUTSIDE),
    RestRoute("/servers/{server}/logs", {"GET": RouteMethod(servers.logs, {AFTER.name: AFTER}, "admin")}, OUTSIDE),
    RestRoute("/servers/{server}/reconnect", _admin(servers.reconnect), OUTSIDE),
    RestRoute("/servers/{server}/enable", _admin(servers.enable), OUTSIDE),
    RestRoute("/servers/{server}/disable", _admin(servers.disable), OUTSIDE),
    RestRoute("/servers/{server}/login", _admin(servers.login), OUTSIDE),
    RestRoute("/results", {"GET": _with_query(insight.list_results, Q, PAGE_TOKEN)}, OUTSIDE),
    RestRoute(
        "/results/{handle}",
        {
            "GET": _with_query(insight.get_result, FROM, LIMIT, COLUMN, Q),
            "DELETE": RouteMethod(insight.delete_result, role="call"),
        },
        OUTSIDE,
    ),
    RestRoute("/check", {"GET": RouteMethod(checks.check, role="edit")}, OUTSIDE),
    RestRoute("/trust", {"GET": RouteMethod(checks.get_trust, role="edit")}, OUTSIDE),
    RestRoute("/stats", {"GET": _with_query(insight.stats, DAYS, TOOL, SOURCE, CLIENT, CALLER)}, OUTSIDE),
    RestRoute(
        "/audit",
        {
            "GET": _with_query(
                insight.list_audit, SINCE, UNTIL, WHO, KIND, TOOL, OUTCOME, PAGE_SIZE, PAGE_TOKEN
            )._replace(role="admin", audited=False)
        },
        OUTSIDE,
    ),
)

_CHECKS = {
    "{server}": str,
    "{handle}": str,
    "{bundleID}": check_id,
    "{toolSlug}": check_slug,
    "{version}": check_version,
    **dict.fromkeys(("{session}", "{question}", "{call}"), str),
}


_NAME = re.compile(r"[\w.-]{1,64}")
_NAMED = ("{bundleID}", "{toolSlug}", "{version}", "{server}")  # what the audit log names: other ids may be secret


def _is_name(part: str, value: str) -> bool:
    """Whether the log may repeat it: ids, slugs and versions were checked, and a server's name is a short word."""
    return part != "{server}" or _NAME.fullmatch(value) is not None


def audited(method: str, found: RouteMatch, principal: Principal, role: Role) -> tuple[AuditKind | None, str]:
    """Return kind and name of a request for the audit log. Without a kind, only a refusal is noted; without a name,
    the log has the root of its route.
    """
    if found.method is None or (
        role != "admin" and (method in ("GET", "HEAD") or (method == "POST" and role == "call"))
    ):
        return None, ""
    values = iter(found.path)
    parts = [(next(values), part) if part in _CHECKS else ("", part) for part in found.route.segments]
    shown = _NAMED if principal.may(role) else _NAMED[:1]  # who is refused may have typed anything
    path = "/".join(value if part in shown and _is_name(part, value) else part for value, part in parts)
    kind = None if not found.method.audited else "admin" if role == "admin" else "change"
    return kind, f"{method} /{path}"


class RouteTable:
    """Routes, and which of them a raw path means."""

    def __init__(self, routes: tuple[RestRoute, ...]) -> None:
        self.routes = routes
        self._by_length: dict[int, list[RestRoute]] = {}
        for one in routes:
            self._by_length.setdefault(len(one.segments), []).append(one)
        self._cached_match = lru_cache(1024)(self._match)

    def match(self, raw: bytes, method: str) -> RouteMatch:
        """Find the route of a raw path. Raises RestError (404, 405)."""
        return self._cached_match(raw, method) if len(raw) <= LONGEST_CACHED else self._match(raw, method)

    def check(self, scope: Scope) -> tuple[bytes, ...]:
        """The media types that a route takes beside JSON; called before a body is refused. Raises RestError if there is
        no such route.
        """
        way = self.match(scope["raw_path"], scope["method"]).method
        return () if way is None else way.media

    def _match(self, raw: bytes, method: str) -> RouteMatch:
        try:
            segments = [percent_decoded(piece) for piece in raw.split(b"/")[1:]]
        except ValueError as error:
            raise RestError(400, "bad_path", f"The path can't be read: {error}.", part="path", pointer="") from None
        route = next((one for one in self._by_length.get(len(segments), ()) if _fits(one, segments)), None)
        if route is None:
            there = ", ".join(one.path for one in self.routes if one.segments[0] == segments[0])
            shown = raw[:100].decode("latin-1")
            raise RestError(404, "not_found", f"There is nothing at {shown!r}; there are {there}")
        found = route.methods.get("GET" if method == "HEAD" else method)
        if found is None and method != "OPTIONS":
            message = f"{route.path} takes {route.allow_header()}, not {method[:20]}."
            raise RestError(405, "method_not_allowed", message, headers=[(b"allow", route.allow_header().encode())])
        return RouteMatch(route, _path_values(route, segments), found)


API_ROUTES = RouteTable(ROUTES)
check_route = API_ROUTES.check


def _fits(route: RestRoute, segments: list[str]) -> bool:
    return all(ours == theirs or ours in _CHECKS for ours, theirs in zip(route.segments, segments, strict=True))


def _path_values(route: RestRoute, segments: list[str]) -> tuple[str, ...]:
    values: list[str] = []
    for name, value in zip(route.segments, segments, strict=True):
        if (check := _CHECKS.get(name)) is not None:
            try:
                values.append(check(value))
            except InvalidError as error:
                raise RestError(400, "bad_path", str(error), part="path", pointer=f"/{name[1:-1]}") from None
    return tuple(values)
