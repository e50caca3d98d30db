"""The ASGI app of /ask and below. POST /ask sends one question to the model and answers with a body or an event stream.

Each event of ask/events.py is sent under its tag, with its JSON as data; `started` also has the question's id. With
`approve: "ask"`, an `approval` event announces each call that waits. The last event is `answer`, or `error` with
{reason, message, hints, answer}. A question refused before the model is asked has the same status as without a stream.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.app.allow_lists import Offered
from onetool.app.ask import KnownProvider, ModelOverview
from onetool.ask.errors import AskError, SessionError
from onetool.ask.events import Answer, CallEnded, Done, Event, Started
from onetool.ask.sessions.records import LAST, SESSION_ID
from onetool.core.call import ToolCall
from onetool.core.context import shown_args
from onetool.core.model_providers import PROVIDERS
from onetool.core.principal import owner
from onetool.core.text import or_rather
from onetool.http.asgi import Receive, Scope, Send, encode
from onetool.http.response_stream import MAX_UNSENT, UNREAD_S, DisconnectWatch, ResponseStream
from onetool.interfaces.rest import ASK_PATH, ask_approvals, ask_sessions
from onetool.interfaces.rest.app import RestApp
from onetool.interfaces.rest.ask_approvals import AskContext, OpenQuestion, OpenQuestions
from onetool.interfaces.rest.ask_body import AskFailedError, AskProblem, AskQuestion, ask_problem_body, read_question
from onetool.interfaces.rest.invoke import BEGIN_AFTER, sse_event, wants_events
from onetool.interfaces.rest.operations import operation_routes
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import RestRequest, RestResponse, json_body
from onetool.interfaces.rest.route import EVENT_STREAM, PathParameter, RestRoute
from onetool.interfaces.rest.routing import RouteTable, routes_of

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster.cluster import Cluster
    from onetool.core.call import ToolResult
    from onetool.core.spec import ToolSpec


class PacedResponseStream(ResponseStream):
    """A response stream with backpressure: the model continues only while the client reads."""

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self._written = asyncio.Event()

    def open_with(self, event: bytes) -> None:
        """Set the first event. It is held back for a moment, so that an early error still gets its status."""
        if self.is_stream:
            self.push_event(event)
        else:
            self._opening = event
            asyncio.get_running_loop().call_later(BEGIN_AFTER, self.begin)  # does nothing if the response has ended

    async def push_paced(self, event: bytes) -> None:
        """Send an event. Raises TimeoutError if the client reads nothing for UNREAD_S seconds."""
        self.push_event(event)
        while self._size >= MAX_UNSENT:
            self._written.clear()
            async with asyncio.timeout(UNREAD_S):
                await self._written.wait()
        if self.is_unread:
            raise TimeoutError

    async def _write(self, event: bytes) -> None:
        await super()._write(event)
        self._written.set()


# One question

MAX_HINTS = 10  # each hint searches for similar names


class AskTurn:
    """A question being answered. `log` is the dict of the access log; `further` are options of `app.ask`."""

    def __init__(self, context: AskContext, question: AskQuestion, log: dict[str, Any], **further: Any) -> None:
        app = self._app = context.app
        self._question = question
        self._log = log
        options = {**question.options(), **further}
        self.pending = app.ask(question.prompt, allowed=question.tool_allow, within=context.allowed, **options)
        self.clean = lambda value: app.runtime.redact(value)  # a reload replaces the runtime

    def failure(self, error: AskError) -> AskFailedError:
        self._log["error"] = error.reason
        return AskFailedError(error, self.pending.answer, self._question)

    def answer(self, answer: Answer) -> Answer:
        """Add hints on unknown names in `toolAllow`."""
        unknown = list(self._app.catalog.registry.unmatched(self._question.tool_allow or ()))
        if not unknown:
            return answer
        known = self._app.catalog.registry.names()
        hints = [f"toolAllow matches no tool: {name[:100]}{or_rather(name, known)}" for name in unknown[:MAX_HINTS]]
        if further := len(unknown) - len(hints):
            hints.append(f"toolAllow names {further:,} more unknown tools")
        return msgspec.structs.replace(answer, hints=(*answer.hints, *hints))


# As a stream of events

MAX_SHOWN_BYTES = 64 * 1024  # of the value of a call that code made
CANCELLED = "the question was cancelled before it was answered"


async def stream_answer(request: RestRequest, context: AskContext, asked: AskQuestion) -> None:
    """Stream the answer. Raises AskFailedError if the stream has not begun."""
    response = PacedResponseStream(request.send)
    with suppress(TimeoutError), DisconnectWatch(request.receive, response):
        with context.admitted(MAX_AT_ONCE, TOO_MANY, RETRY_S), context.questions.opened(owner()) as question:
            further: dict[str, Any] = {}
            if asked.approve == "ask":

                def approve(call: "ToolCall", spec: "ToolSpec") -> Awaitable[bool]:
                    return question.ask(call, spec, response.push_paced)

                further = {"approve": approve, "watch": CodeResults(context, question, response)}
            turn = AskTurn(context, asked, request.scope.get("log", {}), **further)
            try:
                async with aclosing(turn.pending.events()) as events:  # if cancelled in between, the turn stops
                    async for event in events:
                        if isinstance(event, Started):
                            response.open_with(_encoded_event(event, question=question.id))
                        elif isinstance(event, Done):
                            await response.push_paced(_encoded_event(Done(answer=turn.answer(event.answer))))
                        else:
                            await response.push_paced(_encoded_event(event))
            except AskError as error:
                failed = turn.failure(error)
                if not response.is_stream:
                    raise failed from None
                await response.push_paced(sse_event("error", failed.event(turn.clean)))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not question.was_cancelled or task is None or task.uncancel():  # the client has disconnected
                    raise
                failed = turn.failure(AskError(CANCELLED, "interrupted"))
                response.push_event(sse_event("error", failed.event(turn.clean)))
        await response.end()  # a client that doesn't read must not hold a place


class CodeResults:
    """A sender of the results of code's calls that a user has approved or refused. Works in any thread."""

    def __init__(self, context: AskContext, question: OpenQuestion, response: PacedResponseStream) -> None:
        self._app = context.app
        self._question = question
        self._response = response
        self._loop = asyncio.get_running_loop()

    def began(self, call: "ToolCall") -> None:
        pass  # the approval event announced it

    def ended(self, call: "ToolCall", result: "ToolResult") -> None:
        if (id := self._question.take_stream_id(call.id)) is None:
            return
        args = self._app.runtime.redact(dict(shown_args(call, self._app.catalog.registry.get(call.name))))
        ended = CallEnded(call=ToolCall(id, call.name, args, call.source), result=self._shown(result))
        self._loop.call_soon_threadsafe(self._response.push_event, _encoded_event(ended))

    def _shown(self, result: "ToolResult") -> "ToolResult":
        """Return the result without secrets. Code reads all of a large value; users see only its beginning."""
        clean = result.cleaned(self._app.runtime.redact)
        data = encode(clean.data)
        if len(data) <= MAX_SHOWN_BYTES:
            return clean
        return msgspec.structs.replace(clean, data=data[:MAX_SHOWN_BYTES].decode(errors="ignore") + "…")


