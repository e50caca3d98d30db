"""The handlers of what was asked and answered: list, read, rename, delete and export sessions; calls of a person.

Files are read in threads. Secrets were masked when the sessions were written; what became known since is masked here.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from onetool.ask.errors import SessionError
from onetool.ask.sessions.markdown import markdown
from onetool.ask.sessions.records import LAST, check_id, short_title
from onetool.core.call import ToolResult
from onetool.interfaces.disconnect import DisconnectWatch
from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.ask_body import OF_DATABASE, STATUS_OF_REASON, in_client_words
from onetool.interfaces.rest.ask_documents import SessionPage, UserCallResult, session_document, session_summary
from onetool.interfaces.rest.handlers import read_token, sign_token
from onetool.interfaces.rest.invoke import ARGS_AT, refuse_unrun
from onetool.interfaces.rest.problem import RETRY_S, RestError, error_from_store, rate_limit_headers
from onetool.interfaces.rest.query import PAGE_SIZE, PAGE_TOKEN, QueryParameter
from onetool.interfaces.rest.request import (
    NO_CONTENT,
    RestRequest,
    RestResponse,
    json_body,
    read_weights,
)
from onetool.interfaces.rest.routing import ASK_PATH, RestRoute, RouteMethod
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.rate_limits import NOTE
from onetool.sources.bundles.validation import converted

T = TypeVar("T")
MARKDOWN, JSON = "markdown", "json"


# Sessions


class SessionTitle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The title of a session."""

    title: Annotated[str, Meta(min_length=1, max_length=200)]


async def list_sessions(request: RestRequest) -> RestResponse:
    """GET /ask/sessions."""

    def work() -> RestResponse:
        key, route, token = request.context.bundles.key(), request.scope["path"], request.query["pageToken"]
        before = None if token is None else tuple(read_token(token, key, route, request.query))
        found, end = request.context.app.sessions.page(before, request.query["pageSize"])
        following = None if end is None else sign_token(end, key, route, request.query)
        page = SessionPage(sessions=tuple(map(session_summary, found)), next_page_token=following)
        return RestResponse(200, encode(_cleaned(request, page)))

    return await _in_thread(work)


async def get_session(request: RestRequest) -> RestResponse:
    """GET /ask/sessions/{session}."""
    return await _in_thread(lambda: RestResponse(200, encode(_document(request, whole=False))))


async def rename_session(request: RestRequest) -> RestResponse:
    """PATCH /ask/sessions/{session}."""
    wanted = _converted(await json_body(request.headers, request.receive), SessionTitle)
    if not short_title(wanted.title):
        raise error_from_store(InvalidError("/title: there is nothing in it that can be seen", "/title"))

    def work() -> RestResponse:
        sessions = request.context.app.sessions
        id = sessions.info(_session_id(request)).id  # `last` may be another one afterwards
        sessions.rename(id, request.context.app.runtime.redact(wanted.title))
        return RestResponse(200, encode(_cleaned(request, session_summary(sessions.info(id)))))

    return await _in_thread(work)


async def delete_session(request: RestRequest) -> RestResponse:
    """DELETE /ask/sessions/{session}."""

    def work() -> RestResponse:
        request.context.app.sessions.delete(_session_id(request))
        return NO_CONTENT

    return await _in_thread(work)


async def export_session(request: RestRequest) -> RestResponse:
    """GET /ask/sessions/{session}/export."""
    form = request.query["format"] or _preferred_form(request.headers.get(b"accept", b""))

    def work() -> RestResponse:
        if form == JSON:
            data = _document(request, whole=True)
            return RestResponse(200, encode(data), (_attachment(data["id"], "json"),))
        read = request.context.app.sessions.read(_session_id(request))
        text = request.context.app.runtime.redact(markdown(read))
        return RestResponse(200, text.encode(), (_attachment(read.id, "md"),), b"text/markdown; charset=utf-8")

    return await _in_thread(work)


def _preferred_form(accept: bytes) -> str:
    weights = read_weights(accept.decode("latin-1").lower())
    return JSON if weights.get("application/json", 0.0) > weights.get("text/markdown", 0.0) else MARKDOWN


def _attachment(id: str, suffix: str) -> tuple[bytes, bytes]:
    return b"content-disposition", f'attachment; filename="session-{id}.{suffix}"'.encode()


def _document(request: RestRequest, whole: bool) -> dict[str, Any]:
    read = request.context.app.sessions.read(_session_id(request))
    return _cleaned(request, session_document(read, whole))


