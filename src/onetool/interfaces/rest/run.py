"""The handlers below /run: run code, check code, and list the names that code can use.

`POST /run` responds with one body, or with a stream of events (`Accept: text/event-stream`):

    started   {id}
    call      {id, name, args, at}                          the code calls a tool
    called    {id, ok, durationMs, preview | error}         the call has ended
    progress  {progress, total, message}                    progress of a tool
    chunk     {data}                                        a piece of a streamed response
    print     {text}                                        output of the code
    result    {value, type, size, calls, durationMs, …}     the last event; `stored` is the handle of a large value
    error     {message, code, line, column, …}              the last event if the run failed
"""

import asyncio
from itertools import islice
from time import time
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from onetool.core.call import ToolCall, ToolResult, new_id
from onetool.core.context import kept_value, shown_args
from onetool.core.errors import OneToolError, cut
from onetool.core.text import MAX_NAME, utc_text_ms
from onetool.core.work import run_in_thread
from onetool.http.asgi import HttpError, encode
from onetool.http.response_stream import DisconnectWatch, ResponseStream
from onetool.interfaces.rest.invoke import ProgressEvents, sse_event, wants_events
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import (
    RETRY_SECONDS,
    SOURCE,
    RestContext,
    RestRequest,
    RestResponse,
    list_response,
    refusal_of,
)
from onetool.interfaces.rest.route import EVENT_STREAM, RestRoute
from onetool.script.run_result import RunResult
from onetool.sources.bundles.errors import invalid_at

MAX_RUNS = 16  # at the same time, over REST
TOO_MANY = f"{MAX_RUNS} runs are in progress: try again when one of them has ended."
MAX_NAMES = 16  # cached responses of /run/names: each may have megabytes
MAX_ARGS_BYTES = 4096  # of the arguments of a call that are shown
MAX_PREVIEW = 500  # characters of the result of a call
MAX_ARGS = 100  # arguments of a call that are shown
MAX_CALLS = 1000  # calls in the response


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Code, and its predefined variables."""

    code: Annotated[str, Meta(description="Python code, as for the tool `run`.")]
    variables: Annotated[dict[str, Any], Meta(description="Predefined variables of the code, by name.")] = {}


class RunCall(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A call made by the code. Without `ok`, the call has not ended."""

    id: str
    name: str
    args: Annotated[dict[str, Any], Meta(description="The arguments, without secrets; long values are shortened.")]
    at: str
    ok: bool | UnsetType = UNSET
    duration_ms: float | UnsetType = UNSET
    preview: Annotated[str | UnsetType, Meta(description="The beginning of the result, as text.")] = UNSET
    error: str | UnsetType = UNSET


