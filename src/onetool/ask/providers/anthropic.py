"""Anthropic's Messages API: https://platform.claude.com/docs/en/api/messages."""

from typing import Any, Literal

from onetool.ask.errors import ModelError
from onetool.ask.messages import Assistant, Prompt, Reply
from onetool.ask.providers import Reader, Request
from onetool.ask.providers.anthropic_history import NAME, History, text_block
from onetool.ask.providers.anthropic_refusals import error_in, refusal
from onetool.ask.providers.anthropic_stream import StreamReader, reply_of
from onetool.ask.providers.reading import a_list, an_object, garbled, in_words

VERSION = "2023-06-01"  # not the newest: that one knows no temperature, and few other servers know it
MOST_TOKENS = 32_000  # the API wants a number. All its models take this, and what they think counts too
CACHED = {"type": "ephemeral"}  # what stands up to here costs a tenth when it is sent again within minutes


class Anthropic:
    name = NAME
    base_url = "https://api.anthropic.com"
    model = "claude-sonnet-5-5"
    key = "ANTHROPIC_API_KEY"
    stream: Literal["events", "lines"] = "events"

    def headers(self, key: str | None) -> list[tuple[str, str]]:
        return [*([("x-api-key", key)] if key else []), ("anthropic-version", VERSION)]

    def request(self, prompt: Prompt, stream: bool) -> Request:
        body: dict[str, Any] = {
            "model": prompt.model,
            "max_tokens": prompt.max_tokens or MOST_TOKENS,
            "messages": _with_cache(History(prompt).messages),
            "stream": stream,
            **_tools(prompt),
        }
        if prompt.system.strip():  # kept at hand together with the tools, which come before it
            body["system"] = [{**text_block(prompt.system), "cache_control": CACHED}]
        if prompt.temperature is not None:
            body["temperature"] = prompt.temperature
        return Request("/v1/messages", body)

    def reply(self, body: Any, prompt: Prompt) -> Reply:
        message = an_object(body, "the answer")
        if message.get("type") == "error":
            raise error_in(message)
        if not isinstance(message.get("content"), list):
            raise garbled(f"there is no message in it: {in_words(body)}")
        blocks = [an_object(block, "a block of `content`") for block in message["content"]]
        return reply_of(blocks, message, an_object(message.get("usage"), "usage"), prompt)

    def reader(self, prompt: Prompt) -> Reader:
        return StreamReader(prompt)

    def failure(self, status: int, body: Any) -> ModelError:
        return refusal(status, body)

    def models_request(self) -> Request:
        return Request("/v1/models?limit=1000")

    def models(self, body: Any) -> list[str]:
        body = an_object(body, "the list of models")
        if "data" not in body:
            raise garbled(f"there is no list of models in it: {in_words(body)}")
        listed = a_list(body["data"], "data")
        found = [model for model in listed if isinstance(model, dict) and isinstance(model.get("id"), str)]
        found = [model for model in found if model.get("lifecycle") != "retired"]
        found.sort(key=lambda model: str(model.get("created_at") or ""), reverse=True)
        found.sort(key=lambda model: model.get("lifecycle") == "deprecated")
        return [model["id"] for model in found]


ADAPTER = Anthropic()


def _with_cache(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The next step begins with all that is in this one: it is to be at hand by then."""
    if messages and messages[-1]["role"] == "user":
        content = messages[-1]["content"]
        content[-1] = {**content[-1], "cache_control": CACHED}
    return messages


def _tools(prompt: Prompt) -> dict[str, Any]:
    """At the limit of steps there are none. In a session that goes on without tools, those called before are named."""
    if prompt.tools:
        return {"tools": prompt.tools.written(NAME)} if prompt.may_call else {}
    names = prompt.tools.names(NAME)
    called = [call.name for said in prompt.messages if isinstance(said, Assistant) for call in said.calls]
    gone = [
        {"name": name, "description": "Not there any more.", "input_schema": {"type": "object"}}
        for name in dict.fromkeys(map(names.to_provider, called))
    ]
    return {"tools": gone, "tool_choice": {"type": "none"}} if gone else {}
