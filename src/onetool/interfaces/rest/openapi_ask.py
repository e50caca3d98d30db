"""What the OpenAPI document says of /ask and what is below: questions, approvals, cancelling."""

from onetool.app.ask import ModelOverview
from onetool.ask.sessions.records import LAST, SESSION_ID
from onetool.interfaces.rest.ask_approvals import ApprovalAnswer
from onetool.interfaces.rest.ask_sessions import (
    JSON,
    MARKDOWN,
    SessionDocument,
    SessionPage,
    SessionTitle,
    UserCallRequest,
    UserCallResult,
)
from onetool.interfaces.rest.openapi_parts import Part, request_body, schema_ref

ASK_GROUP = "Questions"
SHAPES = (ApprovalAnswer, SessionPage, SessionDocument, SessionTitle, UserCallRequest, UserCallResult, ModelOverview)
DESCRIPTIONS = {
    "ModelOverview.provider": "The one that answers where a question names none, as `model`; null: there is none.",
    "ModelOverview.toolTokens": "About how many tokens the list of tools costs each time that a model is asked.",
    "KnownProvider.models": "Those that are known: the config's, the usual one, and those of a server of one's own.",
    "KnownProvider.isConfigured": "Whether it can be asked: its key is there, or its server.",
    "KnownProvider.missing": "What has to be set first.",
    "SessionSummary.title": "The first words of the first question, or what it was renamed to.",
    "SessionSummary.turns": "Questions.",
    "SessionSummary.model": "Of the last turn that came to its end, as `provider`.",
    "SessionDocument.usage": "Tokens of all turns that came to their end.",
    "SessionDocument.damaged": "Records that can't be read, and are not here.",
    "SessionEntry.calls": "Of the model; in a message of the user the one call that the person made.",
    "SessionEntry.usage": "Tokens of the turn, in its last message, as `provider` and `model`.",
    "SessionEntry.brokenOff": "It was not let finish.",
    "SessionEntry.end": "In the last message of a turn: how it ended, where that is known. `stopped`: nobody waited.",
    "SessionEntry.why": "Why the turn failed.",
    "SessionCall.state": "`not_run`: nobody let it run, or it was stopped before it began.",
    "SessionCall.args": "null where they are too large, or no object: then `argsText` has their beginning.",
    "SessionCall.result": "As the model read it; its beginning, where `isCut`.",
    "SessionFile.text": "In an export, of a text.",
    "SessionFile.data": "In an export, of a picture: base64.",
    "UserCallRequest.name": "As code says it: `time.now`, or an alias.",
    "UserCallResult.sessionId": "For the next call or question.",
    "ApprovalAnswer.approve": "true: this one call runs, as the event told it. false: it does not.",
}
_ID = {"type": "string", "minLength": 1, "maxLength": 200}

# POST /ask


ASK_DESCRIPTION = """\
A model answers, and may use the tools of this server. It is the one of the server's config, unless `provider` or
`model` names another; its key is the server's. Whoever may ask sees all sessions. With `Accept: text/event-stream` the
answer is a stream of events: `started`, `text` and `thinking` as the model writes, `call` and `result` as tools run,
`notice`, and at the end `answer`, or `error` {reason, message, hints, answer}. A client that leaves ends it; what was
said and done by then stays in the session. With `approve: ask`, which needs a stream, `approval` {question, call, name,
args, warnings, expiresAt, expiresInSeconds} tells of a call that waits for `approveCall`."""
ASK_STREAM = {
    "type": "string",
    "description": "Server-sent events: started, text, thinking, call, approval, result, notice; answer or error.",
}
ASK_REFUSALS = {
    400: "Something that was sent can't be used; `in` and `pointer` say where.",
    404: "There is no such session.",
    409: "Somebody else's question is being answered in this session, or it is there already.",
    413: "The body is larger than this server takes, or the question than the model.",
    422: "The model, or its provider, would not answer this.",
    429: "The provider says: too often.",
    502: "The provider refused, can't be reached, or gave an answer that can't be read.",
    503: "No model or no key is configured, its provider has too much to do, or this server has.",
    504: "The provider took too long.",
}


# Below it


