"""What Gemini answers: whole, or some parts at a time."""

from collections.abc import Iterable
from typing import Any

from onetool.ask.messages import Call, Delta, Prompt, Reply, Said, Stop, Thought, Usage
from onetool.ask.providers.gemini_refusals import alone, blocked, error_in
from onetool.ask.providers.reading import a_count, a_list, a_name, a_text, an_object, arguments, in_words
from onetool.ask.providers.room import room_for_text, room_for_thoughts
from onetool.formats import ProviderNames

NAME = "gemini"
SIGNATURE = "thoughtSignature"

_STOPS: dict[str, Stop] = {
    "STOP": "end",  # "tools", where there are any
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "refused",
    "RECITATION": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "IMAGE_SAFETY": "refused",
    "IMAGE_PROHIBITED_CONTENT": "refused",
    "IMAGE_RECITATION": "refused",
}


class StreamReader:
    """Reads one streamed answer, or a whole one as its only event."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._parts: list[_Part] = []
        self._usage: dict[str, Any] = {}
        self._ending: dict[str, Any] = {}
        self._room, self._room_for_thoughts = room_for_text(), room_for_thoughts()
        self.has_candidate = False
        self.has_ended = False  # there is no word for it here

    def feed(self, event: Any) -> Iterable[Delta]:
        event = an_object(alone(event), "an answer")
        if "error" in event:
            raise error_in(event)
        feedback = an_object(event.get("promptFeedback"), "promptFeedback")
        if feedback.get("blockReason"):
            raise blocked(feedback)
        usage = an_object(event.get("usageMetadata"), "usageMetadata")
        self._usage |= {key: value for key, value in usage.items() if value is not None}
        candidates = a_list(event.get("candidates"), "candidates")
        return self._heard(an_object(candidates[0], "a candidate")) if candidates else ()

    @property
    def is_complete(self) -> bool:
        return bool(self._ending)

    def reply(self) -> Reply:
        names = self._prompt.tools.names(NAME)
        texts: list[str] = []
        calls: list[Call] = []
        order: list[dict[str, Any]] = []
        for part in self._parts:
            kept: dict[str, Any] = {"signature": part.signature} if part.signature else {}
            text = "".join(part.texts)
            if part.call is not None:
                calls.append(_call(part.call, names))
                order.append({"call": True, **kept})
            elif not part.is_thought:
                texts.append(text)
                order.append({"text": len(text), **kept})
            elif kept:
                order.append({"thought": text, **kept})
        is_signed = any("signature" in piece for piece in order)
        stop, why = _stop(self._ending, bool(calls))
        return Reply(
            text="".join(texts),
            calls=tuple(calls),
            stop=stop,
            why=why,
            usage=_usage(self._usage),
            kept={"model": self._prompt.model, "order": order} if is_signed else {},
        )

    def _heard(self, candidate: dict[str, Any]) -> Iterable[Delta]:
        self.has_candidate = True
        finish = a_text(candidate.get("finishReason"), "finishReason")
        if self._ending and self._parts and not finish:
            return ()  # after the end; where each piece bears one, or the first bore one for nothing, it goes on
        content = an_object(candidate.get("content"), "content")
        heard: list[Delta] = []
        for part in a_list(content.get("parts"), "parts"):
            heard += self._add(an_object(part, "a part"))
        if finish:
            self._ending = candidate
        return heard

    def _add(self, given: dict[str, Any]) -> list[Delta]:
        """A part, or some more of the one before it."""
        signature = self._room_for_thoughts.take(a_text(given.get(SIGNATURE), SIGNATURE))
        if given.get("functionCall") is not None:
            self._parts.append(_Part(call=an_object(given["functionCall"], "functionCall"), signature=signature))
            return []
        text = a_text(given.get("text"), "text")
        if not text and not signature:
            return []  # kinds of parts that nobody asked for
        is_thought = given.get("thought") is True
        (self._room_for_thoughts if is_thought else self._room).take(text)
        last = self._parts[-1] if self._parts else None
        if last and not signature and not last.signature and last.call is None and last.is_thought == is_thought:
            last.texts.append(text)
        else:
            self._parts.append(_Part(is_thought=is_thought, signature=signature))
            self._parts[-1].texts.append(text)
        return ([Thought(text)] if is_thought else [Said(text)]) if text else []


class _Part:
    """One part of an answer. A signature is of exactly what it came with."""

    def __init__(self, call: dict[str, Any] | None = None, is_thought: bool = False, signature: str = "") -> None:
        self.call = call
        self.is_thought = is_thought
        self.signature = signature
        self.texts: list[str] = []


def _call(given: dict[str, Any], names: ProviderNames) -> Call:
    name = a_name(given.get("name"))
    args, malformed = arguments(given.get("args"))
    id = a_text(given.get("id"), "the id of a functionCall")
    return Call(id=id, name=names.from_provider(name) or name, args=args, malformed=malformed)


def _stop(ending: dict[str, Any], has_calls: bool) -> tuple[Stop, str]:
    reason = a_text(ending.get("finishReason"), "finishReason")
    stop = _STOPS.get(reason, "other") if reason else "end"
    if has_calls and stop in ("end", "other"):  # whatever word a server has for it
        return "tools", ""
    if stop == "end":
        return stop, ""
    if stop == "length":
        return stop, ""
    said = (reason, ending.get("finishMessage"))
    return stop, ": ".join(in_words(word) for word in said if isinstance(word, str) and word)


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input=a_count(usage.get("promptTokenCount")) + a_count(usage.get("toolUsePromptTokenCount")),
        output=a_count(usage.get("candidatesTokenCount")) + a_count(usage.get("thoughtsTokenCount")),
        cached=a_count(usage.get("cachedContentTokenCount")),
    )
