"""Gemini's API, as Google AI Studio's keys open it: https://ai.google.dev/api/generate-content.

Parts of an answer can bear a signature of the thoughts behind them, which has to come back on the same part. Since
Gemini 3 a call that has none is refused; for calls that another model made, there is a word to say so.
"""

import re
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from onetool.ask.errors import ModelError
from onetool.ask.messages import Assistant, Call, Message, Prompt, Reply, Result
from onetool.ask.providers import Reader, Request
from onetool.ask.providers.gemini_refusals import refusal
from onetool.ask.providers.gemini_stream import NAME, SIGNATURE, StreamReader
from onetool.ask.providers.reading import a_list, an_object, as_json, garbled, in_words, with_files
from onetool.ask.providers.shared import LEFT_OUT, Piece, in_order, usual_order
from onetool.ask.providers.turns import is_blank
from onetool.core.halves import mended

NO_SIGNATURE = "skip_thought_signature_validator"  # https://ai.google.dev/gemini-api/docs/thought-signatures#faqs

_UNSIGNED = re.compile(r"gemini-[12]\D|gemma|learnlm", re.IGNORECASE)  # models that ask for no signatures


class Gemini:
    name = NAME
    base_url = "https://generativelanguage.googleapis.com"
    model = "gemini-flash-latest"
    key = "GEMINI_API_KEY"
    stream: Literal["events", "lines"] = "events"

    def headers(self, key: str | None) -> list[tuple[str, str]]:
        return [("x-goog-api-key", key)] if key else []

    def request(self, prompt: Prompt, stream: bool) -> Request:
        body: dict[str, Any] = {"contents": _contents(prompt)}
        if prompt.system.strip():
            body["systemInstruction"] = {"parts": [{"text": mended(prompt.system)}]}
        if prompt.offers_tools:
            body["tools"] = prompt.tools.written(NAME)
        settings = {"temperature": prompt.temperature, "maxOutputTokens": prompt.max_tokens}
        if settings := {key: value for key, value in settings.items() if value is not None}:
            body["generationConfig"] = settings
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return Request(f"/v1beta/models/{quote(_plain(prompt.model), safe='')}:{verb}", body)

    def reply(self, body: Any, prompt: Prompt) -> Reply:
        reader = StreamReader(prompt)
        reader.feed(body)
        if not reader.has_candidate:
            raise garbled(f"there is no candidate in it: {in_words(body)}")
        return reader.reply()

    def reader(self, prompt: Prompt) -> Reader:
        return StreamReader(prompt)

    def failure(self, status: int, body: Any) -> ModelError:
        return refusal(status, body)

    def models_request(self) -> Request:
        return Request("/v1beta/models?pageSize=1000")

    def models(self, body: Any) -> list[str]:
        body = an_object(body, "the list of models")
        if body and "models" not in body:  # an empty list is left out
            raise garbled(f"there is no list of models in it: {in_words(body)}")
        listed = a_list(body.get("models"), "models")
        return [
            _plain(model["name"])
            for model in listed
            if isinstance(model, dict)
            and isinstance(model.get("name"), str)
            and isinstance(model.get("supportedGenerationMethods"), list)
            and "generateContent" in model["supportedGenerationMethods"]
        ]


ADAPTER = Gemini()


def _plain(model: str) -> str:
    """The list of models has them as `models/NAME`, and people copy that."""
    return model.removeprefix("models/")


# What goes


def _contents(prompt: Prompt) -> list[dict[str, Any]]:
    """What was said and done. Results stand alone: they are counted against the calls right before them."""
    contents: list[dict[str, Any]] = []
    last: type | None = None
    for message in prompt.messages:
        role = "model" if isinstance(message, Assistant) else "user"
        parts = [] if is_blank(message) else _parts(message, prompt)
        if not parts:
            continue
        if role == "model" and not contents:
            contents.append({"role": "user", "parts": [{"text": LEFT_OUT}]})
        if type(message) is last:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
        last = type(message)
    return contents


def _parts(message: Message, prompt: Prompt) -> list[dict[str, Any]]:
    if isinstance(message, Assistant):
        return _said(message, prompt)
    if isinstance(message, Result):
        name = prompt.tools.names(NAME).to_provider(message.name)
        response = {"output" if message.ok else "error": mended(message.content)}
        return [{"functionResponse": {"id": message.call, "name": name, "response": response}}]
    data = [{"inlineData": {"mimeType": f.kind, "data": f.data}} for f in message.files if f.data is not None]
    said = with_files(message)
    return [*data, {"text": said}] if said.strip() else data


def _said(message: Assistant, prompt: Prompt) -> list[dict[str, Any]]:
    pieces: list[Piece] | None = None
    if message.provider == NAME and message.kept.get("model") == prompt.model:
        pieces = in_order(message, message.kept.get("order"))
    names = prompt.tools.names(NAME)
    parts: list[dict[str, Any]] = []
    for what, kept in pieces or usual_order(message):
        signature = kept.get("signature")
        signed = {SIGNATURE: signature} if isinstance(signature, str) else {}
        if isinstance(what, Call):
            given = msgspec.Raw(as_json(dict(what.args)).encode())
            call = {"id": what.id, "name": names.to_provider(what.name), "args": given}
            parts.append({"functionCall": call, **signed})
        elif isinstance(thought := kept.get("thought"), str):
            parts.append({"text": mended(thought), "thought": True, **signed})
        elif what or signed:
            parts.append({"text": mended(what or ""), **signed})
    calls = [part for part in parts if "functionCall" in part]
    if calls and not any(SIGNATURE in part for part in calls) and not _UNSIGNED.match(_plain(prompt.model)):
        calls[0][SIGNATURE] = NO_SIGNATURE
    return parts
