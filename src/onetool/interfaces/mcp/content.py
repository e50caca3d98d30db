"""Convert results and errors of tools to content blocks: text, images, audio, resources and links."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from msgspec.structs import replace

from onetool.core.call import ServerResult, ToolResult
from onetool.core.errors import ToolFailure
from onetool.core.json_data import Block, ServerAnswer
from onetool.core.mcp_protocol import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    MISSING_CAPABILITY,
    PAGE_REQUIRED,
    UNSUPPORTED_VERSION,
    JsonRpcError,
)
from onetool.core.spec import ToolSpec
from onetool.core.structured_content import HANDLE, RESULT
from onetool.http.asgi import encode
from onetool.script.render import (
    RenderTooLargeError,
    RunReply,
    error_text,
    not_stored_text,
    render,
    sendable,
    stored_reply,
)
from onetool.services.results import is_handle

if TYPE_CHECKING:
    from onetool.app.runtime import Runtime
    from onetool.services.results import StoredResult

MEDIA_TYPES = ("image", "audio", "blob", "resource_link")
EMBEDDED = {"type", "uri", "text", "mimeType", "_meta"}
MAX_NESTING = 10  # lists and objects around a block
_DATA_URL = re.compile(r"data:([^;,]{1,200});base64,([A-Za-z0-9+/=]*)")
_BLOCK_TYPE = re.compile(rf'"type": ?"(?:text|resource|{"|".join(MEDIA_TYPES)})"')

Read = Callable[[str], str]
"""Reads the text of a handle, for the caller of the running call."""


async def content_blocks(value: Any, read: Read) -> list[Block] | None:
    """Return the content blocks of a value that consists of blocks; None for data."""
    if not isinstance(value, dict | list | tuple) or not _BLOCK_TYPE.search(as_json(value)):  # true for most values
        return None
    return await asyncio.to_thread(blocks_of, value, read)


def blocks_of(value: Any, read: Read) -> list[Block] | None:
    """Return the content blocks of a value; None for data.

    A value is content if its lists and objects contain an image, audio, a resource or a link, or if it consists only of
    text blocks and strings. Data next to the blocks becomes text.
    """
    if _has_media(value):
        return list(_flattened(value, read))
    return _texts(value)


def _has_media(value: Any, levels: int = MAX_NESTING, in_object: bool = False) -> bool:
    """Return whether the value contains a block. Records in objects don't count: code may need their handles."""
    if is_block(value):
        return value["type"] != "text"
    if not in_object and (_is_record(value) or _is_embedded(value)):
        return True
    if not isinstance(value, dict | list | tuple) or not levels:
        return False
    inside, in_object = (value.values(), True) if isinstance(value, dict) else (value, in_object)
    return any(_has_media(one, levels - 1, in_object) for one in inside)


def _texts(value: Any) -> list[Block] | None:
    """Return the blocks of a list of text blocks and strings, at least one of them a block. None for other values."""
    items = list(_items(value))
    if not any(map(is_block, items)) or not all(isinstance(one, str) or is_block(one) for one in items):
        return None
    return [text_block(one) if isinstance(one, str) else one for one in items]


def _items(value: Any, levels: int = MAX_NESTING) -> Iterator[Any]:
    if not isinstance(value, list | tuple) or not levels:
        yield value
        return
    for one in value:
        yield from _items(one, levels - 1)


def _flattened(value: Any, read: Read, in_object: bool = False) -> Iterator[Block]:
    if not _has_media(value, in_object=in_object):
        yield from _texts(value) or [text_block(value if isinstance(value, str) else as_json(value))]
    elif is_block(value):
        yield value
    elif _is_embedded(value) or _is_record(value):
        yield _media_block(value, read)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _flattened(one, read, in_object)
    else:
        content = {key: one for key, one in value.items() if _has_media(one, in_object=True)}
        if data := {key: one for key, one in value.items() if key not in content}:
            yield text_block(as_json(data))
        for one in content.values():
            yield from _flattened(one, read, in_object=True)


