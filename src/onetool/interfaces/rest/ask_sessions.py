"""Sessions of `ask` over REST: list, read, rename, delete and export conversations, and call a tool in one.

Threads read the database. Secrets were masked when the sessions were written; secrets added since are masked here. A
conversation has shortened results and arguments, so that a page can show it; an export as JSON has everything.
"""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.operations.fields import Pages, Query
from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Call, Result, SessionMessage, Usage, User, UserCall, unmark
from onetool.ask.sessions import SessionInfo, Transcript
from onetool.ask.sessions.markdown import markdown, utc_time
from onetool.ask.sessions.records import LAST, UNDER_WAY, TurnEnd, TurnEnded, check_id, short_title
from onetool.ask.sessions.store import ListPlace
from onetool.core.call import ToolCall, ToolError, ToolResult, new_id
from onetool.http.asgi import encode, read_weights
from onetool.http.response_stream import DisconnectWatch
from onetool.interfaces.rest import ASK_PATH
from onetool.interfaces.rest.ask_body import OF_DATABASE, STATUS_OF_REASON, in_client_words
from onetool.interfaces.rest.handlers import page_token, read_page_token
from onetool.interfaces.rest.invoke import ARGS_AT, refuse_unrun
from onetool.interfaces.rest.problem import RETRY_S, RestError
from onetool.interfaces.rest.request import NO_CONTENT, SOURCE, RestRequest, RestResponse
from onetool.interfaces.rest.route import RestRoute
from onetool.sources.bundles.errors import invalid_at

SESSIONS = f"{ASK_PATH}/sessions"
SESSION = f"{SESSIONS}/{{session}}"
MARKDOWN, JSON = "markdown", "json"
MAX_RESULT = 4000  # characters of a result, or of arguments that are too large to be shown as data
MAX_ARGS = 16 * 1024  # bytes of arguments that are shown as data


# Responses

CallState = Annotated[Literal["ok", "failed", "running", "not_run"], Meta(description="`not_run`: not approved.")]


class SessionListItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation in a list."""

    id: str
    title: Annotated[str, Meta(description="The first words of the first question, or the name it was given.")]
    created_at: str | None
    modified_at: str | None
    turns: Annotated[int, Meta(description="Questions.")]
    model: Annotated[str, Meta(description="The model of the last completed turn, as is `provider`.")]
    provider: str


class SessionPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of sessions, newest first. The token is null on the last page."""

    sessions: tuple[SessionListItem, ...]
    next_page_token: str | None


class AttachedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The name of an attached file. An export as JSON has its content, too."""

    name: str
    kind: str
    text: Annotated[str | None, Meta(description="Only in an export: the content of a text file.")] = None
    data: Annotated[str | None, Meta(description="Only in an export: the content of an image in base64.")] = None


class SessionCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A call and its result."""

    id: str | None
    name: str
    args: Annotated[Any, Meta(description="null if they are too large or not an object: see `argsText`.")]
    state: CallState
    result: Annotated[str, Meta(description="The result as the model read it; only its beginning if `isCut` is true.")]
    args_text: str | UnsetType = UNSET
    is_cut: bool = False


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message of a conversation. Calls in a user message were made by the user."""

    role: Literal["user", "assistant"]
    at: str | None
    text: str
    files: tuple[AttachedFile, ...] = ()
    calls: Annotated[tuple[SessionCall, ...], Meta(description="In a message of the user: the user's own calls.")] = ()
    broken_off: Annotated[bool, Meta(description="Whether the message was interrupted.")] = False
    usage: Annotated[Usage | UnsetType, Meta(description="Tokens of the turn; only in its last message.")] = UNSET
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    end: Annotated[TurnEnd | UnsetType, Meta(description="How the turn ended; only in its last message.")] = UNSET
    why: Annotated[str | UnsetType, Meta(description="Why the turn failed.")] = UNSET


class SessionDocument(SessionListItem, frozen=True, kw_only=True, rename="camel"):
    """A whole conversation."""

    usage: Annotated[Usage, Meta(description="Tokens of all completed turns.")]
    damaged: Annotated[int, Meta(description="Number of unreadable entries, which are left out.")]
    messages: tuple[SessionEntry, ...]


class UserCallResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a tool that the user called."""

    session_id: Annotated[str, Meta(description="The session, for the next call or question.")]
    ok: bool
    value: Any = UNSET
    error: ToolError | UnsetType = UNSET


def _summary(one: SessionInfo | Transcript) -> dict[str, Any]:
    """Return the fields that a list and the conversation itself share."""
    return {
        "id": one.id,
        "title": one.title,
        "created_at": _iso(one.created),
        "modified_at": _iso(one.modified),
        "turns": one.turns,
        "model": one.model,
        "provider": one.provider,
    }


def _iso(seconds: float) -> str | None:
    when = utc_time(seconds)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z") if when else None


def _entries(transcript: Transcript, whole: bool) -> Iterator[SessionEntry]:
    """Yield the messages; with `whole`, nothing is shortened and files have their content."""
    ends, messages = _ends(transcript), list(zip(transcript.messages, transcript.times, strict=True))
    for index, (message, at) in enumerate(messages):
        when = _iso(at)
        if isinstance(message, User):
            contents = [{"text": one.text, "data": one.data} if whole else {} for one in message.files]
            files = tuple(
                AttachedFile(name=one.name, kind=one.kind, **content)
                for one, content in zip(message.files, contents, strict=True)
            )
            yield SessionEntry(role="user", at=when, text=message.text, files=files, **_end_fields(ends.get(index)))
        elif isinstance(message, UserCall):
            called = Call(id="", name=message.name, args=message.args)
            yield SessionEntry(role="user", at=when, text="", calls=(_call(called, message, whole),))
        elif isinstance(message, Assistant):
            next_index = index + 1 + len(message.calls)  # the results of the calls follow in order
            results = [result for result, _ in messages[index + 1 : next_index]]
            calls = tuple(_call(one, result, whole) for one, result in zip(message.calls, results, strict=True))
            end = ends.get(next_index - 1)
            yield SessionEntry(
                role="assistant",
                at=when,
                text=message.text,
                calls=calls,
                broken_off=message.broken_off,
                **({} if end is None else {"usage": end.usage, "provider": end.provider, "model": end.model}),
                **_end_fields(end),
            )


