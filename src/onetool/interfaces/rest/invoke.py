"""The route that calls a tool: the one that has to be fast."""

from asyncio import CancelledError
from collections.abc import Mapping
from typing import Any

import msgspec

from onetool.core.call import ToolError, ToolResult
from onetool.core.nearest import or_rather
from onetool.handlers.http.pointers import below
from onetool.interfaces.encoding import encode
from onetool.interfaces.leaving import Watch
from onetool.interfaces.rest.asking import Answer, Ask
from onetool.interfaces.rest.caller import set_caller
from onetool.interfaces.rest.payload import json_body
from onetool.interfaces.rest.problem import Fault, Wrong

SOURCE = "rest"
EVENTS = "text/event-stream"


async def invoke(ask: Ask) -> Answer | None:
    """The envelope; or nothing, where the client has gone or has had it as events."""
    args = args_of(await json_body(ask.headers, ask.receive, empty={}))
    set_caller(ask.scope.get("principal", ""))
    if wants_events(ask.headers.get(b"accept", b"")):
        from onetool.interfaces.rest.events import stream

        return await stream(ask, args)
    bundle_id, slug, version = ask.path
    watch = Watch(ask.receive)
    try:
        result = await ask.rest.shelf.invoke(bundle_id, slug, version, args, SOURCE, None, ask.rest.allowed)
    except CancelledError:
        if not watch.forgive():
            raise
        return None
    finally:
        watch.end()
    return Answer(200, envelope(result))


def args_of(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise _wrong('expected a JSON object: {"args": {…}}', "")
    for key in body:
        if key != "args":
            raise _wrong(f"there is no such key as {key[:100]!r}{or_rather(key, ['args'])}", below("", key[:100]))
    args = body.get("args", {})
    if not isinstance(args, dict):
        raise _wrong("args: expected an object", "/args")
    return args


def envelope(result: ToolResult) -> bytes:
    """What a tool that ran gave or how it failed; Wrong where nothing has run."""
    error = result.error
    if error is None:
        return encode({"ok": True, "value": result.data})
    if error.code == "tool_not_found":
        raise Wrong(403 if error.reason == "denied" else 404, error.code, error.message)
    if error.code == "invalid_args" and error.details:  # else it is the running tool that says so
        raise _bad_args(error)
    return encode({"ok": False, "error": msgspec.to_builtins(error)})


def wants_events(accept: bytes) -> bool:
    """Whether a stream is what the client would rather have. `*/*` is no such wish."""
    text = accept.decode("latin-1").lower()
    if EVENTS not in text:
        return False
    wishes: dict[str, float] = {}
    for one in text.split(","):
        kind, *parameters = (part.strip() for part in one.split(";"))
        weights = [part[2:] for part in parameters if part.startswith("q=")]
        wishes.setdefault(kind, _weight(weights[0]) if weights else 1.0)
    first = next((kind for kind in wishes if kind in (EVENTS, "application/json")), None)
    events, plain = wishes.get(EVENTS, 0.0), wishes.get("application/json", 0.0)
    return events > plain or (events == plain > 0 and first == EVENTS)


def _weight(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def _wrong(what: str, pointer: str) -> Wrong:
    return Wrong(400, "invalid", f"The body: {what}.", part="body", pointer=pointer)


def _bad_args(error: ToolError) -> Wrong:
    faults = [Fault(f"/args{one.pointer}", str(one)) for one in error.details]
    return Wrong(400, error.code, error.message, part="body", pointer=faults[0].pointer, errors=faults)
