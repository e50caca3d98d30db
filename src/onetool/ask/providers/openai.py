"""The adapter of OpenAI's Chat Completions API, and of compatible servers: vLLM, LM Studio, OpenRouter, llama.cpp,
Mistral, DeepSeek, Gemini's compatible API …

The servers refuse different requests, and can't be identified; where this matters, the model's name decides.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from onetool.ask.errors import ModelError
from onetool.ask.messages import Message, ModelPrompt, ModelReply, Result, User
from onetool.ask.providers import Adapter, ProviderRequest
from onetool.ask.providers._openai_replies import (
    KEPT_CALL_MEMBERS,
    KEPT_MEMBERS,
    NAME,
    OpenAIStreamReader,
    error_from_body,
    error_from_status,
)
from onetool.ask.providers._reading import as_json, listed_models, merge_turns, whole_reply, with_files
from onetool.core.text import replace_surrogates

# Inserted between results and the next user message. Mistral's models require an answer there, on any server and under
# any name, and other models accept one. Some servers refuse an empty answer.
UNANSWERED = "(No answer yet.)"

# Names used only by OpenAI. (gpt-oss, which anyone may serve, has no number.)
_OPENAIS = re.compile(r"(?:ft:)?(?:gpt-(\d+)(?:\.(\d+))?|o\d|chatgpt-)")
_MISTRALS = re.compile(r"(?:open-|labs-)?(?:mi[sx]tral|ministral|magistral|codestral|devstral|pixtral)-")
_NO_CHAT = (
    r"(?i)embed|whisper|\btts\b|dall-e|moderation|realtime|transcribe|-audio|gpt-image|\bsora\b|babbage|davinci"
    r"|rerank|turbo-instruct"
)


class OpenAI(Adapter):
    name = NAME
    base_url = "https://api.openai.com/v1"
    model = "gpt-5.4-mini"  # small, general, and calls tools over this API, unlike some newer models
    models_path = "/models"
    rank = 1
    reader = OpenAIStreamReader

    def request(self, prompt: ModelPrompt, stream: bool) -> ProviderRequest:
        body: dict[str, Any] = {"model": prompt.model, "messages": list(_messages(prompt))}
        if prompt.offers_tools:
            body["tools"] = prompt.tools.written(NAME)
            found = _OPENAIS.match(prompt.model)
            if found is not None and (int((found[1] or "0")[:4]), int((found[2] or "0")[:4])) >= (5, 6):
                # Since GPT-5.6, OpenAI's models only call tools over this API with reasoning disabled.
                body["reasoning_effort"] = "none"
        if prompt.temperature is not None:
            body["temperature"] = prompt.temperature
        if prompt.max_tokens is not None:
            # Newer models of OpenAI refuse `max_tokens`; many other servers only accept that.
            body["max_completion_tokens" if _OPENAIS.match(prompt.model) else "max_tokens"] = prompt.max_tokens
        if stream:
            body["stream"] = True
            # Mistral's own API refuses the option, and sends the usage without it.
            body |= {} if _MISTRALS.match(prompt.model) else {"stream_options": {"include_usage": True}}
        return ProviderRequest("/chat/completions", body)

    def reply(self, body: Any, prompt: ModelPrompt) -> ModelReply:
        return whole_reply(OpenAIStreamReader(prompt), body)

    def failure(self, status: int, body: Any) -> ModelError:
        return error_from_status(status, body)

    def models(self, body: Any) -> list[str]:
        if isinstance(body, dict) and (error := error_from_body(body)):
            raise error
        listed = listed_models({"data": body} if isinstance(body, list) else body, "data")
        known = [one for one in listed if isinstance(one.get("id"), str)]
        able = [one for one in known if _can_chat(one)]
        able.sort(key=lambda one: made if isinstance(made := one.get("created"), int | float) else 0, reverse=True)
        return [one["id"] for one in able]


ADAPTER = OpenAI()


# Differences between models


def _can_chat(model: Mapping[str, Any]) -> bool:
    can = model.get("capabilities")  # from Mistral
    if isinstance(can, dict) and can.get("completion_chat") is False:
        return False
    made = model.get("architecture")  # from OpenRouter
    gives = made.get("output_modalities") if isinstance(made, dict) else None
    if isinstance(gives, list) and "text" not in gives:
        return False
    return bool(model["id"]) and not re.search(_NO_CHAT, model["id"])


# The messages of a request


def _messages(prompt: ModelPrompt) -> Iterator[dict[str, Any]]:
    if prompt.system:
        yield {"role": "system", "content": replace_surrogates(prompt.system)}
    last: Message | None = None
    for message in merge_turns(prompt.messages):
        if isinstance(message, User) and isinstance(last, Result):
            yield {"role": "assistant", "content": UNANSWERED}
        yield _message(message, prompt)
        last = message


def _message(message: Message, prompt: ModelPrompt) -> dict[str, Any]:
    if isinstance(message, User):
        text = with_files(message)
        pictures = [
            {"type": "image_url", "image_url": {"url": f"data:{file.kind};base64,{file.data}"}}
            for file in message.files
            if file.data is not None
        ]
        if not pictures:  # servers of models without vision often accept plain text only
            return {"role": "user", "content": text}
        return {"role": "user", "content": [*([{"type": "text", "text": text}] if text else []), *pictures]}
    if isinstance(message, Result):
        content = replace_surrogates(message.content)
        return {"role": "tool", "tool_call_id": _id(message.call, prompt), "content": content}
    is_own = message.provider == NAME and message.kept.get("model") == prompt.model
    fields: dict[str, Any] = {"role": "assistant", "content": replace_surrogates(message.text) or None}
    if message.calls:
        fields["tool_calls"] = calls = []
        for call in message.calls:
            name = prompt.tools.names(NAME).to_provider(call.name)
            function = {"name": name, "arguments": "{}" if call.malformed else as_json(call.args)}
            kept = {key: call.kept[key] for key in KEPT_CALL_MEMBERS if key in call.kept} if is_own else {}
            calls.append({"id": _id(call.id, prompt), "type": "function", "function": function, **kept})
    if is_own:
        fields |= {key: message.kept[key] for key in KEPT_MEMBERS if key in message.kept}
    return fields


def _id(id: str, prompt: ModelPrompt) -> str:
    """Return an id that the server accepts: Mistral's own API requires nine letters and digits."""
    if not _MISTRALS.match(prompt.model) or (len(id) == 9 and id.isalnum()):
        return id
    from hashlib import sha256

    return sha256(id.encode()).hexdigest()[:9]
