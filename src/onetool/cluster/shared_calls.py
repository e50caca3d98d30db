"""`SharedCalls`: lets other processes call the stdio servers that run here. The messages come first, then their routes:

    POST /cluster/servers/NAME/call    SharedCall; the answer is a stream of lines, the last of which is the outcome
    POST /cluster/answers/ID           CallerAnswer to a question in one of these lines
    POST /cluster/servers/states       the states of the servers here

Lines are JSON. An empty line means that the request is still running.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from onetool.core.call import CannotAsk, Declined, ForModel, ForPerson, ForRoots, Level, Question, current_caller
from onetool.core.errors import ToolFailure
from onetool.core.json_data import ServerFailure, protocol_failure
from onetool.http.asgi import FORWARDED, HttpError, Receive, Scope, Send, read_body, respond
from onetool.http.response_stream import DisconnectWatch
from onetool.sources.mcp_servers.owners import ServerRequest
from onetool.sources.mcp_servers.upstream_calls import UpstreamCall

if TYPE_CHECKING:
    from onetool.app import App

CAPABILITIES = ("elicitation", "sampling", "roots")
QUESTIONS: dict[str, type[Question]] = {"person": ForPerson, "model": ForModel, "roots": ForRoots}

STILL_HERE_S = 2.0
MAX_UNSENT_LINES = 1_000  # progress and log messages that may wait to be sent
LINES = b"application/x-ndjson"


class SharedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a server, and the caller's abilities to answer its questions."""

    request: ServerRequest
    block: str = ""  # the digest of the server's block in the sender's config
    may_repeat: bool = False
    peer: str = ""  # identifies the client in all its calls
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
    """A question from the server that the caller can't answer."""

    capability: str
    message: str


class QuestionLine(msgspec.Struct, frozen=True, tag="question"):
    """A question to be answered at /cluster/answers/ID."""

    id: str
    kind: str
    question: dict[str, Any]


class ResultLine(msgspec.Struct, frozen=True, tag="result"):
    value: msgspec.Raw


class FailureLine(msgspec.Struct, frozen=True, tag="failure"):
    message: str
    reason: str | None = None
    hints: tuple[str, ...] = ()
    error: Mapping[str, Any] | None = None  # the JSON-RPC error, as sent by the server


class MovedLine(msgspec.Struct, frozen=True, tag="moved"):
    """The outcome if this process does not run the server. Nothing has happened."""


class CallerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's answer, or the reason why there is none."""

    value: Any = None
    declined: str | None = None
    lacks: str | None = None
    failure: FailureLine | None = None


Line = ProgressLine | LogLine | LackLine | QuestionLine | ResultLine | FailureLine | MovedLine
decode_line = msgspec.json.Decoder(Line).decode


def failure_line(error: BaseException) -> FailureLine:
    hints = error.hints if isinstance(error, ToolFailure) else ()
    reason = error.reason if isinstance(error, ToolFailure) else None
    return FailureLine(str(error), reason, hints, error.sent.error if isinstance(error, ServerFailure) else None)


def failure_of(line: FailureLine) -> ToolFailure:
    if line.error is not None:
        return protocol_failure(line.message, line.error)
    return ToolFailure(line.message, reason=line.reason, hints=line.hints)


def answer_of(error: ToolFailure) -> CallerAnswer:
    """Convert an error raised by the caller to an answer."""
    if isinstance(error, Declined):
        return CallerAnswer(declined=error.action)
    if isinstance(error, CannotAsk):
        return CallerAnswer(lacks=error.capability, failure=failure_line(error))
    return CallerAnswer(failure=failure_line(error))


class SharedBlock:
    """A content block with the attributes that `conversion` uses, without loading the SDK."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self.type = data.get("type")
        self.text: str = data.get("text", "")

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return dict(self._data)


class SharedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's result as data, with the attributes of the SDK's CallToolResult that `conversion` uses."""

    is_error: bool = False
    blocks: tuple[Mapping[str, Any], ...] = ()
    structured_content: Any = None
    meta: Mapping[str, Any] | None = None

    @property
    def content(self) -> list[SharedBlock]:
        return [SharedBlock(block) for block in self.blocks]


class RemotePeer:
    """A client of another process, represented by the same object in all its calls."""


