"""What all adapters read and write: checks of types and sizes, refusals, and the order of a conversation.

Many servers implement somebody else's API only roughly: any member may be missing, null or of another type. What is
missing is read as empty; anything else is a ModelError (garbled) that says where it stood. Models send far less than
the size limits; a server that exceeds them is broken or hostile.

Many servers, and the chat templates of many models, refuse two messages of a person in a row. Anthropic and Gemini want
thoughts and signatures back in the order in which they came.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from onetool.ask.errors import ModelError, Reason
from onetool.ask.messages import Assistant, Call, Message, User, fenced, on_one_line
from onetool.core.json_data import JsonTooCostlyError
from onetool.core.limits import MIB
from onetool.core.text import replace_all_surrogates, replace_surrogates
from onetool.http.body import json_of
from onetool.http.errors import in_short

MAX_TEXT = 4 * MIB  # bytes of what is said
MAX_THOUGHTS = 2 * MIB  # of thoughts and their signatures, as far as they are kept
MAX_ARGUMENTS = 1 * MIB  # of one call
MAX_TOOL_NAME = 1024  # of a tool

NO_TOOLS_HINTS = ("choose a model that can call tools (--model)", "or ask without tools: --with-tools=false")

LEFT_OUT_TEXT = "(What was said before is left out.)"
"""Stands first where a conversation would begin with the model's own words: both APIs want a person's there."""


class SizeLimit:
    """A size limit for all pieces of one thing. Raises ModelError when it is exceeded."""

    def __init__(self, most: int, what: str) -> None:
        self._left = self._most = most
        self._what = what

    def take(self, piece: str) -> str:
        """Return the piece itself, which fits."""
        self._left -= len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
        if self._left < 0:
            raise too_large_error(self._most, self._what)
        return piece


def text_limit() -> SizeLimit:
    return SizeLimit(MAX_TEXT, "an answer")


def thoughts_limit() -> SizeLimit:
    return SizeLimit(MAX_THOUGHTS, "thoughts")


def arguments_limit() -> SizeLimit:
    return SizeLimit(MAX_ARGUMENTS, "the arguments of a call")


def too_large_error(most: int, what: str) -> ModelError:
    size = f"{most // MIB} MiB" if most >= MIB else f"{most // 1024} KiB"
    return ModelError(f"the model's API sent {what} of more than {size}", "garbled")


# Reading and writing


MAX_EXCERPT = 500  # characters of what a server says, in a message
MAX_EXAMINED = 16 * 1024

# Patterns of refusals are texts: they are made when there is one, and not at every start.
_TAG = r"(?is)<(style|script)\b.*?</\1\s*>|<[^<>]*>"
_TYPES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
_REASONS: dict[int, Reason] = {
    401: "unauthorized",
    402: "quota",
    403: "unauthorized",
    408: "timeout",
    413: "too_long",
    429: "rate_limited",
}
_AGAIN = frozenset((408, 409, 425, 429))

# Each of them says it in other words: OpenAI and who copies it, vLLM, llama.cpp, LM Studio, Mistral, Gemini, TGI.
_TOO_LONG = (
    r"(?i)context (?:length|window|size)|maximum model length|exceeds? the maximum number of (?:input )?tokens"
    r"|(?:input|requested|prompt) tokens? (?:\(\d+\) )?exceed|prompt (?:is )?too long"
    r"|too many (?:input )?tokens|tokens \+ `max_new_tokens`|request too large"
)
_WINDOW = (
    r"(?i)(?:maximum context length (?:is|of)|context (?:length|window|size)(?: of)?(?: only)?|n_ctx"
    r"|maximum model length of|tokens allowed|configured limit of|must be <=|: limit)[\s:=(]{0,3}(\d[\d,]*)"
    r"|(\d[\d,]*) maximum context length"
)
_NO_TOOLS = (
    r"(?i)not support (?:tool|function)|support tool use|tools? (?:use |calling )?(?:is|are) not supported"
    r"|enable-auto-tool-choice"
)


# Checked reading


def garbled_error(what: str) -> ModelError:
    """Return the error for an unreadable answer. `what` is a sentence without a full stop."""
    hint = "is it really this provider's API that base_url leads to?"
    return ModelError(f"what the model's API sent can't be read: {what}", "garbled", [hint])


def an_object(value: Any, where: str) -> dict[str, Any]:
    return _of_type(value, dict, where)


def a_list(value: Any, where: str) -> list[Any]:
    return _of_type(value, list, where)


def listed_models(body: Any, key: str) -> list[dict[str, Any]]:
    """Return the objects in the list of models, which is below `key`."""
    found = an_object(body, "the list of models")
    if key not in found:
        raise garbled_error(f"there is no list of models in it: {body_text(body)}")
    return [model for model in a_list(found[key], key) if isinstance(model, dict)]


def a_text(value: Any, where: str) -> str:
    return _of_type(value, str, where)


def a_name(value: Any) -> str:
    """Return the name of a called tool."""
    name = a_text(value, "the name of a call")
    if len(name) > MAX_TOOL_NAME:
        raise too_large_error(MAX_TOOL_NAME, "the name of a tool")
    return name


def _of_type(value: Any, kind: type, where: str) -> Any:
    if value is None:
        return kind()
    if isinstance(value, kind):
        return value
    raise garbled_error(f"{where} is {_TYPES.get(type(value), 'something else')}, where {_TYPES[kind]} should be")


def a_count(value: Any) -> int:
    """Return a number of tokens. A missing or invalid one is not an error."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def arguments(value: Any) -> tuple[dict[str, Any], str | None]:
    """Return the arguments of a call; and what came in their place, if that isn't an object. Nothing means none."""
    text = value if isinstance(value, str) else "" if value is None else as_json(value)
    arguments_limit().take(text)
    if isinstance(value, dict):
        return value, None
    if not text.strip():
        return {}, None
    read = _json(text)
    if isinstance(read, str):  # some servers write JSON into JSON
        read = _json(read)
    return (read, None) if isinstance(read, dict) else ({}, text)


