"""The routes of the REST API: addresses, methods, query parameters, and the handler of each."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from time import time
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from onetool.core.principal import LOCAL, Principal, Role
from onetool.core.text import did_you_mean
from onetool.http.definition import below
from onetool.interfaces.asgi import Scope
from onetool.interfaces.rest import (
    admin,
    audit,
    checks,
    drafts,
    editing,
    handlers,
    imports,
    insight,
    invoke,
    results,
    run,
    servers,
)
from onetool.interfaces.rest.light_list import BUNDLE_FIELDS, TOOL_FIELDS, read_fields
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import RestRequest, RestResponse
from onetool.services.audit import KINDS, AuditKind
from onetool.services.audit.reading import read_moment
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.names import check_id, check_slug, check_version

ASK_PATH = "/ask"
_QUESTION = re.compile(r"(?<=/ask/)[0-9a-f]{32}")
CALL_PATH = "/call"
CALL_METHODS = ("POST", "OPTIONS")


def mask_questions(text: str) -> str:
    """The text without the ids of questions under way, for logs: who knows one may approve calls."""
    return _QUESTION.sub("***", text) if ASK_PATH in text else text


# Query parameters


MOST_PER_PAGE = 1000
PER_PAGE = 100
MOST_DAYS = 366
USUAL_DAYS = 30
LONGEST_SEARCH = 1000  # characters
MOST_IN_LIST = 1000
LONGEST_URL = 4000  # characters
LONGEST_NUMBER = 15  # digits

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SIZE = re.compile(r"[1-9][0-9]{0,3}")
_NUMBER = re.compile(r"[1-9][0-9]*")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


class QueryParameter(NamedTuple):
    """A query parameter. `read` parses its text; ValueError says what was expected."""

    name: str
    read: Callable[[str], Any]
    default: Any = None
    many: bool = False
    required: bool = False
    values: tuple[str, ...] = ()  # that an entry of a list can have; none: any


def percent_decoded(raw: bytes) -> str:
    """Decode percent-encoded UTF-8. Raises ValueError."""
    if b"%" in raw:
        if _BROKEN.search(raw):
            raise ValueError("a % must be followed by two hexadecimal digits")
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def read_query(raw: bytes, known: Mapping[str, QueryParameter]) -> dict[str, Any]:
    """Parse a query string into values of all known parameters. Raises RestError."""
    given: dict[str, list[str]] = {}
    for piece in raw.split(b"&") if raw else ():
        if piece:
            name, _, value = piece.replace(b"+", b" ").partition(b"=")
            given.setdefault(_decoded(name, "?"), []).append(_decoded(value, name.decode("latin-1")))
    for name in given:
        if name not in known:
            raise _unknown(name, known)
    return {one.name: _value(one, given.get(one.name)) for one in known.values()}


def _value(parameter: QueryParameter, texts: list[str] | None) -> Any:
    if texts is None:
        if parameter.required:
            raise _bad_parameter(parameter.name, "is missing")
        return parameter.default
    if not parameter.many and len(texts) > 1:
        raise _bad_parameter(parameter.name, "is given twice")
    try:
        if not parameter.many:
            return parameter.read(texts[0])
        found = tuple(dict.fromkeys(part for text in texts for part in parameter.read(text)))
        if len(found) > MOST_IN_LIST:
            raise ValueError(f"has more than {MOST_IN_LIST} entries")
    except ValueError as error:
        raise _bad_parameter(parameter.name, str(error)) from None
    return found


def _decoded(raw: bytes, name: str) -> str:
    try:
        return percent_decoded(raw)
    except ValueError as error:
        raise _bad_parameter(name[:100], f"can't be read: {error}") from None


def _unknown(name: str, known: Mapping[str, QueryParameter]) -> RestError:
    near = did_you_mean(name, known) or (f"there are {', '.join(known)}" if known else "there are none here")
    return RestError(
        400,
        "unknown_parameter",
        f"There is no query parameter {name[:100]!r}; {near}",
        part="query",
        pointer=below("", name[:100]),
    )


def _bad_parameter(name: str, what: str) -> RestError:
    message = f"The query parameter {name} {what}{'' if what.endswith('?') else '.'}"
    return RestError(400, "bad_parameter", message, part="query", pointer=below("", name))


# Types of query parameters


def _boolean(text: str) -> bool:
    if text not in _TRUTH:
        raise ValueError("must be true or false")
    return _TRUTH[text]


def _size(text: str) -> int:
    if not _SIZE.fullmatch(text) or int(text) > MOST_PER_PAGE:
        raise ValueError(f"must be a whole number from 1 to {MOST_PER_PAGE}")
    return int(text)


def _recommended(text: str) -> int:
    """A recommendation: more than the most is the most."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("must be a whole number from 1 on")
    return min(int(text[:9]), MOST_PER_PAGE)


def _position(text: str) -> int:
    if not _NUMBER.fullmatch(text) or len(text) > LONGEST_NUMBER:
        raise ValueError("must be a whole number from 1 on")
    return int(text)


def _days(text: str) -> int:
    if not _SIZE.fullmatch(text) or int(text) > MOST_DAYS:
        raise ValueError(f"must be a whole number from 1 to {MOST_DAYS}")
    return int(text)


def _moment(text: str) -> float:
    found = read_moment(text, time())
    if found is None:
        raise ValueError("must be a time: 2026-11-16T12:00:00Z, or so long ago: 30m, 2h, 7d")
    return found


