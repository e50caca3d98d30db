"""The ASGI app at /ask: one question to the model, and its answer as one body or as a stream of events.

Each event of ask/events.py is sent under its tag, with its JSON as data. The last one is `answer`, or `error` with
{reason, message, hints, answer}. What is refused before the model is asked has the same status as without a stream.
"""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.ask.errors import AskError
from onetool.ask.events import Answer, Done, Event, Started
from onetool.core.text import or_rather
from onetool.interfaces.asgi import HttpError, Receive, Scope, Send, read_headers, respond
from onetool.interfaces.disconnect import DisconnectWatch
from onetool.interfaces.json_data import encode
from onetool.interfaces.response_stream import MOST_UNSENT, ResponseStream
from onetool.interfaces.rest.ask_body import AskFailedError, AskQuestion, ask_problem_body, read_question
from onetool.interfaces.rest.invoke import sse_event, wants_events
from onetool.interfaces.rest.problem import PROBLEM_TYPE, RestError
from onetool.interfaces.rest.request import ClientInput, json_body, set_caller
from onetool.interfaces.rest.routing import ASK_METHODS, read_query

if TYPE_CHECKING:
    from onetool.app import App


BEGIN_AFTER = 0.25  # seconds; enough for everything that is refused


class PacedResponseStream(ResponseStream):
    """A response stream with backpressure: the model writes on only while the client reads."""

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self._written = asyncio.Event()

    def open_with(self, event: bytes) -> None:
        """Set the first event. It is held back for a moment, so that an early error still gets its status."""
        if self.is_stream:
            self.push_event(event)
        else:
            self._opening = event
            asyncio.get_running_loop().call_later(BEGIN_AFTER, self.begin)  # which does nothing where all is over

    async def push_paced(self, event: bytes) -> None:
        self.push_event(event)
        while self._size >= MOST_UNSENT:
            self._written.clear()
            await self._written.wait()

    async def _write(self, event: bytes) -> None:
        await super()._write(event)
        self._written.set()


# One question


MOST_HINTS = 10  # each looks for the names that could be meant


class AskTurn:
    """One question that is being answered. `log` is the dict of the access log."""

    def __init__(self, app: "App", question: AskQuestion, allowed: Collection[str] | None, log: dict[str, Any]) -> None:
        self._app = app
        self._question = question
        self._log = log
        self.pending = app.ask(question.prompt, allowed=question.tool_allow, within=allowed, **question.options())
        self.clean = lambda value: app.runtime.redact(value)  # a reload replaces the runtime

    def failure(self, error: AskError) -> AskFailedError:
        self._log["error"] = error.reason
        return AskFailedError(error, self.pending.answer, self._question)

    def answer(self, answer: Answer) -> Answer:
        """The answer with hints on unknown names in `toolAllow`."""
        unknown = list(self._app.catalog.registry.unmatched(self._question.tool_allow or ()))
        if not unknown:
            return answer
        known = self._app.catalog.registry.names()
        hints = [f"toolAllow names no tool: {name[:100]}{or_rather(name, known)}" for name in unknown[:MOST_HINTS]]
        if further := len(unknown) - len(hints):
            hints.append(f"toolAllow names {further:,} more that are no tools")
        return msgspec.structs.replace(answer, hints=(*answer.hints, *hints))


# As a stream of events


async def stream_answer(turn: AskTurn, receive: Receive, send: Send) -> None:
    """Stream the answer. Raises AskFailedError if the stream has not begun."""
    response, watch = PacedResponseStream(send), DisconnectWatch(receive)
    response.begin_when_idle()
    try:
        await _send_events(turn, response)
    except AskError as error:
        failed = turn.failure(error)
        if not response.is_stream:
            await response.end()  # so that it does not become one
            raise failed from None
        await response.push_paced(sse_event("error", failed.event(turn.clean)))
    except asyncio.CancelledError:
        response.drop()
        if not watch.was_disconnected():
            raise
        return
    except BaseException:
        response.drop()
        raise
    finally:
        watch.end()
    await response.end()


async def _send_events(turn: AskTurn, response: PacedResponseStream) -> None:
    async with aclosing(turn.pending.events()) as events:  # nothing goes on where we are cancelled in between
        async for one in events:
            if isinstance(one, Started):
                response.open_with(_encoded_event(one))
            elif isinstance(one, Done):
                await response.push_paced(_encoded_event(Done(answer=turn.answer(one.answer))))
            else:
                await response.push_paced(_encoded_event(one))


def _encoded_event(one: Event) -> bytes:
    data = msgspec.to_builtins(one)
    return sse_event(data["type"], encode(data))


# The ASGI app


MOST_AT_ONCE = 16  # questions; each is long, and costs somebody's money
RETRY_S = 5  # when it is worth trying again
_ALLOW = (b"allow", ", ".join(ASK_METHODS).encode())


class AskApp:
    """The route /ask."""

    def __init__(self, app: "App", allowed: Collection[str] | None = None) -> None:
        """`allowed` are the tools that may be called; None allows all."""
        self._app = app
        self._allowed = allowed
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":
            await send({"type": "http.response.start", "status": 204, "headers": [_ALLOW]})
            await send({"type": "http.response.body", "body": b""})
            return
        sent = ClientInput(scope, receive)
        try:
            await self._answer(scope, sent.receive, send)
        except HttpError as refused:
            if (log := scope.get("log")) is not None:
                log["error"] = refused.code
            body = ask_problem_body(refused, lambda value: self._app.runtime.redact(value, sent.texts()))
            await respond(send, refused.status, body, PROBLEM_TYPE, refused.headers)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        read_query(scope["query_string"], {})
        headers = read_headers(scope, (b"content-type", b"accept"))
        question = read_question(await json_body(headers, receive, whole=True))
        if scope.get("shares_sessions") and question.session is not None:
            hints = "Sessions belong to nobody, and this web app has several users: none can be continued here."
            raise RestError(403, "sessions_shared", hints, pointer="/session")
        set_caller(scope.get("principal", ""))
        with self._admit():
            turn = AskTurn(self._app, question, self._allowed, scope.get("log", {}))
            if wants_events(headers.get(b"accept", b"")):
                await stream_answer(turn, receive, send)
                return
            answer = await _answer_whole(turn, receive)
        if answer is not None:
            await respond(send, 200, encode(msgspec.to_builtins(answer)))

    @contextmanager
    def _admit(self) -> Iterator[None]:
        if self._running >= MOST_AT_ONCE:
            message = f"{MOST_AT_ONCE} questions are being answered here: try again when one of them has its answer."
            raise RestError(503, "too_many", message, headers=[(b"retry-after", b"%d" % RETRY_S)])
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1


async def _answer_whole(turn: AskTurn, receive: Receive) -> Answer | None:
    """The whole answer; None if the client has disconnected."""
    watch = DisconnectWatch(receive)
    try:
        return turn.answer(await turn.pending)
    except AskError as error:
        raise turn.failure(error) from None
    except asyncio.CancelledError:
        if not watch.was_disconnected():
            raise
        return None
    finally:
        watch.end()
