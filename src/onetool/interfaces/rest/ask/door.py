"""The ASGI app at /ask: one question, one answer, whole or as events."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from onetool.ask.errors import AskError
from onetool.ask.events import Answer
from onetool.interfaces.asgi import Receive, Refused, Scope, Send, respond
from onetool.interfaces.encoding import encode
from onetool.interfaces.leaving import Watch
from onetool.interfaces.rest.ask import METHODS
from onetool.interfaces.rest.ask.body import read_question
from onetool.interfaces.rest.ask.refusal import told_of
from onetool.interfaces.rest.ask.stream import stream
from onetool.interfaces.rest.ask.turn import Turn
from onetool.interfaces.rest.caller import set_caller
from onetool.interfaces.rest.invoke import wants_events
from onetool.interfaces.rest.payload import Sent, json_body
from onetool.interfaces.rest.problem import KIND, Wrong
from onetool.interfaces.rest.query import read_query

if TYPE_CHECKING:
    from onetool.app import App

MOST_AT_ONCE = 16  # questions; each is long, and costs somebody's money
RETRY_S = 5  # when it is worth trying again
_ALLOW = (b"allow", ", ".join(METHODS).encode())


class AskDoor:
    """The route /ask."""

    def __init__(self, app: "App", allowed: Collection[str] | None = None) -> None:
        """`allowed` are the tools that may be called here; all, if there is none."""
        self._app = app
        self._allowed = allowed
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":
            await send({"type": "http.response.start", "status": 204, "headers": [_ALLOW]})
            await send({"type": "http.response.body", "body": b""})
            return
        sent = Sent(scope, receive)
        try:
            await self._answer(scope, sent.receive, send)
        except Refused as refused:
            if (log := scope.get("log")) is not None:
                log["error"] = refused.code
            body = told_of(refused, lambda value: self._app.redact(value, sent.texts()))
            await respond(send, refused.status, body, KIND, refused.headers)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        read_query(scope["query_string"], {})
        headers = _headers(scope)
        question = read_question(await json_body(headers, receive, whole=True))
        set_caller(scope.get("principal", ""))
        with self._one_more():
            turn = Turn(self._app, question, self._allowed, scope.get("log", {}))
            if wants_events(headers.get(b"accept", b"")):
                await stream(turn, receive, send)
                return
            answer = await _whole(turn, receive)
        if answer is not None:
            await respond(send, 200, encode(msgspec.to_builtins(answer)))

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        if self._under_way >= MOST_AT_ONCE:
            message = f"{MOST_AT_ONCE} questions are being answered here: try again when one of them has its answer."
            raise Wrong(503, "too_many", message, headers=[(b"retry-after", b"%d" % RETRY_S)])
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1


async def _whole(turn: Turn, receive: Receive) -> Answer | None:
    """Nothing, where the client has gone."""
    watch = Watch(receive)
    try:
        return turn.finished(await turn.asking)
    except AskError as error:
        raise turn.failed(error) from None
    except asyncio.CancelledError:
        if not watch.forgive():
            raise
        return None
    finally:
        watch.end()


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """Those that matter here. What came twice is a list, or nothing that can be read."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in (b"content-type", b"accept"):
            found[name] = found[name] + b", " + value if name in found else value
    return found
