"""What the OpenAPI document says of imports, exports, editing, servers and trust: operations, parameters, schemas."""

from onetool.interfaces.rest.openapi_parts import TOOL_PLACE, Part, object_schema, request_body, schema_ref
from onetool.interfaces.rest.openapi_schemas import ID, SLUG, VERSION

_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 1000}}
_DRY = " With `dryRun=true` nothing is changed, and the answer is what the real one would be."
_ALL = " All of it, or nothing." + _DRY
_GUARDED = " It needs the role admin. No tool can reach it."

PARAMETERS: dict[str, Part] = {
    "fields": {
        "in": "query",
        "description": "Only these keys of each row: `fields=slug,version`. A key that a row does without is left out.",
        "schema": {"type": "array", "minItems": 1, "items": {"type": "string"}},
        "example": ["id", "slug"],
    },
    "dryRun": {
        "in": "query",
        "description": "Say what would come, and change nothing.",
        "schema": {"enum": [True, False, 1, 0], "default": False},
    },
    "replace": {
        "in": "query",
        "description": "Replace servers of the same name instead of keeping them.",
        "schema": {"enum": [True, False, 1, 0], "default": False},
    },
    "as": {"in": "query", "description": "The slug of the bundle, in place of its own.", "schema": SLUG},
    "baseUrl": {
        "in": "query",
        "description": "Where the API is, if the document does not say it.",
        "schema": {"type": "string", "pattern": "^[hH][tT][tT][pP][sS]?://", "maxLength": 4000},
    },
    "url": {
        "in": "query",
        "description": "Where the document is, on a host of allowedHosts; then the body is `{}`.",
        "schema": {"type": "string", "pattern": "^[hH][tT][tT][pP][sS]?://", "maxLength": 4000},
    },
    "token": {
        "in": "query",
        "description": "Send a bearer token, if the document says nothing about that.",
        "schema": {"enum": [True, False, 1, 0], "default": False},
    },
    "only": {
        "in": "query",
        "description": "Only operations whose path (`/users/*`) or tool name (`list-*`) matches: `only=…&only=…`.",
        "schema": _TEXTS,
    },
    "tag": {"in": "query", "description": "Only operations with one of these tags.", "schema": _TEXTS},
    "operation": {
        "in": "query",
        "description": "Only these operations: an operationId, or a method and a path.",
        "schema": _TEXTS,
        "example": ["GET /users/{id}"],
    },
    "server": {
        "in": "path",
        "required": True,
        "description": "The name of an MCP server in the config.",
        "schema": {"type": "string", "minLength": 1},
        "example": "docs",
    },
}

EXAMPLE_CURL = {
    "command": "curl https://api.example.com/v1/forecast?city=Oslo",
    "bundle": "weather",
    "tool": "forecast",
}
EXAMPLE_SERVERS = {"mcpServers": {"docs": {"url": "http://127.0.0.1:9000/mcp"}}}
EXAMPLE_DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Weather", "version": "1"},
    "servers": [{"url": "https://api.example.com"}],
    "paths": {"/v1/forecast": {"get": {"operationId": "forecast", "responses": {"200": {"description": "It."}}}}},
}
EXAMPLE_COPY = {"version": "2.0", "changes": {"description": "The forecast for a city, for a week."}}


_ZIP = {"application/zip": {"schema": {"type": "string", "contentMediaType": "application/zip"}}}

