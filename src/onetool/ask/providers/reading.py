"""What comes from a provider, read with care, and what goes to one, made sound.

Servers that speak somebody else's API do so more or less: any member may be missing, null or of another type. What is
not there is empty; what can't be meant is a ModelError (garbled) that says where it stood.
"""

import json
import re
from typing import Any

import msgspec

from onetool.ask.errors import ModelError, Reason
from onetool.ask.fences import fenced, on_a_line
from onetool.ask.messages import User
from onetool.ask.providers import room
from onetool.core.halves import all_mended, mended
from onetool.core.json_bounds import TooMuch
from onetool.handlers.http.data import json_of
from onetool.handlers.http.shown import in_short

LONGEST = 500  # characters of what a server says, in a message
LOOKED_AT = 16 * 1024

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


# What comes


def garbled(what: str) -> ModelError:
    """`what` is a sentence without a full stop."""
    hint = "is it really this provider's API that base_url leads to?"
    return ModelError(f"what the model's API sent can't be read: {what}", "garbled", [hint])


def an_object(value: Any, where: str) -> dict[str, Any]:
    return _of_type(value, dict, where)


def a_list(value: Any, where: str) -> list[Any]:
    return _of_type(value, list, where)


def a_text(value: Any, where: str) -> str:
    return _of_type(value, str, where)


def a_name(value: Any) -> str:
    """Of a tool that is called."""
    name = a_text(value, "the name of a call")
    if len(name) > room.NAME:
        raise room.too_much(room.NAME, "the name of a tool")
    return name


def _of_type(value: Any, kind: type, where: str) -> Any:
    if value is None:
        return kind()
    if isinstance(value, kind):
        return value
    raise garbled(f"{where} is {_TYPES.get(type(value), 'something else')}, where {_TYPES[kind]} should be")


def a_count(value: Any) -> int:
    """Of tokens: good to know, but nothing fails for want of it."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def arguments(value: Any) -> tuple[dict[str, Any], str | None]:
    """Those of a call, by name; and what came in their place, where it is no object. Nothing at all means none."""
    text = value if isinstance(value, str) else "" if value is None else as_json(value)
    room.room_for_arguments().take(text)
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
    except (msgspec.MsgspecError, TooMuch, UnicodeError):
        return None


# What goes


def as_json(value: Any) -> str:
    """Data that came from a model, or out of a session, as a text that every server can read."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # half of a character, a key that is no text …
        return json.dumps(all_mended(value), default=str, skipkeys=True)


def with_files(user: User) -> str:
    """What somebody said, and the texts that came with it."""
    files = (f"File {on_a_line(file.name)}:\n{fenced(file.text)}" for file in user.files if file.text is not None)
    return mended("\n\n".join(filter(None, (user.text, *files))))


# Refusals


def of_status(status: int) -> tuple[Reason, bool]:
    """What a status means where nothing more is said, and whether the same may do better in a while."""
    if status >= 500:
        return "overloaded", status not in (501, 505)
    return _REASONS.get(status, "bad_request"), status in _AGAIN


def is_too_long(message: str) -> bool:
    return re.search(_TOO_LONG, message) is not None


def window_in(message: str) -> int | None:
    """How many tokens the model takes, where a refusal says so."""
    found = re.search(_WINDOW, message)
    return int((found[1] or found[2]).replace(",", "")[:12]) or None if found else None


def has_no_tools(message: str) -> bool:
    """Whether the refusal is that this model, or its server as it was started, can't call tools."""
    return re.search(_NO_TOOLS, message) is not None


NO_TOOLS_HINTS = ("choose a model that can call tools (--model)", "or ask without tools: --with-tools=false")


def in_words(body: Any) -> str:
    """What a body says, on one line: JSON as it stands, pages without their tags."""
    text = body[:LOOKED_AT] if isinstance(body, str) else "" if body is None else as_json(body)
    if text.lstrip().startswith("<"):
        text = re.sub(_TAG, " ", text)
    return in_short(text, LONGEST)
