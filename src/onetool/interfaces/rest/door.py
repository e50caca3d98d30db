"""The ASGI app below /tools: finds who answers, and tells what is refused in the one way that this door has."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from onetool.interfaces.asgi import JSON, Receive, Refused, Scope, Send, respond
from onetool.interfaces.rest.asking import Answer, Ask
from onetool.interfaces.rest.payload import Sent
from onetool.interfaces.rest.places import find
from onetool.interfaces.rest.problem import KIND, Wrong, from_store, told
from onetool.interfaces.rest.query import read_query
from onetool.sources.bundles.errors import BundleError
from onetool.sources.bundles.sight import EVERYTHING, Sight

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.sources.bundles.shelf import Shelf

_WANTED = frozenset((b"content-type", b"accept", b"if-match", b"if-none-match"))
_CHANGES = frozenset(("PUT", "PATCH", "DELETE"))
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


class Rest:
    """The route /tools and everything below. `told` is how the site has to tell what it refuses itself, as `kind`."""

    told = staticmethod(told)
    kind = KIND

    def __init__(self, app: "App", allowed: Collection[str] | None = None) -> None:
        """`allowed` are the tools that may be called here; all, if there is none."""
        self._app = app
        self.allowed = allowed

    @property
    def shelf(self) -> "Shelf":
        """The one of the config in force."""
        return self._app.bundles

    @property
    def may_change(self) -> bool:
        """Whether clients may change bundles: if the config says nothing, only those who may call everything.

        Who may call one tool could else store a script that its owner runs later, with all tools.
        """
        admin = self._app.config.http.admin
        return self.allowed is None if admin is None else admin

    async def sight(self) -> Sight:
        """What clients see here: what they may call; all of it, if they are to look after it."""
        return EVERYTHING if self.allowed is None or self.may_change else await self.shelf.sight(self.allowed)

    def clean(self, text: Any, sent: Any) -> Any:
        """Without secrets, except those that the client sent."""
        return self._app.redact(text, sent)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = Sent(scope, receive)
        try:
            answer = await self._answer(scope, sent.receive, send)
        except BundleError as error:
            await self._refuse(scope, from_store(error), send, sent)
        except Refused as refused:
            await self._refuse(scope, refused, send, sent)
        else:
            if answer is not None:
                await _say(answer, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        found = find(scope["raw_path"], scope["method"])
        if found.way is None:
            takes = found.place.takes(() if self.may_change else _CHANGES)
            return Answer(204, headers=((b"allow", takes.encode()),))
        if scope["method"] in _CHANGES and not self.may_change:
            raise Wrong(403, "read_only", _read_only(self.allowed))
        raw, parameters = scope["query_string"], found.way.parameters
        query = read_query(raw, parameters) if raw or parameters else parameters
        return await found.way.answer(Ask(self, found.path, query, _headers(scope), scope, receive, send))

    async def _refuse(self, scope: Scope, refused: Refused, send: Send, sent: Sent) -> None:
        if (log := scope.get("log")) is not None:
            log["error"] = refused.code
        body = told(refused, lambda text: self.clean(text, sent.texts()))
        await respond(send, refused.status, body, KIND, refused.headers)


def rest(app: "App", allowed: Collection[str] | None = None) -> Rest:
    return Rest(app, allowed)


def _read_only(allowed: Collection[str] | None) -> str:
    why = "its config says so" if allowed is None else "it was started with --tool-allow"
    how = "http.admin, set to true in its config, lets clients change bundles"
    return f"Nothing can be changed over this server: {why}. {how}."


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """Those that matter here. What came twice is a list, or nothing that can be read."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _WANTED:
            found[name] = found[name] + b", " + value if name in found else value
    return found


async def _say(answer: Answer, send: Send) -> None:
    if answer.body:
        await respond(send, answer.status, answer.body, JSON, answer.headers)
        return
    headers = [_NO_SNIFFING, *answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
