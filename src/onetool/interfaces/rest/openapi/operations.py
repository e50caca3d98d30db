"""What each method at each address takes and gives, in OpenAPI's words."""

from typing import Any

from onetool.interfaces.rest import query as q
from onetool.interfaces.rest.openapi import examples
from onetool.interfaces.rest.openapi.schemas import ID, SLUG, VERSION
from onetool.interfaces.rest.query import Parameter

Part = dict[str, Any]

# Of every refusal: what it means, and the headers that come with it. Those of the second line any request may meet.
REFUSALS: dict[int, tuple[str, tuple[str, ...]]] = {
    400: ("Something that was sent can't be used; `in` and `pointer` say where.", ()),
    401: ("This server needs its token.", ("WWW-Authenticate",)),
    403: ("Not allowed: built-in, switched off, not to be changed here, or a page of another origin asks.", ()),
    404: ("There is no such thing.", ()),
    405: ("This address takes other methods.", ("Allow",)),
    409: ("It is there already, or something is in the way.", ()),
    412: ("It is not what If-Match or If-None-Match says.", ()),
    413: ("The body is larger than this server takes.", ()),
    415: ("A POST, and whatever has a body, must say `Content-Type: application/json`.", ()),
    421: ("The Host is no name of this server.", ()),
    429: ("Called more often than its limit allows.", ("Retry-After",)),
    500: ("A bug of ours.", ()),
    503: ("The store can't be used now, or the server is stopping. Nothing has changed.", ("Retry-After",)),
}
ALWAYS = (400, 401, 403, 405, 413, 415, 421, 500, 503)

HEADERS: dict[str, Part] = {
    "ETag": {"description": "The state of it, for If-Match and If-None-Match.", "schema": {"type": "string"}},
    "Location": {"description": "Where it is.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}},
    "Allow": {"schema": {"type": "string"}},
    "WWW-Authenticate": {"schema": {"type": "string"}},
}

_TAGS = r'^(\*|[!#-+\x2d-~]+|(W/)?"[!#-~]*"( ?, ?(W/)?"[!#-~]*")*)$'
PARAMETERS: dict[str, Part] = {
    "bundleID": {"in": "path", "required": True, "schema": ID, "example": examples.BUNDLE_ID},
    "toolSlug": {"in": "path", "required": True, "schema": SLUG, "example": examples.TOOL_SLUG},
    "version": {"in": "path", "required": True, "schema": VERSION, "example": examples.TOOL_VERSION},
    "If-Match": {
        "in": "header",
        "description": "Only if it still has this ETag; `*`: only if it is there.",
        "schema": {"type": "string", "pattern": _TAGS},
    },
    "If-None-Match": {
        "in": "header",
        "description": "Only if it has another ETag; `*`: only if it is not there yet.",
        "schema": {"type": "string", "pattern": _TAGS},
    },
    "tags": {
        "in": "query",
        "description": "Tools with any of these tags: `tags=a&tags=b` or `tags=a,b`.",
        "schema": {"type": "array", "items": {"type": "string"}},
    },
    "bundleIDs": {
        "in": "query",
        "description": "Only these bundles: `bundleIDs=…&bundleIDs=…` or `bundleIDs=…,…`.",
        "schema": {
            "type": "array",
            "items": {"type": "string", "pattern": f"^{ID['pattern'][1:-1]}(,{ID['pattern'][1:-1]})*$"},
        },
    },
    "includeDisabled": {
        "in": "query",
        "description": "Also what is switched off.",
        "schema": {"enum": [True, False, 1, 0], "default": False},
    },
    "pageToken": {
        "in": "query",
        "description": "nextPageToken of the page before. Good for the same query alone; the page's size may change.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
    },
    "q": {
        "in": "query",
        "description": "What is searched for: the beginning of names, whole words, or nearly these, in this order. "
        "Nothing finds everything, the newest first.",
        "schema": {"type": "string", "maxLength": q.LONGEST_SEARCH},
        "example": "forecast",
    },
}
_SIZE: Part = {
    "in": "query",
    "description": "How many at the most.",
    "schema": {"type": "integer", "minimum": 1, "maximum": q.MOST_PER_PAGE, "default": q.PER_PAGE},
}
_RECOMMENDED: Part = {
    "in": "query",
    "description": f"How many at the most. More than {q.MOST_PER_PAGE} means {q.MOST_PER_PAGE}.",
    "schema": {"type": "integer", "minimum": 1, "default": q.PER_PAGE},
}
PARAMETERS |= {"pageSize": _SIZE, "recommendedPageSize": _RECOMMENDED}


def operation(
    id: str,
    summary: str,
    gives: dict[int, Part],
    *refused: int,
    takes: Part | None = None,
    says: str = "",
    conditions: tuple[str, ...] = (),
) -> Part:
    """`gives` are the answers that are none of the refusals."""
    refusals = {status: refusal(status) for status in sorted({*ALWAYS, *refused})}
    found: Part = {
        "operationId": id,
        "summary": summary,
        **({"description": says} if says else {}),
        "parameters": [_parameter(name) for name in conditions],
        **({"requestBody": takes} if takes else {}),
        "responses": {str(status): answer for status, answer in sorted({**gives, **refusals}.items())},
    }
    return found


def with_query(found: Part, parameters: dict[str, Parameter]) -> Part:
    return {**found, "parameters": [*found["parameters"], *(_parameter(name) for name in parameters)]}


def path_parameters(template: str) -> list[Part]:
    return [_parameter(part[1:-1]) for part in template.split("/") if part.startswith("{")]


def _parameter(name: str) -> Part:
    return {"name": name, **PARAMETERS[name]}


def refusal(status: int, words: str | None = None, shape: str = "Problem") -> Part:
    """`words`: where it means something of its own."""
    usual, headers = REFUSALS.get(status, ("", ()))
    return {
        "description": words or usual,
        **({"headers": {name: HEADERS[name] for name in headers}} if headers else {}),
        "content": {"application/problem+json": {"schema": {"$ref": f"{examples.ADDRESS}{shape}"}}},
    }


def answer(words: str, schema: str | None = None, *headers: str, links: Part | None = None) -> Part:
    content = {"application/json": {"schema": {"$ref": f"{examples.ADDRESS}{schema}"}}} if schema else None
    return {
        "description": words,
        **({"headers": {name: HEADERS[name] for name in headers}} if headers else {}),
        **({"content": content} if content else {}),
        **({"links": links} if links else {}),
    }


def body(schema: str, example: Any) -> Part:
    content = {"schema": {"$ref": f"{examples.ADDRESS}{schema}"}, "example": example}
    return {"required": True, "content": {"application/json": content}}
