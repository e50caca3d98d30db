"""What a server answered -> plain data: structuredContent, else JSON in text, else text. And the answer as it came.

Pictures, sounds, blobs and links are stored, and a handle with their type stands for them: code that passes one on need
not carry it, and a model does not read it by accident. What shows results may put the picture back.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.core.answer import Answer, Block, Sent
from onetool.core.blob import Keep, stored
from onetool.core.errors import ToolFailure
from onetool.core.json_bounds import data_in
from onetool.core.wrapper import RESULT

if TYPE_CHECKING:
    from mcp_types import CallToolResult

LONGEST_ERROR = 2_000
MOST_STORED = 200


def answer_of(result: "CallToolResult", keep: Keep, wraps: bool = False) -> Answer:
    """Both of it. A result that says of itself that it is an error is one.

    `wraps`: its structured content is a wrapper, by the tool's own schema.
    """
    if result.is_error:
        raise ToolFailure(_error_text(result))
    if sum(block.type != "text" for block in result.content) > MOST_STORED:
        raise ToolFailure(f"it gave more than {MOST_STORED} pictures, sounds, blobs or links at once")
    content = [block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in result.content]
    structured = result.structured_content
    value = _in_blocks(content, keep) if structured is None else unwrapped(structured) if wraps else structured
    return Answer(value, Sent(content, structured))


def unwrapped(structured: Any) -> Any:
    """What is in a wrapper; anything else as it is, which does not fit the schema then."""
    if not isinstance(structured, dict) or structured.keys() != {RESULT}:
        return structured
    inner = structured[RESULT]
    return data_in(inner) if isinstance(inner, str) else inner


def _in_blocks(content: list[Block], keep: Keep) -> Any:
    values = [_block(block, keep) for block in content]
    return None if not values else values[0] if len(values) == 1 else values


def is_light(result: "CallToolResult") -> bool:
    """Whether nothing of it has to be stored."""
    return result.structured_content is not None or all(block.type == "text" for block in result.content)


def _error_text(result: "CallToolResult") -> str:
    words = "\n".join(block.text for block in result.content if block.type == "text").strip()
    return words[:LONGEST_ERROR] or "the server says that it failed, and nothing else"


def _block(block: Mapping[str, Any], keep: Keep) -> Any:
    match block:
        case {"type": "text", "text": text}:
            return data_in(text)
        case {"type": "image" | "audio" as kind, "data": data, "mimeType": mime}:
            return stored(kind, data, mime, keep)
        case {"type": "resource", "resource": {"blob": data, **about}}:
            return stored("blob", data, about.get("mimeType"), keep) | {"uri": about["uri"]}
        case {"type": "resource", "resource": inside}:
            return {"type": "resource", **inside}
        case {"type": "resource_link"}:
            kept = keep(msgspec.json.encode(block).decode())
            return {**block, "handle": kept.handle}
        case _:
            return block
