"""What is particular to REST of the sessions of `ask`: exports as files, and a user's calls of tools in a session."""

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.operations.fields import Query
from onetool.app.operations.sessions import SESSION, SessionDocument, checked_session, document_of
from onetool.ask.errors import SessionError
from onetool.ask.sessions.markdown import markdown
from onetool.core.call import ToolCall, ToolError, ToolResult, new_id
from onetool.http.asgi import encode, read_weights
from onetool.http.response_stream import DisconnectWatch
from onetool.interfaces.rest import ASK_PATH
from onetool.interfaces.rest.ask_body import OF_DATABASE, STATUS_OF_REASON, in_client_words
from onetool.interfaces.rest.invoke import ARGS_AT, refuse_unrun
from onetool.interfaces.rest.problem import RETRY_S, RestError
from onetool.interfaces.rest.request import SOURCE, RestRequest, RestResponse
from onetool.interfaces.rest.route import RestRoute

MARKDOWN, JSON = "markdown", "json"


class ExportQuery(Query, frozen=True):
    """The format of an export."""

    format: Annotated[
        Literal["markdown", "json"] | None,
        Meta(description="The format, instead of the header `Accept`. Default: Markdown."),
    ] = None


@RestRoute(
    "GET",
    f"{SESSION}/export",
    "Questions",
    query=ExportQuery,
    gives=SessionDocument,
    sends=("text/markdown",),
    errors=(404,),
)
def export_session(request: RestRequest) -> RestResponse:
    """Export a whole conversation."""
    form = request.query.format
    if form is None:
        weights = read_weights(request.headers.get(b"accept", b""))
        form = JSON if weights.get("application/json", 0.0) > weights.get("text/markdown", 0.0) else MARKDOWN
    if form == JSON:
        document = document_of(request.context, request.path[0], whole=True)
        return request.context.response(document)._replace(headers=(_attachment(document.id, "json"),))
    read = request.context.app.sessions.read(checked_session(request.path[0]))
    text = request.context.app.runtime.redact(markdown(read))
    return RestResponse(200, text.encode(), (_attachment(read.id, "md"),), b"text/markdown; charset=utf-8")


def _attachment(id: str, suffix: str) -> tuple[bytes, bytes]:
    return b"content-disposition", f'attachment; filename="session-{id}.{suffix}"'.encode()


def session_error(error: SessionError) -> RestError:
    hints = tuple(map(in_client_words, error.hints))
    headers = [(b"retry-after", b"%d" % RETRY_S)] if error.reason in OF_DATABASE else ()
    status, message = STATUS_OF_REASON[error.reason], in_client_words(str(error))
    return RestError(status, error.reason, message, hints=hints, headers=headers)


# Calls by a user


class UserCallResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a tool that the user called."""

    session_id: Annotated[str, Meta(description="The session, for the next call or question.")]
    ok: bool
    value: Any = UNSET
    error: ToolError | UnsetType = UNSET


class UserCallRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool to call, and its arguments."""

    name: Annotated[str, Meta(min_length=1, max_length=200, description="A name as in code (`time.now`), or an alias.")]
    args: dict[str, Any] = {}


EXAMPLE_CALL = {"name": "time.now", "args": {}}


@RestRoute(
    "POST",
    f"{SESSION}/calls",
    "Questions",
    takes=UserCallRequest,
    example=EXAMPLE_CALL,
    gives=UserCallResult,
    errors=(404, 409, 429),
)
async def call_in_session(request: RestRequest, wanted: UserCallRequest) -> RestResponse | None:
    """Call a tool in a conversation.

    The call is yours and needs no approval. The model reads it and its result with the next question.
    """
    return await _call_tool(request, wanted, checked_session(request.path[0]))


@RestRoute(
    "POST",
    f"{ASK_PATH}/calls",
    "Questions",
    takes=UserCallRequest,
    example=EXAMPLE_CALL,
    gives=UserCallResult,
    errors=(404, 429),
)
async def call_in_new_session(request: RestRequest, wanted: UserCallRequest) -> RestResponse | None:
    """Begin a conversation with a call of a tool, like `callInSession`."""
    return await _call_tool(request, wanted, None)


async def _call_tool(request: RestRequest, wanted: UserCallRequest, session: str | None) -> RestResponse | None:
    """Call the tool. Returns None if the client has disconnected."""
    context, app = request.context, request.context.app
    with DisconnectWatch(request.receive):
        if session is not None:
            session = (await asyncio.to_thread(app.sessions.info, session)).id  # no new session under a mistyped id
        await app.catalog.refresh(at_once=True)  # tools that were just disabled must not be called
        if app.catalog.real_name(wanted.name) not in app.catalog.registry:
            await app.catalog.wait_for_tool(wanted.name)
        name = app.catalog.real_name(wanted.name)
        if name not in app.catalog.registry or (context.allowed is not None and name not in context.allowed):
            call = ToolCall(new_id(), wanted.name, wanted.args, SOURCE)
            _refuse_unrun(await context.call(call))  # raises: nothing runs and no session begins
        ids: list[str] = []
        result = await app.user_call(name, wanted.args, ids.append, session=session, within=context.allowed)
        app.catalog.refuse_switched_off(name, result, context.allowed)
        _refuse_unrun(result)
        found = UserCallResult(session_id=ids[0], ok=True, value=result.data)
        if result.error is not None:
            found = UserCallResult(session_id=ids[0], ok=False, error=result.error)
        return RestResponse(200, encode(found))
    return None


def _refuse_unrun(result: ToolResult) -> None:
    if result.error is not None:
        refuse_unrun(result.error, ARGS_AT)