def media_in(text: str) -> tuple[str, str] | None:
    """Return the type and the base64 of stored text that represents bytes; None for other text."""
    found = _DATA_URL.fullmatch(text) if text.startswith("data:") else None
    return None if found is None else (found[1], found[2])


def _is_record(item: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(item, dict) or item.get("type") not in MEDIA_TYPES:
        return False
    return is_handle(item.get("handle"))


def _is_embedded(item: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether the item is an embedded text resource: other data may also have the type `resource`."""
    if not isinstance(item, dict) or item.get("type") != "resource" or not {"uri", "text"} <= item.keys() <= EMBEDDED:
        return False
    return all(isinstance(part, str) for key, part in item.items() if key != "_meta")


def _media_block(item: dict[str, Any], read: Read) -> Block:
    if _is_embedded(item):
        return {"type": "resource", "resource": {key: part for key, part in item.items() if key != "type"}}
    if item["type"] == "resource_link":
        return {key: part for key, part in item.items() if key != "handle"}
    try:
        media = media_in(read(item["handle"]))
    except ToolFailure:  # it has expired
        media = None
    if media is None:
        return text_block(as_json(item))
    mime, data = media
    if item["type"] == "blob":
        uri = str(item.get("uri") or f"{RESULTS}{item['handle']}")
        return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "blob": data}}
    return {"type": item["type"], "data": data, "mimeType": mime}


# Content blocks

RESULTS = "ot://results/"
MAX_WHOLE_BYTES = 4 * 1024**2  # of a result for a client that wants it in full; larger results are stored
NOTES = ("warnings", "rate_limit", "tries")  # keys of a result's meta, sent as `onetool/warnings` …
LINKS_SINCE = "2025-06-18"  # the first revision with links
# Codes about a client's own connection, or that ask to open a page: not passed on from servers.
OF_CONNECTION = (HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION, PAGE_REQUIRED)

# The required and optional members of each type of block. Values of these shapes are shown as blocks.
_BLOCKS: Mapping[str, tuple[Mapping[str, type], Mapping[str, type]]] = {
    "text": ({"text": str}, {}),
    "image": ({"data": str, "mimeType": str}, {}),
    "audio": ({"data": str, "mimeType": str}, {}),
    "resource": ({"resource": dict}, {}),
    "resource_link": ({"uri": str, "name": str}, {"title": str, "description": str, "mimeType": str, "size": int}),
}
_ALWAYS = {"type": str, "annotations": dict, "_meta": dict}
_EMBEDDED = ({"uri": str, "text": str}, {"uri": str, "blob": str})

Result = dict[str, Any]
Promise = Literal["object", "open", "wrapper"] | None
"""The structured content of a response: the value; the value unless it is content (no listed schema); or a wrapper."""
ReadOn = Callable[[str, int], str]


def is_block(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(kind := value.get("type"), str) or kind not in _BLOCKS:
        return False
    needed, further = _BLOCKS[kind]
    if not _fits(value, needed, {**further, **_ALWAYS}):
        return False
    inside = value.get("resource", {})
    return kind != "resource" or any(_fits(inside, one, {"mimeType": str, "_meta": dict}) for one in _EMBEDDED)


def _fits(value: Mapping[str, Any], needed: Mapping[str, type], further: Mapping[str, type]) -> bool:
    """Return whether a block has all required members, no unknown ones, and the right types, as clients require."""
    known = {**further, **needed}
    return needed.keys() <= value.keys() <= known.keys() and all(type(value[key]) is known[key] for key in value)


def text_block(words: str) -> Block:
    return {"type": "text", "text": words}


def from_reply(reply: RunReply, with_link: bool) -> Result:
    """Return the response with a reply. The link is optional, because some clients refuse results with links."""
    content = [text_block(reply.text)]
    if reply.stored is not None and with_link:
        content.append(stored_link(reply.stored))
    return {"content": content, "isError": True} if reply.is_error else {"content": content}


def promise_of(spec: ToolSpec, output_schema: Any) -> Promise:
    """Return the structured content that a tool promises, by its output schema and the listed schema."""
    is_object = spec.structured_schema is not None or (spec.output_schema or {}).get("type") == "object"
    if output_schema is None:
        return "open" if is_object else None
    return "object" if is_object else "wrapper"


async def from_result(
    result: ToolResult, runtime: "Runtime", is_whole: bool, read_on: ReadOn, promise: Promise = None
) -> Result:
    """Return the response with a tool's result. `promise` is the structured content that the tool promises.

    Results larger than the limit for one response are stored; with `is_whole` the limit is MAX_WHOLE_BYTES.
    """
    inline_bytes = runtime.config.results.inline_bytes
    if is_whole:
        inline_bytes = max(inline_bytes, MAX_WHOLE_BYTES)
    if isinstance(result, ServerResult):
        answer = await _from_server(result, inline_bytes, runtime, read_on, promise)
    elif result.error is not None:
        answer = {"content": [text_block(error_text(result.error))], "isError": True}
    elif (
        isinstance(result.data, dict | list | tuple)
        and (blocks := await content_blocks(result.data, runtime.read_result)) is not None
    ):
        # Clients refuse a response without the structured content that a listed schema promises.
        promised = {"object": result.data, "wrapper": {RESULT: result.data}}
        answer = _with({"content": blocks}, promised.get(promise or ""))
    else:
        answer = await _from_data(result, inline_bytes, runtime, read_on, promise)
    return answer if result.meta.keys().isdisjoint(NOTES) else with_notes(answer, result)


async def _from_data(
    result: ToolResult, inline_bytes: int, runtime: "Runtime", read_on: ReadOn, promise: Promise
) -> Result:
    if promise == "open" and not isinstance(result.data, dict):  # a value may differ from a document's schema
        promise = None
    text, is_json = _data_text(result)
    # A character has at most four bytes, so most values need no exact count.
    if len(text) > inline_bytes // 4:
        # Shorten a page of a stored result that is too large to send.
        page = sendable(result.data, len(text.encode(errors="replace")), inline_bytes)
        if page is not None:
            result = replace(result, data=page)
            text, is_json = _data_text(result)
    answer: Result = {"content": [{"type": "text", "text": text}]}
    if promise in ("object", "open"):  # these clients read the data; the text is for others
        answer["structuredContent"] = result.data
    elif len(text) > inline_bytes // 4 and len(text.encode(errors="replace")) > inline_bytes:
        return await _stored(text, result.data, runtime, read_on, bool(promise), is_json)
    elif promise:
        answer["structuredContent"] = {RESULT: result.data}
    return answer


def with_notes(answer: Result, result: ToolResult) -> Result:
    """Add notes on the call to the `_meta` of the response."""
    notes = {f"onetool/{key}": result.meta[key] for key in NOTES if result.meta.get(key)}
    return {**answer, "_meta": {**answer.get("_meta", {}), **notes}} if notes else answer


def _with(answer: Result, structured: Any) -> Result:
    return answer if structured is None else {**answer, "structuredContent": structured}


async def _from_server(
    result: ServerResult, inline_bytes: int, runtime: "Runtime", read_on: ReadOn, promise: Promise
) -> Result:
    """Return the response from an MCP server. Errors get hints about their cause."""
    sent, error = result.sent(), result.error
    answer = await _as_sent(sent, result.data, inline_bytes, runtime, read_on, None if error else promise)
    if error is not None:
        finding = [text_block("\n".join(error.hints))] if error.hints else []
        answer = {**answer, "content": [*answer["content"], *finding], "isError": True}
    return {**answer, "_meta": sent.meta} if sent.meta else answer


def protocol_error(result: ServerResult) -> JsonRpcError | None:
    """Return the JSON-RPC error that an MCP server sent, for a client that called the server's tool by name."""
    if result.error is None or (error := result.sent().error) is None:
        return None
    if error["code"] in OF_CONNECTION:
        return JsonRpcError(INTERNAL_ERROR, error["message"])
    data, hints = error.get("data"), result.error.hints
    if hints and (data is None or isinstance(data, dict)):
        data = {**(data or {}), "onetool/hints": hints}
    return JsonRpcError(error["code"], error["message"], data)


async def _as_sent(
    sent: ServerAnswer, value: Any, inline_bytes: int, runtime: "Runtime", read_on: ReadOn, promise: Promise
) -> Result:
    """Return the response from an MCP server unchanged. Stores large parts, unless the tool promises them."""
    content, structured = sent.content, sent.structured
    if promise == "wrapper":
        return {"content": content, "structuredContent": {RESULT: value}}
    if promise == "object":
        return {"content": content, "structuredContent": value if structured is None else structured}
    texts = [block["text"] for block in content if block["type"] == "text"]
    others = [block for block in content if block["type"] != "text"]
    result: Result = {"content": content}
    if sum(len(text.encode(errors="replace")) for text in texts) > inline_bytes:
        result = await _stored("\n".join(texts), value, runtime, read_on)
        result["content"] += others
    if structured is None:
        return result
    data = as_json(structured)
    if len(data.encode(errors="replace")) <= inline_bytes:
        return {**result, "structuredContent": structured}
    if result["content"] is not content:
        return result
    try:  # the structured content is too large to send with the content
        stored = await asyncio.to_thread(runtime.store_result, data, is_json=True)
    except ToolFailure as failure:
        return _too_large(failure)
    text = f"The structured content is large and was stored. Read it with: {read_on(stored.handle, 1)}"
    links = [stored_link(stored)] if runtime.config.results.link else []
    return {"content": [*content, text_block(text), *links]}


async def _stored(
    text: str, value: Any, runtime: "Runtime", read_on: ReadOn, wrapped: bool = False, is_json: bool = False
) -> Result:
    """Store text and the value that it represents. With `is_json`, the text is the value's JSON."""
    try:
        stored = await asyncio.to_thread(runtime.store_result, text, value, is_json)
        reply = stored_reply(text, stored, value, read_on, runtime.config.results.max_preview)
        return _with(from_reply(reply, runtime.config.results.link), {HANDLE: stored.handle} if wrapped else None)
    except ToolFailure as failure:
        return _too_large(failure)


def _too_large(failure: ToolFailure) -> Result:
    return {"content": [text_block(not_stored_text(failure))], "isError": True}


def _data_text(result: ToolResult) -> tuple[str, bool]:
    """Return data as JSON; data of `ot` as YAML in flow style, like results of code.

    The second value says whether the text is JSON.
    """
    if isinstance(result.data, str):
        return result.data, False
    if not str(result.meta.get("tool")).startswith("ot."):
        return as_json(result.data), True
    try:
        return render(result.data, flow=True), False
    except RenderTooLargeError:
        return as_json(result.data), False


def for_revision(result: Result, revision: str) -> Result:
    """Return the result for a client of that revision: older clients get resource links as text."""
    if revision >= LINKS_SINCE or not any(block["type"] == "resource_link" for block in result["content"]):
        return result
    content = [
        text_block(f"{block['name']}: {block['uri']}") if block["type"] == "resource_link" else block
        for block in result["content"]
    ]
    return {**result, "content": content}


def stored_link(stored: "StoredResult") -> Block:
    return {
        "type": "resource_link",
        "uri": f"{RESULTS}{stored.handle}",
        "name": f"result-{stored.handle[:8]}",
        "description": "the whole result",
        "mimeType": "text/plain",
        "size": stored.size,
    }


def as_json(value: Any) -> str:
    try:
        return encode(value).decode()
    except (ValueError, RecursionError):
        return json.dumps(f"a value ({type(value).__name__}) that can't be written as JSON")
