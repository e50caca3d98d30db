"""The operations of the OpenAPI document, and their parameters."""

from onetool.interfaces.rest import openapi_ask, openapi_console, openapi_imports, openapi_schemas
from onetool.interfaces.rest import query as q
from onetool.interfaces.rest.openapi_parts import ANY_REQUEST, Part, problem_response, response
from onetool.interfaces.rest.openapi_schemas import ID, SLUG, VERSION
from onetool.interfaces.rest.query import QueryParameter

_TAGS = r'^(\*|[!#-+\x2d-~]+|(W/)?"[!#-~]*"( ?, ?(W/)?"[!#-~]*")*)$'
PARAMETERS: dict[str, Part] = {
    "bundleID": {"in": "path", "required": True, "schema": ID, "example": openapi_schemas.EXAMPLE_BUNDLE_ID},
    "toolSlug": {"in": "path", "required": True, "schema": SLUG, "example": openapi_schemas.EXAMPLE_TOOL_SLUG},
    "version": {"in": "path", "required": True, "schema": VERSION, "example": openapi_schemas.EXAMPLE_TOOL_VERSION},
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
_NAME: Part = {
    "in": "path",
    "required": True,
    "description": "As code says it: `time.now`, `bundle.tool`, `bundle.tool@version`, or an alias.",
    "schema": {"type": "string", "minLength": 1},
}
PARAMETERS |= {
    "days": {
        "in": "query",
        "description": "How many days, until now.",
        "schema": {"type": "integer", "minimum": 1, "maximum": q.MOST_DAYS, "default": q.USUAL_DAYS},
    },
    "pageSize": _SIZE,
    "recommendedPageSize": _RECOMMENDED,
    "name": _NAME,
    **openapi_imports.PARAMETERS,
    **openapi_ask.PARAMETERS,
    **openapi_console.PARAMETERS,
}


def operation(
    id: str,
    summary: str,
    gives: dict[int, Part],
    *refused: int,
    takes: Part | None = None,
    note: str = "",
    conditions: tuple[str, ...] = (),
) -> Part:
    """One operation. `gives` are the successful responses; `conditions` are further error statuses."""
    refusals = {status: problem_response(status) for status in sorted({*ANY_REQUEST, *refused})}
    found: Part = {
        "operationId": id,
        "summary": summary,
        **({"description": note} if note else {}),
        "parameters": [_parameter(name) for name in conditions],
        **({"requestBody": takes} if takes else {}),
        "responses": {str(status): answer for status, answer in sorted({**gives, **refusals}.items())},
    }
    return found


def with_query(found: Part, parameters: dict[str, QueryParameter]) -> Part:
    return {**found, "parameters": [*found["parameters"], *map(_query_parameter, parameters.values())]}


def _query_parameter(one: QueryParameter) -> Part:
    found = _parameter(one.name)
    if one.values:
        found["schema"] = {"type": "array", "minItems": 1, "items": {"enum": list(one.values)}}
    return found


def path_parameters(template: str) -> list[Part]:
    return [_parameter(part[1:-1]) for part in template.split("/") if part.startswith("{")]


def _parameter(name: str) -> Part:
    return {"name": name, **PARAMETERS[name]}


def described_operation(facts: Part) -> Part:
    """An operation as a table describes it, such as that of `openapi_imports`."""
    gives = {status: response(*one) for status, one in facts["gives"].items()}
    if "content" in facts:
        gives[200]["content"] = facts["content"]
    options = {key: facts[key] for key in ("takes", "note", "conditions") if key in facts}
    return operation(facts["id"], facts["summary"], gives, *facts["refused"], **options)