def _encoded_event(one: Event, **further: str) -> bytes:
    data = msgspec.to_builtins(one) | further
    return sse_event(data["type"], encode(data))


# The ASGI app

MAX_AT_ONCE = 16  # questions; each takes long and costs money
RETRY_S = 5  # sent as Retry-After
TOO_MANY = f"{MAX_AT_ONCE} questions are being answered: try again when one of them is done."
NEEDS_STREAM = 'approve "ask" needs a stream: send `Accept: text/event-stream`, or use approve "never".'


@RestRoute(
    "POST",
    ASK_PATH,
    "Questions",
    takes=AskQuestion,
    example={"prompt": "What time is it?", "toolAllow": ["time.now"]},
    gives=Answer,
    sends=(EVENT_STREAM,),
    errors=(400, 404, 409, 413, 422, 429, 502, 503, 504),
    problem=AskProblem,
)
async def ask(request: RestRequest) -> RestResponse | None:
    """Ask a model that can use the tools of this server.

    The model is that of the server's config, unless `provider` or `model` names another; the key is always the
    server's. With `Accept: text/event-stream` the response is a stream of events: `started`, `text` and `thinking` as
    the model writes, `call` and `result` as tools run, `notice`, and at the end `answer`, or `error` {reason, message,
    hints, answer}. Disconnecting cancels the question; the session keeps what happened until then. With `approve: ask`,
    which needs a stream, `approval` {question, call, name, args, warnings, expiresAt, expiresInSeconds} announces a
    call that waits for `approveCall`.
    """
    context = request.context
    assert isinstance(context, AskContext)  # noqa: S101 - for the type checker
    asked = read_question(await json_body(request, whole=True))
    has_stream = wants_events(request.headers.get(b"accept", b""))
    if asked.approve == "ask" and not has_stream:
        raise RestError(400, "needs_stream", NEEDS_STREAM, part="body", pointer="/approve")
    if has_stream:
        await stream_answer(request, context, asked)
        return None
    with context.admitted(MAX_AT_ONCE, TOO_MANY, RETRY_S), DisconnectWatch(request.receive):
        turn = AskTurn(context, asked, request.scope.get("log", {}))
        try:
            answer = turn.answer(await turn.pending)
        except AskError as error:
            raise turn.failure(error) from None
        return RestResponse(200, encode(msgspec.to_builtins(answer)))
    return None