def _cleaned(request: RestRequest, data: Any) -> Any:
    return request.context.app.runtime.redact(msgspec.to_builtins(data))


def _session_id(request: RestRequest) -> str:
    (id,) = request.path
    try:
        return id if id == LAST else check_id(id)
    except SessionError as error:
        raise RestError(400, "bad_path", f"{error}.", part="path", pointer="/session") from None


async def _in_thread(work: Callable[[], RestResponse]) -> RestResponse:
    try:
        return await asyncio.to_thread(work)
    except SessionError as error:
        raise session_error(error) from None


def session_error(error: SessionError) -> RestError:
    hints = tuple(map(in_client_words, error.hints))
    headers = [(b"retry-after", b"%d" % RETRY_S)] if error.reason in OF_DATABASE else ()
    status, message = STATUS_OF_REASON[error.reason], in_client_words(str(error))
    return RestError(status, error.reason, message, hints=hints, headers=headers)


def _converted(body: Any, kind: type[T]) -> T:
    try:
        return converted(body, kind)
    except InvalidError as error:
        raise error_from_store(error) from None


# Calls of the person


class UserCallRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool that the person calls."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    args: dict[str, Any] = {}


async def call_in_session(request: RestRequest) -> RestResponse | None:
    """POST /ask/sessions/{session}/calls."""
    return await _call_tool(request, _session_id(request))


async def call_in_new_session(request: RestRequest) -> RestResponse | None:
    """POST /ask/calls."""
    return await _call_tool(request, None)


async def _call_tool(request: RestRequest, session: str | None) -> RestResponse | None:
    """Call the tool. Returns None if the client has disconnected."""
    wanted = _converted(await json_body(request.headers, request.receive), UserCallRequest)
    with DisconnectWatch(request.receive):
        try:
            id, result = await _called(request, wanted, session)
        except SessionError as error:
            raise session_error(error) from None
        return RestResponse(200, _call_body(id, result), rate_limit_headers(result.meta.get(NOTE)))
    return None


async def _called(request: RestRequest, wanted: UserCallRequest, session: str | None) -> tuple[str, ToolResult]:
    context, app = request.context, request.context.app
    if session is not None:
        session = (await asyncio.to_thread(app.sessions.info, session)).id  # a call begins none under a mistyped name
    await app.catalog.refresh(at_once=True)  # what somebody has switched off is not called any more
    if app.catalog.real_name(wanted.name) not in app.catalog.registry:
        await app.catalog.wait_for_tool(wanted.name)
    name = app.catalog.real_name(wanted.name)
    if name not in app.catalog.registry or (context.allowed is not None and name not in context.allowed):
        _refuse_unrun(await context.call(wanted.name, wanted.args, None))  # runs nothing, and begins no session
    ids: list[str] = []
    result = await app.user_call(name, wanted.args, ids.append, session=session, within=context.allowed)
    app.catalog.refuse_switched_off(name, result, context.allowed)
    return ids[0], result


def _call_body(session: str, result: ToolResult) -> bytes:
    _refuse_unrun(result)
    if result.error is None:
        return encode(UserCallResult(session_id=session, ok=True, value=result.data))
    return encode(UserCallResult(session_id=session, ok=False, error=result.error))


def _refuse_unrun(result: ToolResult) -> None:
    if result.error is not None:
        refuse_unrun(result.error, ARGS_AT)


# The routes


def _read_format(text: str) -> str:
    if text not in (MARKDOWN, JSON):
        raise ValueError(f"must be {MARKDOWN} or {JSON}")
    return text


FORMAT = QueryParameter("format", _read_format)
_PAGE = {one.name: one for one in (PAGE_SIZE, PAGE_TOKEN)}
SESSION_ROUTES = (
    RestRoute("/sessions", {"GET": RouteMethod(list_sessions, _PAGE)}, ASK_PATH),
    RestRoute(
        "/sessions/{session}",
        {
            "GET": RouteMethod(get_session),
            "PATCH": RouteMethod(rename_session, own=True),
            "DELETE": RouteMethod(delete_session, own=True),
        },
        ASK_PATH,
    ),
    RestRoute("/sessions/{session}/export", {"GET": RouteMethod(export_session, {FORMAT.name: FORMAT})}, ASK_PATH),
    RestRoute("/sessions/{session}/calls", {"POST": RouteMethod(call_in_session)}, ASK_PATH),
    RestRoute("/calls", {"POST": RouteMethod(call_in_new_session)}, ASK_PATH),
)
