"""What a provider says, as it is kept in `data/`, read by our adapter; and tools that the tests of adapters share."""

import json
from pathlib import Path
from typing import Any

import msgspec

from onetool.ask.messages import Assistant, Message, ModelPrompt, ModelReply, Result, Toolset, User
from onetool.ask.providers import adapter
from onetool.core.spec import ToolSpec

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TIME = ToolSpec(name="time.now", description="What time it is.", input_schema={"type": "object", "properties": {}})
TOOLS = Toolset([TIME, ToolSpec(name="weather", description="The weather.", input_schema=CITY)])
IN_PACKS = Toolset([ToolSpec(name="weather.now", description="The weather in a city.", input_schema=CITY), TIME])
NO_ANSWERS = ("errors.json", "models.json")


class Recorded:
    """The fixtures of one provider. `prompt` is what they answer."""

    def __init__(self, provider: str, model: str) -> None:
        self._folder = Path(__file__).parent / "data" / provider
        self._provider = provider
        self.adapter = adapter(provider)
        question = User(text="How warm is it in Lisbon and Porto?")
        self.prompt = ModelPrompt(model=model, messages=(question,), system="Be brief.", tools=IN_PACKS)
        self.wholes = sorted(path.name for path in self._folder.glob("*.json") if path.name not in NO_ANSWERS)
        self.streams = sorted(path.name for path in self._folder.glob("*.sse"))

    def load(self, name: str) -> Any:
        return json.loads((self._folder / name).read_text())

    def events(self, name: str) -> list[Any]:
        lines = (self._folder / name).read_text().splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]

    def whole(self, name: str, prompt: ModelPrompt | None = None) -> ModelReply:
        return self.adapter.reply(self.load(name), prompt or self.prompt)

    def streamed(self, name: str, prompt: ModelPrompt | None = None) -> tuple[list[Any], ModelReply]:
        reader = self.adapter.reader(prompt or self.prompt)
        deltas = [delta for event in self.events(name) for delta in reader.feed(event)]
        assert reader.is_complete
        return deltas, reader.reply()

    def body(self, prompt: ModelPrompt, stream: bool = True) -> dict[str, Any]:
        """The body as it goes over the wire."""
        return json.loads(msgspec.json.encode(self.adapter.request(prompt, stream).body))

    def after(
        self, reply: ModelReply, *messages: Message, prompt: ModelPrompt | None = None, **changes: Any
    ) -> ModelPrompt:
        """The prompt of the next step: the reply, with ids for its calls, and their results."""
        before = prompt or self.prompt
        calls = tuple(msgspec.structs.replace(call, id=call.id or f"c{n}") for n, call in enumerate(reply.calls))
        said = Assistant(text=reply.text, calls=calls, provider=self._provider, kept=reply.kept)
        results = tuple(Result(call=call.id, name=call.name, content="21") for call in calls)
        return msgspec.structs.replace(before, messages=(*before.messages, said, *results, *messages), **changes)