def _kind(text: str) -> str:
    if text not in KINDS:
        raise ValueError(f"must be one of {', '.join(KINDS)}")
    return text


def _words(text: str) -> str:
    if len(text) > LONGEST_SEARCH:
        raise ValueError(f"must have at most {LONGEST_SEARCH} characters")
    return text


def _texts(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _ids(text: str) -> list[str]:
    try:
        return [check_id(part) for part in text.split(",")]
    except InvalidError as error:
        raise ValueError(f"must be ids: {error}") from None


def _slug(text: str) -> str:
    try:
        return check_slug(text)
    except InvalidError as error:
        raise ValueError(f"must be a slug: {error}") from None


def _url(text: str) -> str:
    if not text.lower().startswith(("http://", "https://")) or len(text) > LONGEST_URL:
        raise ValueError(f"must be a URL of http or https, of at most {LONGEST_URL:,} characters")
    return text


TAGS = QueryParameter("tags", _texts, (), many=True)
BUNDLE_IDS = QueryParameter("bundleIDs", _ids, (), many=True)
INCLUDE_DISABLED = QueryParameter("includeDisabled", _boolean, False)
PAGE_SIZE = QueryParameter("pageSize", _size, PER_PAGE)
RECOMMENDED_PAGE_SIZE = QueryParameter("recommendedPageSize", _recommended, PER_PAGE)
PAGE_TOKEN = QueryParameter("pageToken", str)
Q = QueryParameter("q", _words, "")
OF_BUNDLES = QueryParameter("fields", read_fields(BUNDLE_FIELDS), None, many=True, values=BUNDLE_FIELDS)
OF_TOOLS = QueryParameter("fields", read_fields(TOOL_FIELDS), None, many=True, values=TOOL_FIELDS)
DRY_RUN = QueryParameter("dryRun", _boolean, False)
REPLACE = QueryParameter("replace", _boolean, False)
AS = QueryParameter("as", _slug)
BASE_URL = QueryParameter("baseUrl", _url)
URL = QueryParameter("url", _url)
TOKEN = QueryParameter("token", _boolean, False)
DAYS = QueryParameter("days", _days, USUAL_DAYS)
AFTER = QueryParameter("after", _words, "")
FROM = QueryParameter("from", _position, 1)
LIMIT = QueryParameter("limit", _size, PER_PAGE)
COLUMN = QueryParameter("column", _position, 1)
TOOL = QueryParameter("tool", _words)
SOURCE = QueryParameter("source", _words)
CLIENT = QueryParameter("client", _words)
SINCE = QueryParameter("since", _moment)
UNTIL = QueryParameter("until", _moment)
WHO = QueryParameter("who", _words)
KIND = QueryParameter("kind", _kind)
OUTCOME = QueryParameter("outcome", _words)
CALLER = QueryParameter("caller", _words)


# Routes


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
    RestRoute("/validate", _changing(drafts.validate_draft)),
    RestRoute(f"{_TOOL}/validate", {"POST": RouteMethod(drafts.validate_args)}),
    RestRoute("/preview", _changing(drafts.preview_of_draft)),
    RestRoute(f"{_TOOL}/preview", {"POST": RouteMethod(drafts.preview)}),
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
        _changing(imports.import_openapi, AS, BASE_URL, TOKEN, URL, DRY_RUN, media=(imports.YAML,)),
    ),
    RestRoute("/imports/servers", _admin(admin.import_servers, REPLACE, DRY_RUN)),
    RestRoute("/servers/{server}/approve", _admin(admin.approve_server, DRY_RUN)),
    RestRoute("/trust", _admin(admin.trust, DRY_RUN)),
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
    RestRoute("/results", {"GET": _with_query(results.list_results, Q, PAGE_TOKEN)}, OUTSIDE),
    RestRoute(
        "/results/{handle}",
        {
            "GET": _with_query(results.get_result, FROM, LIMIT, COLUMN, Q),
            "DELETE": RouteMethod(results.delete_result, role="call"),
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
                audit.list_audit, SINCE, UNTIL, WHO, KIND, TOOL, OUTCOME, PAGE_SIZE, PAGE_TOKEN
            )._replace(role="admin")
        },
        OUTSIDE,
    ),
)
ROOTS = tuple(dict.fromkeys(f"/{route.segments[0]}" for route in ROUTES))
"""The paths that everything is below: what is sent there comes to the same app."""

_CHECKS = {
    "{server}": str,
    "{handle}": str,
    "{bundleID}": check_id,
    "{toolSlug}": check_slug,
    "{version}": check_version,
    **dict.fromkeys(("{session}", "{question}", "{call}"), str),
}


_NAMED = ("{bundleID}", "{toolSlug}", "{version}", "{server}")  # what the audit log names: other ids may be secret
_UNCHANGED = ("/tools/validate", "/tools/preview", "/audit")  # these look at things; the page does so all the time


def audited(method: str, found: RouteMatch, principal: Principal) -> tuple[AuditKind, str] | None:
    """What the audit log says of a request that changes or administers something; None for all others."""
    if found.method is None or found.route.path in _UNCHANGED:
        return None
    role = needed_role(method, found.method, principal)
    if role != "admin" and (method in ("GET", "HEAD") or (method == "POST" and role == "call")):
        return None
    values = iter(found.path)
    parts = [(next(values), part) if part in _CHECKS else ("", part) for part in found.route.segments]
    path = "/".join(value if part in _NAMED else part for value, part in parts)
    return "admin" if role == "admin" else "change", f"{method} /{path}"


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
