"""The messages of a request to a stdio server that runs in another process: JSON lines both ways.

    POST /cluster/servers/NAME/call    SharedCall; the answer is a stream of lines, the last of which is the outcome
    POST /cluster/answers/ID           CallerAnswer to a question that was one of these lines

An empty line says that the request is still under way.
"""

from typing import Any

import msgspec

from onetool.core.call import CannotAsk, Declined, ForModel, ForPerson, ForRoots, Question
from onetool.core.errors import ToolFailure
from onetool.sources.mcp_servers.shared import ServerRequest

CAPABILITIES = ("elicitation", "sampling", "roots")
QUESTIONS: dict[str, type[Question]] = {"person": ForPerson, "model": ForModel, "roots": ForRoots}


class SharedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The request, and what the server may ask of its caller meanwhile."""

    request: ServerRequest
    block: str = ""  # the digest of what the sender's config says of the server
    may_repeat: bool = False
    peer: str = ""  # the same for all calls of one client
    can: tuple[str, ...] = ()  # capabilities of the caller
    wants_progress: bool = False


class ProgressLine(msgspec.Struct, frozen=True, tag="progress"):
    done: float
    total: float | None
    message: str | None


class LogLine(msgspec.Struct, frozen=True, tag="log"):
    level: str
    data: Any
    logger: str | None


class LackLine(msgspec.Struct, frozen=True, tag="lack"):
    """The server wanted to ask what the caller has no way to answer."""

    capability: str
    message: str


class QuestionLine(msgspec.Struct, frozen=True, tag="question"):
    """To be answered at /cluster/answers/ID."""

    id: str
    kind: str
    question: dict[str, Any]


class ResultLine(msgspec.Struct, frozen=True, tag="result"):
    value: msgspec.Raw


class FailureLine(msgspec.Struct, frozen=True, tag="failure"):
    message: str
    reason: str | None = None
    hints: tuple[str, ...] = ()


class MovedLine(msgspec.Struct, frozen=True, tag="moved"):
    """This process does not run the server. Nothing has happened."""


class CallerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller said, or why it said nothing."""

    value: Any = None
    declined: str | None = None
    lacks: str | None = None
    failure: FailureLine | None = None


Line = ProgressLine | LogLine | LackLine | QuestionLine | ResultLine | FailureLine | MovedLine

decode_line = msgspec.json.Decoder(Line).decode
encode_line = msgspec.json.encode


def failure_line(error: BaseException) -> FailureLine:
    hints = error.hints if isinstance(error, ToolFailure) else ()
    return FailureLine(str(error), error.reason if isinstance(error, ToolFailure) else None, hints)


def failure_of(line: FailureLine) -> ToolFailure:
    return ToolFailure(line.message, reason=line.reason, hints=line.hints)


def question_line(id: str, question: Question) -> QuestionLine:
    kind = next(kind for kind, of in QUESTIONS.items() if isinstance(question, of))
    return QuestionLine(id, kind, msgspec.to_builtins(question))


def question_of(line: QuestionLine) -> Question:
    return msgspec.convert(line.question, type=QUESTIONS[line.kind])


def answer_of(error: ToolFailure) -> CallerAnswer:
    """The answer of a caller that did not answer."""
    if isinstance(error, Declined):
        return CallerAnswer(declined=error.action)
    if isinstance(error, CannotAsk):
        return CallerAnswer(lacks=error.capability, failure=failure_line(error))
    return CallerAnswer(failure=failure_line(error))


def value_of(answer: CallerAnswer) -> Any:
    """What the caller said. Raises what it raised there."""
    if answer.declined is not None:
        raise Declined(answer.declined)
    if answer.failure is not None:
        raise CannotAsk(answer.lacks, answer.failure.message) if answer.lacks else failure_of(answer.failure)
    return answer.value
