"""An answer of a server that speaks OpenAI's API, in pieces or whole, as it adds up."""

from collections.abc import Iterable, Iterator
from typing import Any

from onetool.ask.messages import Call, Delta, Prompt, Reply, Said, Stop, Thought, Usage
from onetool.ask.providers.openai_refusals import error_in
from onetool.ask.providers.reading import a_count, a_list, a_text, an_object, arguments, as_json, garbled, in_words

NAME = "openai"
THOUGHTS = ("reasoning_content", "reasoning")  # what servers call thoughts; OpenAI itself does not tell them
KEPT = (*THOUGHTS, "reasoning_details", "extra_content")
KEPT_OF_CALLS = ("extra_content", "provider_specific_fields")  # signatures of Gemini's thoughts, say

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
        self._is_done = False

    def feed(self, event: Any) -> Iterable[Delta]:
        if self._is_done:
            return ()
        if isinstance(event, str):
            if event.strip() not in ("", _DONE):
                raise garbled(f"an event is no JSON: {in_words(event)}")
            self._is_done = bool(event.strip())
            return ()
        return self._sum.take(an_object(event, "an event"))

    @property
    def is_complete(self) -> bool:
        return self._is_done or bool(self._sum.finish)

    def reply(self) -> Reply:
        return self._sum.reply()


class Sum:
    """What was said so far."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details: list[Any] = []
        self._extra: Any = None
        self._calls = _Calls()
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
        is_whole = "message" in choice and "delta" not in choice
        name = "message" if is_whole else "delta"
        self.is_empty = self.is_empty and choice.get(name) is None
        deltas = list(self._heard(an_object(choice.get(name), f"choices[0].{name}"), is_whole))
        self.finish = a_text(choice.get("finish_reason"), "finish_reason") or self.finish
        return deltas

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
        why = refusal or self.finish if stop in ("refused", "other") else ""
        text = "".join(self._text)
        return Reply(text=text, calls=calls, stop=stop, why=why, usage=self._usage, kept=self._kept(calls))

    def _heard(self, said: dict[str, Any], is_whole: bool) -> Iterator[Delta]:
        thoughts = next((key for key in THOUGHTS if isinstance(said.get(key), str) and said[key]), None)
        if thoughts:
            self._thoughts.setdefault(thoughts, []).append(said[thoughts])
            yield Thought(said[thoughts])
        for delta in _content(said.get("content")):
            if isinstance(delta, Said):
                self._text.append(delta.text)
            yield delta
        self._refusal.append(a_text(said.get("refusal"), "refusal"))
        for item in a_list(said.get("tool_calls"), "tool_calls"):
            self._calls.take(an_object(item, "a tool call"), is_whole)
        if said.get("function_call"):  # the older form of the only call
            self._calls.take({"index": 0, "function": said["function_call"]}, is_whole)
        if isinstance(said.get("reasoning_details"), list):
            _add(said["reasoning_details"], self._details)
        self._extra = said.get("extra_content") or self._extra

    def _kept(self, calls: tuple[Call, ...]) -> dict[str, Any]:
        """What the same model wants to see again. Who another one is, its name tells: many servers speak this API."""
        kept: dict[str, Any] = {key: "".join(parts) for key, parts in self._thoughts.items()}
        kept |= {"reasoning_details": self._details} if self._details else {}
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


def _add(pieces: list[Any], details: list[Any]) -> None:
    """OpenRouter's blocks of thoughts, which come in pieces too, and want to be seen again as wholes."""
    for piece in pieces:
        last = details[-1] if details else None
        if not (isinstance(piece, dict) and isinstance(last, dict) and _is_more_of(piece, last)):
            details.append(dict(piece) if isinstance(piece, dict) else piece)
            continue
        for key, value in piece.items():
            grows = key in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(key), str)
            if value is not None:
                last[key] = last[key] + value if grows else value


def _is_more_of(piece: dict[str, Any], last: dict[str, Any]) -> bool:
    return piece.get("index") is not None and all(piece.get(key) == last.get(key) for key in ("type", "index"))


class _Pieces:
    """One call, as far as it has come."""

    def __init__(self) -> None:
        self.id = self.name = ""
        self.kept: dict[str, Any] = {}
        self._args: list[str] = []

    def take(self, id: str, name: str, args: str, item: dict[str, Any]) -> None:
        self.id = self.id or id
        if name != self.name and not self._args:  # some repeat it with every piece
            self.name += name
        if args:
            self._args.append(args)
        self.kept |= {key: item[key] for key in KEPT_OF_CALLS if item.get(key)}

    def arguments(self) -> tuple[dict[str, Any], str | None]:
        return arguments("".join(self._args))

    @property
    def is_whole(self) -> bool:
        return bool(self._args) and self.arguments()[1] is None


class _Calls:
    """The calls of one answer. Pieces belong together by index; many servers count wrongly, or not at all."""

    def __init__(self) -> None:
        self._all: list[_Pieces] = []
        self._last: dict[int | None, _Pieces] = {}  # of each index, and of all (None)
        self._ids: dict[tuple[int | None, str], _Pieces] = {}

    def take(self, item: dict[str, Any], is_whole: bool) -> None:
        function = an_object(item.get("function"), "the function of a tool call")
        id, name = a_text(item.get("id"), "the id of a call"), a_text(function.get("name"), "the name of a call")
        args = function.get("arguments")
        text = args if isinstance(args, str) else "" if args is None else as_json(args)
        index = item.get("index")
        index = index if isinstance(index, int) else None
        call = None if is_whole else self._goes_on(index, id, name)
        if call is None:
            call = _Pieces()
            self._all.append(call)
        call.take(id, name, text, item)
        self._last[index] = self._last[None] = call
        self._ids[index, call.id] = self._ids[None, call.id] = call

    def _goes_on(self, index: int | None, id: str, name: str) -> _Pieces | None:
        """The call that this is a piece of, unless another one begins."""
        last = self._last.get(index)
        if last is None or (not id and not name):
            return last
        if id and last.id:
            return self._ids.get((index, id))
        if not name or not last.name:
            return last
        # Nothing but a name: it is repeated, or the next call begins, which is told by what has come of the last one.
        return None if index is None or last.is_whole or name != last.name else last

    def read(self, prompt: Prompt) -> Iterator[Call]:
        names = prompt.tools.names(NAME)
        for call in self._all:
            args, malformed = call.arguments()
            name = names.from_provider(call.name) or call.name
            yield Call(id=call.id, name=name, args=args, malformed=malformed, kept=call.kept)