# Of each operation: its group, and what `operation` of openapi.py takes. A response is its words, schema and headers.
OPERATIONS: dict[tuple[str, str], tuple[str, Part]] = {
    (f"{TOOL_PLACE}/copy", "POST"): (
        "Tools",
        {
            "id": "copyTool",
            "summary": "Copy a tool, or edit it as a new version",
            "gives": {201: ("Created.", "Tool", "ETag", "Location")},
            "refused": (404, 409, 412),
            "note": "`changes` is a JSON Merge Patch (RFC 7396) of the tool: null removes a key. A copy has an id of "
            "its own, and its usage begins at 0. Built-in tools can be copied into a bundle that is not.",
            "takes": request_body("ToolCopy", EXAMPLE_COPY),
            "conditions": ("If-Match", "If-None-Match"),
        },
    ),
    (f"{TOOL_PLACE}/rename", "POST"): (
        "Tools",
        {
            "id": "renameTool",
            "summary": "Give a tool another slug or version",
            "gives": {200: ("The tool.", "Tool", "ETag", "Content-Location")},
            "refused": (404, 409, 412),
            "note": "It is the same tool after that, with its id, its usage and its switch.",
            "takes": request_body("ToolRename", {"slug": "weather-forecast"}),
            "conditions": ("If-Match", "If-None-Match"),
        },
    ),
    ("/bundles/{bundleID}/export", "GET"): (
        "Bundles",
        {
            "id": "exportBundle",
            "summary": "Get a bundle with its tools as a ZIP archive",
            "gives": {200: ("The archive.", None, "ETag"), 304: ("It has this ETag still.", None, "ETag")},
            "refused": (404,),
            "note": "Secrets are not in it: tools have only their names.",
            "conditions": ("If-None-Match",),
            "content": _ZIP,
        },
    ),
    ("/imports/zip", "POST"): (
        "Imports",
        {
            "id": "importZip",
            "summary": "Take in a ZIP archive of a bundle",
            "gives": {200: ("What came.", "ImportReport")},
            "refused": (409,),
            "note": f"As `onetool bundles import`.{_ALL}",
            "takes": {
                "required": True,
                "content": {
                    **_ZIP,
                    "application/json": {"schema": schema_ref("ArchiveRequest"), "example": {"archive": "UEsDBA=="}},
                },
            },
        },
    ),
    ("/imports/curl", "POST"): (
        "Imports",
        {
            "id": "importCurl",
            "summary": "Make a tool of a curl command",
            "gives": {200: ("What came.", "ImportReport")},
            "refused": (409,),
            "note": "The command is not run. What may differ from call to call becomes arguments; credentials go into "
            f"the secrets file of the server, and only their names into the tool.{_ALL}",
            "takes": request_body("CurlRequest", EXAMPLE_CURL),
        },
    ),
    ("/imports/openapi", "POST"): (
        "Imports",
        {
            "id": "importOpenapi",
            "summary": "Make tools of an OpenAPI 3 document",
            "gives": {200: ("What came.", "ImportReport")},
            "refused": (409,),
            "note": "A tool for each operation; what can't be one is in `skipped`. The document is the body, in JSON "
            f"or YAML, or at `url`. `only`, `tag` and `operation` choose a part; each narrows down the others.{_ALL}",
            "takes": {
                "required": True,
                "content": {
                    "application/json": {"schema": {"type": "object"}, "example": EXAMPLE_DOCUMENT},
                    "application/yaml": {"schema": {"type": "object"}},
                },
            },
        },
    ),
    ("/imports/servers", "POST"): (
        "Servers",
        {
            "id": "importServers",
            "summary": "Add MCP servers to the config",
            "gives": {200: ("What came.", "ImportReport")},
            "refused": (409,),
            "note": "Blocks as other clients have them, by their names. Secrets go into the "
            f"secrets file.{_GUARDED}{_ALL}",
            "takes": {
                "required": True,
                "content": {"application/json": {"schema": {"type": "object"}, "example": EXAMPLE_SERVERS}},
            },
        },
    ),
    ("/servers/{server}/approve", "POST"): (
        "Servers",
        {
            "id": "approveServer",
            "summary": "Trust a server's tools as they are now",
            "gives": {200: ("What had changed.", "ServerChanges")},
            "refused": (404, 409),
            "note": f"With `digest` of a dry run, what has changed since is refused with 409.{_GUARDED}{_DRY}",
            "takes": request_body("SeenDigest", {}),
        },
    ),
    ("/trust", "POST"): (
        "Servers",
        {
            "id": "trustFolder",
            "summary": "Trust the folder of a project",
            "gives": {200: ("What it reaches.", "TrustReport")},
            "refused": (409,),
            "note": f"With `digest` of a dry run, what has changed since is refused with 409.{_GUARDED}{_DRY}",
            "takes": request_body("TrustRequest", {"folder": "/home/me/project"}),
        },
    ),
}


# Schemas


def _list(of: Part) -> Part:
    return {"type": "array", "items": of}