@RestRoute("GET", f"{ASK_PATH}/models", "Questions", gives=ModelOverview)
async def list_models(request: RestRequest) -> RestResponse:
    """List the providers and models that can be asked.

    Includes the Ollama models of this machine. Hosted providers are not queried: see `listProviderModels`.
    """
    app = request.context.app
    await app.look_again()
    return request.context.response(await app.ask_models.overview(request.context.allowed))


@RestRoute("GET", f"{ASK_PATH}/models/{{provider}}", "Questions", gives=KnownProvider, errors=(404,))
async def list_provider_models(request: RestRequest) -> RestResponse:
    """List the models of a provider, as the provider lists them.

    A hosted provider is queried only if its key is set. If it doesn't answer within seconds, `error` says why.
    """
    app, (provider,) = request.context.app, request.path
    if provider not in PROVIDERS:
        raise RestError(404, "not_found", f"Unknown provider: {provider[:100]!r}. Use one of {', '.join(PROVIDERS)}.")
    await app.look_again()
    return request.context.response(await app.ask_models.listed(provider))


_ID = {"type": "string", "minLength": 1, "maxLength": 200}
ASK_ROUTES = RouteTable(
    (
        ask,
        list_models,
        list_provider_models,
        *operation_routes(below_ask=True),
        *routes_of(ask_sessions, ask_approvals),
    ),
    {
        "session": PathParameter(
            {"type": "string", "pattern": f"^{SESSION_ID.pattern}$"},
            description="The id of a session, or `last`.",
            example=LAST,
        ),
        "provider": PathParameter({"type": "string", "enum": list(PROVIDERS)}, example="openai"),
        "question": PathParameter(
            _ID, description="The question's id, from the event `started`.", example="0123456789abcdef0123456789abcdef"
        ),
        "call": PathParameter(_ID, description="The call's id, from the event `approval`.", example="call_1"),
    },
)


class AskApp(RestApp):
    """The ASGI app of /ask and everything below."""

    routes = ASK_ROUTES
    write_problem = staticmethod(ask_problem_body)

    def __init__(self, app: "App", allowed: Offered = None, cluster: "Cluster | None" = None) -> None:
        """Serve the app. `allowed` lists the tools that may be called; None allows all."""
        super().__init__(app, allowed)
        self._context = AskContext(app, allowed)
        self._context.questions = OpenQuestions(app, "" if cluster is None else cluster.id)
        self._context.cluster = cluster
        if cluster is not None:
            cluster.mailbox.handlers[ask_approvals.KIND] = ask_approvals.answer_for_other(self._context.questions)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RestResponse | None:
        try:
            return await super()._answer(scope, receive, send)
        except SessionError as error:
            raise ask_sessions.session_error(error) from None
