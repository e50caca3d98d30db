"""The adapter of Ollama's own API. Its OpenAI-compatible API can't set the size of the context window."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from onetool.ask.errors import ModelError
from onetool.ask.messages import (
    Call,
    Delta,
    Message,
    ModelPrompt,
    ModelReply,
    Result,
    Stop,
    TextDelta,
    ThoughtDelta,
    Usage,
    User,
)
from onetool.ask.providers import Adapter, ProviderRequest
from onetool.ask.providers._reading import (
    NO_TOOLS_HINTS,
    a_call,
    a_count,
    a_list,
    a_text,
    an_object,
    as_json,
    body_text,
    has_no_tools,
    is_too_long,
    listed_models,
    merge_turns,
    reason_of_status,
    text_limit,
    thoughts_limit,
    whole_reply,
    window_in,
    with_files,
)
from onetool.core.text import count_tokens, replace_surrogates

NAME = "ollama"
MIN_WINDOW = 8192  # tokens
ROOM = 4096  # tokens for an answer and its thoughts

_STOPS: dict[str, Stop] = {"": "end", "stop": "end", "length": "length"}
# Compiled when needed, to keep the import fast.
_NOT_FOUND = r"""(?i)\bmodel (?:["']?([\w./:-]+)["']?|.*?) not found"""
_TOO_LARGE = r"(?i)requires more system memory|out of memory"
_USED_UP = r"(?i)usage limit|quota"
_BAD_CALL = r"(?i)error parsing tool call"  # Ollama couldn't parse the model's call: a retry may help


class LineReader:
    """A reader of the lines of one answer. A whole answer is a single line."""

    def __init__(self, prompt: ModelPrompt) -> None:
        self._prompt = prompt
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[Call] = []
        self._stop = ""
        self._usage = Usage()
        self._text_limit, self._thoughts_limit = text_limit(), thoughts_limit()
        self.has_ended = False
        self.is_empty = True

    def feed(self, event: Any) -> Iterable[Delta]:
        if self.has_ended:
            return ()
        line = an_object(event, "a line of the answer")
        if line.get("error"):
            error_text = _error_text(line)
            status = line.get("status_code")  # from Ollama's cloud
            raise _refusal(
                a_count(status) or 500,
                error_text,
                f"Ollama reported an error: {error_text}",
            )
        message = an_object(line.get("message"), "message")
        self.is_empty = self.is_empty and not message
        deltas = list(self._read_message(message))
        if line.get("done") is True:
            self.has_ended = True
            self._stop = a_text(line.get("done_reason"), "done_reason")
            self._usage = Usage(input=a_count(line.get("prompt_eval_count")), output=a_count(line.get("eval_count")))
        return deltas

    @property
    def is_complete(self) -> bool:
        return self.has_ended

    def reply(self) -> ModelReply:
        stop = _STOPS.get(self._stop, "other")
        if self._calls and stop != "length":
            stop = "tools"
        thoughts = "".join(self._thoughts)
        return ModelReply(
            text="".join(self._text),
            calls=tuple(self._calls),
            stop=stop,
            why=body_text(self._stop) if stop == "other" else "",
            usage=self._usage,
            kept={"model": self._prompt.model, "thinking": thoughts} if thoughts else {},
        )

    def _read_message(self, message: dict[str, Any]) -> Iterator[Delta]:
        if thought := a_text(message.get("thinking"), "message.thinking"):
            self._thoughts.append(self._thoughts_limit.take(thought))
            yield ThoughtDelta(thought)
        if text := a_text(message.get("content"), "message.content"):
            self._text.append(self._text_limit.take(text))
            yield TextDelta(text)
        for item in a_list(message.get("tool_calls"), "message.tool_calls"):
            call = an_object(item, "a tool call")
            function = an_object(call.get("function"), "the function of a tool call")
            names = self._prompt.tools.names(NAME)
            self._calls.append(a_call(names, call.get("id"), function.get("name"), function.get("arguments")))


class Ollama(Adapter):
    name = NAME
    base_url = "http://127.0.0.1:11434"
    model = None  # any installed model
    models_path = "/api/tags"
    rank = None
    stream = "lines"
    reader = LineReader

    def request(self, prompt: ModelPrompt, stream: bool) -> ProviderRequest:
        messages = [{"role": "system", "content": replace_surrogates(prompt.system)}] if prompt.system else []
        messages += [_message(message, prompt) for message in merge_turns(prompt.messages)]
        options: dict[str, Any] = {"num_ctx": prompt.context_tokens or _window(prompt, messages)}
        if prompt.temperature is not None:
            options["temperature"] = prompt.temperature
        if prompt.max_tokens is not None:
            options["num_predict"] = prompt.max_tokens
        body: dict[str, Any] = {"model": prompt.model, "messages": messages, "stream": stream, "options": options}
        if prompt.offers_tools:
            body["tools"] = prompt.tools.written(NAME)
        return ProviderRequest("/api/chat", body)

    def reply(self, body: Any, prompt: ModelPrompt) -> ModelReply:
        return whole_reply(LineReader(prompt), body)

    def failure(self, status: int, body: Any) -> ModelError:
        error_text = _error_text(body)
        return _refusal(status, error_text, f"Ollama answered {status}: {error_text or '(nothing)'}")

    def models(self, body: Any) -> list[str]:
        names = [one.get("model") or one.get("name") for one in listed_models(body, "models") if _can_chat(one)]
        return [name for name in names if isinstance(name, str)]  # newest first


ADAPTER = Ollama()


# The messages of a request


def _message(message: Message, prompt: ModelPrompt) -> dict[str, Any]:
    names = prompt.tools.names(NAME)
    if isinstance(message, User):
        pictures = [file.data for file in message.files if file.data is not None]
        return {"role": "user", "content": with_files(message)} | ({"images": pictures} if pictures else {})
    if isinstance(message, Result):  # older versions match by name
        call = {"tool_name": names.to_provider(message.name), "tool_call_id": message.call}
        return {"role": "tool", "content": replace_surrogates(message.content), **call}
    fields: dict[str, Any] = {"role": "assistant", "content": replace_surrogates(message.text)}
    if message.provider == NAME and message.kept.get("model") == prompt.model and "thinking" in message.kept:
        fields["thinking"] = message.kept["thinking"]
    if message.calls:
        fields["tool_calls"] = calls = []
        for call in message.calls:
            args = msgspec.Raw(as_json({} if call.malformed else call.args).encode())
            calls.append({"id": call.id, "function": {"name": names.to_provider(call.name), "arguments": args}})
    return fields


# The context window


def _window(prompt: ModelPrompt, messages: list[dict[str, Any]]) -> int:
    """Return the window to request, since Ollama truncates silently.

    It is a power of two, because each change reloads the model.
    """
    needed = prompt.tokens
    if needed is None:
        needed = count_tokens(as_json(messages)) + prompt.tools.tokens(NAME)
    needed += max(prompt.max_tokens or 0, ROOM)
    window = MIN_WINDOW
    while window < needed:
        window *= 2
    return window


def _can_chat(model: dict[str, Any]) -> bool:
    can = model.get("capabilities")  # from newer versions
    if isinstance(can, list):
        return "completion" in can
    details = model.get("details")
    family = details.get("family") if isinstance(details, dict) else None
    return not ("bert" in str(family).lower() or "embed" in str(model.get("name")).lower())


# Refusals


def _error_text(body: Any) -> str:
    error = (body.get("error") or body) if isinstance(body, dict) else body
    return body_text((error.get("message") or error) if isinstance(error, dict) else error)


def _refusal(status: int, error_text: str, message: str) -> ModelError:
    missing = re.search(_NOT_FOUND, error_text)
    if missing:
        return ModelError(message, "model_not_found", [f"ollama pull {missing[1] or 'NAME'}"], status=status)
    if has_no_tools(error_text):
        return ModelError(message, "bad_request", NO_TOOLS_HINTS, status=status)
    if is_too_long(error_text):
        return ModelError(message, "too_long", status=status, window=window_in(error_text))
    if re.search(_TOO_LARGE, error_text):
        hints = ("choose a smaller model (--model)", "or a smaller window (ask.context_tokens)")
        return ModelError(message, "bad_request", hints, status=status)
    reason, again = reason_of_status(status)
    if status == 429 and re.search(_USED_UP, error_text):
        reason, again = "quota", False
    if re.search(_BAD_CALL, error_text):
        reason, again = "garbled", True
    hints = ("is base_url right? For Ollama it has no path: http://127.0.0.1:11434",) if status in (404, 405) else ()
    return ModelError(message, reason, hints, status=status, again=again)