_TEXT: Part = {"type": "string"}
_TEXTS = _list(_TEXT)
_OR_NULL: Part = {"type": ["string", "null"]}
_REMARK = object_schema({"about": _TEXT, "why": _TEXT}, "about", "why")
_WHAT = {"enum": ["new", "same", "changed", "clash", "kept"], "description": "What it is to what is here."}
_SECRET = object_schema({"name": _TEXT, "source": _OR_NULL}, "name", "source", words="`source` is null: it is not set.")
_HOST = object_schema(
    {
        "host": _TEXT,
        "allowed": {"type": ["boolean", "null"]},
        "entry": {**_OR_NULL, "description": "For allowedHosts."},
    },
    *("host", "allowed", "entry"),
)
_REPORT = {
    "dryRun": {"type": "boolean"},
    "bundles": _list(object_schema({"id": ID, "slug": SLUG, "what": _WHAT}, "id", "slug", "what")),
    "tools": _list(object_schema({"slug": SLUG, "version": VERSION, "what": _WHAT}, "slug", "version", "what")),
    "servers": _list(object_schema({"name": _TEXT, "what": _WHAT, "block": {"type": "object"}}, "name", "what")),
    "skipped": {**_list(_REMARK), "description": "What could not be taken, and why."},
    "warnings": {**_list(_REMARK), "description": "What is not quite as it was, or can't be called yet."},
    "secretsKept": {**_TEXTS, "description": "Names of secrets that came with it, and are in the secrets file."},
    "needs": object_schema({"secrets": _list(_SECRET), "hosts": _list(_HOST)}, "secrets", "hosts"),
}
_DIGEST = {**_TEXT, "description": "For the real one: what has changed since is refused."}
_SEEN = {**_OR_NULL, "description": "That of a dry run."}


def import_schemas(tool: Part, bundle: Part) -> dict[str, Part]:
    """Schemas of these operations. `tool` and `bundle` are the complete ones, of which a list may show some keys."""
    return {
        "ListedTool": _partial(tool),
        "ListedBundle": _partial(bundle),
        "ImportReport": object_schema(_REPORT, *_REPORT, words="What came, or would."),
        "ArchiveRequest": object_schema(
            {"archive": {**_TEXT, "contentEncoding": "base64", "pattern": _BASE64}}, "archive"
        ),
        "CurlRequest": object_schema(
            {
                "command": {**_TEXT, "description": "As it is typed: `curl https://…`."},
                "bundle": {**_TEXT, "description": "A slug or an id; one that is not there is made."},
                "tool": SLUG,
                "version": {**VERSION, "default": "1"},
                "description": {**_OR_NULL, "description": "What it does."},
            },
            *("command", "bundle", "tool"),
        ),
        "ToolCopy": object_schema(
            {
                "bundleID": {**ID, "description": "Where it is put; the same bundle by default."},
                "slug": {**SLUG, "description": "The same by default."},
                "version": {**VERSION, "description": "The same by default."},
                "changes": {"type": "object", "description": "What is other about it (RFC 7396)."},
            }
        ),
        "ToolRename": {**object_schema({"slug": SLUG, "version": VERSION}), "minProperties": 1},
        "SeenDigest": object_schema({"digest": _SEEN}),
        "TrustRequest": object_schema(
            {"folder": {**_TEXT, "description": "Its absolute path."}, "digest": _SEEN}, "folder"
        ),
        "ServerChanges": object_schema(
            {
                "dryRun": {"type": "boolean"},
                "server": _TEXT,
                "changes": _list(object_schema({"tool": _TEXT, "lines": _TEXTS}, "tool", "lines")),
                "digest": _DIGEST,
            },
            *("dryRun", "server", "changes", "digest"),
        ),
        "TrustReport": object_schema(
            {
                "dryRun": {"type": "boolean"},
                "folder": _TEXT,
                **dict.fromkeys(("runs", "dials", "reads", "secrets"), _TEXTS),
                "warnings": _list(_REMARK),
                "digest": _DIGEST,
            },
            *("dryRun", "folder", "runs", "dials", "reads", "secrets", "warnings", "digest"),
        ),
    }


def _partial(schema: Part) -> Part:
    """A row of a list: `fields` may have picked some keys."""
    return {**schema, "required": [], "description": "All of it, unless `fields` says which keys."}
