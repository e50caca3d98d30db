"""List, show, export and delete conversations of `onetool ask`. The ID `last` is the session used last."""

# Secrets were masked when the sessions were written; secrets added since are masked here. A conversation has shortened
# results and arguments, so that a page can show it; an export as JSON has everything.

import os
from collections.abc import Iterator
from time import time
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetool.app.operations import At, Command, operation
from onetool.app.operations.fields import Input, Pages, Query
from onetool.app.operations.paging import page_token, read_page_token
from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Call, Result, SessionMessage, Usage, User, UserCall, unmark
from onetool.ask.sessions import SessionInfo, Transcript
from onetool.ask.sessions.markdown import markdown, utc_time
from onetool.ask.sessions.records import LAST, UNDER_WAY, TurnEnd, TurnEnded, check_id, short_title
from onetool.ask.sessions.store import ListPlace
from onetool.core.limits import DAY
from onetool.core.redaction import mask_arguments
from onetool.http.asgi import encode
from onetool.sources.bundles.errors import ConflictError, InvalidError, NotFoundError, invalid_at

SESSIONS = "/ask/sessions"
SESSION = f"{SESSIONS}/{{session}}"
MAX_RESULT = 4000  # characters of a result, or of arguments that are too large to be shown as data
MAX_ARGS = 16 * 1024  # bytes of arguments that are shown as data
MAX_SHOWN = 20  # sessions in a list, at a terminal


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


def summary(one: SessionInfo | Transcript) -> dict[str, Any]:
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


# Over REST


class SessionsQuery(Pages, frozen=True):
    """The sessions that are listed."""


@operation("GET", SESSIONS, "Questions", completes="session")
def list_sessions(at: At, query: SessionsQuery) -> SessionPage:
    """List the caller's conversations, newest first."""
    found, end = at.sessions.page(read_page_token(at, query, ListPlace), query.page_size)
    listed = tuple(SessionListItem(**summary(one)) for one in found)
    return SessionPage(sessions=listed, next_page_token=page_token(at, query, end))


@operation("GET", SESSION, "Questions", errors=(404,))
def get_session(at: At, session: str) -> SessionDocument:
    """Read a conversation, with long results shortened."""
    return document_of(at, session)


class SessionTitle(Input, frozen=True):
    """The title of a session."""

    title: Annotated[str, Meta(min_length=1, max_length=200)]


@operation("PATCH", SESSION, "Questions", own=True, example={"title": "Tea"}, errors=(404, 409))
def rename_session(at: At, session: str, wanted: SessionTitle) -> SessionListItem:
    """Rename a conversation.

    `modifiedAt` doesn't change. A title is one line of at most 80 characters. On a calls-only server, this needs a
    caller with a name.
    """
    if not short_title(wanted.title):
        raise invalid_at("/title", "must contain visible characters")
    sessions = at.sessions
    id = sessions.info(checked_session(session)).id  # `last` may mean another session afterwards
    sessions.rename(id, at.clean(wanted.title))
    return SessionListItem(**summary(sessions.info(id)))


@operation("DELETE", SESSION, "Questions", own=True, errors=(404, 409))
def delete_session(at: At, session: str) -> None:
    """Delete a conversation. This can't be undone.

    On a calls-only server, this needs a caller with a name.
    """
    at.sessions.delete(checked_session(session))


def document_of(at: At, session: str, whole: bool = False) -> SessionDocument:
    read = at.sessions.read(checked_session(session))
    messages = tuple(_entries(read, whole))
    return SessionDocument(**summary(read), usage=read.usage, damaged=read.damaged, messages=messages)


def checked_session(id: str, new: bool = False) -> str:
    """Return the id. Raises InvalidError for an invalid id, and for `last` if the id is for a `new` session."""
    try:
        return id if id == LAST and not new else check_id(id)
    except SessionError as error:
        raise InvalidError(f"{error}", "/session", "bad_path") from None


# At the command line


class ListOptions(Query, frozen=True):
    """Options of a list of sessions."""

    limit: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description=f"At most so many sessions; {MAX_SHOWN} at a terminal.")
    ] = None


@operation(
    command=Command(
        "sessions list",
        columns=("id", "modified", "turns", "model", "title"),
        empty='There are no sessions yet. Begin one: onetool ask "What time is it?"',
    )
)
def list_stored_sessions(at: At, query: ListOptions) -> list[dict[str, Any]]:
    """List the sessions, newest first."""
    found = at.sessions.list()
    limit = query.limit or (MAX_SHOWN if at.is_shown else len(found))
    if at.is_shown and len(found) > limit:
        at.note(f"… and {len(found) - limit:,} more: --limit {len(found)} lists all of them")
    rows = map(msgspec.to_builtins, found[:limit])
    return [{**row, "created": _second(row["created"]), "modified": _second(row["modified"])} for row in rows]


