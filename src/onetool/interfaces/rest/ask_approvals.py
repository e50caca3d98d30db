"""Questions under way, and their calls that wait for approval: `approve: "ask"` of POST /ask.

The id of a question has 128 random bits and is sent only in the question's own stream. To approve a call, a client must
know the id and be the client that asked (the same owner); all others get the same 404. A call that is not approved does
not run: a timeout or the end of the question refuses it.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from os import urandom
from time import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from onetool.core.principal import current_principal, owner
from onetool.core.text import escape_invisible, has_controls, skeleton, suspicious_words, utc_text
from onetool.http.asgi import encode
from onetool.interfaces.rest import ASK_PATH
from onetool.interfaces.rest.invoke import sse_event
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import NO_CONTENT, RestContext, RestRequest, RestResponse, json_body
from onetool.interfaces.rest.route import RestRoute
from onetool.sources.bundles.validation import converted

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.cluster import Cluster
    from onetool.cluster.mailbox import Handler
    from onetool.core.call import ToolCall
    from onetool.core.spec import ToolSpec

KIND = "approval"  # of messages between processes
APPROVAL_S = 300.0  # without an answer, the call is refused
MAX_WARNINGS = 5  # of one kind
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ApprovalAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The decision on a call."""

    approve: Annotated[bool, Meta(description="true: run this one call as the event showed it. false: refuse it.")]


class OpenQuestion:
    """A question being answered in a stream."""

    def __init__(self, owner: str, app: "App", replica: str) -> None:
        self.id = replica + urandom(16).hex()
        self.owner = owner
        self.was_cancelled = False
        self._app = app
        self._task = asyncio.current_task()
        self._is_over = False
        self._waiting: dict[str, asyncio.Future[bool]] = {}  # by the id of the call in the stream
        self._announced: set[str] = set()
        self._stream_ids: dict[str, str] = {}  # by the id of a call of code: its id in the stream

    async def ask(self, call: "ToolCall", spec: "ToolSpec", send: Callable[[bytes], Awaitable[None]]) -> bool:
        """Ask the client to approve a call, and wait for its answer. The call that runs is exactly the one shown."""
        id = call.id
        if id in self._announced or not _CALL_ID.fullmatch(id):  # ids of code's calls can't stand in a path
            self._stream_ids[call.id] = id = urandom(16).hex()
        self._announced.add(id)
        answer = self._waiting[id] = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(APPROVAL_S, self._expire, answer)
        expiry = {"expiresAt": utc_text(time() + APPROVAL_S), "expiresInSeconds": APPROVAL_S}
        try:
            await send(await asyncio.to_thread(self._event, id, call, spec.name, expiry))
            approved = await answer and not self._is_over
            self._app.journal.record("approval", spec.name, outcome="approved" if approved else "declined", via="ask")
            return approved
        finally:
            timer.cancel()
            del self._waiting[id]

    def take_stream_id(self, call: str) -> str | None:
        """Remove and return the id that a call of code has in the stream; None if no client was asked about it."""
        return self._stream_ids.pop(call, None)

    def decide(self, call: str, approve: bool) -> None:
        """Approve or refuse a call. Raises RestError if no such call waits."""
        answer = self._waiting.get(call)
        if answer is not None and not answer.done():
            answer.set_result(approve)
        elif call in self._announced:
            raise RestError(
                409, "decided", "This call is no longer waiting: it was decided, or the time for an answer has passed."
            )
        else:
            raise RestError(404, "not_found", "No such call is waiting for approval.")

    def cancel(self) -> None:
        """Cancel the question, as if its client had disconnected. The stream reports this and ends."""
        self.close()
        self.was_cancelled = True
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """Approve nothing from now on."""
        self._is_over = True
        for answer in self._waiting.values():
            self._expire(answer)

    @staticmethod
    def _expire(answer: "asyncio.Future[bool]") -> None:
        if not answer.done():
            answer.set_result(False)

    def _event(self, id: str, call: "ToolCall", name: str, expiry: dict[str, Any]) -> bytes:
        """Encode the call as the terminal's prompt shows it: only known secrets are masked, not arguments by name."""
        args = self._app.runtime.redact(dict(call.args))
        event = {"type": "approval", "question": self.id, "call": id, "name": name, "args": args}
        warnings = approval_warnings(name, args, self._app.catalog.registry.names())
        return sse_event("approval", encode({**event, "warnings": warnings, **expiry}))


