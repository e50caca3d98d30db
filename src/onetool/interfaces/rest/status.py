"""The ASGI app at /status: what a server is, how it does, and what a client may do here."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from onetool._version import __version__
from onetool.app.allow_lists import Offered
from onetool.interfaces.asgi import Receive, Scope, Send
from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.app import RestApp
from onetool.interfaces.rest.query import read_query
from onetool.interfaces.rest.request import RestResponse, refuse_tools

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
    is_capped: bool
    tools: int
    health: dict[str, Any]
    config: str | None


class StatusApp(RestApp):
    """The route /status. `url` is the address by which a client reaches the server."""

    def __init__(
        self,
        app: "App",
        url: Callable[[Scope], str],
        needs_token: Callable[[], bool],
        allowed: Offered = None,
    ) -> None:
        """`url` gives the address by which a client reaches the server."""
        super().__init__(app, allowed)
        self._url = url
        self._needs_token = needs_token

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> RestResponse | None:
        refuse_tools(scope)
        read_query(scope["query_string"], {})
        return RestResponse(200, encode(await asyncio.to_thread(self._report, scope)))

    def _report(self, scope: Scope) -> StatusReport:
        app, allowed = self._context.app, self._context.allowed
        file = app.config.path
        return StatusReport(
            version=__version__,
            url=self._url(scope),
            needs_token=self._needs_token(),
            can_change=self._context.may_change,
            is_admin=self._context.principal.may("admin"),
            is_capped=self._context.principal.is_capped,
            tools=len(app.catalog.tools(allowed)),
            health=app.health(allowed),
            config=None if file is None else str(file),
        )
