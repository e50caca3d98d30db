"""An answer of a server that speaks OpenAI's API, in pieces or whole, as it adds up."""

from collections.abc import Iterable, Iterator
from typing import Any

from onetool.ask.messages import Call, Delta, Prompt, Reply, Said, Stop, Thought, Usage
from onetool.ask.providers.openai_calls import Calls
from onetool.ask.providers.openai_refusals import error_in
from onetool.ask.providers.reading import a_count, a_list, a_text, an_object, as_json, garbled, in_words
from onetool.ask.providers.room import room_for_text, room_for_thoughts

THOUGHTS = ("reasoning_content", "reasoning")  # what servers call thoughts; OpenAI itself does not tell them
KEPT = (*THOUGHTS, "reasoning_details", "extra_content")
GROWING = ("text", "summary", "data")  # what comes in pieces, of OpenRouter's blocks of thoughts

_DONE = "[DONE]"
_STOPS: dict[str, Stop] = {
    "": "end",
    "stop": "end",
    "end_turn": "end",
    "eos": "end",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "refused",
}


class StreamReader:
    """Reads the events of one answer."""

    def __init__(self, prompt: Prompt) -> None:
        self._sum = Sum(prompt)
        self.has_ended = False

    def feed(self, event: Any) -> Iterable[Delta]:
        if self.has_ended:
            return ()
        if isinstance(event, str):
            if event.strip() not in ("", _DONE):
                raise garbled(f"an event is no JSON: {in_words(event)}")
            self.has_ended = bool(event.strip())
            return ()
        return self._sum.take(an_object(event, "an event"))

    @property
    def is_complete(self) -> bool:
        return self.has_ended or bool(self._sum.finish)

    def reply(self) -> Reply:
        return self._sum.reply()


class Sum:
    """What was said so far."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details = _Details()
        self._extra: Any = None
        self._room, self._room_for_thoughts = room_for_text(), room_for_thoughts()
        self._calls = Calls(self._room_for_thoughts)
        self._usage = Usage()
        self.finish = ""
        self.is_empty = True

    def take(self, data: dict[str, Any]) -> list[Delta]:
        """One event, or the whole answer. Of several choices the first counts: no more were wanted."""
        if error := error_in(data):
            raise error
        self._count(data.get("usage"))
        choices = a_list(data.get("choices"), "choices")
        if not choices:
            return []
        choice = an_object(choices[0], "choices[0]")
        if choice.get("index"):
            return []
        if error := error_in(choice):
            raise error
        finish = a_text(choice.get("finish_reason"), "finish_reason")
        if self._is_over and not finish:
            return []
        is_whole = "message" in choice and "delta" not in choice
        name = "message" if is_whole else "delta"
        self.is_empty = self.is_empty and choice.get(name) is None
        deltas = list(self._heard(an_object(choice.get(name), f"choices[0].{name}"), is_whole))
        self.finish = finish or self.finish
        return deltas

    @property
    def _is_over(self) -> bool:
        """What comes after a reason to finish is not part of the answer. Some servers give one with each piece, and
        some give one before they begin: these have not finished."""
        return bool(self.finish) and bool(self._text or self._refusal or self._calls)

    def reply(self) -> Reply:
        calls = tuple(self._calls.read(self._prompt))
        stop = _STOPS.get(self.finish, "other")
        refusal = "".join(self._refusal)
        if calls and stop not in ("length", "refused"):
            stop = "tools"
        elif refusal:
            stop = "refused"
        elif stop == "tools":
            stop = "other"
        why = in_words(refusal or self.finish) if stop in ("refused", "other") else ""
        text = "".join(self._text)
        return Reply(text=text, calls=calls, stop=stop, why=why, usage=self._usage, kept=self._kept(calls))

    def _heard(self, said: dict[str, Any], is_whole: bool) -> Iterator[Delta]:
        thoughts = next((key for key in THOUGHTS if isinstance(said.get(key), str) and said[key]), None)
        if thoughts:
            self._thoughts.setdefault(thoughts, []).append(self._room_for_thoughts.take(said[thoughts]))
            yield Thought(said[thoughts])
        for delta in _content(said.get("content")):
            if isinstance(delta, Said):
                self._text.append(self._room.take(delta.text))
            yield delta
        if refusal := a_text(said.get("refusal"), "refusal"):
            self._refusal.append(self._room.take(refusal))
        for item in a_list(said.get("tool_calls"), "tool_calls"):
            self._calls.take(an_object(item, "a tool call"), is_whole)
        if said.get("function_call"):  # the older form of the only call
            self._calls.take({"index": 0, "function": said["function_call"]}, is_whole)
        if isinstance(details := said.get("reasoning_details"), list) and details:
            self._room_for_thoughts.take(as_json(details))
            self._details.take(details)
        if extra := said.get("extra_content"):
            self._room_for_thoughts.take(as_json(extra))
            self._extra = extra

    def _kept(self, calls: tuple[Call, ...]) -> dict[str, Any]:
        """What the same model wants to see again. Who another one is, its name tells: many servers speak this API."""
        kept: dict[str, Any] = {key: "".join(parts) for key, parts in self._thoughts.items()}
        details = self._details.read()
        kept |= {"reasoning_details": details} if details else {}
        kept |= {"extra_content": self._extra} if self._extra else {}
        return {"model": self._prompt.model, **kept} if kept or any(call.kept for call in calls) else {}

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, dict) or not usage:
            return
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        self._usage = Usage(
            input=a_count(usage.get("prompt_tokens")),
            output=a_count(usage.get("completion_tokens")),
            cached=a_count(cached) or a_count(usage.get("prompt_cache_hit_tokens")),  # the latter: DeepSeek
        )


def _content(content: Any) -> Iterator[Delta]:
    """A text; or a list of parts, as Mistral's models that think send it."""
    if not isinstance(content, list):
        if text := a_text(content, "content"):
            yield Said(text)
        return
    for part in content:
        part = an_object(part, "a part of the content")
        if text := a_text(part.get("text"), "a part of the content"):
            yield Said(text)
        thinking = part.get("thinking")
        for thought in thinking if isinstance(thinking, list) else [{"text": thinking}]:
            if isinstance(thought, dict) and isinstance(thought.get("text"), str) and thought["text"]:
                yield Thought(thought["text"])


class _Details:
    """OpenRouter's blocks of thoughts, which come in pieces too, and want to be seen again as wholes."""

    def __init__(self) -> None:
        self._all: list[Any] = []
        self._grown: dict[str, list[str]] = {}  # of the last one, what has come in pieces

    def take(self, pieces: list[Any]) -> None:
        for piece in pieces:
            last = self._all[-1] if self._all else None
            if isinstance(piece, dict) and isinstance(last, dict) and _is_more_of(piece, last):
                self._add(piece, last)
            else:
                self._end()
                self._all.append(dict(piece) if isinstance(piece, dict) else piece)

    def read(self) -> list[Any]:
        self._end()
        return self._all

    def _add(self, piece: dict[str, Any], last: dict[str, Any]) -> None:
        for key, value in piece.items():
            if key in GROWING and isinstance(value, str) and isinstance(before := last.get(key), str):
                self._grown.setdefault(key, [before]).append(value)
            elif value is not None:
                last[key] = value
                self._grown.pop(key, None)

    def _end(self) -> None:
        for key, parts in self._grown.items():
            self._all[-1][key] = "".join(parts)
        self._grown = {}


def _is_more_of(piece: dict[str, Any], last: dict[str, Any]) -> bool:
    return piece.get("index") is not None and all(piece.get(key) == last.get(key) for key in ("type", "index"))
