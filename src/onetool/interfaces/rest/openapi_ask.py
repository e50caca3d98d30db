"""What the OpenAPI document says of /ask and what is below: questions, approvals, cancelling."""

from typing import Any

from onetool.interfaces.rest.ask_approvals import ApprovalAnswer

Part = dict[str, Any]

ASK_GROUP = "Questions"
SHAPES = (ApprovalAnswer,)
DESCRIPTIONS = {
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
args, warnings, expiresAt} tells of a call that waits for `approveCall`."""
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


def _takes(schema: str, example: Any) -> Part:
    content = {"schema": {"$ref": f"#/components/schemas/{schema}"}, "example": example}
    return {"required": True, "content": {"application/json": content}}


# As in openapi_insight: what `operation` of openapi.py takes. By the templates of `ASK_ROUTES`.
OPERATIONS: dict[tuple[str, str], Part] = {
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
        "takes": _takes("ApprovalAnswer", {"approve": True}),
    },
}
