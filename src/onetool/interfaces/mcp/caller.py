"""The client as the call that it made sees it: told of progress and messages, asked questions."""

import asyncio
from collections.abc import Awaitable, Callable
from threading import get_ident
from typing import Any, Protocol

from onetool.core.caller import CannotAsk, Level, Question
from onetool.core.context import waiting
from onetool.core.errors import ToolFailure
from onetool.interfaces.mcp.client import Client
from onetool.interfaces.mcp.questions import BadAnswer, answered, asked
from onetool.interfaces.mcp.wire import Fault

Ask = Callable[[Question], Awaitable[Any]]


class Link(Protocol):
    """The way back to the client while one of its requests is being answered. Used on the loop."""

    def notify(self, method: str, params: dict[str, Any]) -> None: ...

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """The client's result. Raises Fault with its error."""
        ...


class ClientCaller:
    """One call's idea of its client. Tools in threads use it, too."""

    def __init__(self, client: Client, link: Link, progress_token: Any, ask: Ask | None = None) -> None:
        self.client = client
        self.link: Link | None = link  # none while nobody waits for the call
        self.progress_token = progress_token
        self.lacking: CannotAsk | None = None
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._last: float | None = None

    @property
    def owner(self) -> str:
        return self.client.owner

    @property
    def client_name(self) -> str:
        return self.client.name

    @property
    def peer(self) -> object:
        return self.client.peer

    def can(self, what: str) -> bool:
        return self.client.can(what)

    def lacks(self, error: CannotAsk) -> None:
        self.lacking = error

    def log(self, level: Level, data: Any, logger: str | None) -> None:
        if self.client.wants(level):
            self._notify(
                "notifications/message", {"level": level, "data": data} | ({"logger": logger} if logger else {})
            )

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        if self.progress_token is None or (self._last is not None and done <= self._last):  # it must only grow
            return
        self._last = done
        params = {"progressToken": self.progress_token, "progress": done, "total": total, "message": message}
        self._notify("notifications/progress", {key: value for key, value in params.items() if value is not None})

    async def ask(self, question: Question) -> Any:
        with waiting():
            return await (self._by_request(question) if self._ask is None else self._ask(question))

    async def _by_request(self, question: Question) -> Any:
        """A client with a session takes requests of ours, and answers at once."""
        if self.link is None:
            raise ToolFailure("the call is over, and nobody is there to be asked")
        try:
            return answered(question, await self.link.request(**asked(question)))
        except Fault as fault:
            raise ToolFailure(f"the client could not answer: {fault}") from None
        except BadAnswer as bad:
            raise ToolFailure(f"the client's answer can't be used: {bad}") from None

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        if get_ident() == self._thread:
            self._tell(method, params)
        else:
            self._loop.call_soon_threadsafe(self._tell, method, params)

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        if self.link is not None:  # else it comes from a handler that goes on though its time is up
            self.link.notify(method, params)