class SharedCalls:
    """The routes below /cluster/servers and /cluster/answers.

    `runs_here` returns whether this process runs a server with this config block. It may block.
    """

    def __init__(self, runs_here: Callable[[str, str], bool], app: "App") -> None:
        self._runs_here = runs_here
        self._app = app
        self._questions: dict[str, asyncio.Future[Any]] = {}
        self._peers: WeakValueDictionary[str, RemotePeer] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if body is None:
            return
        match scope["path"].split("/", 3)[2:]:
            case ["servers", "states"]:
                servers = self._app.servers
                await respond(send, 200, msgspec.json.encode({} if servers is None else servers.shared_states()))
            case ["servers", name] if name.endswith("/call"):
                shared = _decoded(body, SharedCall)
                await self._stream(name.removesuffix("/call"), shared, scope[FORWARDED].sender, receive, send)
            case ["answers", id]:
                answer, waiting = _decoded(body, CallerAnswer), self._questions.get(id)
                if waiting is None or waiting.done():
                    raise HttpError(404, "not_found", "The call that asked this question has ended.")
                waiting.set_result(answer)
                await respond(send, 200, b"{}")
            case _:
                raise HttpError(404, "not_found", f"No replica of this version has {scope['path'][:100]!r}.")

    async def _stream(self, server: str, shared: SharedCall, sender: str, receive: Receive, send: Send) -> None:
        """Send lines until the outcome. A caller that disconnects cancels the call."""
        lines: asyncio.Queue[Line | None] = asyncio.Queue()
        peer = self._peers.setdefault(f"{sender} {shared.peer}", RemotePeer())
        caller = RemoteCaller(shared, peer, lines, self._questions)
        call = asyncio.create_task(self._run(server, shared, caller, lines))
        try:
            with DisconnectWatch(receive):
                headers = [(b"content-type", LINES), (b"x-content-type-options", b"nosniff")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                while (body := await _next(lines)) is not None:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        finally:
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
            caller.end()

    async def _run(
        self, server: str, shared: SharedCall, caller: "RemoteCaller", lines: "asyncio.Queue[Line | None]"
    ) -> None:
        current_caller.set(caller)
        try:
            line = MovedLine()
            if await asyncio.to_thread(self._runs_here, server, shared.block):
                line = ResultLine(msgspec.Raw(msgspec.json.encode(await self._result(server, shared, caller))))
        except Exception as error:  # noqa: BLE001 - reported to the caller
            line = failure_line(error)
        lines.put_nowait(line)
        lines.put_nowait(None)

    async def _result(self, server: str, shared: SharedCall, caller: "RemoteCaller") -> Any:
        servers, request = self._app.servers, shared.request
        if servers is None or servers.proxy(server) is None:
            raise ToolFailure(f"the MCP server {server} no longer exists", reason="source_unavailable")
        match request.kind:
            case "connect":
                return await servers.wait_connected([server], retry=bool(request.args.get("retry")))
            case "reconnect":
                return await servers.reconnect(server)
            case _:
                call = UpstreamCall(caller.progress if shared.wants_progress else None)
                result = await servers.do_here(server, request.name, request, shared.may_repeat, call)
                if request.kind != "tool":
                    return result
                return SharedResult(
                    is_error=result.is_error,
                    blocks=tuple(
                        block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in result.content
                    ),
                    structured_content=result.structured_content,
                    meta=result.meta,
                )


class RemoteCaller:
    """The `Caller` of a call from another process, which sends messages as lines. Any thread may use it."""

    def __init__(
        self,
        shared: SharedCall,
        peer: RemotePeer,
        lines: "asyncio.Queue[Line | None]",
        questions: "dict[str, asyncio.Future[Any]]",
    ) -> None:
        self.peer = peer
        self._can = shared.can
        self._lines = lines
        self._questions = questions
        self._own: list[asyncio.Future[Any]] = []
        self._loop = asyncio.get_running_loop()

    def can(self, what: str) -> bool:
        return what in self._can

    def lacks(self, error: CannotAsk) -> None:
        self._say(LackLine(error.capability, str(error)))

    def log(self, level: Level, data: Any, logger: str | None) -> None:
        self._say(LogLine(level, data, logger))

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        self._say(ProgressLine(done, total, message))

    async def ask(self, question: Question) -> Any:
        """Ask on the serving event loop, and return the caller's answer. Raise the caller's error."""
        id = token_hex(16)
        waiting = self._questions[id] = self._loop.create_future()
        self._own.append(waiting)
        kind = next(kind for kind, cls in QUESTIONS.items() if isinstance(question, cls))
        self._say(QuestionLine(id, kind, msgspec.to_builtins(question)))
        try:
            answer: CallerAnswer = await waiting
        finally:
            del self._questions[id]
        if answer.declined is not None:
            raise Declined(answer.declined)
        if answer.failure is not None:
            raise CannotAsk(answer.lacks, answer.failure.message) if answer.lacks else failure_of(answer.failure)
        return answer.value

    def end(self) -> None:
        """Cancel all questions, because the call is over."""
        for waiting in self._own:
            waiting.cancel()

    def _say(self, line: Line) -> None:
        if isinstance(line, ProgressLine | LogLine) and self._lines.qsize() > MAX_UNSENT_LINES:
            return  # the other replica is too slow for optional messages
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


async def _next(lines: "asyncio.Queue[Line | None]") -> bytes | None:
    """Return the next line, an empty line if none has arrived for a while, or None at the end."""
    try:
        async with asyncio.timeout(STILL_HERE_S):
            line = await lines.get()
    except TimeoutError:
        return b"\n"
    return None if line is None else msgspec.json.encode(line) + b"\n"


def _decoded(body: bytes, type: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.MsgspecError as error:
        raise HttpError(400, "bad_request", f"This replica does not understand the request: {error}") from None