class RunFault(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The reason why a run failed, and the place in the code, if known."""

    message: str
    code: Annotated[str, Meta(description="One of three codes; `reason` has the exact cause.")]
    reason: Annotated[str | None, Meta(description="check, syntax, timeout, memory …")] = None
    hints: tuple[str, ...] = ()
    calls: Annotated[int | UnsetType, Meta(description="The number of calls so far.")] = UNSET
    line: Annotated[int | UnsetType, Meta(description="The line in the code, from 1.")] = UNSET
    column: int | UnsetType = UNSET
    end_line: int | UnsetType = UNSET
    end_column: int | UnsetType = UNSET


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of a run. If the value was stored, `value` is its beginning as text."""

    ok: bool
    prints: Annotated[str | UnsetType, Meta(description="The output of the code.")] = UNSET
    calls: Annotated[list[RunCall] | int, Meta(description="At most 1,000 calls, in order; in a stream, their number.")]
    duration_ms: float
    value: Annotated[Any, Meta(description="Of the last expression; its beginning as text, if it is stored.")] = UNSET
    type: Annotated[str | UnsetType, Meta(description="The JSON type of the value.")] = UNSET
    size: Annotated[int | UnsetType, Meta(description="The size of the value in bytes.")] = UNSET
    stored: Annotated[str | UnsetType, Meta(description="The handle of a large value: see `/results`.")] = UNSET
    error: RunFault | UnsetType = UNSET


EXAMPLE = {"code": "tools.echo(message=word)", "variables": {"word": "hello"}}


@RestRoute("POST", "/run", "Code", takes=RunRequest, example=EXAMPLE, gives=RunAnswer, sends=(EVENT_STREAM,))
async def run_code(request: RestRequest, asked: RunRequest) -> RestResponse | None:
    """Run code over all tools.

    The code runs in the sandbox. A value that is too large to send is stored, and only its beginning is sent. With
    `Accept: text/event-stream` the response is a stream of events: `started` {id}, `call` {id, name, args, at} and
    `called` {id, ok, durationMs, preview, error} for each call, `progress` {progress, total, message}, `chunk` {data},
    `print` {text}, and at the end `result` {value, type, size, stored, calls, durationMs} or `error` {message, code,
    reason, hints, calls, line, column, endLine, endColumn}. Disconnecting stops the run. At most 16 runs are possible
    at the same time; further requests get 503.
    """
    _check_variables(asked)
    if wants_events(request.headers.get(b"accept", b"")):
        await _stream(request, asked)
        return None
    with request.context.admitted(MAX_RUNS, TOO_MANY, RETRY_SECONDS):
        calls = RunCalls(request.context)
        with DisconnectWatch(request.receive):
            result = await _run(request, asked, calls)
            if (error := result.error) is not None and error.reason == "audit_unavailable" and not calls.listed():
                raise RestError(503, error.reason, error.message, hints=error.hints)
            answer = await asyncio.to_thread(_answer, request.context, result)
            return RestResponse(200, encode(replace(answer, prints=result.printed, calls=calls.listed())))
    return None


@RestRoute("POST", "/run/check", "Code", takes=RunRequest, example=EXAMPLE, gives="CodeReport")
async def check_code(request: RestRequest, asked: RunRequest) -> RestResponse | None:
    """Check code without running it.

    Calls are checked against the tools and their schemas, as before every run.
    """
    _check_variables(asked)
    context = request.context
    check = run_in_thread(context.app.check_code, asked.code, context.allowed, asked.variables)
    found = await request.work(check)
    return None if found is None else RestResponse(200, encode(found))


@RestRoute("GET", "/run/names", "Code", gives="CodeNames", etag=True)
async def list_names(request: RestRequest) -> RestResponse | None:
    """List the names that code can use.

    For code completion in editors: packs and their tools with parameters, functions, builtins, modules, snippets and
    aliases. Under an allow-list, only allowed tools are listed.
    """
    context = request.context
    await context.app.catalog.refresh(at_once=True)
    return await request.work(run_in_thread(lambda: list_response(request.headers, _names_of(context))))


def _names_of(context: RestContext) -> bytes:
    """Return all names, cached per catalogue, config and allow-list, because thousands of tools take seconds."""
    app = context.app
    whose = (context.principal.tools, context.principal.lasting_owner)  # return shapes differ per caller
    made_of = (app.catalog.registry.snapshot(), app.config)
    with context.names_lock:
        known = context.names.get(whose)
        if known is None or known[0][0] is not made_of[0] or known[0][1] is not made_of[1]:
            if len(context.names) >= MAX_NAMES:
                context.names.clear()
            known = context.names[whose] = (made_of, encode(app.code_names(context.allowed)))
        return known[1]


def _check_variables(asked: RunRequest) -> None:
    for name in asked.variables:
        if not name.isidentifier():
            raise invalid_at("/variables", f"{name[:100]!r} is not a valid name of a variable")


async def _run(
    request: RestRequest, asked: RunRequest, calls: "RunCalls", events: "RunEvents | None" = None
) -> RunResult:
    context = request.context
    await context.app.catalog.refresh(at_once=True)  # tools that were just disabled must not be called
    return await context.app.run(
        asked.code,
        context.allowed,
        source=SOURCE,
        variables=asked.variables,
        watch=calls,
        progress=None if events is None else events.progress,
        live=None if events is None else events.printed,
    )


def _answer(context: RestContext, result: RunResult) -> RunAnswer:
    """Return the answer, without calls and printed output. Runs in a thread, because a large value is stored."""
    meta = {"ok": result.ok, "calls": result.meta["calls"], "duration_ms": result.meta["duration_ms"]}
    if (error := result.error_with_calls) is not None:
        place = result.meta.get("place", {})
        fault = {"message": error.message, "code": error.code, "reason": error.reason, "hints": error.hints}
        return RunAnswer(**meta, error=msgspec.convert({**fault, "calls": meta["calls"], **place}, RunFault))
    kind, size = _json_type(result.data), len(encode(result.data))
    reply = context.app.reply(replace(result, printed=""))
    if reply.is_error:  # the value is too large to send and could not be stored
        fault = RunFault(message=reply.text, code="execution_error", reason="not_stored")
        return RunAnswer(**{**meta, "ok": False}, error=fault)
    if reply.stored is None:
        return RunAnswer(**meta, value=reply.structured, type=kind, size=size)
    return RunAnswer(**meta, value=reply.preview, type=kind, size=reply.stored.size, stored=reply.stored.handle)


def _json_type(value: Any) -> str:
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return "null" if value is None else kinds.get(type(value), "string")


# The calls of a run


class RunCalls:
    """A record of the calls of a run. Its methods may be called in any thread."""

    def __init__(self, context: RestContext) -> None:
        self._registry = context.app.catalog.registry
        self._calls: dict[str, RunCall] = {}

    def listed(self) -> list[RunCall]:
        return list(self._calls.values())

    def began(self, call: ToolCall) -> None:
        if len(self._calls) < MAX_CALLS:
            self._calls[call.id] = self._noted(call)

    def ended(self, call: ToolCall, result: ToolResult) -> None:
        if (noted := self._calls.get(call.id)) is not None:
            for key, value in self._outcome(call, result).items():
                setattr(noted, key, value)

    def _noted(self, call: ToolCall) -> RunCall:
        first = dict(islice(call.args.items(), MAX_ARGS))
        args = _bounded(dict(shown_args(replace(call, args=first), self._registry.get(call.name))))
        return RunCall(id=call.id, name=cut(call.name, MAX_NAME), args=args, at=utc_text_ms(time()))

    def _outcome(self, call: ToolCall, result: ToolResult) -> dict[str, Any]:
        found = {"ok": result.ok, "duration_ms": result.meta.get("duration_ms", 0.0)}
        if result.error is not None:
            return {**found, "error": cut(result.error.message, MAX_PREVIEW)}
        return {**found, "preview": _preview(kept_value(result.data, call.args, self._registry.get(call.name)))}


def _bounded(args: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with long values shortened, and as many of them as fit."""
    if len(encode(args)) <= MAX_ARGS_BYTES:
        return args
    limit, left = max(MAX_ARGS_BYTES // len(args), 20), MAX_ARGS_BYTES
    shown: dict[str, Any] = {}
    for name, value in args.items():
        if (left := left - len(name)) < 0:
            break
        shown[name] = value if len(encode(value)) <= limit else _preview(value, limit)
    return shown


def _preview(value: Any, limit: int = MAX_PREVIEW) -> str:
    if isinstance(value, str):
        return cut(value, limit)
    return cut(encode(value)[: 4 * limit].decode(errors="ignore"), limit)


# As a stream of events


class RunEvents(RunCalls):
    """A record of a run that also sends events. All events go through the loop, to keep their order."""

    def __init__(self, context: RestContext, response: ResponseStream) -> None:
        super().__init__(context)
        self._loop = asyncio.get_running_loop()
        self._response = response
        self.progress = ProgressEvents(response)

    def printed(self, text: str) -> None:
        self._push("print", {"text": text})

    def began(self, call: ToolCall) -> None:
        self._push("call", self._noted(call))

    def ended(self, call: ToolCall, result: ToolResult) -> None:
        found = self._outcome(call, result)
        self._push("called", {"id": call.id, "durationMs": found.pop("duration_ms"), **found})

    def _push(self, name: str, data: Any) -> None:
        """Send an event. A slow client misses events, but gets the result."""
        self._loop.call_soon_threadsafe(self._response.push_event, sse_event(name, encode(data)), True)


async def _stream(request: RestRequest, asked: RunRequest) -> None:
    """Stream the run. A client that doesn't read holds its place only while its run lasts."""
    response = ResponseStream(request.send)
    with DisconnectWatch(request.receive, response):
        with request.context.admitted(MAX_RUNS, TOO_MANY, RETRY_SECONDS):
            response.push_event(sse_event("started", encode({"id": new_id()})))
            events = RunEvents(request.context, response)
            try:
                result = await _run(request, asked, events, events)
            except (OneToolError, HttpError) as error:
                if (refused := refusal_of(error)) is None:
                    raise
                message = request.context.clean(str(refused), asked.code)
                response.push_event(sse_event("error", encode({"message": message, "code": refused.code})))
                await response.end()
                return
            answer = await asyncio.to_thread(_answer, request.context, result)
        is_error = not isinstance(answer.error, UnsetType)
        last: dict[str, Any] = msgspec.to_builtins(answer.error if is_error else answer)
        last.pop("ok", None)
        if response.dropped:  # events left out because the client was too slow
            last["dropped"] = response.dropped
        response.push_event(sse_event("error" if is_error else "result", encode(last)))
        await response.end()
