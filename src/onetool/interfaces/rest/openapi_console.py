"""What the OpenAPI document says of what is not below /tools: code that runs, servers, results, statistics."""

from onetool.app.code_names import CodeNames
from onetool.interfaces.rest.checks import CheckReport, TrustState
from onetool.interfaces.rest.insight import AuditList, ResultLines, ResultList
from onetool.interfaces.rest.openapi_parts import COUNTED_NOTE, IS_COUNTED, Part, request_body, schema_ref
from onetool.interfaces.rest.run import RunAnswer, RunRequest
from onetool.interfaces.rest.servers import LoginPage, NoOptions, ServerEntry, ServerList, ServerLogPage
from onetool.script.parse import CodeReport
from onetool.services.audit import KINDS
from onetool.services.stats.usage import StatsOverview

EXAMPLE_RUN = {"code": "tools.echo(message=word)", "variables": {"word": "hello"}}

SHAPES = (
    RunRequest,
    RunAnswer,
    CodeReport,
    CodeNames,
    StatsOverview,
    ServerList,
    ServerEntry,
    ServerLogPage,
    LoginPage,
    NoOptions,
    ResultList,
    ResultLines,
    CheckReport,
    TrustState,
    AuditList,
)
DESCRIPTIONS = {
    "RunRequest.code": "Python, as `run` takes it.",
    "RunRequest.variables": "Names that the code finds bound, and their values.",
    "RunAnswer.prints": "What the code has printed.",
    "RunAnswer.calls": "The calls that the code has made, in order, at most 1,000; in a stream, how many.",
    "RunAnswer.value": "The value of the last expression; of one that is stored, its beginning as text.",
    "RunAnswer.type": "The type of the value in JSON.",
    "RunAnswer.size": "Bytes of the value.",
    "RunAnswer.stored": "The handle of a value that is too large to send: see `/results`.",
    "RunCall.args": "Without secrets; what is long is cut.",
    "RunCall.preview": "The beginning of what it gave, as text.",
    "RunFault.code": "One of three. The finer cause is in `reason`.",
    "RunFault.calls": "How many calls had been made.",
    "RunFault.line": "Where in the text that was sent; lines and columns begin at 1.",
    "RunFault.reason": "check, syntax, timeout, memory …",
    "CodeReport.errors": "All that is wrong, as far as can be told without running it.",
    "CodeReport.calls": "The tools that the code calls, as far as can be told.",
    "CodeFault.line": "Where in the text that was sent; lines and columns begin at 1.",
    "CodeTool.name": "What code writes behind the dot.",
    "CodeTool.tool": "What the tool is called.",
    "CodeNames.functions": "Tools without a pack.",
    "ServerEntry.state": "connected, connecting, disconnected, idle (nobody has needed it yet) or disabled.",
    "ServerEntry.changed": "How many of its tools are not as they were approved.",
    "ServerEntry.refused": "Because of that, its tools can't be called.",
    "ServerEntry.needsLogin": "A person has to log in: POST `login`.",
    "ServerEntry.since": "It is connected, or is not.",
    "ServerEntry.runsIn": "The replica that runs it for all, where several share it.",
    "ServerEntry.command": "Only for those who may change something here. Secrets are masked.",
    "ServerEntry.url": "Only for those who may change something here. Secrets are masked.",
    "ServerEntry.hints": "Commands that help.",
    "ServerEntry.changes": "Only of a single server.",
    "ServerEntry.digest": "What `approve` takes, so that nothing is approved that nobody has seen.",
    "ServerLogPage.next": "`after` of the next request.",
    "LoginPage.url": "For a browser on the machine of the server. The server is connected again when that is done.",
    "ResultEntry.name": "The tool that it came from, where it was one.",
    "ResultEntry.head": "How it begins.",
    "ResultEntry.size": "Bytes of UTF-8.",
    "ResultLines.total": "How many lines the result has.",
    "ResultLines.from": "The first line; of a search, counted among those that match.",
    "ResultLines.numbers": "Of a search: which lines of the result these are.",
    "ResultLines.column": "Where the first line begins, unless that is its beginning.",
    "ResultLines.next": "Where a page goes on that was too large to be sent.",
    "CheckFinding.where": "A file with its line, or the tool or key that it is about.",
    "CheckFinding.fix": "What to do: a command or a text to copy.",
    "CheckReport.database": "Only where the config has one.",
    "CheckReport.replicas": "Only where several processes serve: replicas of a cluster, or workers of one machine.",
    "DatabaseReport.missingMigrations": "Tables that are missing: `onetool db migrate`.",
    "ReplicaReport.address": "Where the other ones reach it.",
    "ReplicaReport.isDraining": "It stops in a moment, and balancers send it nothing new.",
    "ReplicaReport.isThis": "It is the one that answers.",
    "TrustState.trusted": "Whether its config, packs, bundles and servers are used.",
    "TrustState.reaches": "What it runs, dials and reads, and which secrets it names.",
    "TrustState.command": "What changes that, on the command line; `POST /tools/trust` does it here.",
    "TrustState.digest": "What `POST /tools/trust` takes, so that nothing is trusted that nobody has seen.",
    "StatsOverview.enabled": IS_COUNTED,
    "StatsOverview.tokensSaved": "By runs and menus, as `onetool stats` has it; null where calls are picked by source, "
    "client or allow-list.",
    "StatsOverview.callers": "Names of tokens and `iss|sub`; those without the role admin see themselves only.",
    "StatsOverview.sources": "How tools were called: rest, mcp, run, cli …",
    "StatsOverview.failures": "How often each tool has failed, and in what way.",
    "CountedFailure.message": "The finer cause in a word, or the code. What callers were told is not kept.",
    "CodeNames.aliases": "Names for tools.",
    "AuditList.enabled": "Whether there is an audit log: `audit` in the config.",
    "AuditList.records": "The newest first.",
    "AuditList.nextPageToken": "Where it goes on. A page may be short, or empty, and still not be the last one.",
    "AuditList.skipped": "Lines that can't be read.",
    "AuditList.lost": "Lines that this server could not write, and has lost.",
    "AuditList.problem": "Why it can't be written at the moment.",
    "AuditRecord.time": "In UTC.",
    "AuditRecord.what": "The tool, or what was changed.",
    "AuditRecord.outcome": "ok, approved, declined, begun (another line says how it went), or the code of the error.",
    "AuditRecord.reason": "The finer cause of an error.",
    "AuditRecord.status": "The status of the response, of a request.",
    "AuditRecord.who": "Whose token or session it was; empty for the person who runs the process.",
    "AuditRecord.owner": "Whose things are meant, where that is another name.",
    "AuditRecord.from": "The address of the client.",
    "AuditRecord.via": "The interface: mcp, rest, ask, run, http, cli.",
    "AuditRecord.client": "The program, as it calls itself.",
    "AuditRecord.args": "A keyed hash of the arguments: equal ones have equal hashes.",
    "AuditRecord.id": "Of the call.",
    "AuditRecord.run": "The run whose code called.",
}