def approval_warnings(name: str, args: Any, names: Iterable[str]) -> list[str]:
    """Describe details that are easy to overlook: lookalike tool names, words of mixed alphabets, hidden characters."""
    text = f"{name} {json.dumps(args, ensure_ascii=False, default=str)}"
    looks = skeleton(name)
    twins = (one for one in names if one != name and skeleton(one) == looks)
    found = [
        f"this is not {escape_invisible(one)}, which looks like it: {name!a}" for one in islice(twins, MAX_WARNINGS)
    ]
    found += suspicious_words(text, MAX_WARNINGS)
    if escape_invisible(text) != text or has_controls(args):
        found.append("it has characters that are invisible or reverse the text direction")
    return found


class OpenQuestions:
    """The questions whose answers are being streamed."""

    def __init__(self, app: "App", replica: str) -> None:
        """Keep open questions. Their ids begin with `replica`, the id of this replica if there are several."""
        self._app = app
        self._replica = replica
        self._open: dict[str, OpenQuestion] = {}

    @contextmanager
    def opened(self, owner: str) -> Iterator[OpenQuestion]:
        """Keep a question of this client open for the duration of the context."""
        question = OpenQuestion(owner, self._app, self._replica)
        self._open[question.id] = question
        try:
            yield question
        finally:
            del self._open[question.id]
            question.close()

    def get(self, id: str, owner: str) -> OpenQuestion:
        """Return the client's open question. Raises the same RestError for unknown questions and those of others."""
        question = self._open.get(id)
        if question is None or question.owner != owner:
            raise RestError(404, "not_found", "No such question is being answered.")
        return question


# The handlers


class AskContext(RestContext):
    """The context of handlers below /ask."""

    questions: OpenQuestions
    cluster: "Cluster | None" = None


def holder_of(request: RestRequest) -> str | None:
    """Return the other process that streams the question; None if this one does. Raises RestError if nobody does."""
    context, question = ask_context(request), request.path[0]
    holder = None if context.cluster is None else context.cluster.elsewhere(question)
    if holder is None:
        context.questions.get(question, owner())
    return holder


async def decide(request: RestRequest, holder: str | None, approve: bool | None) -> None:
    """Decide on the call of a question, or cancel the question (None), here or at its holder."""
    context, told = ask_context(request), [request.path[0], request.path[-1], approve]
    if context.cluster is not None and holder is not None:
        await context.cluster.mailbox.ask(holder, KIND, told, current_principal.get())
    else:
        await answer_for_other(context.questions)(told)


def ask_context(request: RestRequest) -> AskContext:
    assert isinstance(request.context, AskContext)  # noqa: S101 - for the type checker: routes of /ask have no other
    return request.context


def answer_for_other(questions: OpenQuestions) -> "Handler":
    """Return the function that takes the answers that other processes have received."""

    async def take(told: Any) -> None:
        id, call, approve = told
        question = questions.get(id, owner())
        if approve is None:
            question.cancel()
        else:
            question.decide(call, approve)

    return take


@RestRoute(
    "POST",
    f"{ASK_PATH}/{{question}}/approvals/{{call}}",
    "Questions",
    takes=ApprovalAnswer,
    example={"approve": True},
    status=(204,),
    errors=(404, 409),
)
async def approve_call(request: RestRequest) -> RestResponse:
    """Approve or refuse a call of the model.

    For questions with `approve: ask`. Only the client that asked can use this; all others get 404. After five minutes
    without an answer the call is refused.
    """
    holder = holder_of(request)  # first, so that others learn nothing about the expected body
    await decide(request, holder, converted(await json_body(request), ApprovalAnswer).approve)
    return NO_CONTENT


@RestRoute("DELETE", f"{ASK_PATH}/{{question}}", "Questions", role="call", status=(204,), errors=(404,))
async def cancel_question(request: RestRequest) -> RestResponse:
    """Cancel a question that is being answered.

    No further call is approved, and the stream ends with `error` (interrupted). Only the client that asked can use
    this; all others get 404.
    """
    await decide(request, holder_of(request), None)
    return NO_CONTENT
