"""The handler that calls a tool, with one response or a stream of events (`Accept: text/event-stream`).

    progress  {progress, total, message}    progress of the tool
    chunk     {data}                        a piece of a streamed response
    result    {ok, value | error}           the envelope, always the last event; `meta` has the remaining rate limit
                                            and the upstream response of an HTTP tool

The stream begins with the first event, or after a moment without one. So a call that is refused before the tool runs
has the same status as without a stream.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from threading import get_ident
from typing import Any

import msgspec

from onetool.core.call import ToolCall, ToolError, ToolResult, new_id
from onetool.core.context import UPSTREAM
from onetool.core.errors import OneToolError
from onetool.http.asgi import HttpError, encode, read_weights
from onetool.http.body import StreamedText
from onetool.http.response_stream import DisconnectWatch, ResponseStream
from onetool.interfaces.rest.problem import DATABASE_AWAY, RETRY, RestError
from onetool.interfaces.rest.request import SOURCE, RestRequest, RestResponse, json_body, refusal_of
from onetool.interfaces.rest.route import EVENT_STREAM, TOOL, RestRoute
from onetool.sources.bundles.errors import Fault
from onetool.sources.bundles.rate_limits import NOTE
from onetool.sources.bundles.validation import converted

ARGS_AT = "/args"


@RestRoute(
    "POST",
    f"{TOOL}/invoke",
    "Calls",
    takes="Call",
    example={"args": {"city": "Oslo"}},
    gives="Envelope",
    sends=(EVENT_STREAM,),
    errors=(404, 429),
    for_tools=True,
)
async def invoke_tool(request: RestRequest) -> RestResponse | None:
    """Call a tool.

    Arguments that don't match the argSchema are refused with 400 before anything runs. With `Accept: text/event-stream`
    the response is a stream of events: `progress` {progress, total, message}, `chunk` {data}, and at the end `result`,
    which has the envelope. Disconnecting cancels the call.
    """
    args = read_args(await json_body(request, empty={}))
    bundle_id, slug, version = request.path
    call = ToolCall(new_id(), "", args, SOURCE, version=(bundle_id, slug, version))
    return await answer_call(request, call, envelope)


async def answer_call(
    request: RestRequest, call: ToolCall, body: Callable[[ToolResult], bytes], args_at: str = ARGS_AT
) -> RestResponse | None:
    """Call the tool, and respond with `body(result)` or a stream. Returns None if streamed or the client disconnected.

    `args_at` is the pointer to the arguments in the request's body.
    """
    if wants_events(request.headers.get(b"accept", b"")):
        return await stream_invocation(request, call, args_at)
    with DisconnectWatch(request.receive):
        result = await request.context.call(call)
        return RestResponse(200, body(result))
    return None


class CallRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a call by their names."""

    args: dict[str, Any] = {}


def read_args(body: Any) -> Mapping[str, Any]:
    return converted(body, CallRequest).args


def envelope(result: ToolResult, with_meta: bool = False, args_at: str = ARGS_AT) -> bytes:
    """Encode the envelope with the value or the error of a tool that ran. Raises RestError if it did not run.

    Warnings are always part of it. `with_meta` adds the remaining rate limit, because the headers have been sent, and
    the status and duration of an HTTP tool's last request.
    """
    error = result.error
    keys = ("warnings", NOTE, UPSTREAM) if with_meta else ("warnings",)
    notes = {key: result.meta[key] for key in keys if key in result.meta}
    meta = {"meta": notes} if notes else {}
    if error is None:
        return encode({"ok": True, "value": result.data, **meta})
    refuse_unrun(error, args_at)
    return encode({"ok": False, "error": msgspec.to_builtins(error), **meta})


_STATUS_OF_REASON = {"role_needed": 403, "audit_unavailable": 503}


def refuse_unrun(error: ToolError, args_at: str) -> None:
    """Raise RestError if the tool did not run. `args_at` is the pointer to the arguments in the body."""
    if error.reason in _STATUS_OF_REASON and error.code == "execution_error":
        raise RestError(_STATUS_OF_REASON[error.reason], error.reason, error.message, hints=error.hints)
    if error.code == "tool_not_found" and error.reason == DATABASE_AWAY:
        raise RestError(503, DATABASE_AWAY, error.message, headers=RETRY)
    if error.code == "tool_not_found":
        status = 403 if error.reason == "denied" else 404
        raise RestError(status, error.code, error.message, reason=error.reason or msgspec.UNSET)
    if error.code == "invalid_args" and error.details:  # otherwise the running tool raised it
        problems = [Fault(f"{args_at}{one.pointer}", str(one)) for one in error.details]
        raise RestError(400, error.code, error.message, part="body", pointer=problems[0].pointer, errors=problems)


@lru_cache(64)
def wants_events(accept: bytes) -> bool:
    """Return whether the client prefers an event stream. `*/*` does not count."""
    preferences = read_weights(accept)
    first = next((kind for kind in preferences if kind in (EVENT_STREAM, "application/json")), None)
    events, plain = preferences.get(EVENT_STREAM, 0.0), preferences.get("application/json", 0.0)
    return events > plain or (events == plain > 0 and first == EVENT_STREAM)


# As a stream of events

BEGIN_AFTER = 0.25  # seconds; refusals take less


async def stream_invocation(request: RestRequest, call: ToolCall, args_at: str) -> None:
    response = ResponseStream(request.send)
    begin = asyncio.get_running_loop().call_later(BEGIN_AFTER, response.begin)
    with DisconnectWatch(request.receive, response):
        try:
            last = await _final_event(request, call, response, args_at)
        finally:
            begin.cancel()
        response.push_event(sse_event("result", last))
        await response.end()


async def _final_event(request: RestRequest, call: ToolCall, response: ResponseStream, args_at: str) -> bytes:
    try:
        result = await request.context.call(call, ProgressEvents(response))
        return envelope(result, with_meta=True, args_at=args_at)
    except (OneToolError, HttpError) as error:
        if not response.is_stream or (refused := refusal_of(error)) is None:
            raise
        message = request.context.clean(str(refused), call.args)
        return encode({"ok": False, "error": {"code": refused.code, "message": message}})


class ProgressEvents:
    """A progress callback, for any thread, that sends events in order."""

    def __init__(self, response: ResponseStream) -> None:
        self._response = response
        self._text_delta = StreamedText
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        if is_piece := isinstance(message, self._text_delta):
            event = sse_event("chunk", encode({"data": str(message)}))
        else:
            event = sse_event("progress", encode({"progress": done, "total": total, "message": message}))
        if get_ident() == self._thread:
            self._response.push_event(event, not is_piece)
        else:
            self._loop.call_soon_threadsafe(self._response.push_event, event, not is_piece)


def sse_event(name: str, data: bytes) -> bytes:
    """Format a server-sent event. Encoded JSON has no line breaks, so it fits into one `data` line."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