def _act(id: str, summary: str, note: str = "") -> tuple[str, Part]:
    """Something that is done with a server."""
    facts = {
        "id": id,
        "summary": summary,
        "gives": {200: ("How it is doing now.", "ServerEntry")},
        "refused": (404, 409),
    }
    return "Servers", {**facts, "note": f"{note}It needs the role admin.", "takes": request_body("NoOptions", {})}


_RUN_STREAM = {
    "type": "string",
    "description": "Server-sent events: started, call, called, progress, chunk, print; result or error.",
}

_POSITION: Part = {"type": "integer", "minimum": 1, "maximum": 10**15 - 1, "default": 1}
_TEXT: Part = {"type": "string", "maxLength": 1000}
_MOMENT: Part = {"type": "string", "pattern": "^([0-9]{1,6}[smhdw]|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8]))$"}
PARAMETERS: dict[str, Part] = {
    "handle": {"in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
    "from": {"in": "query", "description": "The first line, counted from 1.", "schema": _POSITION},
    "limit": {
        "in": "query",
        "description": "How many lines at the most.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
    },
    "column": {"in": "query", "description": "Where to begin in the first line, from 1.", "schema": _POSITION},
    "after": {"in": "query", "description": "`next` of the page before.", "schema": _TEXT},
    "tool": {"in": "query", "description": "Only calls of this tool.", "schema": _TEXT, "example": "time.now"},
    "source": {"in": "query", "description": "Only calls that came through this interface.", "schema": _TEXT},
    "caller": {
        "in": "query",
        "description": "Only calls of this caller: the name of a token, or `iss|sub`; empty is the command line and "
        "`http.token`. For admins; others see the calls of their own in any case.",
        "schema": _TEXT,
    },
    "client": {"in": "query", "description": "Only calls of this client.", "schema": _TEXT},
    "since": {"in": "query", "description": "Since then. A date, or so long ago.", "schema": _MOMENT, "example": "2h"},
    "until": {"in": "query", "description": "Until then, in the same form.", "schema": _MOMENT, "example": "1h"},
    "who": {"in": "query", "description": "Only what this token or user did.", "schema": _TEXT},
    "kind": {"in": "query", "description": "Only lines of this kind.", "schema": {"enum": [*KINDS]}},
    "outcome": {
        "in": "query",
        "description": "ok, error, the code or the reason of an error, or a status.",
        "schema": _TEXT,
        "example": "error",
    },
}

# As OPERATIONS of openapi_insight, with whole paths.
OPERATIONS: dict[tuple[str, str], tuple[str, Part]] = {
    ("/run", "POST"): (
        "Code",
        {
            "id": "runCode",
            "summary": "Run code over all tools",
            "gives": {200: ("It ran, and ended or failed.", "RunAnswer")},
            "content": {
                "application/json": {"schema": schema_ref("RunAnswer")},
                "text/event-stream": {"schema": _RUN_STREAM},
            },
            "refused": (),
            "note": "In the sandbox. A value that is too large to send is stored, and its beginning sent. With "
            "`Accept: text/event-stream` the answer is a stream of events: `started` {id}, `call` {id, name, args, at} "
            "and `called` {id, ok, durationMs, preview, error} for each call, `progress` {progress, total, message}, "
            "`chunk` {data}, `print` {text}, and at the end `result` {value, type, size, stored, calls, durationMs} or "
            "`error` {message, code, reason, hints, calls, line, column, endLine, endColumn}. A client that leaves "
            "stops the run. At most 16 run at once; others get 503.",
            "takes": request_body("RunRequest", EXAMPLE_RUN),
        },
    ),
    ("/run/check", "POST"): (
        "Code",
        {
            "id": "checkCode",
            "summary": "Check code before it runs",
            "gives": {200: ("What is wrong with it, if anything is.", "CodeReport")},
            "refused": (),
            "note": "Nothing runs. Calls are checked against the tools that there are and their schemas, as before "
            "every run.",
            "takes": request_body("RunRequest", EXAMPLE_RUN),
        },
    ),
    ("/run/names", "GET"): (
        "Code",
        {
            "id": "listNames",
            "summary": "What code can say",
            "gives": {200: ("All names.", "CodeNames", "ETag"), 304: ("They have this ETag still.", None, "ETag")},
            "refused": (),
            "note": "For editors that complete code: packs and their tools with parameters, functions, builtins, "
            "modules, snippets and aliases. Under an allow-list only what may be called.",
            "conditions": ("If-None-Match",),
        },
    ),
    ("/servers", "GET"): (
        "Servers",
        {
            "id": "listServers",
            "summary": "List the MCP servers",
            "gives": {200: ("How each is doing.", "ServerList")},
            "refused": (),
        },
    ),
    ("/servers/{server}", "GET"): (
        "Servers",
        {
            "id": "getServer",
            "summary": "Get a server, and what has changed about its tools",
            "gives": {200: ("How it is doing.", "ServerEntry")},
            "refused": (404,),
        },
    ),
    ("/servers/{server}/logs", "GET"): (
        "Servers",
        {
            "id": "readServerLog",
            "summary": "Read the log of a server",
            "gives": {200: ("At most the last 1,000 lines.", "ServerLogPage")},
            "refused": (404,),
            "note": "What it writes to standard error, and when it was started and lost. With `after`, what came after "
            "that. It needs the role admin.",
        },
    ),
    ("/servers/{server}/reconnect", "POST"): _act("reconnectServer", "Connect a server again"),
    ("/servers/{server}/enable", "POST"): _act("enableServer", "Switch a server on", "In the config file. "),
    ("/servers/{server}/disable", "POST"): _act("disableServer", "Switch a server off", "In the config file. "),
    ("/servers/{server}/login", "POST"): (
        "Servers",
        {
            "id": "loginToServer",
            "summary": "Begin a login to a server",
            "gives": {200: ("Where a person logs in.", "LoginPage")},
            "refused": (404, 409),
            "note": "For servers with OAuth. 409: there is nothing to log in to. It needs the role admin.",
            "takes": request_body("NoOptions", {}),
        },
    ),
    ("/results", "GET"): (
        "Results",
        {
            "id": "listResults",
            "summary": "List stored results",
            "gives": {200: ("A page, the newest first.", "ResultList")},
            "refused": (),
            "note": "Only those of this client, whichever process of this state folder has stored them.",
        },
    ),
    ("/results/{handle}", "GET"): (
        "Results",
        {
            "id": "readResult",
            "summary": "Read lines of a stored result",
            "gives": {200: ("Some lines.", "ResultLines")},
            "refused": (404,),
            "note": "With `q`, a regular expression, only lines that match.",
        },
    ),
    ("/results/{handle}", "DELETE"): (
        "Results",
        {
            "id": "deleteResult",
            "summary": "Delete a stored result",
            "gives": {204: ("Deleted.", None)},
            "refused": (404,),
        },
    ),
    ("/check", "GET"): (
        "Server",
        {
            "id": "getCheck",
            "summary": "What is wrong with the config and the tools",
            "gives": {200: ("What `onetool check` says.", "CheckReport")},
            "refused": (),
            "note": "Also what keeps a changed config from being used. It needs the role edit.",
        },
    ),
    ("/trust", "GET"): (
        "Server",
        {
            "id": "getTrust",
            "summary": "Whether the project's folder is trusted",
            "gives": {200: ("The folder, and what it reaches.", "TrustState")},
            "refused": (),
            "note": "It needs the role edit.",
        },
    ),
    ("/stats", "GET"): (
        "Server",
        {
            "id": "getStats",
            "summary": "How often tools were called, and how that went",
            "gives": {200: ("What was counted.", "StatsOverview")},
            "refused": (),
            "note": COUNTED_NOTE,
        },
    ),
    ("/audit", "GET"): (
        "Server",
        {
            "id": "listAudit",
            "summary": "Who called what, and how it went",
            "gives": {200: ("A page of the audit log.", "AuditList")},
            "refused": (),
            "note": "It needs the role admin. `tool` may be a pattern such as `web.*`.",
        },
    ),
}
