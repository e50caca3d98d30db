"""What Anthropic's models answer: whole, or block by block as it comes."""

from collections.abc import Iterable
from typing import Any

from onetool.ask.messages import Call, Delta, Prompt, Reply, Said, Stop, Thought, Usage
from onetool.ask.providers.anthropic_history import NAME, fingerprint_of
from onetool.ask.providers.anthropic_refusals import error_in
from onetool.ask.providers.reading import a_count, a_name, a_text, an_object, arguments, garbled, in_words
from onetool.ask.providers.room import room_for_arguments, room_for_text, room_for_thoughts

_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "end",  # "tools", where there are any
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_THOUGHTS = ("thinking", "redacted_thinking")
_DELTAS = {  # of each the member that has the piece, and the member of the block that it belongs to
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}


class StreamReader:
    """Reads one streamed answer."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._ending: dict[str, Any] = {}
        self._room, self._room_for_thoughts = room_for_text(), room_for_thoughts()
        self.has_ended = False
        self._spoke = -1  # the block of text that spoke last …
        self._said = ""  # … and its last words

    def feed(self, event: Any) -> Iterable[Delta]:
        if self.has_ended:
            return ()
        event = an_object(event, "an event")
        match event.get("type"):
            case "message_start":
                self._count(an_object(event.get("message"), "message"))
            case "content_block_start" | "content_block_delta" | "content_block_stop" if self.is_complete:
                return ()  # it comes after the end
            case "content_block_start":
                block = _Block(an_object(event.get("content_block"), "content_block"))
                self._blocks[_index(event)] = block
                return self._told(_index(event), block.start)
            case "content_block_delta":
                return self._add(_index(event), an_object(event.get("delta"), "delta"))
            case "content_block_stop":
                self._block(_index(event)).is_whole = True
            case "message_delta":
                self._ending |= an_object(event.get("delta"), "delta")
                self._count(event)
            case "message_stop":
                self.has_ended = True
            case "error":
                raise error_in(event)
        return ()  # pings, and events that there were none of when this was written

    @property
    def is_complete(self) -> bool:
        return self.has_ended or isinstance(self._ending.get("stop_reason"), str)

    def reply(self) -> Reply:
        blocks = [block.read() for block in self._blocks.values() if block.is_whole or block.type not in _THOUGHTS]
        return reply_of(blocks, self._ending, self._usage, self._prompt)

    def _count(self, said: dict[str, Any]) -> None:
        usage = an_object(said.get("usage"), "usage")
        self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _block(self, index: int) -> "_Block":
        if index not in self._blocks:
            raise garbled(f"block {index} goes on, and has not begun")
        return self._blocks[index]

    def _add(self, index: int, delta: dict[str, Any]) -> Iterable[Delta]:
        block = self._block(index)
        kind = a_text(delta.get("type"), "delta.type")
        if kind not in _DELTAS:
            return ()
        key, member = _DELTAS[kind]
        piece = a_text(delta.get(key), f"delta.{key}")
        room = {"text": self._room, "input": block.room}.get(member, self._room_for_thoughts)
        block.pieces.setdefault(member, []).append(room.take(piece))
        return self._told(index, {"type": block.type, member: piece})

    def _told(self, index: int, block: dict[str, Any]) -> Iterable[Delta]:
        """What a block, or a piece of one, says to whoever watches."""
        if block.get("type") == "text" and (text := a_text(block.get("text"), "text")):
            gap = "" if index == self._spoke else _gap(self._said, text)
            self._spoke, self._said = index, text
            return (Said(gap + text),)
        if block.get("type") == "thinking" and (text := a_text(block.get("thinking"), "thinking")):
            return (Thought(text),)
        return ()


class _Block:
    """One block of a streamed answer: how it began, and what came to that."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.type = start.get("type")
        self.pieces: dict[str, list[str]] = {}
        self.room = room_for_arguments()
        self.is_whole = False

    def read(self) -> dict[str, Any]:
        block = dict(self.start)
        for member, pieces in self.pieces.items():
            first = block.get(member)
            block[member] = (first if isinstance(first, str) else "") + "".join(pieces)
        return block


def _index(event: dict[str, Any]) -> int:
    if not isinstance(event.get("index"), int):
        raise garbled(f"a {event['type']} has no index")
    return event["index"]


def _gap(before: str, text: str) -> str:
    """What is put between two blocks of text: each is a paragraph of its own, and seldom says so itself."""
    return "\n\n" if before and text and not before[-1].isspace() and not text[0].isspace() else ""


def reply_of(blocks: list[dict[str, Any]], ending: dict[str, Any], usage: dict[str, Any], prompt: Prompt) -> Reply:
    names = prompt.tools.names(NAME)
    room, room_for_kept = room_for_text(), room_for_thoughts()
    said: list[str] = []
    last = ""
    calls: list[Call] = []
    order: list[dict[str, Any]] = []
    for block in blocks:
        if block.get("type") == "text":
            text = a_text(block.get("text"), "text")
            gap = _gap(last, text)
            said += (gap, room.take(text))
            last = text or last
            order += [*([{"gap": len(gap)}] if gap else []), {"text": len(text)}]
        elif block.get("type") == "tool_use":
            name = a_name(block.get("name"))
            args, malformed = arguments(block.get("input"))
            id = a_text(block.get("id"), "the id of a tool_use")
            calls.append(Call(id=id, name=names.from_provider(name) or name, args=args, malformed=malformed))
            order.append({"call": True})
        elif block.get("type") in _THOUGHTS:
            thought = {key: room_for_kept.take(value) for key, value in block.items() if isinstance(value, str)}
            order.append({"thought": thought})
    has_thoughts = any("thought" in piece for piece in order)
    stop, why = _stop(ending, bool(calls))
    return Reply(
        text="".join(said),
        calls=tuple(calls),
        stop=stop,
        why=why,
        usage=_usage(usage),
        kept={"after": fingerprint_of(prompt), "order": order} if has_thoughts else {},
    )


def _stop(ending: dict[str, Any], has_calls: bool) -> tuple[Stop, str]:
    reason = a_text(ending.get("stop_reason"), "stop_reason")
    stop = _STOPS.get(reason, "other") if reason else "end"
    if has_calls and stop in ("end", "other"):
        return "tools", ""
    if stop != "refused":
        return stop, reason if stop == "other" else ""
    details = an_object(ending.get("stop_details"), "stop_details")
    said = (details.get("category"), details.get("explanation"))
    return stop, ": ".join(in_words(word) for word in (reason, *said) if isinstance(word, str) and word)


def _usage(usage: dict[str, Any]) -> Usage:
    cached = a_count(usage.get("cache_read_input_tokens"))
    fresh = a_count(usage.get("input_tokens")) + a_count(usage.get("cache_creation_input_tokens"))
    return Usage(input=fresh + cached, output=a_count(usage.get("output_tokens")), cached=cached)
