"""What was said and done, as Anthropic's API takes it.

Its models think, and want their thoughts back in place, but only behind exactly what stood before them: a thought
behind anything else is refused, and the whole request with it. So each is kept with a fingerprint of what it followed,
and left out where that has changed (older messages are gone, there are other tools, another model is asked).
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking
"""

from collections import deque
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from onetool.ask.messages import Assistant, Call, Prompt, Result, User
from onetool.ask.providers.reading import as_json, with_files
from onetool.ask.providers.shared import LEFT_OUT, in_order, usual_order
from onetool.ask.providers.turns import is_blank
from onetool.core.halves import mended

NAME = "anthropic"

# Of the last prompts: the reply to one needs it again, and to write and hash a long history takes a while.
_fingerprints: deque[tuple[Prompt, str]] = deque(maxlen=8)


class History:
    """The messages as the API takes them: people and models in turns, all results of a turn in one message."""

    def __init__(self, prompt: Prompt) -> None:
        self.messages: list[dict[str, Any]] = []
        self._names = prompt.tools.names(NAME)
        tools = bytes(prompt.tools.written(NAME)) if prompt.offers_tools else b""
        self._seen = sha256(msgspec.json.encode([prompt.model, mended(prompt.system)]) + tools)
        for message in prompt.messages:
            if is_blank(message):
                continue
            if isinstance(message, Assistant):
                self._add("assistant", self._said(message))
            else:
                self._add("user", [_result(message)] if isinstance(message, Result) else _asked(message))
        _fingerprints.append((prompt, self.fingerprint))

    @property
    def fingerprint(self) -> str:
        """Of all that has been written so far, and of what stands before it."""
        return self._seen.hexdigest()[:32]

    def _add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        if blocks and role == "assistant" and not self.messages:
            self._add("user", [text_block(LEFT_OUT)])
        for block in blocks:
            self._seen.update(msgspec.json.encode([role, block]))
            if self.messages and self.messages[-1]["role"] == role:
                self.messages[-1]["content"].append(block)
            else:
                self.messages.append({"role": role, "content": [block]})

    def _said(self, message: Assistant) -> list[dict[str, Any]]:
        pieces = None
        if message.provider == NAME and message.kept.get("after") == self.fingerprint:
            pieces = in_order(message, message.kept.get("order"))
        blocks: list[dict[str, Any]] = []
        for what, kept in pieces or usual_order(message):
            if isinstance(what, Call):
                blocks.append(self._call(what))
            elif what is None and isinstance(kept.get("thought"), Mapping):
                blocks.append(dict(kept["thought"]))
            elif what and what.strip():  # the API refuses blank texts
                blocks.append(text_block(what))
        return blocks

    def _call(self, call: Call) -> dict[str, Any]:
        given = msgspec.Raw(as_json(dict(call.args)).encode())
        return {"type": "tool_use", "id": call.id, "name": self._names.to_provider(call.name), "input": given}


def fingerprint_of(prompt: Prompt) -> str:
    known = next((fingerprint for one, fingerprint in tuple(_fingerprints) if one is prompt), None)
    return known or History(prompt).fingerprint


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": mended(text)}


def _result(result: Result) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call, "content": mended(result.content)}
    if not result.ok:
        block["is_error"] = True
        block["content"] = block["content"] or "The call failed."  # an empty one is refused here
    return block


def _asked(user: User) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for file in user.files:
        if file.data is not None:
            source = {"type": "base64", "media_type": file.kind, "data": file.data}
            blocks.append({"type": "image", "source": source})
    said = with_files(user)
    return [*blocks, text_block(said)] if said.strip() else blocks