PARAMETERS: dict[str, Part] = {
    "session": {
        "in": "path",
        "required": True,
        "description": "Its id; `last` is the one used last.",
        "schema": {"type": "string", "pattern": f"^{SESSION_ID.pattern}$"},
        "example": LAST,
    },
    "format": {
        "in": "query",
        "description": "Instead of what `Accept` prefers; without both it is Markdown.",
        "schema": {"enum": [MARKDOWN, JSON]},
    },
    "question": {
        "in": "path",
        "required": True,
        "description": "As the events `started` and `approval` of its stream tell it.",
        "schema": _ID,
        "example": "0123456789abcdef0123456789abcdef",
    },
    "call": {
        "in": "path",
        "required": True,
        "description": "As the event `approval` tells it.",
        "schema": _ID,
        "example": "call_1",
    },
}


# As in openapi_insight: what `operation` of openapi.py takes. By the templates of `ASK_ROUTES`.
_OWN = "On a server that is for calls only, this needs a caller with a name."
_CALL_EXAMPLE = {"name": "time.now", "args": {}}
OPERATIONS: dict[tuple[str, str], Part] = {
    ("/models", "GET"): {
        "id": "listModels",
        "summary": "Which models can be asked",
        "gives": {200: ("The providers, and the models of each that are known.", "ModelOverview")},
        "refused": (),
        "note": "No hosted provider is asked for its list, so that others of its models can be named as well.",
    },
    ("/sessions", "GET"): {
        "id": "listSessions",
        "summary": "List conversations",
        "gives": {200: ("A page, the newest first.", "SessionPage")},
        "refused": (),
        "note": "Those of this caller.",
    },
    ("/sessions/{session}", "GET"): {
        "id": "getSession",
        "summary": "Read a conversation",
        "gives": {200: ("It, with long results cut.", "SessionDocument")},
        "refused": (404,),
    },
    ("/sessions/{session}", "PATCH"): {
        "id": "renameSession",
        "summary": "Rename a conversation",
        "gives": {200: ("It, as a list shows it.", "SessionSummary")},
        "refused": (404, 409),
        "note": f"That is no use of it: `modifiedAt` stays. A title is one line of at most 80 characters. {_OWN}",
        "takes": request_body("SessionTitle", {"title": "Tea"}),
    },
    ("/sessions/{session}", "DELETE"): {
        "id": "deleteSession",
        "summary": "Delete a conversation",
        "gives": {204: ("Deleted.", None)},
        "refused": (404, 409),
        "note": f"For good. {_OWN}",
    },
    ("/sessions/{session}/export", "GET"): {
        "id": "exportSession",
        "summary": "Export a conversation",
        "gives": {200: ("All of it.", "SessionDocument")},
        "content": {
            "text/markdown": {"schema": {"type": "string"}},
            "application/json": {"schema": schema_ref("SessionDocument")},
        },
        "refused": (404,),
    },
    ("/sessions/{session}/calls", "POST"): {
        "id": "callInSession",
        "summary": "Call a tool in a conversation",
        "gives": {200: ("It ran.", "UserCallResult")},
        "refused": (404, 409, 429),
        "note": "Your own call, which nobody has to approve. The model reads it and its result with the next question.",
        "takes": request_body("UserCallRequest", _CALL_EXAMPLE),
    },
    ("/calls", "POST"): {
        "id": "callInNewSession",
        "summary": "Begin a conversation with a call of a tool",
        "gives": {200: ("It ran.", "UserCallResult")},
        "refused": (404, 429),
        "note": "As `callInSession`.",
        "takes": request_body("UserCallRequest", _CALL_EXAMPLE),
    },
    ("/{question}", "DELETE"): {
        "id": "cancelQuestion",
        "summary": "Cancel a question that is being answered",
        "gives": {204: ("It ends: nothing more is approved, and its stream tells `error` (interrupted).", None)},
        "refused": (404,),
        "note": "Only for the client that asked; to all others there is no such question.",
    },
    ("/{question}/approvals/{call}", "POST"): {
        "id": "approveCall",
        "summary": "Let a call of the model run, or not",
        "gives": {204: ("It is decided.", None)},
        "refused": (404, 409),
        "note": "For questions with `approve: ask`. Only for the client that asked; to all others there is no such "
        "question. Five minutes without an answer are a no.",
        "takes": request_body("ApprovalAnswer", {"approve": True}),
    },
}
