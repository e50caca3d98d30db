"""What a server asks or tells in the middle of a call goes to whoever made that call, if it can be told whose it is.

A server's question is a stranger's: the person is told which server asks. Where our client can't answer, the server
gets a refusal in words, and may go on without.
"""

from typing import Any

from mcp_types import (
    INVALID_REQUEST,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    LoggingMessageNotificationParams,
    TextContent,
)

from onetool.core.caller import Declined
from onetool.core.errors import OneToolError
from onetool.sdk.asking import ask_model, ask_person, log_message
from onetool.sources.mcp_servers.flight import Flight, Flights, current_flight
from onetool.sources.mcp_servers.journal import Journal
from onetool.sources.mcp_servers.listing import plain


class Asking:
    """The SDK's callbacks for one connection."""

    def __init__(self, server: str, flights: Flights, journal: Journal) -> None:
        self._server = server
        self._flights = flights
        self._journal = journal

    async def elicit(self, context: Any, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """A form for the person."""
        if not isinstance(params, ElicitRequestFormParams):
            return _refused(f"{self._server} wants a page to be opened ({params.url}), which OneTool does not do")
        flight = self._flight()
        if flight is None:
            return self._nobody("a person")
        schema = dict(params.requested_schema)
        try:
            answer = await flight.of_caller(lambda: ask_person(f"{self._server} asks: {params.message}", schema))
        except Declined as declined:
            return ElicitResult(action="decline" if declined.action == "decline" else "cancel")
        except OneToolError as error:
            return _refused(str(error))
        return ElicitResult(action="accept", content=answer)

    async def sample(self, context: Any, params: CreateMessageRequestParams) -> CreateMessageResult | ErrorData:
        """A prompt for the model behind the client."""
        if params.tools:
            return _refused("OneTool passes on no sampling with tools")
        flight = self._flight()
        if flight is None:
            return self._nobody("a model")
        messages = [plain(one) for one in params.messages]
        try:
            text = await flight.of_caller(
                lambda: ask_model(messages, max_tokens=params.max_tokens, system=params.system_prompt)
            )
        except OneToolError as error:
            return _refused(str(error))
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=text), model="unknown")

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        flight = self._flight()
        self._journal.note(f"it logs ({params.level}): {params.data}")
        if flight is not None:
            flight.tell(log_message, params.data, params.level, params.logger or self._server)

    def _flight(self) -> Flight | None:
        return current_flight.get() or self._flights.only()

    def _nobody(self, whom: str) -> ErrorData:
        return _refused(f"{self._server} wants to ask {whom}, and it is not clear during whose call")


def _refused(why: str) -> ErrorData:
    return ErrorData(code=INVALID_REQUEST, message=why)