def _json(text: str) -> Any:
    try:
        return json_of(text.encode())
    except (msgspec.MsgspecError, JsonTooCostlyError, UnicodeError):
        return None


# Writing


def as_json(value: Any) -> str:
    """Return data that came from a model, or out of a session, as a text that every server can read."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # half of a character, a key that is not text …
        return json.dumps(replace_all_surrogates(value), default=str, skipkeys=True)


def with_files(user: User) -> str:
    """Return the text of a user message with the texts of its files, and the names of its pictures, if there are any.

    A tool that sends files takes an attached one by its name.
    """
    names = ", ".join(on_one_line(file.name) for file in user.files if file.data is not None)
    return "\n\n".join(filter(None, (_with_texts(user), f"Attached pictures: {names}" if names else "")))


def _with_texts(user: User) -> str:
    files = (f"File {on_one_line(file.name)}:\n{fenced(file.text)}" for file in user.files if file.text is not None)
    return replace_surrogates("\n\n".join(filter(None, (user.text, *files))))


# Refusals


def reason_of_status(status: int) -> tuple[Reason, bool]:
    """Return what a status means where nothing more is said, and whether the same may do better in a while."""
    if status >= 500:
        return "overloaded", status not in (501, 505)
    return _REASONS.get(status, "bad_request"), status in _AGAIN


def is_too_long(message: str) -> bool:
    return re.search(_TOO_LONG, message) is not None


def window_in(message: str) -> int | None:
    """Return how many tokens the model takes, where a refusal says so."""
    found = re.search(_WINDOW, message)
    return int((found[1] or found[2]).replace(",", "")[:12]) or None if found else None


def has_no_tools(message: str) -> bool:
    """Return whether the refusal is that this model, or its server as it was started, can't call tools."""
    return re.search(_NO_TOOLS, message) is not None


def body_text(body: Any) -> str:
    """Return what a body says, on one line: JSON as it stands, pages without their tags."""
    text = body[:MAX_EXAMINED] if isinstance(body, str) else "" if body is None else as_json(body)
    if text.lstrip().startswith("<"):
        text = re.sub(_TAG, " ", text)
    return in_short(text, MAX_EXCERPT)


# The order of a conversation


def merge_turns(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages without blank replies; what a person said several times in a row is one."""
    asked: User | None = None
    for message in messages:
        if isinstance(message, User):
            if asked is not None:
                texts = filter(None, (_with_texts(asked), _with_texts(message)))
                pictures = (file for file in (*asked.files, *message.files) if file.data is not None)
                message = User(text="\n\n".join(texts), files=tuple(pictures))
            asked = message
        elif not is_blank(message):
            if asked is not None:
                yield asked
                asked = None
            yield message
    if asked is not None:
        yield asked


def is_blank(message: Message) -> bool:
    """Return whether a reply has neither text nor calls."""
    return isinstance(message, Assistant) and not message.calls and not message.text.strip()


# Pieces of a reply in their order, with signatures (Anthropic, Gemini)


Piece = tuple[str | Call | None, Mapping[str, Any]]
"""A text, a call or neither, and what was kept of it."""


def pieces_in_order(message: Assistant, order: Any) -> list[Piece] | None:
    """Return the pieces of a message as they came; None where it is not the message that `order` is of."""
    pieces: list[Piece] = []
    calls = iter(message.calls)
    at = 0
    for kept in order if isinstance(order, list | tuple) else ():
        if not isinstance(kept, Mapping):
            return None
        length, gap = kept.get("text"), kept.get("gap")
        if isinstance(gap, int) and gap >= 0:
            at += gap
        elif isinstance(length, int) and length >= 0:
            pieces.append((message.text[at : at + length], kept))
            at += length
        elif "call" in kept:
            if (call := next(calls, None)) is None:
                return None
            pieces.append((call, kept))
        else:
            pieces.append((None, kept))
    return pieces if at == len(message.text) and next(calls, None) is None else None


def default_order(message: Assistant) -> list[Piece]:
    """Return a text, then calls: what a message is where nothing was kept."""
    return [(message.text, {}), *((call, {}) for call in message.calls)]
