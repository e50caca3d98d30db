"""The REST API: bundles and their tools below /tools, any tool below /call, a model at /ask, and code at /run.

Who may use it is decided in interfaces/http. Here is where it is, which a server knows before its first request; the
rest is loaded with that.

app            the ASGI apps of all routes, and of /call: tools by their names
route          the declaration of a route, which is the decorator of its handler
routing        all routes, and which of them a path means
query          query parameters
request        bodies, ETags, the caller, lists
problem        errors as application/problem+json

handlers       bundles and tools; lists in pages
invoke         calling a tool, also as a stream of events
editing        copies, names, examples, drafts
imports        ZIP, curl and OpenAPI in, ZIP out
run            code: running and checking it
insight        counts, the audit log, stored results
servers        MCP servers: state, log, approval
server_edit    MCP servers in the config: import, switch, change
checks         what is wrong, and whether a project is trusted
grants         hosts and secrets for tools, and tokens for callers
events         the ASGI apps at /events and /status

ask_app        the ASGI app at /ask
ask_body       what it takes, and its problems
ask_sessions   what was asked and answered
ask_approvals  calls that wait for a person

openapi          /openapi.json: the document, made of the routes
openapi_schemas  its schemas
"""

from onetool.core.text import lazy_pattern

ASK_PATH = "/ask"
_QUESTION = lazy_pattern(r"(?<=/ask/)[0-9a-f]{32,40}")  # with 8 more where there are replicas
CALL_PATH = "/call"
CALL_METHODS = ("POST", "OPTIONS")
EVENTS_PATH = "/events"
STATUS_PATH = "/status"
ROOTS = (
    "/tools",
    "/run",
    "/servers",
    "/results",
    "/check",
    "/trust",
    "/stats",
    "/audit",
    "/hosts",
    "/secrets",
    "/tokens",
)
"""The paths that all other routes are below: what is sent there comes to the same app."""


def mask_questions(text: str) -> str:
    """Mask the ids of open questions in a text for logs: an id is enough to approve calls."""
    return _QUESTION.sub("***", text) if ASK_PATH in text else text
