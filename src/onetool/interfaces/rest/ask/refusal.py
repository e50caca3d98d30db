"""Why there is no answer, as a problem. Where something has been done by then, that comes with it."""

from collections.abc import Callable
from math import ceil
from typing import Any

import msgspec

from onetool.ask.errors import AskError
from onetool.ask.events import Answer
from onetool.interfaces.asgi import Refused
from onetool.interfaces.encoding import encode
from onetool.interfaces.rest.ask.body import Question
from onetool.interfaces.rest.ask.words import for_client
from onetool.interfaces.rest.problem import Problem, Wrong, told

STATUS: dict[str, int] = {
    "busy": 409,
    "exists": 409,
    "not_found": 404,
    "session": 503,  # it can't be written, or was by a later OneTool. Ids are looked at before
    "no_key": 503,  # the operator has to set something up
    "no_provider": 503,
    "no_model": 503,
    "overloaded": 503,
    "rate_limited": 429,
    "timeout": 504,
    "too_long": 413,
    "refused": 422,
}
BY_PROVIDER = 502  # everything else: it did not do what it should, or could not be reached
ABOUT_SESSIONS = ("busy", "exists", "not_found")


class AskProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A problem with what to do about it, and the answer as far as it had come."""

    hints: tuple[str, ...] = ()
    answer: Answer | None = None


class Failed(Wrong):
    """A question without an answer."""

    def __init__(self, error: AskError, answer: Answer, question: Question) -> None:
        wait: float | None = getattr(error, "wait", None)
        status, pointer = _place(error.reason, question)
        super().__init__(
            status,
            error.reason,
            for_client(str(error)),
            part="body" if pointer else None,
            pointer=pointer,
            headers=[(b"retry-after", b"%d" % max(1, ceil(wait)))] if wait is not None and status in (429, 503) else (),
        )
        self.hints = tuple(map(for_client, error.hints))
        self.answer = answer if answer.provider else None  # else nothing has been done

    def event(self, clean: Callable[[Any], Any]) -> bytes:
        """The same as the data of a stream's last event."""
        said = {"reason": self.code, "message": str(self), "hints": list(self.hints)}
        return encode({"type": "error", **clean(said), "answer": _data(self.answer, clean)})


def _place(reason: str, question: Question) -> tuple[int, str | None]:
    """The status, and what in the body is wrong."""
    status = STATUS.get(reason, BY_PROVIDER)
    if reason == "model_not_found" and question.model is not None:  # it is the client who has named it
        return 400, "/model"
    return status, "/session" if reason in ABOUT_SESSIONS and question.session is not None else None


def told_of(refused: Refused, clean: Callable[[Any], Any]) -> bytes:
    """The problem's body."""
    if not isinstance(refused, Failed):
        return told(refused, clean)
    further: dict[str, Any] = {"hints": clean(list(refused.hints))} if refused.hints else {}
    if refused.answer is not None:
        further["answer"] = _data(refused.answer, clean)
    return encode({**msgspec.json.decode(told(refused, clean)), **further})


def _data(answer: Answer | None, clean: Callable[[Any], Any]) -> Any:
    """What tools gave is clean already; what a provider says of an error need not be."""
    return None if answer is None else {**msgspec.to_builtins(answer), "error": clean(answer.error)}