@operation(command=Command("sessions show"))
def show_session(at: At, session: str) -> dict[str, Any]:
    """Show the messages and tool calls of a session: as Markdown at a terminal."""
    transcript = at.sessions.read(checked_session(session))
    if at.is_shown:
        at.say(markdown(_masked(transcript)).rstrip())
        if transcript.damaged:
            at.note(f"{transcript.damaged:,} unreadable records are left out.")
    facts = msgspec.to_builtins(transcript)
    times = facts.pop("times")
    del facts["ended"]  # its sum is in it
    messages = [{**one, "at": _second(when)} for one, when in zip(facts.pop("messages"), times, strict=True)]
    moments = {"created": _second(transcript.created), "modified": _second(transcript.modified)}
    return {**facts, **moments, "messages": messages}


def _masked(transcript: Transcript) -> Transcript:
    """Mask arguments whose names are those of secrets."""

    def masked(call: Call) -> Call:
        try:
            return msgspec.structs.replace(call, args=mask_arguments(call.args))
        except RecursionError:  # nested too deeply to look for secrets
            return msgspec.structs.replace(call, args={})

    messages = [
        msgspec.structs.replace(one, calls=tuple(map(masked, one.calls))) if isinstance(one, Assistant) else one
        for one in transcript.messages
    ]
    return msgspec.structs.replace(transcript, messages=tuple(messages))


class ExportOptions(Query, frozen=True):
    """Where an export is written."""

    output: Annotated[
        str | None,
        Meta(description="Write to this file instead of standard output.", extra={"short": "-o", "metavar": "FILE"}),
    ] = None
    force: Annotated[bool, Meta(description="Replace an existing file.")] = False


@operation(command=Command("sessions export"))
def export_as_markdown(at: At, session: str, query: ExportOptions) -> None:
    """Write a session as Markdown."""
    text = markdown(at.sessions.read(checked_session(session)))
    if query.output in (None, "-"):
        at.say(text.removesuffix("\n"))
        return
    try:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if query.force else os.O_EXCL)
        with os.fdopen(os.open(query.output, flags, 0o600), "w", encoding="utf-8") as file:  # a session may be private
            file.write(text)
    except FileExistsError:
        raise ConflictError(f"{query.output} already exists; --force replaces it.") from None
    except OSError as error:
        raise ConflictError(f"Can't write {query.output}: {error.strerror}.") from None
    at.note(f"Wrote {query.output}.")


class DeleteOptions(Query, frozen=True):
    """The sessions that are deleted."""

    ids: Annotated[tuple[str, ...], Meta(extra={"argument": True, "completes": "session", "metavar": "[ID]..."})] = ()
    older_than: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Delete sessions not used for this long.", extra={"metavar": "DAYS"}),
    ] = None
    all: Annotated[bool, Meta(description="Delete all sessions.")] = False
    yes: Annotated[bool, Meta(description="Do not ask.")] = False


@operation(command=Command("sessions delete"))
def delete_stored_sessions(at: At, query: DeleteOptions) -> None:
    """Delete sessions permanently. Give IDs, --older-than or --all."""
    ways = bool(query.ids) + (query.older_than is not None) + query.all
    if ways != 1:
        which = (
            "Give one of ID, --older-than and --all, not several" if ways else "Give ID, --older-than DAYS, or --all"
        )
        raise InvalidError(which)
    ids, sessions = [checked_session(id) for id in dict.fromkeys(query.ids)], at.sessions
    oldest = time() - (query.older_than or 0) * DAY
    chosen = ids or [one.id for one in sessions.list() if query.all or one.modified < oldest]
    if not chosen:
        at.note("There are no sessions to delete.")
        return
    what = chosen[0] if len(chosen) == 1 else f"{len(chosen):,} sessions"
    at.confirm(f"Delete {what} permanently?", query.yes, "delete", "deleted")
    failed: list[SessionError] = []
    for id in chosen:
        try:
            sessions.delete(id)
        except SessionError as error:
            failed.append(error)
    if deleted := len(chosen) - len(failed):
        sessions.shrink()
    at.note(f"Deleted {deleted:,} session{'s' * (deleted != 1)}.")
    if failed:
        raise NotFoundError("\n".join("\n  ".join([str(one), *one.hints]) for one in failed))


def _second(seconds: float) -> str | None:
    when = utc_time(seconds)
    return when.isoformat(timespec="seconds").replace("+00:00", "Z") if when else None
