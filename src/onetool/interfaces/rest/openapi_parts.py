"""What every part of the OpenAPI document is made of: references, bodies, responses and their headers."""

from typing import Any

Part = dict[str, Any]

SCHEMA_PREFIX = "#/components/schemas/"
TOOL_PLACE = "/bundles/{bundleID}/tools/{toolSlug}/version/{version}"

LIMIT_HEADERS = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "RateLimit-Policy", "RateLimit")

# !Error statuses: their meaning, and the headers that come with them. Any request may get those of the second line.
REFUSALS: dict[int, tuple[str, tuple[str, ...]]] = {
    400: ("Something that was sent can't be used; `in` and `pointer` say where.", ()),
    401: ("This server needs its token.", ("WWW-Authenticate",)),
    403: ("Not allowed: built-in, switched off, not to be changed here, or a page of another origin asks.", ()),
    404: ("There is no such thing.", ()),
    406: ("This is a stream of events, and `Accept` does not name that.", ()),
    405: ("This address takes other methods.", ("Allow",)),
    409: ("It is there already, or something is in the way.", ()),
    412: ("It is not what If-Match or If-None-Match says.", ()),
    413: ("The body is larger than this server takes.", ()),
    415: ("A POST, and whatever has a body, must say `Content-Type: application/json`, or what this takes.", ()),
    421: ("The Host is no name of this server.", ()),
    424: ("The tool ran, and failed: `code` and `reason` say why.", ()),
    429: ("Called more often than its limit allows.", ("Retry-After", *LIMIT_HEADERS)),
    500: ("A bug of ours.", ()),
    503: (
        "The store can't be used now, too many bodies are being read, or the server is stopping. Nothing has changed; "
        "but with the code `change_unknown` or `stopping` it may have.",
        ("Retry-After",),
    ),
}
ANY_REQUEST = (400, 401, 403, 405, 413, 415, 421, 500, 503)

_COUNT = {"type": "integer", "minimum": 0}
HEADERS: dict[str, Part] = {
    "ETag": {"description": "The state of it, for If-Match and If-None-Match.", "schema": {"type": "string"}},
    "Location": {"description": "Where it is.", "schema": {"type": "string"}},
    "Content-Location": {"description": "Where it is now.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}},
    "RateLimit-Limit": {"description": "Of a tool with a limit: calls a minute.", "schema": _COUNT},
    "RateLimit-Remaining": {"description": "How many of them are left.", "schema": _COUNT},
    "RateLimit-Reset": {"description": "Seconds until there are more.", "schema": _COUNT},
    "RateLimit-Policy": {"description": 'The limit: `"minute";q=60;w=60`.', "schema": {"type": "string"}},
    "RateLimit": {"description": 'What is left of it: `"minute";r=12;t=34`.', "schema": {"type": "string"}},
    "Allow": {"schema": {"type": "string"}},
    "WWW-Authenticate": {"schema": {"type": "string"}},
}


IS_COUNTED = "false: nothing is counted (`stats.enabled` in the config)."
COUNTED_NOTE = (
    "As far as calls are kept (`stats` in the config). Nothing of arguments and values is. Of two days or less the "
    "series has hours, else days, also those without a call. Who does not have the role admin sees the calls of their "
    "own; an admin those of all callers."
)


def schema_ref(name: str) -> Part:
    return {"$ref": f"{SCHEMA_PREFIX}{name}"}


def object_schema(properties: Part, *required: str, words: str = "") -> Part:
    return {
        "type": "object",
        **({"description": words} if words else {}),
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def request_body(schema: str, example: Any) -> Part:
    return {"required": True, "content": {"application/json": {"schema": schema_ref(schema), "example": example}}}


def problem_response(status: int, words: str | None = None, shape: str = "Problem") -> Part:
    """The response for an error status. `words` replaces the usual description."""
    usual, headers = REFUSALS.get(status, ("", ()))
    return {
        "description": words or usual,
        **({"headers": {name: HEADERS[name] for name in headers}} if headers else {}),
        "content": {"application/problem+json": {"schema": schema_ref(shape)}},
    }


def response(words: str, schema: str | None = None, *headers: str, links: Part | None = None) -> Part:
    content = {"application/json": {"schema": schema_ref(schema)}} if schema else None
    return {
        "description": words,
        **({"headers": {name: HEADERS[name] for name in headers}} if headers else {}),
        **({"content": content} if content else {}),
        **({"links": links} if links else {}),
    }


def page_responses(words: str, schema: str) -> dict[int, Part]:
    """Of a list: a page, or that it is the one that the client has."""
    return {200: response(words, schema, "ETag"), 304: response("The page has this ETag still.", None, "ETag")}
