"""The REST API: bundles and their tools below /tools, any tool below /call, a model at /ask, and code at /run.

interfaces/http decides who may use it. This module has only the paths, which a server needs before its first request;
the first request loads the rest.

app            the ASGI apps of all routes, and of /call (tools by name)
route          the decorator that declares the route of a handler
routing        the route table: finds the route of a path
query          query parameters
request        bodies, ETags, the caller, lists
problem        errors as application/problem+json

handlers       bundles and tools; lists in pages
invoke         calling a tool, also as a stream of events
editing        copies, names, examples, drafts
imports        import of ZIP, curl and OpenAPI; export as ZIP
run            running and checking code
insight        usage counts, the audit log, reading a stored result
checks         problems of the config
operations     the routes of `app/operations`
events         the ASGI apps at /events and /status

ask_app        the ASGI app at /ask
ask_body       the body of a question, and its error responses
ask_sessions   stored conversations
ask_approvals  calls that wait for a person's approval

openapi          /openapi.json: the document, generated from the routes
openapi_schemas  the schemas of the document
"""

from onetool.core.text import lazy_pattern

ASK_PATH = "/ask"
_QUESTION = lazy_pattern(r"(?<=/ask/)[0-9a-f]{32,40}")  # 8 more digits where there are replicas
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
"""The root paths of all other routes. One app serves them all."""


def mask_questions(text: str) -> str:
    """Mask the ids of open questions in a log line, because anyone who has an id can approve calls."""
    return _QUESTION.sub("***", text) if ASK_PATH in text else text
