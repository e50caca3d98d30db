"""Sessions of `ask` as clients of REST read them: a list, and whole conversations.

In a conversation results and arguments are cut, so that a page can show it; an export as JSON has all of it.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from onetool.ask.messages import Assistant, Call, File, Result, SessionMessage, Usage, User, UserCall, unmark
from onetool.ask.sessions import SessionInfo, Transcript
from onetool.ask.sessions.markdown import utc_time
from onetool.ask.sessions.records import UNDER_WAY, TurnEnd, TurnEnded
from onetool.core.call import ToolError
from onetool.interfaces.json_data import encode

MOST_RESULT = 4000  # characters of a result, or of arguments that are too large to be shown as data
MOST_ARGS = 16 * 1024  # bytes of arguments that are shown as data


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session in a list."""

    id: str
    title: str
    created_at: str | None
    modified_at: str | None
    turns: int
    model: str
    provider: str


class SessionPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Sessions, the newest first. The token is null on the last page."""

    sessions: tuple[SessionSummary, ...]
    next_page_token: str | None


class SessionFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that was attached: its name. An export as JSON has its content."""

    name: str
    kind: str
    text: str | None = None
    data: str | None = None


class SessionCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A call, and what came of it."""

    id: str | None
    name: str
    args: Any
    state: Literal["ok", "failed", "running", "not_run"]
    result: str
    args_text: str | UnsetType = UNSET
    is_cut: bool = False


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What somebody said. A call in a message of the user is one that the person made."""

    role: Literal["user", "assistant"]
    at: str | None
    text: str
    files: tuple[SessionFile, ...] = ()
    calls: tuple[SessionCall, ...] = ()
    broken_off: bool = False
    usage: Usage | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    end: TurnEnd | UnsetType = UNSET
    why: str | UnsetType = UNSET


class SessionDocument(SessionSummary, frozen=True, kw_only=True, rename="camel"):
    """A whole conversation."""

    usage: Usage
    damaged: int
    messages: tuple[SessionEntry, ...]


class UserCallResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of a tool that the person called."""

    session_id: str
    ok: bool
    value: Any = UNSET
    error: ToolError | UnsetType = UNSET


def session_summary(one: SessionInfo) -> SessionSummary:
    return SessionSummary(**_summary(one))


def _summary(one: SessionInfo | Transcript) -> dict[str, Any]:
    """What a list and the conversation itself tell alike."""
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


def session_document(read: Transcript, whole: bool = False) -> SessionDocument:
    """The conversation; with `whole` nothing in it is cut, and files have their content."""
    messages = tuple(_entries(read, whole))
    return SessionDocument(**_summary(read), usage=read.usage, damaged=read.damaged, messages=messages)


def _entries(read: Transcript, whole: bool) -> Iterator[SessionEntry]:
    ends, said = _ends(read), list(zip(read.messages, read.times, strict=True))
    for place, (message, at) in enumerate(said):
        when = _iso(at)
        if isinstance(message, User):
            files = tuple(_file(one, whole) for one in message.files)
            yield SessionEntry(role="user", at=when, text=message.text, files=files, **_how(ends.get(place)))
        elif isinstance(message, UserCall):
            called = Call(id="", name=message.name, args=message.args)
            yield SessionEntry(role="user", at=when, text="", calls=(_call(called, message, whole),))
        elif isinstance(message, Assistant):
            after = place + 1 + len(message.calls)  # each call has its result behind it, in their order
            results = [one for one, _ in said[place + 1 : after]]
            calls = tuple(_call(one, came, whole) for one, came in zip(message.calls, results, strict=True))
            end = ends.get(after - 1)
            yield SessionEntry(
                role="assistant",
                at=when,
                text=message.text,
                calls=calls,
                broken_off=message.broken_off,
                **({} if end is None else {"usage": end.usage, "provider": end.provider, "model": end.model}),
                **_how(end),
            )


def _how(end: TurnEnded | None) -> dict[str, Any]:
    """How the turn ended that ended there, where that is known."""
    return {} if end is None else {"end": end.how, "why": end.why or UNSET}


def _ends(read: Transcript) -> dict[int, TurnEnded]:
    """The ends of turns, by the places of the messages that they follow."""
    found: dict[int, TurnEnded] = {}
    place = -1
    for end in read.ended:
        while place + 1 < len(read.times) and read.times[place + 1] <= end.at:
            place += 1
        found[place] = end
    return found


def _file(file: File, whole: bool) -> SessionFile:
    content = {"text": file.text, "data": file.data} if whole else {}
    return SessionFile(name=file.name, kind=file.kind, **content)


def _call(call: Call, came: SessionMessage, whole: bool) -> SessionCall:
    assert isinstance(came, Result | UserCall)  # noqa: S101 - for the type checker: reading has mended it
    result, written = unmark(came.content)[0], encode(call.args)
    text = call.malformed
    if text is None and len(written) > MOST_ARGS and not whole:
        text = written.decode()
    most = None if whole else MOST_RESULT
    return SessionCall(
        id=call.id or None,
        name=call.name,
        args=call.args if text is None else None,
        args_text=UNSET if text is None else text[:most],
        state=_state(came),
        result=result[:most],
        is_cut=not whole and max(len(result), len(text or "")) > MOST_RESULT,
    )


def _state(came: Result | UserCall) -> Literal["ok", "failed", "running", "not_run"]:
    if came.ok:
        return "ok"
    if isinstance(came, Result) and came.not_run:
        return "not_run"
    return "running" if came.content == UNDER_WAY else "failed"
