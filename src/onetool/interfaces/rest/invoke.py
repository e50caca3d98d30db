"""The handler that calls a tool, with one response or a stream of events (`Accept: text/event-stream`).

    progress  {progress, total, message}    how far the tool is
    chunk     {data}                        a piece of a response that comes in pieces
    result    {ok, value | error}           the envelope; always the last one

The stream begins with the first event, or after a moment without one. So what is refused before the tool runs has the
same status as without a stream.
"""

import asyncio
from asyncio import CancelledError
from collections.abc import Mapping
from threading import get_ident
from typing import Any

import msgspec

from onetool.core.call import ToolError, ToolResult
from onetool.core.text import or_rather
from onetool.http.definition import below
from onetool.interfaces.asgi import HttpError
from onetool.interfaces.disconnect import DisconnectWatch
from onetool.interfaces.json_data import encode
from onetool.interfaces.response_stream import ResponseStream
from onetool.interfaces.rest.problem import Fault, RestError, error_from_store
from onetool.interfaces.rest.request import RestRequest, RestResponse, json_body, set_caller
from onetool.sources.bundles.errors import BundleError

SOURCE = "rest"
EVENT_STREAM = "text/event-stream"


async def invoke(request: RestRequest) -> RestResponse | None:
    """Call the tool. Returns None if the client has disconnected, or the result was streamed."""
    args = read_args(await json_body(request.headers, request.receive, empty={}))
    set_caller(request.scope.get("principal", ""))
    if wants_events(request.headers.get(b"accept", b"")):
        return await stream_invocation(request, args)
    bundle_id, slug, version = request.path
    watch = DisconnectWatch(request.receive)
    try:
        result = await request.context.bundles.invoke(
            bundle_id, slug, version, args, SOURCE, None, request.context.allowed
        )
    except CancelledError:
        if not watch.was_disconnected():
            raise
        return None
    finally:
        watch.end()
    return RestResponse(200, envelope(result))


def read_args(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise _bad_body('expected a JSON object: {"args": {…}}', "")
    for key in body:
        if key != "args":
            raise _bad_body(f"there is no such key as {key[:100]!r}{or_rather(key, ['args'])}", below("", key[:100]))
    args = body.get("args", {})
    if not isinstance(args, dict):
        raise _bad_body("args: expected an object", "/args")
    return args


def envelope(result: ToolResult) -> bytes:
    """The envelope with the value or the error of a tool that ran. Raises RestError if it did not run."""
    error = result.error
    if error is None:
        return encode({"ok": True, "value": result.data})
    if error.code == "tool_not_found":
        raise RestError(403 if error.reason == "denied" else 404, error.code, error.message)
    if error.code == "invalid_args" and error.details:  # else it is the running tool that says so
        raise _bad_args(error)
    return encode({"ok": False, "error": msgspec.to_builtins(error)})


def wants_events(accept: bytes) -> bool:
    """Whether the client prefers an event stream. `*/*` does not count."""
    text = accept.decode("latin-1").lower()
    if EVENT_STREAM not in text:
        return False
    preferences: dict[str, float] = {}
    for one in text.split(","):
        kind, *parameters = (part.strip() for part in one.split(";"))
        weights = [part[2:] for part in parameters if part.startswith("q=")]
        preferences.setdefault(kind, _quality(weights[0]) if weights else 1.0)
    first = next((kind for kind in preferences if kind in (EVENT_STREAM, "application/json")), None)
    events, plain = preferences.get(EVENT_STREAM, 0.0), preferences.get("application/json", 0.0)
    return events > plain or (events == plain > 0 and first == EVENT_STREAM)


def _quality(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def _bad_body(what: str, pointer: str) -> RestError:
    return RestError(400, "invalid", f"The body: {what}.", part="body", pointer=pointer)


def _bad_args(error: ToolError) -> RestError:
    problems = [Fault(f"/args{one.pointer}", str(one)) for one in error.details]
    return RestError(400, error.code, error.message, part="body", pointer=problems[0].pointer, errors=problems)


# As a stream of events


BEGIN_AFTER = 0.25  # seconds; enough for everything that is refused


async def stream_invocation(request: RestRequest, args: Mapping[str, Any]) -> None:
    response = ResponseStream(request.send)
    watch = DisconnectWatch(request.receive)
    begin = asyncio.get_running_loop().call_later(BEGIN_AFTER, response.begin)
    try:
        last = await _final_event(request, args, response)
    except asyncio.CancelledError:
        response.drop()
        if not watch.was_disconnected():
            raise
        return
    finally:
        begin.cancel()
        watch.end()
    response.push_event(sse_event("result", last))
    await response.end()


async def _final_event(request: RestRequest, args: Mapping[str, Any], response: ResponseStream) -> bytes:
    bundle_id, slug, version = request.path
    try:
        teller, allowed = ProgressEvents(response), request.context.allowed
        return envelope(await request.context.bundles.invoke(bundle_id, slug, version, args, SOURCE, teller, allowed))
    except (BundleError, HttpError) as error:
        if not response.is_stream:
            raise
        refused = error_from_store(error) if isinstance(error, BundleError) else error
        message = request.context.clean(str(refused), args)
        return encode({"ok": False, "error": {"code": refused.code, "message": message}})


class ProgressEvents:
    """Turns progress of a running tool, from any thread, into events in order."""

    def __init__(self, response: ResponseStream) -> None:
        from onetool.http.decoding import StreamedText

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
    """One server-sent event. Encoded JSON has no line breaks, so one `data` line is enough."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
