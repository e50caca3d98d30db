"""A provider with an API of its own: just enough of one to see what is sent and read."""

import asyncio

from onetool.ask.errors import ModelError
from onetool.ask.messages import ModelPrompt, ModelReply, TextDelta, ThoughtDelta, User
from onetool.ask.model_client import ModelClient
from onetool.ask.providers import ProviderRequest, adapter
from onetool.http.client import HttpClient

PATIENCE = 60
KEY = "sk-very-secret-0123456789"
PROMPT = ModelPrompt(model="m1", messages=(User(text="hi"),))
REASONS = {401: "unauthorized", 402: "quota", 404: "model_not_found", 413: "too_long", 429: "rate_limited"}


class FakeReader:
    def __init__(self):
        self.said, self.is_complete, self.has_ended, self.fed = [], False, False, []

    def feed(self, event):
        self.fed.append(event)
        if event == "[DONE]":
            self.has_ended = True
            return
        if "error" in event:
            raise ModelError(event["error"], "overloaded", again=event.get("again", True), wait=event.get("wait"))
        if "think" in event:
            yield ThoughtDelta(event["think"])
        if "say" in event:
            self.said.append(event["say"])
            yield TextDelta(event["say"])
        self.is_complete = self.is_complete or event.get("done", False)

    def reply(self):
        return ModelReply(text="".join(self.said))


class Fake:
    def __init__(self, name="openai", stream="events", base_url="https://own.example/v1", model="m0"):
        self.name, self.stream, self.base_url, self.model = name, stream, base_url, model
        self.rank = adapter(name).rank
        self.models_path = "/api/tags" if name == "ollama" else "/models"
        self.readers = []

    def headers(self, key):
        return [("Authorization", f"Bearer {key}")] if key else []

    def request(self, prompt, stream):
        return ProviderRequest("/chat", {"model": prompt.model, "text": prompt.messages[0].text, "stream": stream})

    def reply(self, body, prompt):
        return ModelReply(text=body["say"])

    def reader(self, prompt):
        self.readers.append(FakeReader())
        return self.readers[-1]

    def failure(self, status, body):
        words = body["error"] if isinstance(body, dict) else str(body)
        reason = REASONS.get(status, "overloaded" if status >= 500 else "bad_request")
        return ModelError(f"it answered {status}: {words}"[:500], reason, again=status == 429 or status >= 500)

    def models(self, body):
        return body["models"]


class Pauses(list):
    """In place of waiting."""

    async def __call__(self, seconds):
        self.append(seconds)


def model_at(base_url, adapter=None, key=KEY, client=None, name="m1", **more):
    more = {"sleep": Pauses(), "chance": lambda: 1.0, "timeout": PATIENCE} | more
    return ModelClient(adapter or Fake(), name, base_url, key, client or HttpClient(), **more)


async def listen(model, stream=True, prompt=PROMPT):
    return [one async for one in model.ask(prompt, stream)]


def run(work):
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


def heard(model, stream=True, prompt=PROMPT):
    return run(listen(model, stream, prompt))
