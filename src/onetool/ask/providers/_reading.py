"""Functions for all adapters: checks of types and sizes, refusals, and the order of a conversation.

Many servers implement an API only roughly: any member may be missing, null or of another type. Missing members are read
as empty; a wrong type raises a ModelError (garbled) that names the member. Models send far less than the size limits; a
server that exceeds them is broken or hostile.

Many servers, and the chat templates of many models, refuse two user messages in a row. Anthropic and Gemini require
thoughts and signatures in their original order.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from onetool.ask.errors import ModelError, Reason
from onetool.ask.messages import Assistant, Call, Message, ModelReply, User, fenced, on_one_line
from onetool.core.json_data import JsonTooCostlyError
from onetool.core.limits import MIB
from onetool.core.mismatch import PYTHON_TYPES, TYPES, described
from onetool.core.text import replace_all_surrogates, replace_surrogates
from onetool.formats import ProviderNames
from onetool.http.body import json_of
from onetool.http.errors import in_short

MAX_TOOL_NAME = 1024  # characters
NO_TOOLS_HINTS = ("choose a model that can call tools (--model)", "or ask without tools: --with-tools=false")

LEFT_OUT_TEXT = "(Earlier messages are left out.)"
"""The first message of a conversation that would begin with the model: both APIs require a user message there."""


class SizeLimit:
    """A limit for the total size of pieces in bytes. Raises ModelError when it is exceeded."""

    def __init__(self, most: int, what: str) -> None:
        self._left = self._most = most
        self._what = what

    def take(self, piece: str) -> str:
        """Return the piece, if it fits."""
        self._left -= len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
        if self._left < 0:
            raise too_large_error(self._most, self._what)
        return piece


text_limit = partial(SizeLimit, 4 * MIB, "a response")
thoughts_limit = partial(SizeLimit, 2 * MIB, "thoughts")  # and signatures to keep
arguments_limit = partial(SizeLimit, MIB, "the arguments of a call")


def too_large_error(most: int, what: str) -> ModelError:
    size = f"{most // MIB} MiB" if most >= MIB else f"{most // 1024} KiB"
    return ModelError(f"the model's API sent {what} of more than {size}", "garbled")


# Reading and writing

MAX_EXCERPT = 500  # characters of a server's message
MAX_EXAMINED = 16 * 1024

# Patterns of refusals are compiled when needed, to keep the import fast.
_TAG = r"(?is)<(style|script)\b.*?</\1\s*>|<[^<>]*>"
_REASONS: dict[int, Reason] = {
    401: "unauthorized",
    402: "quota",
    403: "unauthorized",
    408: "timeout",
    413: "too_long",
    429: "rate_limited",
}
_AGAIN = frozenset((408, 409, 425, 429))

# The wordings of OpenAI and compatible servers, vLLM, llama.cpp, LM Studio, Mistral, Gemini and TGI.
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
    hint = "is base_url the URL of this provider's API?"
    return ModelError(f"the response of the model's API can't be read: {what}", "garbled", [hint])


def an_object(value: Any, where: str) -> dict[str, Any]:
    return _of_type(value, dict, where)


def a_list(value: Any, where: str) -> list[Any]:
    return _of_type(value, list, where)


def listed_models(body: Any, key: str) -> list[dict[str, Any]]:
    """Return the objects in the list of models in the member `key`."""
    found = an_object(body, "the list of models")
    if key not in found:
        raise garbled_error(f"it contains no list of models: {body_text(body)}")
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
    raise garbled_error(f"{where}: expected {TYPES[PYTHON_TYPES[kind]]}, got {described(value)}")


def a_call(names: ProviderNames, id: Any, name: Any, args: Any) -> Call:
    """Return a call with the tool's own name."""
    name = a_name(name)
    read, malformed = arguments(args)
    own_name = names.from_provider(name) or name
    return Call(id=a_text(id, "the id of a call"), name=own_name, args=read, malformed=malformed)


def whole_reply(reader: Any, body: Any) -> ModelReply:
    """Read a whole answer like an event of a stream. Raises ModelError (garbled)."""
    reader.feed(body)
    if reader.is_empty:
        raise garbled_error(f"it contains no message: {body_text(body)}")
    return reader.reply()


def a_count(value: Any) -> int:
    """Return a number of tokens; 0 if it is missing or invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def arguments(value: Any) -> tuple[dict[str, Any], str | None]:
    """Return the arguments of a call, and their text if it isn't an object. An empty string means no arguments."""
    text = value if isinstance(value, str) else "" if value is None else as_json(value)
    arguments_limit().take(text)
    if isinstance(value, dict):
        return value, None
    if not text.strip():
        return {}, None
    read = _json(text)
    if isinstance(read, str):  # some servers encode JSON twice
        read = _json(read)
    return (read, None) if isinstance(read, dict) else ({}, text)


def _json(text: str) -> Any:
    try:
        return json_of(text.encode())
    except (msgspec.MsgspecError, JsonTooCostlyError, UnicodeError):
        return None


# Writing


def as_json(value: Any) -> str:
    """Return data from a model or session as JSON that every server accepts."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # a lone surrogate, a key that isn't a string …
        return json.dumps(replace_all_surrogates(value), default=str, skipkeys=True)


def with_files(user: User) -> str:
    """Return the text of a user message, with the text of its files and the names of its pictures.

    Tools that send files refer to an attached file by name.
    """
    names = ", ".join(on_one_line(file.name) for file in user.files if file.data is not None)
    return "\n\n".join(filter(None, (_with_texts(user), f"Attached pictures: {names}" if names else "")))


def _with_texts(user: User) -> str:
    files = (f"File {on_one_line(file.name)}:\n{fenced(file.text)}" for file in user.files if file.text is not None)
    return replace_surrogates("\n\n".join(filter(None, (user.text, *files))))


# Refusals


def reason_of_status(status: int) -> tuple[Reason, bool]:
    """Return the reason for a status without details, and whether a retry may help."""
    if status >= 500:
        return "overloaded", status not in (501, 505)
    return _REASONS.get(status, "bad_request"), status in _AGAIN


def is_too_long(message: str) -> bool:
    return re.search(_TOO_LONG, message) is not None


def window_in(message: str) -> int | None:
    """Return the context window in tokens, if a refusal states it."""
    found = re.search(_WINDOW, message)
    return int((found[1] or found[2]).replace(",", "")[:12]) or None if found else None


def has_no_tools(message: str) -> bool:
    """Return whether the refusal means that the model, or its server's configuration, can't call tools."""
    return re.search(_NO_TOOLS, message) is not None


def body_text(body: Any) -> str:
    """Return the text of a body on one line: JSON unchanged, HTML without tags."""
    text = body[:MAX_EXAMINED] if isinstance(body, str) else "" if body is None else as_json(body)
    if text.lstrip().startswith("<"):
        text = re.sub(_TAG, " ", text)
    return in_short(text, MAX_EXCERPT)


# The order of a conversation


def merge_turns(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages without blank replies, merging consecutive user messages."""
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


# Pieces of a reply in order, with signatures (Anthropic, Gemini)

Piece = tuple[str | Call | None, Mapping[str, Any]]
"""A text, a call or neither, and its kept data."""


def pieces_in_order(message: Assistant, order: Any) -> list[Piece] | None:
    """Return the pieces of a message in their original order; None if `order` doesn't match the message."""
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
    """Return the text, then the calls: the order of a message without kept data."""
    return [(message.text, {}), *((call, {}) for call in message.calls)]
