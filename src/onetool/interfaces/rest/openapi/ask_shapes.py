"""The shapes of `POST /ask`: what only a pattern or a sentence can say of them."""

from typing import Any

from onetool.ask.events import Answer
from onetool.ask.sessions.names import ID
from onetool.interfaces.rest.ask.body import PICTURES, Question
from onetool.interfaces.rest.ask.refusal import AskProblem
from onetool.interfaces.rest.openapi import examples

Part = dict[str, Any]

SHAPES = (Question, Answer, AskProblem)
WORDS = {
    "Question.prompt": "The question.",
    "Question.session": "Go on in this session, or begin it; `last` is the one used last. None: a new one.",
    "Question.newSession": "It must be a new one: refused where the session is there already.",
    "Question.withTools": "false: no tool can run. Left out: as the server's config says.",
    "Question.toolAllow": "Only these tools, from here on in this session; an empty list is none.",
    "Question.model": "As the provider calls it.",
    "Question.system": "What the model is told before everything else, in place of the server's own words.",
    "Question.maxSteps": "How often the model may be asked; then it has to answer without tools.",
    "Question.menu": "`direct`: the model sees every tool; `run`: one that runs code over all of them.",
    "Question.approve": "Whether tools that may change something are let run. Nobody is there to be asked.",
    "Question.files": "Attached to the question.",
    "QuestionFile.name": "What the model is told that it is called.",
    "QuestionFile.kind": "Its media type.",
    "Answer.answer": "null where there is none.",
    "Answer.toolCalls": "What the model has called, in order.",
    "Answer.toolResults": "Each call with its result, in the order of the calls.",
    "Answer.toolError": "The first call that failed.",
    "Answer.sessionContextUpdated": "Whether results of tools were written into the session.",
    "Answer.sessionId": "For the next question.",
    "Answer.steps": "How often the model was asked.",
    "Answer.stop": "Why the model stopped: end, length, refused, other.",
    "Answer.limitReached": "maxSteps was reached.",
    "Answer.denied": "Tools that were not let run.",
    "Answer.hints": "What to do about that.",
    "Answer.error": "Why there is no answer: reason, message, hints.",
    "AskProblem.code": "Why, for programs: one word that stays the same, whatever `detail` says.",
    "AskProblem.in": "Which part of the request is wrong, where it is one.",
    "AskProblem.pointer": "JSON pointer (RFC 6901) to what is wrong, in what `in` names.",
    "AskProblem.errors": "Where several things are wrong: each of them.",
    "AskProblem.hints": "What could be done about it.",
    "AskProblem.answer": "What has been done until then, where a session was opened: tools may have run.",
}
_COMPLETE = ("Answer", "Usage", "Executed", "ToolProblem", "ToolCall", "ToolResult")
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def refine(named: dict[str, Part]) -> None:
    """What the types alone do not say."""
    for name in _COMPLETE:
        named[name]["required"] = list(named[name]["properties"])
        for one in named[name]["properties"].values():
            one.pop("default", None)
    asked = named["Question"]["properties"]
    asked["prompt"]["pattern"] = r"[^\s\x1c-\x1f\x85]"  # engines do not agree on what is blank
    next(one for one in asked["session"]["anyOf"] if one["type"] == "string")["pattern"] = f"^{ID.pattern}$"
    file = named["QuestionFile"]
    name, kind = file["properties"]["name"], file["properties"]["kind"]
    data = {"type": "string", "contentEncoding": "base64", "minLength": 4, "pattern": _BASE64}
    pictures = {"enum": list(PICTURES), "description": kind["description"]}
    named["QuestionText"] = _object("A text.", {"name": name, "kind": kind, "text": {"type": "string"}}, "text")
    named["QuestionPicture"] = _object("A picture.", {"name": name, "kind": pictures, "data": data}, "kind", "data")
    named["QuestionFile"] = {
        "description": file["description"],
        "oneOf": [{"$ref": f"{examples.ADDRESS}{name}"} for name in ("QuestionText", "QuestionPicture")],
    }


def _object(words: str, properties: Part, *required: str) -> Part:
    return {
        "type": "object",
        "description": words,
        "properties": properties,
        "required": ["name", *required],
        "additionalProperties": False,
    }
