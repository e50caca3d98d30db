"""An invocation as a stream of events, for who asks with `Accept: text/event-stream`.

    progress  {progress, total, message}    how far the tool is
    chunk     {data}                        a piece of an answer that comes in pieces
    result    {ok, value | error}           the envelope; always the last one

A stream begins with the first event, or when there is none for a while: what is refused before anything runs has the
status that it would have without a stream.
"""

import asyncio
from collections.abc import Mapping
from threading import get_ident
from typing import Any

from onetool.interfaces.asgi import Refused
from onetool.interfaces.encoding import encode
from onetool.interfaces.leaving import Watch
from onetool.interfaces.outlet import Outlet
from onetool.interfaces.rest.asking import Ask
from onetool.interfaces.rest.invoke import SOURCE, envelope
from onetool.interfaces.rest.problem import from_store
from onetool.sources.bundles.errors import BundleError

BEGIN_AFTER = 0.25  # seconds; enough for everything that is refused


async def stream(ask: Ask, args: Mapping[str, Any]) -> None:
    outlet = Outlet(ask.send)
    watch = Watch(ask.receive)
    begin = asyncio.get_running_loop().call_later(BEGIN_AFTER, outlet.begin)
    try:
        last = await _result(ask, args, outlet)
    except asyncio.CancelledError:
        outlet.drop()
        if not watch.forgive():
            raise
        return
    finally:
        begin.cancel()
        watch.end()
    outlet.push_event(event("result", last))
    await outlet.end()


async def _result(ask: Ask, args: Mapping[str, Any], outlet: Outlet) -> bytes:
    bundle_id, slug, version = ask.path
    try:
        teller, allowed = Teller(outlet), ask.rest.allowed
        return envelope(await ask.rest.shelf.invoke(bundle_id, slug, version, args, SOURCE, teller, allowed))
    except (BundleError, Refused) as error:
        if not outlet.is_stream:
            raise
        refused = from_store(error) if isinstance(error, BundleError) else error
        message = ask.rest.clean(str(refused), args)
        return encode({"ok": False, "error": {"code": refused.code, "message": message}})


class Teller:
    """What a running tool tells of itself, from whatever thread, as events in their order."""

    def __init__(self, outlet: Outlet) -> None:
        from onetool.handlers.http.sse import Part

        self._outlet = outlet
        self._piece = Part
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        if is_piece := isinstance(message, self._piece):
            told = event("chunk", encode({"data": str(message)}))
        else:
            told = event("progress", encode({"progress": done, "total": total, "message": message}))
        if get_ident() == self._thread:
            self._outlet.push_event(told, not is_piece)
        else:
            self._loop.call_soon_threadsafe(self._outlet.push_event, told, not is_piece)


def event(name: str, data: bytes) -> bytes:
    """JSON has no line breaks of its own, so that one line will do."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
