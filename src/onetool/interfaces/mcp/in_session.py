"""Requests of a session over HTTP, and its streams: for clients before 2026-07-28."""

from typing import Any

from onetool.interfaces.asgi import Receive, Refused, Send
from onetool.interfaces.mcp.exchange import gone
from onetool.interfaces.mcp.headers import Headers
from onetool.interfaces.mcp.revisions import BATCHES
from onetool.interfaces.mcp.sessions import Session
from onetool.interfaces.mcp.wire import INVALID_REQUEST, Fault, Message
from onetool.interfaces.outlet import Outlet, send_json


async def answer_in(session: Session, message: Message, send: Send) -> None:
    """A request of a session. It goes on when its client's connection breaks: the client may come back for the rest."""
    stream = session.stream()
    outlet = stream.outlet = Outlet(send, stream.opening() if session.primes else b"")
    outlet.begin_when_quiet()

    def push(message: Message) -> None:
        """A question may be taken back when the request that it came with is over."""
        (session.news if stream.is_over else stream).push(message)

    try:
        reply = await session.conversation.respond(message, push)
    except BaseException:
        outlet.drop()
        raise
    finally:
        stream.is_over = True
    if outlet.is_stream:
        if reply is not None:
            stream.push(reply)
        await outlet.end()
        if stream.outlet is not None and stream.outlet is not outlet:  # the client has come back on another connection
            await stream.outlet.end()
        return
    session.forget(stream)
    if reply is None:
        outlet.drop()
        await send_json(send, 202, None)  # cancelled: whoever did that waits for nothing
    else:
        await outlet.finish(reply)


async def answer_batch(session: Session, messages: list[Any], send: Send) -> None:
    if session.client.revision != BATCHES or not messages:
        raise Fault(INVALID_REQUEST, "expected one JSON-RPC message: there are no batches in this revision")
    replies = await session.conversation.answer(messages, session.news.push)
    await send_json(send, 200 if replies else 202, replies)


async def stream(session: Session, headers: Headers, receive: Receive, send: Send) -> None:
    """The session's stream of news; or the rest of a stream that broke."""
    accepted = headers.get("accept", "*/*")
    if "text/event-stream" not in accepted and "*/*" not in accepted:
        raise Refused(406, "not_acceptable", "a stream is text/event-stream, which the header accept does not allow")
    found, after = session.news, None
    if (last := headers.get("last-event-id")) is not None:
        known = session.found(last)
        if known is None:
            raise Refused(404, "no_such_event", f"last-event-id: there is no event {last:.40} in this session")
        found, after = known
    outlet = Outlet(send)
    found.attach(outlet, after)
    if found.is_over:
        await outlet.end()
        return
    try:
        await gone(receive)
    finally:
        found.detach(outlet)
        outlet.drop()