def _end_fields(end: TurnEnded | None) -> dict[str, Any]:
    """Return the fields that describe how a turn ended, if known."""
    return {} if end is None else {"end": end.how, "why": end.why or UNSET}


def _ends(transcript: Transcript) -> dict[int, TurnEnded]:
    """Return the ends of turns by the index of the preceding message."""
    ends: dict[int, TurnEnded] = {}
    index = -1
    for end in transcript.ended:
        while index + 1 < len(transcript.times) and transcript.times[index + 1] <= end.at:
            index += 1
        ends[index] = end
    return ends


def _call(call: Call, outcome: SessionMessage, whole: bool) -> SessionCall:
    assert isinstance(outcome, Result | UserCall)  # noqa: S101 - for the type checker: reading repaired it
    result, args = unmark(outcome.content)[0], encode(call.args)
    text = call.malformed
    if text is None and len(args) > MAX_ARGS and not whole:
        text = args.decode()
    limit = None if whole else MAX_RESULT
    return SessionCall(
        id=call.id or None,
        name=call.name,
        args=call.args if text is None else None,
        args_text=UNSET if text is None else text[:limit],
        state=_state(outcome),
        result=result[:limit],
        is_cut=not whole and max(len(result), len(text or "")) > MAX_RESULT,
    )


def _state(outcome: Result | UserCall) -> CallState:
    if outcome.ok:
        return "ok"
    if isinstance(outcome, Result) and outcome.not_run:
        return "not_run"
    return "running" if outcome.content == UNDER_WAY else "failed"


# The handlers


class SessionTitle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The title of a session."""

    title: Annotated[str, Meta(min_length=1, max_length=200)]


@RestRoute("GET", SESSIONS, "Questions", query=Pages, gives=SessionPage)
def list_sessions(request: RestRequest) -> RestResponse:
    """List the caller's conversations, newest first."""
    before = read_page_token(request, ListPlace)
    found, end = request.context.app.sessions.page(before, request.query.page_size)
    page = SessionPage(
        sessions=tuple(SessionListItem(**_summary(one)) for one in found), next_page_token=page_token(request, end)
    )
    return request.context.response(page)


@RestRoute("GET", SESSION, "Questions", gives=SessionDocument, errors=(404,))
def get_session(request: RestRequest) -> RestResponse:
    """Read a conversation, with long results shortened."""
    return request.context.response(_document(request, whole=False))


@RestRoute(
    "PATCH",
    SESSION,
    "Questions",
    own=True,
    takes=SessionTitle,
    example={"title": "Tea"},
    gives=SessionListItem,
    errors=(404, 409),
)
def rename_session(request: RestRequest, wanted: SessionTitle) -> RestResponse:
    """Rename a conversation.

    `modifiedAt` doesn't change. A title is one line of at most 80 characters. On a calls-only server, this needs a
    caller with a name.
    """
    if not short_title(wanted.title):
        raise invalid_at("/title", "must contain visible characters")
    sessions = request.context.app.sessions
    id = sessions.info(_session_id(request)).id  # `last` may mean another session afterwards
    sessions.rename(id, request.context.app.runtime.redact(wanted.title))
    return request.context.response(SessionListItem(**_summary(sessions.info(id))))


@RestRoute("DELETE", SESSION, "Questions", own=True, status=(204,), errors=(404, 409))
def delete_session(request: RestRequest) -> RestResponse:
    """Delete a conversation. This can't be undone.

    On a calls-only server, this needs a caller with a name.
    """
    request.context.app.sessions.delete(_session_id(request))
    return NO_CONTENT


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
        document = _document(request, whole=True)
        return request.context.response(document)._replace(headers=(_attachment(document.id, "json"),))
    read = request.context.app.sessions.read(_session_id(request))
    text = request.context.app.runtime.redact(markdown(read))
    return RestResponse(200, text.encode(), (_attachment(read.id, "md"),), b"text/markdown; charset=utf-8")


def _attachment(id: str, suffix: str) -> tuple[bytes, bytes]:
    return b"content-disposition", f'attachment; filename="session-{id}.{suffix}"'.encode()


def _document(request: RestRequest, whole: bool) -> SessionDocument:
    read = request.context.app.sessions.read(_session_id(request))
    messages = tuple(_entries(read, whole))
    return SessionDocument(**_summary(read), usage=read.usage, damaged=read.damaged, messages=messages)


def _session_id(request: RestRequest) -> str:
    (id,) = request.path
    try:
        return id if id == LAST else check_id(id)
    except SessionError as error:
        raise RestError(400, "bad_path", f"{error}.", part="path", pointer="/session") from None


def session_error(error: SessionError) -> RestError:
    hints = tuple(map(in_client_words, error.hints))
    headers = [(b"retry-after", b"%d" % RETRY_S)] if error.reason in OF_DATABASE else ()
    status, message = STATUS_OF_REASON[error.reason], in_client_words(str(error))
    return RestError(status, error.reason, message, hints=hints, headers=headers)


# Calls by a user


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
    return await _call_tool(request, wanted, _session_id(request))


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
