"""What `POST /ask` takes and gives, in OpenAPI's words."""

from typing import Any

from onetool.interfaces.rest.openapi import examples
from onetool.interfaces.rest.openapi.operations import answer, body, operation, refusal

Part = dict[str, Any]

GROUP = "Questions"
SAYS = """\
A model answers, and may use the tools of this server. It is the one of the server's config, unless `provider` or
`model` names another; its key is the server's. Whoever may ask sees all sessions. With `Accept: text/event-stream` the
answer is a stream of events: `started`, `text` and `thinking` as the model writes, `call` and `result` as tools run,
`notice`, and at the end `answer`, or `error` {reason, message, hints, answer}. A client that leaves ends it; what was
said and done by then stays in the session."""
_STREAM = {
    "type": "string",
    "description": "Server-sent events: started, text, thinking, call, result, notice; answer or error.",
}
_REFUSED = {
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


def ask_operation() -> Part:
    found = operation(
        "ask",
        "Ask a model that has these tools",
        {200: answer("It answered.", "Answer")},
        says=SAYS,
        takes=body("Question", examples.QUESTION),
    )
    found["responses"]["200"]["content"]["text/event-stream"] = {"schema": _STREAM}
    refusals = {str(status): refusal(status, words, "AskProblem") for status, words in _REFUSED.items()}
    return {**found, "responses": dict(sorted({**found["responses"], **refusals}.items()))}
