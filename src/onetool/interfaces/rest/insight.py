"""The handlers of what pages show of a server and its tools: the status."""

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from onetool._version import __version__
from onetool.interfaces.asgi import Receive, Scope, Send
from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.app import RestApp
from onetool.interfaces.rest.request import RestResponse
from onetool.interfaces.rest.routing import read_query
from onetool.interfaces.signed import token_principal

if TYPE_CHECKING:
    from onetool.app import App

STATUS_PATH = "/status"


class StatusReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a server is, and what this client may do here."""

    version: str
    url: str
    needs_token: bool
    can_change: bool
    is_admin: bool
    tools: int
    health: dict[str, Any]
    config: str | None


class Reached(Protocol):
    """How a server is reached: its address, and the header with the token, where it asks for one."""

    @property
    def url(self) -> str: ...

    @property
    def header(self) -> str | None: ...


class StatusApp(RestApp):
    """The route /status."""

    def __init__(self, app: "App", reached: Callable[[Scope], Reached], allowed: Collection[str] | None = None) -> None:
        super().__init__(app, allowed)
        self._reached = reached

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RestResponse | None:
        read_query(scope["query_string"], {})
        return RestResponse(200, encode(await asyncio.to_thread(self._report, scope)))

    def _report(self, scope: Scope) -> StatusReport:
        app, allowed, reached = self._context.app, self._context.allowed, self._reached(scope)
        token, file = app.config.http.token, app.config.path
        return StatusReport(
            version=__version__,
            url=reached.url,
            needs_token=reached.header is not None,
            can_change=self._context.may_change,
            is_admin=bool(token) and scope["principal"] == token_principal(str(token)),
            tools=len(app.tools(allowed)),
            health=app.health(allowed),
            config=None if file is None else str(file),
        )
